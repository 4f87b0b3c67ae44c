-- What the planner believes of the table of open effects is renewed as soon as it has changed noticeably: once that it is
-- empty, plans are no good for the time after. Looking at it takes milliseconds; it is small.
ALTER TABLE open_effects SET (autovacuum_analyze_threshold = 1000);
