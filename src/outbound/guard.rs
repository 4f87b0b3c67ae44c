//! A circuit breaker leaves alone what keeps failing. How many calls may be under way is counted where they
//! begin: a call brings its place along.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use moka::sync::Cache;

use crate::domain::adapter::NoAnswer;
use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::{Name, Tenant};
use crate::limits;

/// Failures that nobody has asked about for this long are forgotten.
const FORGET_AFTER: Duration = Duration::from_hours(1);

/// Which adapter it is. A registration that changes its adapter starts anew.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct AdapterKey {
    /// Whose.
    pub tenant: Tenant,
    /// Of which tool.
    pub tool: Name,
    /// The registration's fingerprint.
    pub fingerprint: Sha256Digest,
}

/// How a call ended, for the breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Answered,
    Failed,
    /// It says nothing about the adapter: no call was made.
    Neutral,
}

impl<T> From<&Result<T, NoAnswer>> for Ending {
    fn from(result: &Result<T, NoAnswer>) -> Self {
        match result {
            Ok(_) => Self::Answered,
            Err(NoAnswer::Timeout | NoAnswer::Unreachable | NoAnswer::Status | NoAnswer::Contract(_)) => Self::Failed,
            Err(NoAnswer::Forbidden | NoAnswer::CircuitOpen | NoAnswer::NoSecret) => Self::Neutral,
        }
    }
}

/// The failures of one adapter.
#[derive(Debug, Default)]
struct Breaker {
    in_a_row: u32,
    open: Option<Open>,
}

/// It is left alone.
#[derive(Debug, Clone, Copy)]
struct Open {
    until: Instant,
    pause: Duration,
    probing: bool,
}

impl Breaker {
    /// Whether a call may be made now, and if it is the probe.
    fn admit(&mut self, now: Instant) -> Result<bool, NoAnswer> {
        match &mut self.open {
            None => Ok(false),
            Some(open) if now >= open.until && !open.probing => {
                open.probing = true;
                Ok(true)
            }
            Some(_) => Err(NoAnswer::CircuitOpen),
        }
    }

    fn settle(&mut self, ending: Ending, probe: bool, now: Instant) {
        let most = Duration::from_secs(limits::ADAPTER_PAUSE_MAX_SECONDS);
        match (ending, &mut self.open) {
            (Ending::Answered, _) => *self = Self::default(),
            (Ending::Failed, None) => {
                self.in_a_row = self.in_a_row.saturating_add(1);
                if self.in_a_row >= limits::ADAPTER_FAILURES {
                    let pause = Duration::from_secs(limits::ADAPTER_PAUSE_SECONDS);
                    self.open = Some(Open { until: now + pause, pause, probing: false });
                }
            }
            (Ending::Failed, Some(open)) if probe => {
                let pause = open.pause.saturating_mul(2).min(most);
                *open = Open { until: now + pause, pause, probing: false };
            }
            // Calls that were under way when it opened say nothing new.
            (Ending::Failed, Some(_)) => {}
            (Ending::Neutral, open) => {
                if let (Some(open), true) = (open, probe) {
                    open.probing = false;
                }
            }
        }
    }
}

/// The guard in front of all adapters of one process.
#[derive(Debug)]
pub struct Guard {
    breakers: Cache<AdapterKey, Arc<Mutex<Breaker>>>,
}

impl Default for Guard {
    fn default() -> Self {
        Self { breakers: Cache::builder().max_capacity(limits::ADAPTERS_REMEMBERED).time_to_idle(FORGET_AFTER).build() }
    }
}

impl Guard {
    /// Lets a call through, or says at once why not.
    ///
    /// # Errors
    /// `CircuitOpen`.
    pub fn admit(&self, key: &AdapterKey, now: Instant) -> Result<Admission, NoAnswer> {
        let breaker = self.breakers.get_with_by_ref(key, Arc::default);
        let probe = lock(&breaker).admit(now)?;
        Ok(Admission { breaker, probe, settled: false })
    }
}

/// A call that was let through. Dropped without [`Admission::settle`] it says nothing of the adapter.
#[derive(Debug)]
pub struct Admission {
    breaker: Arc<Mutex<Breaker>>,
    probe: bool,
    settled: bool,
}

impl Admission {
    /// Tells what came of the call.
    pub fn settle<T>(mut self, result: &Result<T, NoAnswer>, now: Instant) {
        self.settled = true;
        lock(&self.breaker).settle(result.into(), self.probe, now);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        if self.probe && !self.settled {
            // The time is not looked at: a probe that was given up may be made again at once.
            lock(&self.breaker).release_probe();
        }
    }
}

impl Breaker {
    fn release_probe(&mut self) {
        if let Some(open) = &mut self.open {
            open.probing = false;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAILED: Result<(), NoAnswer> = Err(NoAnswer::Timeout);

    fn key(tool: &str) -> AdapterKey {
        AdapterKey {
            tenant: Tenant::new("tenant").unwrap(),
            tool: Name::new(tool).unwrap(),
            fingerprint: Sha256Digest::of(tool.as_bytes()),
        }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn fail(guard: &Guard, key: &AdapterKey, times: u32, now: Instant) {
        for _ in 0..times {
            guard.admit(key, now).unwrap().settle(&FAILED, now);
        }
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_only_then() {
        let (guard, key, now) = (Guard::default(), key("a"), Instant::now());
        fail(&guard, &key, limits::ADAPTER_FAILURES - 1, now);
        guard.admit(&key, now).unwrap().settle(&Ok(()), now);
        fail(&guard, &key, limits::ADAPTER_FAILURES - 1, now);
        // What never was a call counts for nothing.
        for error in [NoAnswer::Forbidden, NoAnswer::NoSecret] {
            guard.admit(&key, now).unwrap().settle::<()>(&Err(error), now);
        }
        fail(&guard, &key, 1, now);
        assert_eq!(guard.admit(&key, now).unwrap_err(), NoAnswer::CircuitOpen);
        assert!(guard.admit(&self::key("b"), now).is_ok(), "another tool has a breaker of its own");
        let changed = AdapterKey { fingerprint: Sha256Digest::of(b"new"), ..key };
        assert!(guard.admit(&changed, now).is_ok(), "and so has a changed adapter");
    }

    #[test]
    fn each_kind_of_trouble_counts() {
        let now = Instant::now();
        for error in [NoAnswer::Timeout, NoAnswer::Unreachable, NoAnswer::Status, NoAnswer::Contract("json")] {
            let (guard, key) = (Guard::default(), key("a"));
            for _ in 0..limits::ADAPTER_FAILURES {
                guard.admit(&key, now).unwrap().settle::<()>(&Err(error), now);
            }
            assert_eq!(guard.admit(&key, now).unwrap_err(), NoAnswer::CircuitOpen, "{error:?}");
        }
    }

    #[test]
    fn one_probe_at_a_time_after_a_growing_pause() {
        let (guard, key, mut now) = (Guard::default(), key("a"), Instant::now());
        fail(&guard, &key, limits::ADAPTER_FAILURES, now);
        for pause in [5, 10, 20, 40, 80, 160, 300, 300] {
            assert_eq!(guard.admit(&key, now + seconds(pause - 1)).unwrap_err(), NoAnswer::CircuitOpen, "{pause}");
            now += seconds(pause);
            let probe = guard.admit(&key, now).unwrap();
            assert_eq!(guard.admit(&key, now).unwrap_err(), NoAnswer::CircuitOpen, "one probe at a time");
            probe.settle(&FAILED, now);
        }
        now += seconds(300);
        guard.admit(&key, now).unwrap().settle(&Ok(()), now);
        fail(&guard, &key, limits::ADAPTER_FAILURES - 1, now);
        assert!(guard.admit(&key, now).is_ok(), "one answer closes it");
    }

    #[test]
    fn a_probe_that_was_given_up_does_not_keep_it_open() {
        let (guard, key, now) = (Guard::default(), key("a"), Instant::now());
        fail(&guard, &key, limits::ADAPTER_FAILURES, now);
        let later = now + seconds(5);
        drop(guard.admit(&key, later).unwrap());
        guard.admit(&key, later).unwrap().settle::<()>(&Err(NoAnswer::NoSecret), later);
        guard.admit(&key, later).unwrap().settle(&Ok(()), later);
        assert!(guard.admit(&key, later).is_ok());
    }

    #[test]
    fn calls_that_were_under_way_when_it_opened_do_not_lengthen_the_pause() {
        let (guard, key, now) = (Guard::default(), key("a"), Instant::now());
        let before: Vec<_> = (0..limits::ADAPTER_CALLS_PER_TOOL).map(|_| guard.admit(&key, now).unwrap()).collect();
        for admission in before {
            admission.settle(&FAILED, now);
        }
        assert!(guard.admit(&key, now + seconds(5)).is_ok());
    }
}
