//! How often a tenant and a principal may ask, in one process. Keys come from verified tokens alone, and what is
//! remembered of them is bounded.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use governor::clock::{Clock as _, DefaultClock};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use moka::sync::Cache;

use super::problem::{Problem, ProblemType};
use crate::auth::Principal;
use crate::domain::ids::Tenant;
use crate::limits;

/// Shortest time that a key is remembered after its last request.
const REMEMBERED: Duration = Duration::from_mins(1);

/// A rate: in the long run, and at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// In the long run.
    pub per_second: NonZeroU32,
    /// At once.
    pub burst: NonZeroU32,
}

/// A principal by tenant and subject, whatever its scopes. A pointer, so that asking costs no memory.
#[derive(Clone)]
struct Who(Arc<Principal>);

impl PartialEq for Who {
    fn eq(&self, other: &Self) -> bool {
        self.0.tenant == other.0.tenant && self.0.subject == other.0.subject
    }
}

impl Eq for Who {}

impl Hash for Who {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.tenant.hash(state);
        self.0.subject.hash(state);
    }
}

/// The rates of all tenants and principals.
pub struct Rates {
    clock: DefaultClock,
    tenants: Option<Bound<Tenant>>,
    principals: Option<Bound<Who>>,
}

impl fmt::Debug for Rates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rates").finish_non_exhaustive()
    }
}

impl Rates {
    /// Each tenant by one rate, each principal by another; `None` for no bound.
    #[must_use]
    pub fn new(tenant: Option<Rate>, principal: Option<Rate>) -> Self {
        Self {
            clock: DefaultClock::default(),
            tenants: tenant.map(|rate| Bound::new(rate, limits::RATES_REMEMBERED)),
            principals: principal.map(|rate| Bound::new(rate, limits::RATES_REMEMBERED)),
        }
    }

    /// Lets so many requests of a principal through, or none of them.
    ///
    /// # Errors
    /// `rate-limited`, with the time after which the same would pass.
    pub fn admit(&self, principal: &Arc<Principal>, count: usize) -> Result<(), Problem> {
        let Some(count) = u32::try_from(count).ok().and_then(NonZeroU32::new) else { return Ok(()) };
        // The principal first: what one of them asks beyond its share takes nothing from the others.
        if let Some(bound) = &self.principals
            && let Err(wait) = bound.take(&Who(Arc::clone(principal)), count, &self.clock)
        {
            return Err(limited("principal", "This principal sends requests faster than it may.", wait));
        }
        if let Some(bound) = &self.tenants
            && let Err(wait) = bound.take(&principal.tenant, count, &self.clock)
        {
            return Err(limited("tenant", "This tenant sends requests faster than it may.", wait));
        }
        Ok(())
    }
}

fn limited(who: &'static str, detail: &str, wait: Duration) -> Problem {
    metrics::counter!("actonce_rate_limited_total", "by" => who).increment(1);
    let seconds = wait.as_secs().saturating_add(u64::from(wait.subsec_nanos() > 0)).max(1);
    Problem::new(ProblemType::RateLimited, detail).with("limited_by", who).with("retry_after_seconds", seconds)
}

/// One rate for each key.
struct Bound<K> {
    quota: Quota,
    burst: NonZeroU32,
    keys: Cache<K, Arc<DefaultDirectRateLimiter>>,
}

impl<K: Hash + Eq + Clone + Send + Sync + 'static> Bound<K> {
    fn new(rate: Rate, most: u64) -> Self {
        // Who is forgotten begins anew with a whole burst, so nobody is before that would be full again.
        let full = Duration::from_secs(u64::from(rate.burst.get().div_ceil(rate.per_second.get())));
        let keys = Cache::builder().max_capacity(most).time_to_idle(full.max(REMEMBERED)).build();
        Self { quota: Quota::per_second(rate.per_second).allow_burst(rate.burst), burst: rate.burst, keys }
    }

    /// More than the burst at once counts as the burst: otherwise it could never pass.
    fn take(&self, key: &K, count: NonZeroU32, clock: &DefaultClock) -> Result<(), Duration> {
        let limiter = match self.keys.get(key) {
            Some(known) => known,
            None => self.keys.get_with(key.clone(), || Arc::new(RateLimiter::direct(self.quota))),
        };
        match limiter.check_n(count.min(self.burst)) {
            Ok(Err(until)) => Err(until.wait_time_from(clock.now())),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Scopes;
    use crate::domain::ids::Name;

    fn rate(per_second: u32, burst: u32) -> Rate {
        Rate { per_second: NonZeroU32::new(per_second).unwrap(), burst: NonZeroU32::new(burst).unwrap() }
    }

    fn principal(tenant: &str, subject: &str) -> Arc<Principal> {
        Arc::new(Principal {
            tenant: Tenant::new(tenant).unwrap(),
            subject: Name::new(subject).unwrap(),
            scopes: Scopes::NONE,
        })
    }

    #[test]
    fn a_principal_has_its_own_share_in_each_tenant() {
        let rates = Rates::new(None, Some(rate(1, 2)));
        for who in [principal("t", "a"), principal("t", "b"), principal("u", "a")] {
            assert!(rates.admit(&who, 1).is_ok() && rates.admit(&who, 1).is_ok());
            // The same one under another token, with other scopes.
            let again = Arc::new(Principal { scopes: Scopes::all(), ..Principal::clone(&who) });
            let problem = serde_json::to_value(rates.admit(&again, 1).unwrap_err()).unwrap();
            assert_eq!(problem["limited_by"], "principal");
            assert_eq!(problem["retry_after_seconds"], 1, "{problem}");
        }
    }

    #[test]
    fn a_principal_over_its_share_takes_nothing_from_its_tenant() {
        let rates = Rates::new(Some(rate(1, 4)), Some(rate(1, 3)));
        let (greedy, modest) = (principal("t", "greedy"), principal("t", "modest"));
        let passed = (0..50).filter(|_| rates.admit(&greedy, 1).is_ok()).count();
        assert_eq!(passed, 3);
        assert!(rates.admit(&modest, 1).is_ok(), "the fourth of the tenant");
        let problem = serde_json::to_value(rates.admit(&modest, 1).unwrap_err()).unwrap();
        assert_eq!(problem["limited_by"], "tenant");
        assert!(rates.admit(&principal("u", "modest"), 1).is_ok(), "another tenant");
    }

    #[test]
    fn a_batch_costs_its_items_and_never_more_than_the_burst() {
        let rates = Rates::new(Some(rate(1, 10)), None);
        let who = principal("t", "a");
        assert!(rates.admit(&who, 7).is_ok());
        let problem = serde_json::to_value(rates.admit(&who, 7).unwrap_err()).unwrap();
        assert_eq!(problem["retry_after_seconds"], 4, "three are left");
        assert!(rates.admit(&who, 3).is_ok(), "what was refused took nothing");
        let other = principal("u", "a");
        assert!(rates.admit(&other, 200).is_ok() && rates.admit(&other, 1).is_err());
        assert!(rates.admit(&other, 0).is_ok());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let bound = Bound::new(rate(1, 1), 100);
        let clock = DefaultClock::default();
        for number in 0..10_000 {
            assert!(bound.take(&number, NonZeroU32::MIN, &clock).is_ok());
        }
        bound.keys.run_pending_tasks();
        assert!(bound.keys.entry_count() <= 100, "{}", bound.keys.entry_count());
    }

    #[test]
    fn nobody_is_forgotten_before_the_burst_is_whole_again() {
        let bound = Bound::<u8>::new(rate(1, 600), 100);
        assert_eq!(bound.keys.policy().time_to_idle(), Some(Duration::from_mins(10)));
    }
}
