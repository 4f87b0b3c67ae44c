-- The same tables as in the Postgres migration of this number; the reasons stand there.
CREATE TABLE subscriptions (
    tenant          TEXT NOT NULL,
    subscription_id BLOB NOT NULL,
    revision        INTEGER NOT NULL,
    spec            TEXT NOT NULL,
    secrets         TEXT NOT NULL,
    enabled         INTEGER NOT NULL,
    reason          TEXT,
    cursor_number   INTEGER NOT NULL,
    cursor_effect   BLOB NOT NULL,
    cursor_revision INTEGER NOT NULL,
    failures        INTEGER NOT NULL,
    pause_us        INTEGER NOT NULL,
    next_us         INTEGER NOT NULL,
    is_full         INTEGER NOT NULL,
    holder          BLOB,
    lease_us        INTEGER NOT NULL,
    created_us      INTEGER NOT NULL,
    created_by      TEXT NOT NULL,
    changed_us      INTEGER NOT NULL,
    PRIMARY KEY (tenant, subscription_id)
) STRICT;
CREATE INDEX subscriptions_enabled ON subscriptions (pause_us) WHERE enabled = 1;

CREATE TABLE deliveries (
    tenant          TEXT NOT NULL,
    subscription_id BLOB NOT NULL,
    message_id      TEXT NOT NULL,
    type            TEXT NOT NULL,
    body            TEXT NOT NULL,
    attempts        INTEGER NOT NULL,
    due_us          INTEGER NOT NULL,
    created_us      INTEGER NOT NULL,
    last_result     TEXT,
    last_us         INTEGER,
    dead_us         INTEGER,
    PRIMARY KEY (tenant, subscription_id, message_id)
) STRICT;
CREATE INDEX deliveries_due ON deliveries (tenant, subscription_id, due_us) WHERE dead_us IS NULL;
CREATE INDEX deliveries_dead ON deliveries (tenant, subscription_id, dead_us, message_id) WHERE dead_us IS NOT NULL;
