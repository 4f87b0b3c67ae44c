//! Seats: the connections of a store, each remembered with what it was set to.
//!
//! The driver's pool makes them, but does not keep them. It neither tells one of its connections from another, nor
//! takes one back without a task and a round trip of its own, which asks the server whether the connection is still at
//! rest: as much as a lone commit costs. Here a use that has seen its whole answer says so ([`Held::done`]), and the
//! connection is free at once. Only what is dropped without that word is asked: it may be cancelled in the middle.
//!
//! Plans are made anew every second on connections that are busy. The server makes the plan of a statement at its first
//! use and keeps it until statistics change; one that was made while `open_effects` was empty takes any index of the
//! tenant for as good as any other, and reads it whole for every row of a batch once there are thousands.
//!
//! What a connection was set to is forgotten before anything else is said to it, and remembered once that was
//! answered: whoever is cancelled in between leaves nothing behind that a later one could believe.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Connection as _;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPool, PgPoolOptions};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::uses::{Held, Rest, Scoped, ScopedTransaction};
use super::{Manner, Tenants};
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
pub(super) struct Seat {
    pub(super) connection: PgConnection,
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
    fn new(connection: PgConnection, age: u64) -> Self {
        let made = Instant::now();
        Self { connection, set_to: None, made, planned: made, worked: Duration::ZERO, age }
    }

    /// Sets the connection, where it is not so already.
    pub(super) async fn set(&mut self, text: &str) -> Result<()> {
        if self.set_to.as_deref() == Some(text) {
            return Ok(());
        }
        self.set_to = None;
        super::say(&mut self.connection, text).await?;
        self.set_to = Some(text.to_owned());
        Ok(())
    }

    /// Whether its plans are old enough to be made anew, and the connection busy enough to be asked for it.
    fn has_old_plans(&self) -> bool {
        self.planned.elapsed() >= PLANS_KEPT && self.worked >= PLANS_WORKED
    }

    /// Lets the server forget its plans: each statement stays prepared, and is planned again at its next use.
    async fn plan_anew(&mut self) -> Result<()> {
        sqlx::raw_sql("DISCARD PLANS").execute(&mut self.connection).await?;
        (self.planned, self.worked) = (Instant::now(), Duration::ZERO);
        Ok(())
    }

    /// Notes how long a use took.
    pub(super) fn has_worked(&mut self, time: Duration) {
        self.worked = self.worked.saturating_add(time);
    }

    /// Waits for what may be under way still, and takes an open transaction back; whether the connection is at rest.
    pub(super) async fn settle(&mut self, is_transaction: bool) -> bool {
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
    manner: Manner,
    number: usize,
    forgotten: AtomicU64,
}

impl Seats {
    pub(super) fn new(options: &PgConnectOptions, manner: Manner, number: u32) -> Self {
        let maker = pool(number).connect_lazy_with(options.clone());
        let number = usize::try_from(number).unwrap_or(1);
        let places = Arc::new(Semaphore::new(number));
        Self { maker, free: Mutex::default(), places, manner, number, forgotten: AtomicU64::new(0) }
    }

    /// A connection that is there already.
    pub(super) fn seat(&self, connection: PgConnection) {
        self.free().push_back(Seat::new(connection, 0));
    }

    pub(super) const fn manner(&self) -> &Manner {
        &self.manner
    }

    fn free(&self) -> MutexGuard<'_, VecDeque<Seat>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection: one that is set to this, or else the one that was free for longest, or else a new one.
    async fn take(self: &Arc<Self>, text: Option<&str>) -> Result<Held> {
        let found = timeout(ACQUIRE_TIMEOUT, self.find(text)).await;
        let mut held = found.map_err(|_| sqlx::Error::PoolTimedOut)??;
        // Whoever uses transactions names no statement: each is planned at every use.
        if held.seat().has_old_plans() && !self.manner.is_of_transactions() {
            held.seat().plan_anew().await?;
        }
        Ok(held)
    }

    /// Waits for a place, and then for a connection where one must be made: whoever calls bounds both together, as
    /// who waited long for the place would otherwise wait as long again.
    async fn find(self: &Arc<Self>, text: Option<&str>) -> Result<Held> {
        let place = Arc::clone(&self.places).acquire_owned().await.map_err(|_| sqlx::Error::PoolClosed)?;
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
        Ok(Held::new(seat, place, Arc::clone(self)))
    }

    async fn make(&self) -> Result<Seat> {
        let age = self.forgotten.load(Ordering::Acquire);
        Ok(Seat::new(self.maker.acquire().await?.detach(), age))
    }

    pub(super) async fn scope(self: &Arc<Self>, whose: &Tenants<'_>) -> Result<Scoped> {
        if self.manner.is_of_transactions() {
            return Ok(Scoped::new(self.begun(whose).await?));
        }
        let text = whose.text();
        let mut held = self.take(Some(&text)).await?;
        held.seat().set(&text).await?;
        Ok(Scoped::new(held))
    }

    /// A transaction that sets itself: what the connection is set to stays as it was.
    pub(super) async fn begin(self: &Arc<Self>, whose: &Tenants<'_>) -> Result<ScopedTransaction> {
        Ok(ScopedTransaction::new(self.begun(whose).await?))
    }

    async fn begun(self: &Arc<Self>, whose: &Tenants<'_>) -> Result<Held> {
        let mut held = self.take(None).await?;
        held.is_in(Rest::InTransaction);
        sqlx::raw_sql(self.manner.begin(whose)).execute(&mut held).await?;
        Ok(held)
    }

    pub(super) fn give_back(&self, seat: Seat) {
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
