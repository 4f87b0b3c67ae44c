-- Who is told of events. The journal itself is the outbox: it is written in the transaction of the change.
-- A subscription only keeps how far its messages were made of it.
CREATE TABLE subscriptions (
    tenant          text COLLATE "C" NOT NULL,
    subscription_id uuid NOT NULL,
    revision        integer NOT NULL,
    spec            text NOT NULL,
    secrets         text NOT NULL,
    enabled         boolean NOT NULL,
    -- Why the service itself disabled it.
    reason          text,
    -- Up to this entry messages were made.
    cursor_number   bigint NOT NULL,
    cursor_effect   uuid NOT NULL,
    cursor_revision integer NOT NULL,
    -- Failures in a row, and until when the endpoint is left alone for them.
    failures        integer NOT NULL,
    pause_us        bigint NOT NULL,
    -- When a message is due, as far as is known; and whether so many wait that no more are made.
    next_us         bigint NOT NULL,
    is_full         boolean NOT NULL,
    -- Which replica has it in hand, and until when.
    holder          uuid,
    lease_us        bigint NOT NULL,
    created_us      bigint NOT NULL,
    created_by      text NOT NULL,
    changed_us      bigint NOT NULL,
    PRIMARY KEY (tenant, subscription_id)
) WITH (fillfactor = 80);
CREATE INDEX subscriptions_enabled ON subscriptions (pause_us) WHERE enabled;

-- Messages that are not delivered yet: their bytes are kept, so that every attempt sends the same.
CREATE TABLE deliveries (
    tenant          text COLLATE "C" NOT NULL,
    subscription_id uuid NOT NULL,
    message_id      text COLLATE "C" NOT NULL,
    type            text NOT NULL,
    body            text NOT NULL,
    attempts        integer NOT NULL,
    due_us          bigint NOT NULL,
    created_us      bigint NOT NULL,
    -- What the last attempt came to: a status or a word.
    last_result     text,
    last_us         bigint,
    -- Given up; a person may send it again.
    dead_us         bigint,
    PRIMARY KEY (tenant, subscription_id, message_id)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX deliveries_due ON deliveries (tenant, subscription_id, due_us) WHERE dead_us IS NULL;
CREATE INDEX deliveries_dead ON deliveries (tenant, subscription_id, dead_us, message_id) WHERE dead_us IS NOT NULL;
