//! Restores on SQLite.

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteRow, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

use super::SqliteStore;
use super::record::column;
use super::sql::{self as all, restore as sql};
use crate::domain::ids::Name;
use crate::domain::time::Timestamp;
use crate::store::restore::{Begun, EpochRow, NewEpoch, RestoreStore, known};
use crate::store::{Corruption, Result};

const TABLE: &str = "restore_epochs";
/// Leaves the write-ahead log, which only works for who has the file for itself. The next store turns it on again.
const LEAVE_LOG: &str = "PRAGMA journal_mode = DELETE";
/// How often that is tried, and the pause between: a process that ends takes a moment.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);

#[async_trait]
impl RestoreStore for SqliteStore {
    async fn restore_epochs(&self) -> Result<Vec<EpochRow>> {
        let rows = sqlx::query(sql::RESTORE_EPOCHS).fetch_all(&self.readers).await?;
        rows.iter().map(|row| Ok(epoch(row)?)).collect()
    }

    async fn end_restore(&self, number: u32, effects: u64) -> Result<()> {
        let now = self.clock.now().micros();
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(all::BEGIN).await?;
        let end = sqlx::query(sql::RESTORE_END).bind(number).bind(long(effects)).bind(now);
        end.execute(&mut *tx).await?;
        sqlx::query(all::TICK).bind(now).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(())
    }
}

impl SqliteStore {
    /// See [`crate::store::restore::begin`].
    pub(in crate::store) async fn begin_restore(path: &Path, epoch: &NewEpoch) -> Result<Begun> {
        let path = std::path::absolute(path).map_err(sqlx::Error::Io)?;
        let options = SqliteConnectOptions::new().filename(path).synchronous(SqliteSynchronous::Full);
        let mut connection = options.pragma("fullfsync", "ON").connect().await?;
        let begun = begin(&mut connection, epoch).await;
        drop(connection.close().await);
        begun
    }
}

async fn begin(connection: &mut SqliteConnection, epoch: &NewEpoch) -> Result<Begun> {
    if !is_alone(connection).await? {
        return Ok(Begun::NotAlone);
    }
    let mut tx = connection.begin_with(all::BEGIN).await?;
    let rows = sqlx::query(sql::RESTORE_EPOCHS).fetch_all(&mut *tx).await?;
    let epochs: Vec<EpochRow> = rows.iter().map(|row| Ok(self::epoch(row)?)).collect::<Result<_>>()?;
    let begun = match known(&epochs, epoch) {
        Some(known) => known,
        None => {
            let paused = if epoch.pauses_tools {
                sqlx::query(sql::RESTORE_TOOLS_PAUSE).execute(&mut *tx).await?.rows_affected()
            } else {
                0
            };
            let new = epoch.behind(&epochs, paused);
            sqlx::query(sql::RESTORE_ADD)
                .bind(new.number)
                .bind(epoch.epoch_id.as_str())
                .bind(epoch.reason.as_str())
                .bind(epoch.at.micros())
                .bind(long(paused))
                .execute(&mut *tx)
                .await?;
            sqlx::query(all::TICK).bind(epoch.at.micros()).execute(&mut *tx).await?;
            Begun::New(new)
        }
    };
    tx.commit().await?;
    // A service that came in between has not seen the epoch; one that comes from now on does not start.
    Ok(if is_alone(connection).await? { begun } else { Begun::NotAlone })
}

/// Every process that has the file open in its usual mode keeps the mode from being changed.
async fn is_alone(connection: &mut SqliteConnection) -> Result<bool> {
    for look in 0..LOOKS {
        if look > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        match sqlx::query_scalar::<_, String>(LEAVE_LOG).fetch_one(&mut *connection).await {
            Ok(mode) if mode == "delete" => return Ok(true),
            Ok(_) | Err(sqlx::Error::Database(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(false)
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn epoch(row: &SqliteRow) -> std::result::Result<EpochRow, Corruption> {
    let number: u32 = column(row, TABLE, "number", &"?")?;
    let bad = |column| Corruption { table: TABLE, column, key: number.to_string() };
    let count = |name: &'static str| -> std::result::Result<u64, Corruption> {
        u64::try_from(column::<i64>(row, TABLE, name, &number)?).map_err(|_| bad(name))
    };
    Ok(EpochRow {
        number,
        epoch_id: Name::new(column(row, TABLE, "epoch_id", &number)?).map_err(|_| bad("epoch_id"))?,
        reason: column(row, TABLE, "reason", &number)?,
        begun_at: Timestamp::from_micros(column(row, TABLE, "begun_us", &number)?),
        paused: count("paused")?,
        effects: count("effects")?,
        ended_at: column::<Option<i64>>(row, TABLE, "ended_us", &number)?.map(Timestamp::from_micros),
    })
}
