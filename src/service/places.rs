//! Places for adapter calls under way in this process: so many in all, for one tenant, and for one tool.
//! Who finds none is told so at once; nobody queues. One count for all, and a call carries its place.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::domain::ids::{Name, Tenant};
use crate::limits;

/// How long a question waits whose tool has all its places: it is slow, or wedged.
const WAIT_TOOL: Duration = Duration::from_secs(1);
const WAIT_SHORTEST: Duration = Duration::from_millis(25);
const WAIT_LONGEST: Duration = Duration::from_secs(2);
const PACE_FIRST: Duration = Duration::from_millis(10);
const PACE_FASTEST: Duration = Duration::from_micros(500);
const PACE_SLOWEST: Duration = Duration::from_millis(100);
/// Tenants whose pace is remembered while they have no calls under way.
const PACES: usize = 1_000;

/// The places.
#[derive(Debug, Clone, Default)]
pub struct Places(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    tenants: HashMap<Tenant, usize>,
    tools: HashMap<(Tenant, Name), usize>,
    paces: HashMap<Tenant, Pace>,
}

/// How fast places of a tenant become free, and when the next one is likely to.
#[derive(Debug, Clone, Copy)]
struct Pace {
    freed: Instant,
    /// Between two places that became free, smoothed.
    interval: Duration,
    /// Who comes now is told to come back after this.
    next: Instant,
}

impl Pace {
    const fn new(now: Instant) -> Self {
        Self { freed: now, interval: PACE_FIRST, next: now }
    }

    fn free(&mut self, now: Instant) {
        let gap = now.saturating_duration_since(self.freed).min(PACE_SLOWEST);
        self.interval = (self.interval * 7 + gap) / 8;
        self.freed = now;
    }

    /// Each of a crowd gets a time of its own, twice as close as places became free of late: so the pace finds
    /// what the adapters can bear. Where none becomes free any more, it slows down.
    fn wait(&mut self, now: Instant) -> Duration {
        let silent = now.saturating_duration_since(self.freed) / 4;
        let step = (self.interval.max(silent) / 2).clamp(PACE_FASTEST, PACE_SLOWEST);
        self.next = (self.next.max(now + WAIT_SHORTEST) + step).min(now + WAIT_LONGEST);
        self.next.saturating_duration_since(now)
    }
}

/// A place among the calls under way; given back when dropped.
#[derive(Debug)]
pub struct Place {
    places: Places,
    tool: (Tenant, Name),
}

impl Places {
    /// A place for one call of a tool's adapter; `None` when there is none.
    #[must_use]
    pub fn take(&self, tenant: &Tenant, tool: &Name) -> Option<Arc<Place>> {
        let tool = (tenant.clone(), tool.clone());
        let mut counts = self.counts();
        let of_tenant = counts.tenants.get(tenant).copied().unwrap_or(0);
        let of_tool = counts.tools.get(&tool).copied().unwrap_or(0);
        if counts.all >= limits::ADAPTER_CALLS
            || of_tenant >= limits::ADAPTER_CALLS_PER_TENANT
            || of_tool >= limits::ADAPTER_CALLS_PER_TOOL
        {
            return None;
        }
        counts.all = counts.all.saturating_add(1);
        counts.tenants.insert(tenant.clone(), of_tenant.saturating_add(1));
        counts.tools.insert(tool.clone(), of_tool.saturating_add(1));
        Some(Arc::new(Place { places: self.clone(), tool }))
    }

    /// How long a question should wait that found no place. A crowd comes back one after the other.
    #[must_use]
    pub fn wait(&self, tenant: &Tenant, tool: &Name) -> Duration {
        let mut counts = self.counts();
        let of_tool = counts.tools.get(&(tenant.clone(), tool.clone())).copied().unwrap_or(0);
        if of_tool >= limits::ADAPTER_CALLS_PER_TOOL {
            return WAIT_TOOL;
        }
        let now = Instant::now();
        counts.paces.entry(tenant.clone()).or_insert_with(|| Pace::new(now)).wait(now)
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.places.counts();
        counts.all = counts.all.saturating_sub(1);
        give_back(&mut counts.tenants, &self.tool.0);
        give_back(&mut counts.tools, &self.tool);
        let now = Instant::now();
        if let Some(pace) = counts.paces.get_mut(&self.tool.0) {
            pace.free(now);
        }
        if counts.paces.len() > PACES {
            let Counts { tenants, paces, .. } = &mut *counts;
            paces.retain(|tenant, _| tenants.contains_key(tenant));
        }
    }
}

/// Nothing is remembered of what is at rest.
fn give_back<K: Eq + Hash>(counts: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = counts.get_mut(key) {
        *count = count.saturating_sub(1);
        if *count == 0 {
            counts.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Places, tenant: &str, tool: &str) -> Option<Arc<Place>> {
        places.take(&Tenant::new(tenant).unwrap(), &Name::new(tool).unwrap())
    }

    #[test]
    fn a_tool_a_tenant_and_the_process_have_their_bounds() {
        let places = Places::default();
        let mut held = Vec::new();
        for (tenant, tool) in [("t", "a"), ("t", "b"), ("u", "a"), ("v", "a")] {
            for _ in 0..limits::ADAPTER_CALLS_PER_TOOL {
                held.push(take(&places, tenant, tool).unwrap());
            }
            assert!(take(&places, tenant, tool).is_none(), "{tenant} {tool}");
            if (tenant, tool) == ("t", "b") {
                assert_eq!(held.len(), limits::ADAPTER_CALLS_PER_TENANT);
                assert!(take(&places, "t", "c").is_none(), "another tool of the tenant");
            }
        }
        assert_eq!(held.len(), limits::ADAPTER_CALLS);
        assert!(take(&places, "w", "a").is_none());
        held.pop();
        let last = take(&places, "w", "a").unwrap();
        assert!(take(&places, "v", "a").is_none());
        drop((held, last));
        let counts = places.counts();
        assert!((counts.all, counts.tenants.len(), counts.tools.len()) == (0, 0, 0), "nothing is remembered");
    }

    #[test]
    fn a_crowd_comes_back_one_after_the_other_and_more_slowly_when_nothing_becomes_free() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let waits: Vec<Duration> = (0..100).map(|_| pace.wait(now)).collect();
        assert!(waits[0] >= WAIT_SHORTEST && waits.windows(2).all(|two| two[0] < two[1]), "{waits:?}");
        for n in 1..=100 {
            pace.free(now + Duration::from_millis(n));
        }
        let later = now + Duration::from_millis(100);
        let fast = Pace { next: later, ..pace }.wait(later);
        assert!(fast < WAIT_SHORTEST + Duration::from_millis(2), "{fast:?}");
        let wedged = later + Duration::from_secs(10);
        let mut silent = Pace { next: wedged, ..pace };
        assert!(silent.wait(wedged) >= PACE_SLOWEST);
        assert!((0..10_000).all(|_| silent.wait(wedged) <= WAIT_LONGEST), "but never for too long");
    }

    #[test]
    fn a_tool_that_has_all_its_places_waits_longer() {
        let places = Places::default();
        let (tenant, tool) = (Tenant::new("t").unwrap(), Name::new("a").unwrap());
        let _held: Vec<_> = (0..limits::ADAPTER_CALLS_PER_TOOL).map(|_| places.take(&tenant, &tool)).collect();
        assert_eq!(places.wait(&tenant, &tool), WAIT_TOOL);
        assert!(places.wait(&tenant, &Name::new("b").unwrap()) < WAIT_TOOL);
    }

    #[test]
    fn a_place_that_is_shared_is_given_back_once() {
        let places = Places::default();
        let place = take(&places, "t", "a").unwrap();
        let handed = Arc::clone(&place);
        drop(place);
        assert_eq!(places.counts().all, 1);
        drop(handed);
        assert_eq!(places.counts().all, 0);
    }
}
