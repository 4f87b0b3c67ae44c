//! Whether the database takes writes, as far as the writes themselves say.
//!
//! A database that is full, locked, of another schema or without room for one more connection still answers questions.
//! What it does with changes shows in a commit. One that failed is remembered, and until a write has succeeded again
//! nobody is told that the store takes any: readiness then tries one that is taken back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::{Result, StoreError};

/// The least time between two tries: readiness may be asked by anybody, and as often as they like.
const BETWEEN_TRIES: Duration = Duration::from_secs(1);
/// A commit that is under way for longer counts as one that failed, until it ends.
const LONG: Duration = Duration::from_secs(2);

/// Tells what the last writes came to. Asks the database nothing.
pub trait WriteHealth {
    /// Whether a change failed, and nothing was written since.
    fn refuses_writes(&self) -> bool;
}

/// What the last writes of one process came to.
#[derive(Debug, Default)]
pub(super) struct Writes {
    failed: AtomicBool,
    tried: Mutex<Option<Instant>>,
    /// When the commits that are under way began: two at most.
    under_way: Mutex<Vec<Instant>>,
}

/// A commit that is under way.
#[derive(Debug)]
pub(super) struct UnderWay<'a> {
    writes: &'a Writes,
    began: Instant,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut under_way = self.writes.under_way();
        if let Some(place) = under_way.iter().position(|began| *began == self.began) {
            under_way.swap_remove(place);
        }
    }
}

impl Writes {
    fn under_way(&self) -> MutexGuard<'_, Vec<Instant>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A commit begins.
    pub(super) fn begin(&self) -> UnderWay<'_> {
        let began = Instant::now();
        self.under_way().push(began);
        UnderWay { writes: self, began }
    }

    /// A commit came to this.
    pub(super) fn note<T>(&self, done: &Result<T>) {
        match done {
            Ok(_) => self.failed.store(false, Ordering::Relaxed),
            Err(StoreError::Unavailable(_)) => self.failed.store(true, Ordering::Relaxed),
            // It was about what was to be written.
            Err(_) => {}
        }
    }

    pub(super) fn have_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) || self.under_way().iter().any(|began| began.elapsed() > LONG)
    }

    /// Whether one may be tried now.
    pub(super) fn may_try(&self) -> bool {
        let mut tried = self.tried.lock().unwrap_or_else(PoisonError::into_inner);
        if tried.is_some_and(|at| at.elapsed() < BETWEEN_TRIES) {
            return false;
        }
        *tried = Some(Instant::now());
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_is_remembered_until_one_succeeds_and_tries_are_rare() {
        let writes = Writes::default();
        assert!(!writes.have_failed());
        writes.note::<()>(&Err(StoreError::Unavailable(sqlx::Error::PoolTimedOut)));
        assert!(writes.have_failed());
        writes.note::<()>(&Err(StoreError::Rejected(sqlx::Error::RowNotFound)));
        assert!(writes.have_failed(), "that says nothing about the database");
        assert!(writes.may_try() && !writes.may_try());
        writes.note(&Ok(()));
        assert!(!writes.have_failed());
    }
}
