-- For Postgres' planner. The number is kept alike.
SELECT 1;
