-- Who proposed an open effect, to count by. Rows from before name nobody and count for nobody.
ALTER TABLE open_effects ADD COLUMN proposed_by TEXT;
