-- Arguments that a tool retains until the effect is settled, sealed. Written with revision 1, gone with
-- the revision that settles; never in a journal.
CREATE TABLE retained_arguments (
    tenant  text COLLATE "C" NOT NULL,
    effect  uuid NOT NULL,
    sealed  bytea NOT NULL,
    PRIMARY KEY (tenant, effect)
);

-- Standing grants. The terms never change; `uses` is the compare-and-set that keeps a grant from being
-- used more often than was granted. Used up, expired and revoked ones stay, for those who ask later.
CREATE TABLE grants (
    tenant      text COLLATE "C" NOT NULL,
    grant_id    uuid NOT NULL,
    tool        text COLLATE "C" NOT NULL,
    terms       text NOT NULL,
    uses        integer NOT NULL,
    max_uses    integer NOT NULL CHECK (max_uses > 0),
    created_us  bigint NOT NULL,
    expires_us  bigint NOT NULL,
    revoked_us  bigint,
    revoked_by  text,
    PRIMARY KEY (tenant, grant_id),
    CHECK (uses BETWEEN 0 AND max_uses)
);
CREATE INDEX grants_created ON grants (tenant, created_us, grant_id);
-- What an intent of an approval tool looks at: grants that may still be used, the next to expire first.
CREATE INDEX grants_live ON grants (tenant, tool, expires_us, grant_id) WHERE revoked_us IS NULL AND uses < max_uses;

-- One row for each use, written in the transaction that authorizes the effect.
CREATE TABLE grant_uses (
    tenant    text COLLATE "C" NOT NULL,
    grant_id  uuid NOT NULL,
    effect    uuid NOT NULL,
    used_us   bigint NOT NULL,
    PRIMARY KEY (tenant, grant_id, effect)
);
