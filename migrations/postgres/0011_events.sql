-- The feed of events reads the journal in an order that no late commit can break: by the transaction
-- that wrote an entry, and only transactions before the oldest one that is still under way. Which
-- number a transaction got says nothing about when it commits; that horizon does.
-- Entries from before this migration have the number 0 and come first. A constant default rewrites
-- nothing; the real one is for what comes after.
ALTER TABLE entries ADD COLUMN xid bigint NOT NULL DEFAULT 0;
ALTER TABLE entries ALTER COLUMN xid SET DEFAULT pg_current_xact_id()::text::bigint;
-- New entries land at the right edge of their tenant, so the index costs little beside the primary key.
CREATE INDEX entries_feed ON entries (tenant, xid, effect, revision);

-- Added to every transaction number. A database that was restored into another cluster starts counting
-- anew, maybe lower: then this grows, and so does the default above (see store/postgres/feed.rs).
CREATE TABLE feed_origin (
    one      integer NOT NULL PRIMARY KEY CHECK (one = 1),
    base_xid bigint NOT NULL
);
INSERT INTO feed_origin VALUES (1, 0);
