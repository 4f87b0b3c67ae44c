//! Seats: the connections of a store, each remembered with what it was set to.
//!
//! The driver's pool makes them, but does not keep them. It neither tells one of its connections from another, nor
//! takes one back without a task and a round trip of its own, which asks the server whether the connection is still at
//! rest: as much as a lone commit costs. Here whoever has seen its answer says so ([`Scoped::done`]), and the
//! connection is free at once. Only what is dropped without that word is asked: it may be cancelled in the middle.
//!
//! Plans are made anew every second on connections that are busy. The server makes the plan of a statement at its first
//! use and keeps it until statistics change; one that was made while `open_effects` was empty takes any index of the
//! tenant for as good as any other, and reads it whole for every row of a batch once there are thousands.
//!
//! What a connection was set to is forgotten before anything else is said to it, and remembered once that was
//! answered: whoever is cancelled in between leaves nothing behind that a later one could believe.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::store::{PoolUse, Result};

/// How long a caller waits for a connection before the store counts as unavailable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection that was dropped in the middle may take to come to rest.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a connection is used: what it leads to, and what the server keeps for it, is made anew after that.
const LIFETIME: Duration = Duration::from_mins(30);

/// How long a plan is kept at least, and how long statements must have run meanwhile before plans are made anew: a
/// connection that has next to nothing to do is not asked to plan for it.
const PLANS_KEPT: Duration = Duration::from_secs(1);
const PLANS_WORKED: Duration = Duration::from_millis(250);

/// The driver's pool.
pub(super) fn pool(max: u32) -> PgPoolOptions {
    PgPoolOptions::new().max_connections(max).acquire_timeout(ACQUIRE_TIMEOUT).test_before_acquire(false)
}

/// A connection, and what is known of it.
#[derive(Debug)]
struct Seat {
    connection: PgConnection,
    /// What it was set to; `None`: nobody knows.
    set_to: Option<String>,
    made: Instant,
    /// When its plans were made, or later.
    planned: Instant,
    /// How long it was in use since then.
    worked: Duration,
    /// How often [`Seats::forget`] had been asked for before.
    age: u64,
}

impl Seat {
    /// Sets the connection, where it is not so already.
    async fn set(&mut self, text: &str) -> Result<()> {
        if self.set_to.as_deref() == Some(text) {
            return Ok(());
        }
        self.set_to = None;
        super::say(&mut self.connection, text).await?;
        self.set_to = Some(text.to_owned());
        Ok(())
    }

    /// Waits for what may be under way still, and takes an open transaction back; whether the connection is at rest.
    async fn settle(&mut self, is_transaction: bool) -> bool {
        let settled = async {
            if is_transaction {
                sqlx::raw_sql("ROLLBACK").execute(&mut self.connection).await.map(drop)
            } else {
                self.connection.ping().await
            }
        };
        matches!(timeout(SETTLE_TIMEOUT, settled).await, Ok(Ok(())))
    }
}

/// A bounded number of seats.
#[derive(Debug)]
pub(super) struct Seats {
    /// Makes connections, patiently where the server is just coming back, and keeps none.
    maker: PgPool,
    /// The one that was free for longest comes first.
    free: Mutex<VecDeque<Seat>>,
    places: Arc<Semaphore>,
    number: usize,
    forgotten: AtomicU64,
}

impl Seats {
    pub(super) fn new(options: &PgConnectOptions, number: u32) -> Self {
        let maker = pool(number).connect_lazy_with(options.clone());
        let number = usize::try_from(number).unwrap_or(1);
        let places = Arc::new(Semaphore::new(number));
        Self { maker, free: Mutex::default(), places, number, forgotten: AtomicU64::new(0) }
    }

    fn free(&self) -> MutexGuard<'_, VecDeque<Seat>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection: one that is set to this, or else the one that was free for longest, or else a new one.
    async fn take(self: &Arc<Self>, text: Option<&str>) -> Result<Scoped> {
        let place = timeout(ACQUIRE_TIMEOUT, Arc::clone(&self.places).acquire_owned()).await;
        let place = place.map_err(|_| sqlx::Error::PoolTimedOut)?.map_err(|_| sqlx::Error::PoolClosed)?;
        let found = {
            let mut free = self.free();
            free.retain(|seat| seat.made.elapsed() < LIFETIME);
            let fitting = text.and_then(|text| free.iter().position(|seat| seat.set_to.as_deref() == Some(text)));
            free.remove(fitting.unwrap_or(0))
        };
        let seat = match found {
            Some(seat) => seat,
            None => self.make().await?,
        };
        let is_stale = seat.planned.elapsed() >= PLANS_KEPT && seat.worked >= PLANS_WORKED;
        let (seats, taken) = (Arc::clone(self), Instant::now());
        let mut scoped = Scoped { seat: Some(seat), place: Some(place), seats, rest: Rest::Unknown, taken };
        if is_stale {
            scoped.plan_anew().await?;
        }
        Ok(scoped)
    }

    async fn make(&self) -> Result<Seat> {
        let age = self.forgotten.load(Ordering::Acquire);
        let connection = self.maker.acquire().await?.detach();
        let made = Instant::now();
        Ok(Seat { connection, set_to: None, made, planned: made, worked: Duration::ZERO, age })
    }

    pub(super) async fn scope(self: &Arc<Self>, text: &str) -> Result<Scoped> {
        let mut scoped = self.take(Some(text)).await?;
        if let Some(seat) = &mut scoped.seat {
            seat.set(text).await?;
        }
        Ok(scoped)
    }

    /// A transaction that sets itself: what the connection is set to stays as it was.
    pub(super) async fn begin(self: &Arc<Self>, text: AssertSqlSafe<String>) -> Result<ScopedTransaction> {
        let mut scoped = self.take(None).await?;
        scoped.rest = Rest::InTransaction;
        sqlx::raw_sql(text).execute(&mut *scoped).await?;
        Ok(ScopedTransaction { scoped })
    }

    fn give_back(&self, seat: Seat) {
        let mut free = self.free();
        if seat.age == self.forgotten.load(Ordering::Acquire) && !self.places.is_closed() {
            free.push_back(seat);
        }
    }

    /// Closes the connections that there are: at once, or when they are given back. One that was made to a standby,
    /// or while the database took no writes, would stay so; the next one may find the database that does.
    pub(super) fn forget(&self) {
        let mut free = self.free();
        self.forgotten.fetch_add(1, Ordering::AcqRel);
        free.clear();
    }

    pub(super) fn usage(&self, name: &'static str) -> PoolUse {
        let (taken, idle) = (self.number.saturating_sub(self.places.available_permits()), self.free().len());
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        PoolUse { pool: name, in_use: count(taken), idle: count(idle), limit: count(self.number) }
    }

    pub(super) async fn close(&self) {
        self.places.close();
        let free: Vec<Seat> = self.free().drain(..).collect();
        for seat in free {
            // The server notices either way.
            let _ = timeout(SETTLE_TIMEOUT, seat.connection.close()).await;
        }
        self.maker.close().await;
    }
}

/// In which state a connection is given back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rest {
    /// Everything was answered.
    Known,
    /// Something may be under way.
    Unknown,
    /// And it is in a transaction.
    InTransaction,
}

/// A connection that sees the rows of those whom it was asked for.
#[derive(Debug)]
pub struct Scoped {
    /// There until it is dropped.
    seat: Option<Seat>,
    place: Option<OwnedSemaphorePermit>,
    seats: Arc<Seats>,
    rest: Rest,
    taken: Instant,
}

impl Scoped {
    /// Lets the server forget its plans: each statement stays prepared, and is planned again at its next use.
    async fn plan_anew(&mut self) -> Result<()> {
        sqlx::raw_sql("DISCARD PLANS").execute(&mut **self).await?;
        if let Some(seat) = &mut self.seat {
            (seat.planned, seat.worked) = (Instant::now(), Duration::ZERO);
        }
        Ok(())
    }

    /// Gives the connection back at once. Only for whoever has seen the whole answer of all that it sent.
    pub(in crate::store::postgres) fn done(mut self) {
        self.rest = Rest::Known;
    }
}

impl Drop for Scoped {
    fn drop(&mut self) {
        let Some(mut seat) = self.seat.take() else { return };
        seat.worked = seat.worked.saturating_add(self.taken.elapsed());
        let (seats, place, rest) = (Arc::clone(&self.seats), self.place.take(), self.rest);
        if rest == Rest::Known {
            // Before the place is free: whoever gets it finds the connection.
            seats.give_back(seat);
            drop(place);
        } else if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                if seat.settle(rest == Rest::InTransaction).await {
                    seats.give_back(seat);
                } else {
                    // Whatever ended it has likely ended the others.
                    seats.forget();
                }
                drop(place);
            });
        }
    }
}

impl Deref for Scoped {
    type Target = PgConnection;

    #[expect(clippy::expect_used, reason = "the seat leaves in `drop` alone")]
    fn deref(&self) -> &PgConnection {
        &self.seat.as_ref().expect("a seat").connection
    }
}

impl DerefMut for Scoped {
    #[expect(clippy::expect_used, reason = "the seat leaves in `drop` alone")]
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.seat.as_mut().expect("a seat").connection
    }
}

/// A transaction that sees the rows of those whom it was asked for. Rolled back when dropped.
#[derive(Debug)]
pub struct ScopedTransaction {
    scoped: Scoped,
}

impl ScopedTransaction {
    pub(in crate::store::postgres) async fn commit(self) -> Result<()> {
        self.end("COMMIT").await
    }

    pub(in crate::store::postgres) async fn rollback(self) -> Result<()> {
        self.end("ROLLBACK").await
    }

    async fn end(mut self, how: &'static str) -> Result<()> {
        sqlx::raw_sql(how).execute(&mut *self.scoped).await?;
        self.scoped.done();
        Ok(())
    }
}

impl Deref for ScopedTransaction {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        &self.scoped
    }
}

impl DerefMut for ScopedTransaction {
    fn deref_mut(&mut self) -> &mut PgConnection {
        &mut self.scoped
    }
}
