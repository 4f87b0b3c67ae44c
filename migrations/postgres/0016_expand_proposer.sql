-- Who proposed an open effect, to count by. Rows from before, and those that an older version opens, name nobody and count for
-- nobody. No index: each step of every effect would pay for it, and a count reads a tenant's rows once for all its principals.
ALTER TABLE open_effects ADD COLUMN proposed_by text COLLATE "C";
