-- The same tables as in the Postgres migration of this number; the reasons stand there. Which rows moved is told by
-- their row ids, which grow with every insert and cost nothing; `tenant`, `effect` and `revision` of the mark tell
-- when they were given anew.
CREATE TABLE checkpoints (
    tenant TEXT NOT NULL,
    number INTEGER NOT NULL CHECK (number > 0),
    at_us  INTEGER NOT NULL,
    jws    TEXT NOT NULL,
    leaves BLOB NOT NULL,
    PRIMARY KEY (tenant, number)
) STRICT;
CREATE INDEX checkpoints_at ON checkpoints (tenant, at_us, number);

CREATE TABLE checkpoint_mark (
    one      INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    moved    INTEGER NOT NULL,
    tenant   TEXT NOT NULL,
    effect   BLOB NOT NULL,
    revision INTEGER NOT NULL,
    again_to INTEGER
) STRICT;
INSERT INTO checkpoint_mark VALUES (1, 0, '', zeroblob(16), 0, NULL);
