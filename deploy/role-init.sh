#!/bin/sh
# Runs once, when the database's directory is made: the role of the service. It owns the database and is no superuser, so
# that row-level security holds it (docs/security.md).
set -eu
password=$(cat "${ROLE_PASSWORD_FILE:-/run/secrets/postgres-password}")
psql --no-psqlrc --set ON_ERROR_STOP=1 --set password="$password" --set database="$POSTGRES_DB" \
  --username "$POSTGRES_USER" --dbname "$POSTGRES_DB" <<'SQL'
CREATE ROLE actonce LOGIN PASSWORD :'password';
ALTER DATABASE :"database" OWNER TO actonce;
SQL
