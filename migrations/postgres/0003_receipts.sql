-- Where vendors' webhooks come in. `source_id` is the address that a vendor is given: random, and all
-- that such a delivery names. It is looked up before any tenant is known, so its index stands alone.
CREATE TABLE receipt_sources (
    tenant     text COLLATE "C" NOT NULL,
    name       text COLLATE "C" NOT NULL,
    source_id  uuid NOT NULL,
    revision   integer NOT NULL,
    spec       text NOT NULL,
    -- Sealed; absent where the configuration has the secret.
    secrets    text,
    changed_us bigint NOT NULL,
    changed_by text NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE INDEX receipt_sources_id ON receipt_sources (source_id);

-- Deliveries that were taken and not applied yet, or that a person decided about. The id is computed
-- from what was delivered, so a repeat finds itself. `status`: 1 waits, 2 attached, 3 discarded; a row
-- that was decided keeps no body.
CREATE TABLE quarantine (
    tenant       text COLLATE "C" NOT NULL,
    id           uuid NOT NULL,
    source       text COLLATE "C" NOT NULL,
    status       smallint NOT NULL,
    reason       text NOT NULL,
    body         text,
    body_digest  text NOT NULL,
    facts        text NOT NULL,
    operation_id text,
    attempts     integer NOT NULL,
    next_try_us  bigint,
    received_us  bigint NOT NULL,
    expires_us   bigint NOT NULL,
    decision     text,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, source) REFERENCES receipt_sources (tenant, name),
    CHECK ((status = 1) = (body IS NOT NULL)),
    CHECK ((status = 1) = (decision IS NULL))
);
CREATE INDEX quarantine_status ON quarantine (tenant, status, received_us, id);
CREATE INDEX quarantine_source ON quarantine (tenant, source, status);
CREATE INDEX quarantine_next_try ON quarantine (next_try_us) WHERE next_try_us IS NOT NULL;
CREATE INDEX quarantine_expires ON quarantine (expires_us);
