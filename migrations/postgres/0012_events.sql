-- The feed of events reads the journal in an order that no late commit can break: by the transaction that wrote an
-- entry (`moved`), and only transactions before the oldest one that is still under way. Which number a transaction
-- got says nothing about when it commits; that horizon does. Entries of before the number was kept have 0 and come
-- first.
--
-- A feed is a tenant's, so the index begins with the tenant; it takes the place of the one that checkpoints used.
DROP INDEX entries_moved;
CREATE INDEX entries_feed ON entries (tenant, moved, effect, revision);

-- Checkpoints now go tenant by tenant through what was written from `low` on and before `again_to`. A look that was
-- under way begins again where it had begun; what it had signed is signed once more, which says the same.
ALTER TABLE checkpoint_mark ADD COLUMN low bigint;
UPDATE checkpoint_mark SET moved = CASE WHEN again_to IS NULL THEN moved ELSE 0 END,
    tenant = '', effect = '00000000-0000-0000-0000-000000000000', revision = 0, again_to = NULL;

-- Added to every transaction number. A database that was restored into another cluster starts counting anew, maybe
-- lower: then this grows, and so does the default of `entries.moved`.
CREATE TABLE feed_origin (
    one      integer NOT NULL PRIMARY KEY CHECK (one = 1),
    base_xid bigint NOT NULL
);
INSERT INTO feed_origin VALUES (1, 0);
