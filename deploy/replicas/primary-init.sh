#!/bin/sh
# Runs once, when the primary's data directory is made: the role that the standby copies and streams
# with, its slot, and that a commit waits for the standby.
set -eu
password=$(cat "${REPLICATION_PASSWORD_FILE:-/run/secrets/postgres-replication-password}")
psql --no-psqlrc --set ON_ERROR_STOP=1 --set password="$password" --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE replicator LOGIN REPLICATION PASSWORD :'password';
SELECT pg_create_physical_replication_slot('standby', true);
-- Nothing acknowledged is lost with the primary, then. The price: while the standby is away, commits wait, and
-- clients get 503 and repeat. To go on without it: ALTER SYSTEM RESET synchronous_standby_names, and reload.
ALTER SYSTEM SET synchronous_standby_names = 'FIRST 1 (standby)';
SQL
echo 'host replication replicator all scram-sha-256' >>"$PGDATA/pg_hba.conf"
