-- For Postgres' planner; SQLite has no such belief. The number is kept alike.
SELECT 1;
