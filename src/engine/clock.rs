//! Database time without a round trip: an offset against the monotonic clock (law 13).

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Instant;

use crate::domain::time::Timestamp;
use crate::store::{Result, Store};

/// The database's clock as this process knows it. The error is bounded by half the round trip of
/// the last refresh; commits repeat whatever depends on a lease in the database itself.
#[derive(Debug)]
pub struct DatabaseClock {
    started: Instant,
    /// Database time at `started`, in microseconds.
    offset_us: AtomicI64,
}

impl DatabaseClock {
    /// Asks the database for its time.
    ///
    /// # Errors
    /// The store can't answer.
    pub async fn start(store: &dyn Store) -> Result<Self> {
        let clock = Self { started: Instant::now(), offset_us: AtomicI64::new(0) };
        clock.refresh(store).await?;
        Ok(clock)
    }

    /// Asks again, against drift.
    ///
    /// # Errors
    /// The store can't answer; the old offset stays.
    pub async fn refresh(&self, store: &dyn Store) -> Result<()> {
        let before = self.elapsed_us();
        let database = store.now().await?;
        let after = self.elapsed_us();
        let middle = before.saturating_add(after.saturating_sub(before) / 2);
        self.offset_us.store(database.micros().saturating_sub(middle), Ordering::Relaxed);
        Ok(())
    }

    /// The database's time now.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.offset_us.load(Ordering::Relaxed).saturating_add(self.elapsed_us()))
    }

    fn elapsed_us(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}
