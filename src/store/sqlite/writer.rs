//! The one connection that writes.
//!
//! Not a pool: a pool pings what it takes back, one more change of threads for every commit. And
//! a connection that was not given back is not used again, which is what makes it safe to put
//! BEGIN and COMMIT into longer scripts: whatever goes wrong in between, a cancelled caller
//! included, closes the connection, and that rolls back.

use std::time::{Duration, Instant};

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::{Mutex, MutexGuard};

use crate::store::Result;
use crate::telemetry::probe;

/// How long a caller waits for the connection.
const WAIT: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Writer {
    options: SqliteConnectOptions,
    slot: Mutex<Slot>,
}

#[derive(Debug)]
enum Slot {
    Idle(SqliteConnection),
    /// Lent, or not given back.
    Absent,
    Closed,
}

/// The connection, until it is given back.
#[derive(Debug)]
pub(super) struct Lent<'a> {
    slot: MutexGuard<'a, Slot>,
    pub(super) connection: SqliteConnection,
}

impl Writer {
    /// Keeps a connection; another one is opened with `options` if it is lost.
    pub(super) fn new(options: SqliteConnectOptions, connection: SqliteConnection) -> Self {
        Self { options, slot: Mutex::new(Slot::Idle(connection)) }
    }

    /// Waits until nobody else writes.
    pub(super) async fn lend(&self) -> Result<Lent<'_>> {
        let began = Instant::now();
        let waited = tokio::time::timeout(WAIT, self.slot.lock()).await;
        probe::lock_waited(began);
        let mut slot = waited.map_err(|_| sqlx::Error::PoolTimedOut)?;
        let connection = match std::mem::replace(&mut *slot, Slot::Absent) {
            Slot::Idle(connection) => connection,
            Slot::Absent => self.options.connect().await?,
            Slot::Closed => {
                *slot = Slot::Closed;
                return Err(sqlx::Error::PoolClosed.into());
            }
        };
        Ok(Lent { slot, connection })
    }

    /// Whether somebody writes now.
    pub(super) fn is_lent(&self) -> bool {
        self.slot.try_lock().is_err()
    }

    /// Closes the connection after the write in flight. Nothing is lent after that.
    pub(super) async fn close(&self) {
        let mut slot = self.slot.lock().await;
        if let Slot::Idle(connection) = std::mem::replace(&mut *slot, Slot::Closed)
            && let Err(error) = connection.close().await
        {
            tracing::warn!(%error, "the database was not closed in good order");
        }
    }
}

impl Lent<'_> {
    /// Gives the connection back: no transaction is open and nothing went wrong.
    pub(super) fn give_back(mut self) {
        *self.slot = Slot::Idle(self.connection);
    }
}
