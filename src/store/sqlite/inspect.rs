//! A look at a SQLite file from outside.

use std::path::Path;

use sqlx::sqlite::SqliteConnection;
use sqlx::{ConnectOptions as _, Connection as _, Row as _};

use super::connect::{opening, options};
use super::sql::{self, inspect as looks};
use crate::limits;
use crate::store::inspect::{Inspection, LOCK, sealed_start};
use crate::store::migrate::{self, Level};
use crate::store::{Result, StoreError};

/// See [`crate::store::inspect::inspect`].
pub(in crate::store) async fn inspect(path: &Path) -> Result<Inspection> {
    let path = std::path::absolute(path)
        .map_err(|error| StoreError::Open(format!("can't open the database {}: {error}", path.display())))?;
    let opened = options(&path).busy_timeout(LOCK).connect().await;
    let mut connection = opened.map_err(|error| opening(&path, error))?;
    let schema = match migrate::sqlite_level(&mut connection).await {
        Err(StoreError::Unavailable(error)) => return Err(opening(&path, error)),
        found => found?,
    };
    let journal: String = sqlx::query_scalar(looks::INSPECT_JOURNAL).fetch_one(&mut connection).await?;
    let flush: i64 = sqlx::query_scalar(looks::INSPECT_FLUSH).fetch_one(&mut connection).await?;
    let settings = vec![("journal_mode", journal), ("synchronous", flush.to_string())];
    let mut found = Inspection {
        schema,
        write_fault: None,
        settings,
        now_us: None,
        alias_keys: Vec::new(),
        adapters: Vec::new(),
        sealed: Vec::new(),
        past: None,
    };
    if found.schema == Level::Current {
        found.now_us = Some(sqlx::query_scalar(sql::CLOCK).fetch_one(&mut connection).await?);
        found.write_fault = write(&mut connection).await.err().map(|error| error.to_string());
        read(&mut connection, &mut found).await?;
    }
    connection.close().await?;
    Ok(found)
}

/// A write, taken back.
async fn write(connection: &mut SqliteConnection) -> sqlx::Result<()> {
    let mut transaction = connection.begin_with(sql::BEGIN).await?;
    sqlx::query(looks::INSPECT_WRITE).execute(&mut *transaction).await?;
    transaction.rollback().await
}

async fn read(connection: &mut SqliteConnection, found: &mut Inspection) -> Result<()> {
    for row in sqlx::query(sql::ALIAS_KEYS).fetch_all(&mut *connection).await? {
        found.alias_keys.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    for row in sqlx::query(looks::INSPECT_TOOLS).bind(limits::DOCTOR_TOOLS).fetch_all(&mut *connection).await? {
        found.adapters.push((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    for row in sqlx::query(sql::seals::INSPECT_SEALED).bind(limits::DOCTOR_SEALED).fetch_all(connection).await? {
        found.sealed.extend(sealed_start(row.try_get::<i64, _>(0)?, row.try_get(1)?, row.try_get(2)?));
    }
    Ok(())
}
