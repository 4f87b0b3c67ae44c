//! Restores: which ones a database has been through, and how the next one begins.

use async_trait::async_trait;

use super::open::DatabaseUrl;
use super::{Result, postgres, sqlite};
use crate::domain::ids::Name;
use crate::domain::time::Timestamp;

/// One restore.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EpochRow {
    /// 1 for the first.
    pub number: u32,
    /// The operator's name for it.
    pub epoch_id: Name,
    /// Why, in the operator's words.
    pub reason: String,
    /// When it was begun, by database time.
    pub begun_at: Timestamp,
    /// How many tools were paused.
    pub paused: u64,
    /// How many effects were moved.
    pub effects: u64,
    /// When every effect had been moved.
    pub ended_at: Option<Timestamp>,
}

/// What is to begin.
#[derive(Debug, Clone)]
pub struct NewEpoch {
    /// The operator's name for it.
    pub epoch_id: Name,
    /// Why.
    pub reason: String,
    /// Database time.
    pub at: Timestamp,
    /// Whether tools are paused with it.
    pub pauses_tools: bool,
}

impl NewEpoch {
    /// The epoch as it begins behind these, with so many tools paused.
    #[must_use]
    pub fn behind(&self, epochs: &[EpochRow], paused: u64) -> EpochRow {
        EpochRow {
            number: epochs.last().map_or(0, |last| last.number).saturating_add(1),
            epoch_id: self.epoch_id.clone(),
            reason: self.reason.clone(),
            begun_at: self.at,
            paused,
            effects: 0,
            ended_at: None,
        }
    }
}

/// What came of the wish to begin an epoch.
#[derive(Debug, Clone)]
pub enum Begun {
    /// Somebody else works on the database.
    NotAlone,
    /// It is begun now.
    New(EpochRow),
    /// It was begun before.
    Known(EpochRow),
    /// Another one was begun and has not ended.
    Other(EpochRow),
    /// There were as many as there can be.
    TooMany,
}

/// Reads and ends of restores.
#[async_trait]
pub trait RestoreStore {
    /// All restores, the first one first.
    async fn restore_epochs(&self) -> Result<Vec<EpochRow>>;

    /// Notes that every effect was moved, so many of them; nothing where that is noted already.
    async fn end_restore(&self, number: u32, effects: u64) -> Result<()>;
}

/// Begins an epoch on a database that nobody else works on, on a connection of its own: tools are paused in the same
/// transaction. The database must have this program's schema, and no store may be open on it in this process.
///
/// # Errors
/// See [`super::StoreError`].
pub async fn begin(url: &DatabaseUrl, epoch: &NewEpoch) -> Result<Begun> {
    match url {
        DatabaseUrl::Sqlite(path) => sqlite::SqliteStore::begin_restore(path, epoch).await,
        DatabaseUrl::Postgres(address) => postgres::PostgresStore::begin_restore(address, epoch).await,
    }
}

/// What the epochs on record say about a wish: `None` where it is new.
#[must_use]
pub fn known(epochs: &[EpochRow], epoch: &NewEpoch) -> Option<Begun> {
    if let Some(found) = epochs.iter().find(|found| found.epoch_id == epoch.epoch_id) {
        return Some(Begun::Known(found.clone()));
    }
    let last = epochs.last()?;
    if last.ended_at.is_none() {
        return Some(Begun::Other(last.clone()));
    }
    (last.number >= crate::domain::restore::LAST_EPOCH).then_some(Begun::TooMany)
}
