-- The same table as in the Postgres migration of this number; the reasons stand there.
CREATE TABLE restore_epochs (
    number   INTEGER NOT NULL PRIMARY KEY CHECK (number > 0),
    epoch_id TEXT NOT NULL UNIQUE,
    reason   TEXT NOT NULL,
    begun_us INTEGER NOT NULL,
    paused   INTEGER NOT NULL,
    effects  INTEGER NOT NULL,
    ended_us INTEGER
) STRICT;
