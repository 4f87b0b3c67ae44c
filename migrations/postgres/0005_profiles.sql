-- Declared profiles: the id is the digest of the components' canonical JSON.
CREATE TABLE profiles (
    tenant       text COLLATE "C" NOT NULL,
    profile_id   text COLLATE "C" NOT NULL,
    components   text NOT NULL,
    declared_us  bigint NOT NULL,
    declared_by  text NOT NULL,
    PRIMARY KEY (tenant, profile_id)
);

-- The profile that a session is bound to: by its first intent, and after that by adoption alone.
CREATE TABLE sessions (
    tenant      text COLLATE "C" NOT NULL,
    session_id  text COLLATE "C" NOT NULL,
    profile_id  text COLLATE "C" NOT NULL,
    bound_us    bigint NOT NULL,
    bound_by    text NOT NULL,
    PRIMARY KEY (tenant, session_id)
);

-- Every adoption, under the caller's key: a repeat is answered from here.
CREATE TABLE adoptions (
    tenant            text COLLATE "C" NOT NULL,
    session_id        text COLLATE "C" NOT NULL,
    idempotency_key   text COLLATE "C" NOT NULL,
    previous_profile  text NOT NULL,
    profile_id        text NOT NULL,
    request           text NOT NULL,
    adopted_us        bigint NOT NULL,
    adopted_by        text NOT NULL,
    PRIMARY KEY (tenant, session_id, idempotency_key)
);
