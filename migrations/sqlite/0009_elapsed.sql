-- The same table as in the Postgres migration of this number; the reasons stand there.
CREATE TABLE run_waits (
    tenant    TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    effect    BLOB NOT NULL,
    revision  INTEGER NOT NULL,
    began_us  INTEGER NOT NULL,
    ends_us   INTEGER,
    PRIMARY KEY (tenant, run_id, effect, revision)
) STRICT;
CREATE INDEX run_waits_began ON run_waits (tenant, run_id, began_us);
