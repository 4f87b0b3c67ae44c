#!/bin/sh
# The standby: copies the primary once, then streams from it. To take over: pg_ctl promote, after the
# primary is known to be stopped; then point DATABASE_URL at it. PGDATA must lie in a directory that is
# its user's, not be one that was mounted.
set -eu
: "${PRIMARY_HOST:=postgres}" "${PRIMARY_PORT:=5432}"
if [ ! -e "$PGDATA" ]; then
  # A copy that was cut short is begun again. One that was promoted later is never touched.
  copy=$PGDATA.copying
  rm -rf "$copy"
  PGPASSWORD=$(cat "$REPLICATION_PASSWORD_FILE")
  export PGPASSWORD
  pg_basebackup --host "$PRIMARY_HOST" --port "$PRIMARY_PORT" --username replicator --pgdata "$copy" \
    --wal-method stream --slot standby --checkpoint fast
  # The name is what the primary's synchronous_standby_names asks for. The copy has that setting too, and
  # promoted it would wait for itself.
  cat >>"$copy/postgresql.auto.conf" <<CONF
primary_conninfo = 'host=$PRIMARY_HOST port=$PRIMARY_PORT user=replicator password=$PGPASSWORD application_name=standby'
primary_slot_name = 'standby'
synchronous_standby_names = ''
CONF
  unset PGPASSWORD
  touch "$copy/standby.signal"
  chmod 0700 "$copy"
  mv "$copy" "$PGDATA"
fi
exec postgres "$@"
