//! What waits for commits, and whether it is so much that a new act should come later instead.
//!
//! A queue that only has a bound serves nobody once it is full: everybody waits for as long as the whole queue takes, and
//! those who have acted wait with their outcome behind those who have not begun. So new acts are refused as soon as they would
//! wait for long, by what the store was seen to take; outcomes, heartbeats and decisions are not.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::limits;

/// What may always wait: a batch that is under way, and one behind it.
const LEAST: usize = 2 * limits::COMMIT_CHANGES;
/// How long a new act may wait.
const WAIT: Duration = Duration::from_millis(limits::BACKLOG_WAIT_MILLIS);

/// What waits for a commit, or is in one.
#[derive(Debug)]
pub struct Backlog {
    waiting: AtomicUsize,
    most: AtomicUsize,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { waiting: AtomicUsize::new(0), most: AtomicUsize::new(LEAST) }
    }
}

impl Backlog {
    /// Whether who begins an act now would wait for longer than [`limits::BACKLOG_WAIT_MILLIS`].
    #[must_use]
    pub fn is_long(&self) -> bool {
        self.count() >= self.most.load(Ordering::Relaxed)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// One change more.
    pub(super) fn grows(&self) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
    }

    /// So many have their answer, or were not taken.
    pub(super) fn shrinks(&self, by: usize) {
        self.waiting.fetch_sub(by, Ordering::Relaxed);
    }

    /// So many are committed in the time that a new act may wait.
    pub(super) fn measured(&self, in_time: usize) {
        self.most.store(in_time.max(LEAST), Ordering::Relaxed);
    }
}

/// How fast changes are committed while any are: pauses between them say nothing about what the store can take.
#[derive(Debug, Default)]
pub(super) struct Speed {
    /// When the commits that are under way began, if any are.
    since: Option<Instant>,
    busy: Duration,
    changes: usize,
    /// Changes in the time that an act may wait, smoothed.
    in_time: Option<usize>,
}

impl Speed {
    /// The shortest time that is taken for a measurement.
    const SPAN: Duration = Duration::from_millis(50);

    /// A commit begins.
    pub(super) fn begins(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// One has ended, and others go on or not. Tells what was found, when enough was seen.
    pub(super) fn ended(&mut self, changes: usize, goes_on: bool, now: Instant) -> Option<usize> {
        self.changes = self.changes.saturating_add(changes);
        let since = std::mem::replace(&mut self.since, goes_on.then_some(now))?;
        self.busy = self.busy.saturating_add(now.saturating_duration_since(since));
        if self.busy < Self::SPAN {
            return None;
        }
        let micros = |time: Duration| usize::try_from(time.as_micros()).unwrap_or(usize::MAX);
        let found = self.changes.saturating_mul(micros(WAIT)) / micros(self.busy);
        (self.busy, self.changes) = (Duration::ZERO, 0);
        let smoothed = self.in_time.map_or(found, |before| before.saturating_mul(3).saturating_add(found) / 4);
        self.in_time = Some(smoothed);
        self.in_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_long_by_what_is_committed_in_time() {
        let backlog = Backlog::default();
        let grow = |by| (0..by).for_each(|_| backlog.grows());
        grow(LEAST - 1);
        assert!(!backlog.is_long());
        grow(1);
        assert!(backlog.is_long(), "nothing is known of the store: two batches");
        backlog.measured(5_000);
        assert!(!backlog.is_long());
        grow(5_000 - LEAST);
        assert!(backlog.is_long());
        backlog.shrinks(1);
        assert!(!backlog.is_long());
        backlog.measured(3);
        assert!(backlog.is_long());
        backlog.shrinks(5_000 - LEAST);
        assert!(!backlog.is_long(), "a store that hardly moves takes two batches all the same");
    }

    #[test]
    fn speed_is_that_of_commits_and_not_of_pauses() {
        let (mut speed, begun) = (Speed::default(), Instant::now());
        let at = |millis| begun + Duration::from_millis(millis);
        // 100 changes in 100 ms of commits, a second apart.
        speed.begins(at(0));
        assert_eq!(speed.ended(40, false, at(40)), None, "too short to tell");
        speed.begins(at(1_040));
        let in_time = speed.ended(60, false, at(1_100)).unwrap();
        assert_eq!(u128::try_from(in_time), Ok(WAIT.as_millis()));
        // Two at once count their time once.
        speed.begins(at(2_000));
        speed.begins(at(2_010));
        assert_eq!(speed.ended(20, true, at(2_040)), None);
        let faster = speed.ended(180, false, at(2_100)).unwrap();
        assert_eq!(faster, in_time + in_time / 4, "twice as fast, by a quarter at once");
    }
}
