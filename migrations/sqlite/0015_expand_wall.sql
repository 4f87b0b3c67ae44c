-- The second wall between tenants is Postgres' row-level security; SQLite has none. The number is kept alike.
SELECT 1;
