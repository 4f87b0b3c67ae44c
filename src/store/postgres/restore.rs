//! Restores on Postgres.

use std::time::Duration;

use async_trait::async_trait;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection as _, Row as _};

use super::PostgresStore;
use super::connect::parsed;
use super::sql::restore as sql;
use super::wall::{self, Purpose, Tenants};
use crate::domain::ids::Name;
use crate::domain::time::Timestamp;
use crate::store::open::{Pooling, PostgresAddress};
use crate::store::restore::{Begun, EpochRow, NewEpoch, RestoreStore, known};
use crate::store::{Corruption, Result, StoreError};

/// How often it is looked whether others are gone, and the pause between: the server takes a moment to see that a
/// connection was closed.
const LOOKS: u32 = 20;
const PAUSE: Duration = Duration::from_millis(100);
/// The same where services come through a pooler: between two uses one has no session there that could be seen. It is
/// longer than any service is silent: its sweep looks every five seconds at least.
const LOOKS_AT_A_POOLER: u32 = 60;

/// How it is found out that nobody else works on a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// Whoever has gone leaves a connection for a moment.
    UntilAlone,
    /// Whoever works is not seen at every moment.
    AloneThroughout,
}

#[async_trait]
impl RestoreStore for PostgresStore {
    async fn restore_epochs(&self) -> Result<Vec<EpochRow>> {
        sqlx::query(sql::RESTORE_EPOCHS)
            .fetch_all(self.scope(Tenants::Nobody).await?)
            .await?
            .iter()
            .map(epoch)
            .collect()
    }

    async fn end_restore(&self, number: u32, effects: u64) -> Result<()> {
        let query = sqlx::query(sql::RESTORE_END)
            .bind(i32::try_from(number).unwrap_or(i32::MAX))
            .bind(i64::try_from(effects).unwrap_or(i64::MAX));
        query.execute(self.scope(Tenants::Nobody).await?).await?;
        Ok(())
    }
}

impl PostgresStore {
    /// See [`crate::store::restore::begin`].
    pub(in crate::store) async fn begin_restore(address: &PostgresAddress, epoch: &NewEpoch) -> Result<Begun> {
        let (url, patience) = match &address.pooling {
            Pooling::Session => (&address.url, Patience::UntilAlone),
            Pooling::Transaction { direct: Some(direct) } => (direct, Patience::AloneThroughout),
            Pooling::Transaction { direct: None } => {
                return Err(StoreError::Open("who works on the database is seen past the pooler alone".to_owned()));
            }
        };
        let options = parsed(url, "DATABASE_URL")?;
        // Not the services' own name, by which they are counted; and flushed, whatever the server does by default.
        let options = options.application_name("actonce restore").options([("synchronous_commit", "on")]);
        let mut connection = wall::connect(options, Purpose::Restore).await?;
        let begun = begin(&mut connection, epoch, patience).await;
        drop(connection.close().await);
        begun
    }
}

async fn begin(connection: &mut PgConnection, epoch: &NewEpoch, patience: Patience) -> Result<Begun> {
    if !is_alone(connection, patience).await? {
        return Ok(Begun::NotAlone);
    }
    let mut tx = connection.begin().await?;
    let rows = sqlx::query(sql::RESTORE_EPOCHS).fetch_all(&mut *tx).await?;
    let epochs: Vec<EpochRow> = rows.iter().map(self::epoch).collect::<Result<_>>()?;
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
                .bind(i32::try_from(new.number).unwrap_or(i32::MAX))
                .bind(epoch.epoch_id.as_str())
                .bind(epoch.reason.as_str())
                .bind(epoch.at.micros())
                .bind(i64::try_from(paused).unwrap_or(i64::MAX))
                .execute(&mut *tx)
                .await?;
            Begun::New(new)
        }
    };
    tx.commit().await?;
    // A service that came in between has not seen the epoch; one that comes from now on does not start.
    Ok(if is_alone(connection, patience).await? { begun } else { Begun::NotAlone })
}

async fn is_alone(connection: &mut PgConnection, patience: Patience) -> Result<bool> {
    let looks = match patience {
        Patience::UntilAlone => LOOKS,
        Patience::AloneThroughout => LOOKS_AT_A_POOLER,
    };
    for look in 0..looks {
        if look > 0 {
            tokio::time::sleep(PAUSE).await;
        }
        let others: i64 = sqlx::query_scalar(sql::RESTORE_OTHERS).fetch_one(&mut *connection).await?;
        match (others, patience) {
            (0, Patience::UntilAlone) => return Ok(true),
            (1.., Patience::AloneThroughout) => return Ok(false),
            _ => {}
        }
    }
    Ok(patience == Patience::AloneThroughout)
}

fn epoch(row: &PgRow) -> Result<EpochRow> {
    let number: i32 = row.try_get(0)?;
    let bad = |column| Corruption { table: "restore_epochs", column, key: number.to_string() };
    let count =
        |at: usize, column| -> Result<u64> { Ok(u64::try_from(row.try_get::<i64, _>(at)?).map_err(|_| bad(column))?) };
    Ok(EpochRow {
        number: u32::try_from(number).map_err(|_| bad("number"))?,
        epoch_id: Name::new(row.try_get(1)?).map_err(|_| bad("epoch_id"))?,
        reason: row.try_get(2)?,
        begun_at: Timestamp::from_micros(row.try_get(3)?),
        paused: count(4, "paused")?,
        effects: count(5, "effects")?,
        ended_at: row.try_get::<Option<i64>, _>(6)?.map(Timestamp::from_micros),
    })
}
