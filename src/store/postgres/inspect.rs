//! A look at a Postgres database from outside.

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use super::sql::{self, inspect as looks};
use super::wall::{self, Purpose};
use crate::limits;
use crate::store::inspect::{Inspection, sealed_start};
use crate::store::migrate::{self, Level};
use crate::store::{Result, StoreError};

/// See [`crate::store::inspect::inspect`].
pub(in crate::store) async fn inspect(url: &str) -> Result<Inspection> {
    let options: PgConnectOptions =
        url.parse().map_err(|_| StoreError::Open("DATABASE_URL is not a valid Postgres URL".to_owned()))?;
    let options = options.application_name("actonce doctor").disable_statement_logging();
    let options = options.options([("statement_timeout", "5s"), ("lock_timeout", "2s")]);
    let mut connection = wall::connect(options, Purpose::Inspection).await?;
    let row = sqlx::query(looks::INSPECT_SERVER).fetch_one(&mut connection).await?;
    let names = ["server_version_num", "fsync", "synchronous_commit", "full_page_writes", "standby", "read_only"];
    let mut settings = Vec::new();
    for (column, name) in names.into_iter().enumerate() {
        settings.push((name, row.try_get::<String, _>(column)?));
    }
    let now_us = Some(sqlx::query_scalar(sql::NOW).fetch_one(&mut connection).await?);
    let schema = migrate::postgres_level(&mut connection).await?;
    let mut found = Inspection {
        schema,
        write_fault: None,
        settings,
        now_us,
        alias_keys: Vec::new(),
        adapters: Vec::new(),
        sealed: Vec::new(),
    };
    if found.schema == Level::Current {
        found.write_fault = write(&mut connection).await.err().map(|error| error.to_string());
        read(&mut connection, &mut found).await?;
    }
    connection.close().await?;
    Ok(found)
}

/// Everything that a change needs is asked for, of no row, and taken back.
async fn write(connection: &mut PgConnection) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with("BEGIN").await?;
    let all = [looks::INSPECT_APPEND, looks::INSPECT_REGISTER, looks::INSPECT_MOVE, looks::INSPECT_TAKE];
    for statement in all {
        sqlx::query(statement).execute(&mut *transaction).await?;
    }
    transaction.rollback().await
}

async fn read(connection: &mut PgConnection, found: &mut Inspection) -> Result<()> {
    let holds: bool = sqlx::query_scalar(sql::WALL_HOLDS).fetch_one(&mut *connection).await?;
    found.settings.push(("wall", holds.to_string()));
    for row in sqlx::query(sql::ALIAS_KEYS).fetch_all(&mut *connection).await? {
        found.alias_keys.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    let tools =
        sqlx::query(looks::INSPECT_TOOLS).bind(i64::from(limits::DOCTOR_TOOLS)).fetch_all(&mut *connection).await?;
    for row in tools {
        found.adapters.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    for row in
        sqlx::query(sql::seals::INSPECT_SEALED).bind(i64::from(limits::DOCTOR_SEALED)).fetch_all(connection).await?
    {
        found.sealed.extend(sealed_start(i64::from(row.try_get::<i32, _>(0)?), row.try_get(1)?, row.try_get(2)?));
    }
    Ok(())
}
