//! A look at a database from outside, for `actonce doctor`: nothing that is there is changed.

use std::time::Duration;

use super::Result;
use super::migrate::Level;
use super::open::DatabaseUrl;
use super::seals::{SealedStart, SealedTable};
use super::{postgres, sqlite};

/// What was found in a database that answers.
#[derive(Debug)]
pub struct Inspection {
    /// Where its schema is.
    pub schema: Level,
    /// Why nothing can be written; `None` where a write was tried, and taken back. Not tried in an older schema.
    pub write_fault: Option<String>,
    /// What a commit rests on: name and value, as the server has them for a new connection.
    pub settings: Vec<(&'static str, String)>,
    /// The database's time in microseconds; on SQLite the latest that was given out.
    pub now_us: Option<i64>,
    /// Alias keys on record: id, fingerprint, and whether it was retired.
    pub alias_keys: Vec<(String, Vec<u8>, bool)>,
    /// Tools with an adapter: tenant, name and registration, at most [`crate::limits::DOCTOR_TOOLS`].
    pub adapters: Vec<(String, String, String)>,
    /// How what is sealed begins, of at most [`crate::limits::DOCTOR_SEALED`] rows of each table.
    pub sealed: Vec<SealedStart>,
    /// The way past a pooler that gives sessions away; `None` where there is no such pooler.
    pub past: Option<Past>,
}

/// An address past a pooler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Past {
    /// There is none.
    None,
    /// It leads to the same database.
    Leads,
    /// It does not.
    Fault(String),
}

/// Longest wait for a lock that another process holds.
pub(super) const LOCK: Duration = Duration::from_secs(2);

/// A row of a look at what is sealed.
pub(super) fn sealed_start(table: i64, start: Vec<u8>, rows: i64) -> Option<SealedStart> {
    let table = *SealedTable::ALL.get(usize::try_from(table).ok()?)?;
    Some(SealedStart { table, start, rows: u64::try_from(rows).ok()? })
}

/// Looks. The caller bounds the time.
///
/// # Errors
/// The database can't be opened or does not answer ([`super::StoreError::Schema`] where it is not one that
/// this program can work on).
pub async fn inspect(url: &DatabaseUrl) -> Result<Inspection> {
    match url {
        DatabaseUrl::Sqlite(path) => sqlite::inspect::inspect(path).await,
        DatabaseUrl::Postgres(address) => postgres::inspect::inspect(address).await,
    }
}
