-- The feed of events reads the journal in the order in which it was written. There is one writer, so
-- the row number is that order; the index has it behind the tenant.
CREATE INDEX entries_feed ON entries (tenant);
