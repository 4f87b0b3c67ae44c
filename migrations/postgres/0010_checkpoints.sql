-- Signed checkpoints of the journals' heads: what was there is written down elsewhere, so that an effect whose rows
-- are all gone, or a chain that was made anew, does not pass for intact.

-- Which transaction wrote the row. Rows that are older than every transaction in flight can't become more: that is
-- what makes one look for what moved complete, however late a commit is. Rows of before this column are zero.
ALTER TABLE entries ADD COLUMN moved bigint NOT NULL DEFAULT 0;
ALTER TABLE entries ALTER COLUMN moved SET DEFAULT (pg_current_xact_id()::text::bigint);
CREATE INDEX entries_moved ON entries (moved);

-- One chain per tenant. `leaves` are 52 bytes each: effect, revision (big endian), hash; `jws` signs their root.
CREATE TABLE checkpoints (
    tenant text COLLATE "C" NOT NULL,
    number bigint NOT NULL CHECK (number > 0),
    at_us  bigint NOT NULL,
    jws    text NOT NULL,
    leaves bytea NOT NULL,
    PRIMARY KEY (tenant, number)
);
CREATE INDEX checkpoints_at ON checkpoints (tenant, at_us, number);

-- How far the deployment's checkpoints are, and so without a tenant. One row; `again_to` is set while a look at
-- everything is under way, which follows a restore into another server, and says where to go on after it.
CREATE TABLE checkpoint_mark (
    one      integer PRIMARY KEY CHECK (one = 1),
    moved    bigint NOT NULL,
    tenant   text COLLATE "C" NOT NULL,
    effect   uuid NOT NULL,
    revision integer NOT NULL,
    again_to bigint
);
INSERT INTO checkpoint_mark VALUES (1, 0, '', '00000000-0000-0000-0000-000000000000', 0, NULL);
