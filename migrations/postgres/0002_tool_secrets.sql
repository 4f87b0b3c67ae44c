-- Secrets that webhooks to a tool's adapter are signed with, sealed under the data key. At most two rows
-- of a tool: the newest signs, and the one before it goes on signing for a while after it was retired.
CREATE TABLE tool_secrets (
    tenant      text COLLATE "C" NOT NULL,
    tool        text COLLATE "C" NOT NULL,
    number      integer NOT NULL,
    sealed      bytea NOT NULL,
    created_us  bigint NOT NULL,
    retired_us  bigint,
    PRIMARY KEY (tenant, tool, number)
);
