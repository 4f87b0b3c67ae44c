-- Ids of alias keys that were ever in use, of the whole deployment and so without a tenant: an id never
-- stands for another key, and a retired one never comes back.
CREATE TABLE alias_keys (
    id         text COLLATE "C" PRIMARY KEY,
    fingerprint bytea NOT NULL,
    retired_us bigint
);
