-- The same tables as in the Postgres migration of this number; the reasons stand there.
CREATE TABLE recovery_executions (
    tenant       TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    digest       TEXT NOT NULL,
    plan_id      TEXT NOT NULL,
    decisions    TEXT NOT NULL,
    items        INTEGER NOT NULL CHECK (items > 0),
    begun_by     TEXT NOT NULL,
    begun_us     INTEGER NOT NULL,
    PRIMARY KEY (tenant, execution_id)
) STRICT;
CREATE TABLE recovery_receipts (
    tenant       TEXT NOT NULL,
    execution_id TEXT NOT NULL,
    item         INTEGER NOT NULL,
    receipt      TEXT NOT NULL,
    PRIMARY KEY (tenant, execution_id, item)
) STRICT;
CREATE TABLE recovery_claims (
    tenant       TEXT NOT NULL,
    effect       BLOB NOT NULL,
    executor     BLOB NOT NULL,
    expires_us   INTEGER NOT NULL,
    PRIMARY KEY (tenant, effect)
) STRICT;
