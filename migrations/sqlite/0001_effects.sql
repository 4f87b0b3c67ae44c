-- The same tables as in the Postgres migration of this number; the reasons stand there.
CREATE TABLE entries (
    tenant      TEXT NOT NULL,
    effect      BLOB NOT NULL CHECK (length(effect) = 16),
    revision    INTEGER NOT NULL CHECK (revision > 0),
    state       INTEGER NOT NULL,
    created_us  INTEGER,
    run_id      TEXT,
    session_id  TEXT,
    intent      TEXT,
    life        TEXT NOT NULL,
    entry       TEXT NOT NULL,
    receipt     TEXT,
    result      TEXT,
    prev_hash   BLOB NOT NULL,
    hash        BLOB NOT NULL,
    PRIMARY KEY (tenant, effect, revision),
    CHECK ((revision = 1) = (intent IS NOT NULL)),
    CHECK ((revision = 1) = (created_us IS NOT NULL))
) STRICT;
CREATE INDEX entries_created ON entries (tenant, created_us, effect) WHERE created_us IS NOT NULL;
CREATE INDEX entries_run ON entries (tenant, run_id, created_us, effect) WHERE run_id IS NOT NULL;
CREATE INDEX entries_session ON entries (tenant, session_id, created_us, effect) WHERE session_id IS NOT NULL;

CREATE TABLE open_effects (
    tenant       TEXT NOT NULL,
    effect       BLOB NOT NULL,
    revision     INTEGER NOT NULL,
    state        INTEGER NOT NULL,
    fence        INTEGER NOT NULL,
    due_us       INTEGER,
    duplicate    BLOB,
    created_us   INTEGER NOT NULL,
    contradicted INTEGER NOT NULL,
    tool         TEXT NOT NULL,
    run_id       TEXT,
    session_id   TEXT,
    PRIMARY KEY (tenant, effect)
) STRICT;
CREATE UNIQUE INDEX open_effects_duplicate ON open_effects (tenant, duplicate) WHERE duplicate IS NOT NULL;
CREATE INDEX open_effects_due ON open_effects (due_us) WHERE due_us IS NOT NULL;
CREATE INDEX open_effects_state ON open_effects (tenant, state, created_us, effect);

CREATE TABLE tools (
    tenant    TEXT NOT NULL,
    name      TEXT NOT NULL,
    revision  INTEGER NOT NULL,
    stamp     INTEGER NOT NULL,
    paused    INTEGER NOT NULL,
    deleted   INTEGER NOT NULL,
    PRIMARY KEY (tenant, name)
) STRICT;
CREATE TABLE tool_revisions (
    tenant        TEXT NOT NULL,
    name          TEXT NOT NULL,
    revision      INTEGER NOT NULL,
    spec          TEXT NOT NULL,
    registered_us INTEGER NOT NULL,
    registered_by TEXT NOT NULL,
    PRIMARY KEY (tenant, name, revision)
) STRICT;

-- The latest time that the database has given out. One row; it never goes back, so a wall clock
-- that does cannot make a lease longer or a journal run backwards.
CREATE TABLE clock (
    one       INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    latest_us INTEGER NOT NULL
) STRICT;
INSERT INTO clock VALUES (1, 0);
