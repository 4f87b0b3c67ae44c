-- The same tables as in the Postgres migration of this number; the reasons stand there.
CREATE TABLE profiles (
    tenant       TEXT NOT NULL,
    profile_id   TEXT NOT NULL,
    components   TEXT NOT NULL,
    declared_us  INTEGER NOT NULL,
    declared_by  TEXT NOT NULL,
    PRIMARY KEY (tenant, profile_id)
) STRICT;

CREATE TABLE sessions (
    tenant      TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    profile_id  TEXT NOT NULL,
    bound_us    INTEGER NOT NULL,
    bound_by    TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id)
) STRICT;

CREATE TABLE adoptions (
    tenant            TEXT NOT NULL,
    session_id        TEXT NOT NULL,
    idempotency_key   TEXT NOT NULL,
    previous_profile  TEXT NOT NULL,
    profile_id        TEXT NOT NULL,
    request           TEXT NOT NULL,
    adopted_us        INTEGER NOT NULL,
    adopted_by        TEXT NOT NULL,
    PRIMARY KEY (tenant, session_id, idempotency_key)
) STRICT;
