//! Seats: connections that are remembered with what they were set to.
//!
//! A pool of the driver does not tell one of its connections from another. So each seat is a pool of one connection,
//! which makes it anew where it breaks, and a note of what that connection was set to. The note is taken away before
//! anything is sent and written once it was answered: whoever is cancelled in between leaves none, and the next one
//! sets the connection again. A new connection takes the note away as well.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Postgres, Transaction};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::store::{PoolUse, Result};

/// How long a caller waits for a connection before the store counts as unavailable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// The driver's pool, as every seat has one.
pub(super) fn pool(max: u32) -> PgPoolOptions {
    // The pool's ping before each use would cost an eighth of the throughput; a broken connection shows itself in
    // the statement.
    PgPoolOptions::new().max_connections(max).acquire_timeout(ACQUIRE_TIMEOUT).test_before_acquire(false)
}

/// What a connection was set to; `None`: nobody knows.
type Note = Arc<Mutex<Option<String>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pool of one connection.
#[derive(Debug)]
struct Seat {
    pool: PgPool,
    note: Note,
}

impl Seat {
    fn new(options: &PgConnectOptions) -> Self {
        let note = Note::default();
        let of_the_pool = Arc::clone(&note);
        let pool = pool(1).after_connect(move |_, _| {
            *lock(&of_the_pool) = None;
            Box::pin(async { Ok(()) })
        });
        Self { pool: pool.connect_lazy_with(options.clone()), note }
    }

    fn is_set_to(&self, text: &str) -> bool {
        lock(&self.note).as_deref() == Some(text)
    }

    /// Sets the seat's connection, where it is not so already.
    async fn set(&self, connection: &mut PgConnection, text: &str) -> Result<()> {
        if self.is_set_to(text) {
            return Ok(());
        }
        *lock(&self.note) = None;
        super::say(connection, text).await?;
        *lock(&self.note) = Some(text.to_owned());
        Ok(())
    }
}

/// A bounded number of seats.
#[derive(Debug)]
pub(super) struct Seats {
    all: Vec<Arc<Seat>>,
    /// The one that was free for longest comes first.
    free: Mutex<VecDeque<Arc<Seat>>>,
    places: Arc<Semaphore>,
}

/// A seat that is taken. Given back when dropped.
#[derive(Debug)]
struct Taken {
    seat: Arc<Seat>,
    seats: Arc<Seats>,
    _place: OwnedSemaphorePermit,
}

impl Drop for Taken {
    fn drop(&mut self) {
        // Before the place is free: whoever gets it finds a seat.
        lock(&self.seats.free).push_back(Arc::clone(&self.seat));
    }
}

impl Seats {
    pub(super) fn new(options: &PgConnectOptions, number: u32) -> Self {
        let all: Vec<_> = (0..number).map(|_| Arc::new(Seat::new(options))).collect();
        let places = Arc::new(Semaphore::new(all.len()));
        Self { free: Mutex::new(all.iter().map(Arc::clone).collect()), all, places }
    }

    /// A free seat: one that is set to this, or else the one that was free for longest.
    async fn take(self: &Arc<Self>, text: Option<&str>) -> Result<Taken> {
        let place = timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
        let mut free = lock(&self.free);
        let fitting = text.and_then(|text| free.iter().position(|seat| seat.is_set_to(text)));
        // There is one for each place.
        let seat = free.remove(fitting.unwrap_or(0)).ok_or(sqlx::Error::PoolClosed)?;
        drop(free);
        Ok(Taken { seat, seats: Arc::clone(self), _place: place })
    }

    pub(super) async fn scope(self: &Arc<Self>, text: &str) -> Result<Scoped> {
        let taken = self.take(Some(text)).await?;
        let mut connection = taken.seat.pool.acquire().await?;
        taken.seat.set(&mut connection, text).await?;
        Ok(Scoped { connection, _taken: taken })
    }

    /// A transaction that sets itself: what the connection is set to stays as it was.
    pub(super) async fn begin(self: &Arc<Self>, text: AssertSqlSafe<String>) -> Result<ScopedTransaction> {
        let taken = self.take(None).await?;
        let transaction = taken.seat.pool.begin_with(text).await?;
        Ok(ScopedTransaction { transaction, taken })
    }

    /// Closes the connections that nobody uses. One that was made to a standby, or while the database took no
    /// writes, would stay so; the next one may find the database that does.
    pub(super) fn forget(&self) {
        for seat in &self.all {
            if let Some(connection) = seat.pool.try_acquire() {
                drop(connection.detach());
            }
        }
    }

    pub(super) fn usage(&self, name: &'static str) -> PoolUse {
        let mut sum = PoolUse { pool: name, in_use: 0, idle: 0, limit: 0 };
        for seat in &self.all {
            let one = PoolUse::of(name, &seat.pool);
            sum.in_use = sum.in_use.saturating_add(one.in_use);
            sum.idle = sum.idle.saturating_add(one.idle);
            sum.limit = sum.limit.saturating_add(one.limit);
        }
        sum
    }

    pub(super) async fn close(&self) {
        self.places.close();
        for seat in &self.all {
            seat.pool.close().await;
        }
    }
}

/// A connection that sees the rows of those whom it was asked for.
#[derive(Debug)]
pub struct Scoped {
    // Dropped first: the seat is free when its connection is on its way back.
    connection: PoolConnection<Postgres>,
    _taken: Taken,
}

impl Deref for Scoped {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.connection
    }
}

impl DerefMut for Scoped {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.connection
    }
}

/// A transaction that sees the rows of those whom it was asked for. Rolled back when dropped.
#[derive(Debug)]
pub struct ScopedTransaction {
    transaction: Transaction<'static, Postgres>,
    taken: Taken,
}

impl ScopedTransaction {
    pub(in crate::store::postgres) async fn commit(self) -> Result<()> {
        let Self { transaction, taken } = self;
        transaction.commit().await?;
        drop(taken);
        Ok(())
    }

    pub(in crate::store::postgres) async fn rollback(self) -> Result<()> {
        let Self { transaction, taken } = self;
        transaction.rollback().await?;
        drop(taken);
        Ok(())
    }
}

impl Deref for ScopedTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.transaction
    }
}

impl DerefMut for ScopedTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.transaction
    }
}
