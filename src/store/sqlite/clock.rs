//! The embedded database's clock: this machine's, anchored once and never going back.

use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::domain::time::Timestamp;

/// Gives out the database's time. The wall clock is read once, at the start; after that only the
/// monotonic clock counts, so that nobody who sets the wall clock moves a lease.
#[derive(Debug)]
pub(super) struct Clock {
    /// When `started` was, in microseconds. Only grows.
    base_us: AtomicI64,
    started: Instant,
}

impl Clock {
    /// A clock that starts at the wall clock's time, but not before `latest_us`.
    #[expect(
        clippy::disallowed_methods,
        reason = "the embedded database's clock is this machine's, anchored once and never going back"
    )]
    pub(super) fn start(latest_us: i64) -> Self {
        let wall_us = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX));
        Self { base_us: AtomicI64::new(wall_us.max(latest_us)), started: Instant::now() }
    }

    /// The time.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp::from_micros(self.base_us.load(Ordering::SeqCst)).plus_micros(self.elapsed_us())
    }

    /// Jumps forward to a time that another process has given out, and goes on from there.
    pub(super) fn reach(&self, latest_us: i64) {
        self.base_us.fetch_max(latest_us.saturating_sub(self.elapsed_us()), Ordering::SeqCst);
    }

    fn elapsed_us(&self) -> i64 {
        i64::try_from(self.started.elapsed().as_micros()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_no_earlier_than_the_latest_time() {
        let future = 9_000_000_000_000_000;
        assert!(Clock::start(future).now().micros() >= future);
        assert!(Clock::start(0).now().micros() > 1_700_000_000_000_000);
    }

    #[test]
    fn reaches_forward_and_never_back() {
        let clock = Clock::start(0);
        let before = clock.now();
        clock.reach(0);
        assert!(clock.now() >= before);
        let ahead = before.plus_seconds(3600);
        clock.reach(ahead.micros());
        assert!(clock.now() >= ahead);
        assert!(clock.now() < ahead.plus_seconds(60));
    }
}
