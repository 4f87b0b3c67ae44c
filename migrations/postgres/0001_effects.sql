-- The journal is the record: one row per revision, appended and never changed. The primary key is
-- the compare-and-set: who inserts revision n + 1 first has won, and a fork cannot be stored.
-- Times are microseconds since 1970 by the database's clock. Documents are text, because they are
-- hashed and answered byte for byte.
CREATE TABLE entries (
    tenant      text COLLATE "C" NOT NULL,
    effect      uuid NOT NULL,
    revision    integer NOT NULL CHECK (revision > 0),
    state       smallint NOT NULL,
    -- Revision 1 alone carries the intent and what the lists are ordered and filtered by.
    created_us  bigint,
    run_id      text COLLATE "C",
    session_id  text COLLATE "C",
    intent      text,
    life        text NOT NULL,
    entry       text NOT NULL,
    receipt     text,
    result      text,
    prev_hash   bytea NOT NULL,
    hash        bytea NOT NULL,
    PRIMARY KEY (tenant, effect, revision),
    CHECK ((revision = 1) = (intent IS NOT NULL)),
    CHECK ((revision = 1) = (created_us IS NOT NULL))
) WITH (toast_tuple_target = 8160, autovacuum_vacuum_insert_scale_factor = 0.5);
-- An ordinary row is stored as it is: compressing each of two or three kB costs more than it saves.
-- Large documents go out of line, compressed by the faster method where the server has it.
CREATE INDEX entries_created ON entries (tenant, created_us, effect) WHERE created_us IS NOT NULL;
CREATE INDEX entries_run ON entries (tenant, run_id, created_us, effect) WHERE run_id IS NOT NULL;
CREATE INDEX entries_session ON entries (tenant, session_id, created_us, effect) WHERE session_id IS NOT NULL;

-- Effects that may still change by themselves or wait for somebody: small, and all that sweeps and
-- lists by open state ever look at. A row leaves when its effect settles.
CREATE TABLE open_effects (
    tenant       text COLLATE "C" NOT NULL,
    effect       uuid NOT NULL,
    revision     integer NOT NULL,
    state        smallint NOT NULL,
    fence        integer NOT NULL,
    due_us       bigint,
    duplicate    uuid,
    created_us   bigint NOT NULL,
    contradicted boolean NOT NULL,
    tool         text COLLATE "C" NOT NULL,
    run_id       text COLLATE "C",
    session_id   text COLLATE "C",
    PRIMARY KEY (tenant, effect)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000,
        autovacuum_analyze_scale_factor = 0.0, autovacuum_analyze_threshold = 100000);
-- The same act under two operation ids can't be open twice where the tool refuses that.
CREATE UNIQUE INDEX open_effects_duplicate ON open_effects (tenant, duplicate) WHERE duplicate IS NOT NULL;
CREATE INDEX open_effects_due ON open_effects (due_us) WHERE due_us IS NOT NULL;
CREATE INDEX open_effects_state ON open_effects (tenant, state, created_us, effect);

-- The tool as it is now. `stamp` grows with every change, pause and resume included, and is what a
-- grant compares; `revision` grows with the registration alone.
CREATE TABLE tools (
    tenant    text COLLATE "C" NOT NULL,
    name      text COLLATE "C" NOT NULL,
    revision  integer NOT NULL,
    stamp     bigint NOT NULL,
    paused    boolean NOT NULL,
    deleted   boolean NOT NULL,
    PRIMARY KEY (tenant, name)
);
CREATE TABLE tool_revisions (
    tenant        text COLLATE "C" NOT NULL,
    name          text COLLATE "C" NOT NULL,
    revision      integer NOT NULL,
    spec          text NOT NULL,
    registered_us bigint NOT NULL,
    registered_by text NOT NULL,
    PRIMARY KEY (tenant, name, revision)
);
