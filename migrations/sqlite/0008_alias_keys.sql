-- Ids of alias keys that were ever in use, of the whole deployment and so without a tenant: an id never
-- stands for another key, and a retired one never comes back.
CREATE TABLE alias_keys (
    id         TEXT PRIMARY KEY,
    fingerprint BLOB NOT NULL,
    retired_us INTEGER
) STRICT, WITHOUT ROWID;
