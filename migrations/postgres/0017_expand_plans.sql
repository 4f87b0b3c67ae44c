-- Whoever looks for one open effect must find it by its key, whatever the planner believes of the table. After a vacuum with
-- few rows left it believes that there are none, and then takes the index by state for as good as the key: it begins with the
-- tenant as well, and all that the tenant has open is read for one row. So that index has a condition that every row meets
-- and that those who list by state alone repeat.
DROP INDEX open_effects_state;
CREATE INDEX open_effects_state ON open_effects (tenant, state, created_us, effect) WHERE state >= 0;
-- And what it believes is renewed as soon as the table has changed noticeably. Looking takes milliseconds; it is small.
ALTER TABLE open_effects SET (autovacuum_analyze_threshold = 1000);
