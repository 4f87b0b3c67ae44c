-- The same tables as in the Postgres migration of this number; the reasons stand there.
CREATE TABLE retained_arguments (
    tenant  TEXT NOT NULL,
    effect  BLOB NOT NULL CHECK (length(effect) = 16),
    sealed  BLOB NOT NULL,
    PRIMARY KEY (tenant, effect)
) STRICT;

CREATE TABLE grants (
    tenant      TEXT NOT NULL,
    grant_id    BLOB NOT NULL CHECK (length(grant_id) = 16),
    tool        TEXT NOT NULL,
    terms       TEXT NOT NULL,
    uses        INTEGER NOT NULL,
    max_uses    INTEGER NOT NULL CHECK (max_uses > 0),
    created_us  INTEGER NOT NULL,
    expires_us  INTEGER NOT NULL,
    revoked_us  INTEGER,
    revoked_by  TEXT,
    PRIMARY KEY (tenant, grant_id),
    CHECK (uses BETWEEN 0 AND max_uses)
) STRICT;
CREATE INDEX grants_created ON grants (tenant, created_us, grant_id);
CREATE INDEX grants_live ON grants (tenant, tool, expires_us, grant_id) WHERE revoked_us IS NULL AND uses < max_uses;

CREATE TABLE grant_uses (
    tenant    TEXT NOT NULL,
    grant_id  BLOB NOT NULL,
    effect    BLOB NOT NULL,
    used_us   INTEGER NOT NULL,
    PRIMARY KEY (tenant, grant_id, effect)
) STRICT;
