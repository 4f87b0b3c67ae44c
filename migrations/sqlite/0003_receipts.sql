-- The same tables as in the Postgres migration of this number; the reasons stand there.
CREATE TABLE receipt_sources (
    tenant     TEXT NOT NULL,
    name       TEXT NOT NULL,
    source_id  BLOB NOT NULL CHECK (length(source_id) = 16),
    revision   INTEGER NOT NULL,
    spec       TEXT NOT NULL,
    secrets    TEXT,
    changed_us INTEGER NOT NULL,
    changed_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;
CREATE INDEX receipt_sources_id ON receipt_sources (source_id);

CREATE TABLE quarantine (
    tenant       TEXT NOT NULL,
    id           BLOB NOT NULL CHECK (length(id) = 16),
    source       TEXT NOT NULL,
    status       INTEGER NOT NULL,
    reason       TEXT NOT NULL,
    body         TEXT,
    body_digest  TEXT NOT NULL,
    facts        TEXT NOT NULL,
    operation_id TEXT,
    attempts     INTEGER NOT NULL,
    next_try_us  INTEGER,
    received_us  INTEGER NOT NULL,
    expires_us   INTEGER NOT NULL,
    decision     TEXT,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, source) REFERENCES receipt_sources (tenant, name),
    CHECK ((status = 1) = (body IS NOT NULL)),
    CHECK ((status = 1) = (decision IS NULL))
) STRICT;
CREATE INDEX quarantine_status ON quarantine (tenant, status, received_us, id);
CREATE INDEX quarantine_source ON quarantine (tenant, source, status);
CREATE INDEX quarantine_next_try ON quarantine (next_try_us) WHERE next_try_us IS NOT NULL;
CREATE INDEX quarantine_expires ON quarantine (expires_us);
