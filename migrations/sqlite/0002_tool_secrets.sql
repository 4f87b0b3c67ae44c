-- The same table as in the Postgres migration of this number; the reasons stand there.
CREATE TABLE tool_secrets (
    tenant      TEXT NOT NULL,
    tool        TEXT NOT NULL,
    number      INTEGER NOT NULL,
    sealed      BLOB NOT NULL,
    created_us  INTEGER NOT NULL,
    retired_us  INTEGER,
    PRIMARY KEY (tenant, tool, number)
) STRICT;
