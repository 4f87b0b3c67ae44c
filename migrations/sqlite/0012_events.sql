-- The feed of events reads the journal by row ids: there is one writer, so they are the order in which entries were
-- written. No index: a reader passes by what others wrote, and its cursor keeps how far it came. The Postgres
-- migration of this number does the work; this one keeps the numbers alike.
SELECT 1;
