//! How many effects each tenant has open, nearly: what the store counted a moment ago, and what this process has made
//! and settled since.
//!
//! An exact number would cost every intent a count, or one row that all intents of a tenant queue for. So the count is
//! made beside them: every few seconds for tenants that made something meanwhile, and for one that seems to be at its
//! bound before it is refused. A process that makes nothing asks nothing. What other replicas make between two counts
//! is not seen: together they may pass the bound by what they take in that time.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use moka::sync::Cache;

use super::EngineError;
use crate::domain::ids::Tenant;
use crate::domain::quota::OpenQuota;
use crate::limits;
use crate::store::{Store, StoreError};

/// The least time between two counts of a tenant that is at its bound.
const RECOUNT: Duration = Duration::from_secs(1);

/// The bounds, and what is known about those who have one.
#[derive(Debug)]
pub struct Quotas {
    quota: OnceLock<OpenQuota>,
    tenants: Cache<Tenant, Arc<Count>>,
}

/// What one process knows of a tenant.
#[derive(Debug, Default)]
struct Count {
    numbers: Mutex<Numbers>,
    /// One counts, and the others take what it found.
    counting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Numbers {
    /// What the store counted, at most the bound.
    counted: Option<u64>,
    /// When the store was last asked.
    asked: Option<Instant>,
    /// Made here since then, less what was settled here.
    since: i64,
    /// On their way to the store.
    pending: u64,
    /// Whether something was made here since then.
    is_active: bool,
}

impl Numbers {
    fn open(&self) -> u64 {
        let counted = self.counted.unwrap_or(0);
        counted.saturating_add_signed(self.since).saturating_add(self.pending)
    }

    /// Whether one more is within the bound, as far as is known.
    fn has_room(&self, most: u64) -> bool {
        // A count that came to the bound may stand for any number above it: what is settled here makes no room.
        self.counted.is_some_and(|counted| counted < most) && self.open() < most
    }
}

impl Count {
    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(self: &Arc<Self>, most: u64) -> Option<Admitted> {
        let mut numbers = self.lock();
        if !numbers.has_room(most) {
            return None;
        }
        numbers.pending = numbers.pending.saturating_add(1);
        Some(Admitted { count: Arc::clone(self) })
    }

    fn was_asked_lately(&self) -> bool {
        self.lock().asked.is_some_and(|asked| asked.elapsed() < RECOUNT)
    }

    /// Before the store is asked: what is known to be part of the answer.
    fn asks(&self) -> i64 {
        let mut numbers = self.lock();
        numbers.asked = Some(Instant::now());
        numbers.is_active = false;
        numbers.since
    }

    fn learns(&self, counted: u64, since: i64) {
        let mut numbers = self.lock();
        numbers.counted = Some(counted);
        numbers.since = numbers.since.saturating_sub(since);
    }
}

/// A place within the bound, for one effect that is being made. Given back where it is not.
#[derive(Debug)]
pub(super) struct Admitted {
    count: Arc<Count>,
}

impl Admitted {
    /// The effect is there and open.
    pub(super) fn made(self) {
        let mut numbers = self.count.lock();
        numbers.since = numbers.since.saturating_add(1);
        numbers.is_active = true;
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut numbers = self.count.lock();
        numbers.pending = numbers.pending.saturating_sub(1);
    }
}

impl Quotas {
    /// Nobody is bounded.
    pub(super) fn off() -> Self {
        // Who is forgotten is counted anew at the next intent.
        let tenants = Cache::builder().max_capacity(limits::QUOTAS_REMEMBERED).time_to_idle(Duration::from_mins(10));
        Self { quota: OnceLock::new(), tenants: tenants.build() }
    }

    fn most(&self, tenant: &Tenant) -> Option<NonZeroU32> {
        self.quota.get()?.of(tenant)
    }

    /// A place for one more open effect of a tenant, where it has a bound.
    ///
    /// # Errors
    /// It is at its bound.
    pub(super) async fn admit(&self, store: &dyn Store, tenant: &Tenant) -> Result<Option<Admitted>, EngineError> {
        let Some(most) = self.most(tenant) else { return Ok(None) };
        let bound = u64::from(most.get());
        let count = match self.tenants.get(tenant) {
            Some(known) => known,
            None => self.tenants.get_with(tenant.clone(), Arc::default),
        };
        if let Some(admitted) = count.reserve(bound) {
            return Ok(Some(admitted));
        }
        // What is settled elsewhere is not seen here: nobody is refused by an old count.
        let counting = count.counting.lock().await;
        if !count.was_asked_lately() {
            let since = count.asks();
            match store.count_open(tenant, most.get()).await {
                Ok(counted) => count.learns(counted, since),
                Err(error) => tracing::warn!(%error, "the open effects of a tenant could not be counted"),
            }
        }
        drop(counting);
        if let Some(admitted) = count.reserve(bound) {
            return Ok(Some(admitted));
        }
        if count.lock().counted.is_none() {
            // The store does not answer: it will say so to the intent itself.
            return Ok(None);
        }
        metrics::counter!("actonce_quota_refused_total", "quota" => "tenant_open_effects").increment(1);
        Err(EngineError::OverQuota { most: most.get() })
    }

    /// An effect was settled here.
    pub(super) fn settled(&self, tenant: &Tenant) {
        if self.most(tenant).is_none() {
            return;
        }
        if let Some(count) = self.tenants.get(tenant) {
            let mut numbers = count.lock();
            numbers.since = numbers.since.saturating_sub(1);
        }
    }

    /// Sets the bounds; the first ones set stay.
    pub fn bound_by(&self, quota: OpenQuota) {
        if !quota.is_off() {
            self.quota.get_or_init(|| quota);
        }
    }

    /// Whether nobody is bounded.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.quota.get().is_none()
    }

    /// Counts for those who have made something since they were counted.
    ///
    /// # Errors
    /// The store can't answer; what was known stays.
    pub async fn recount(&self, store: &dyn Store) -> Result<(), StoreError> {
        let active: Vec<(Arc<Tenant>, Arc<Count>)> =
            self.tenants.iter().filter(|(_, count)| count.lock().is_active).collect();
        for (tenant, count) in active {
            let Some(most) = self.most(&tenant) else { continue };
            let _one = count.counting.lock().await;
            let since = count.asks();
            let counted = store.count_open(&tenant, most.get()).await;
            match counted {
                Ok(counted) => count.learns(counted, since),
                Err(error) => {
                    count.lock().is_active = true;
                    return Err(error);
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(counted: u64) -> Arc<Count> {
        let count = Arc::new(Count::default());
        count.learns(counted, 0);
        count
    }

    #[test]
    fn what_is_on_its_way_and_what_was_made_takes_a_place_and_what_failed_gives_it_back() {
        let count = counted(1);
        let one = count.reserve(3).unwrap();
        let two = count.reserve(3).unwrap();
        assert!(count.reserve(3).is_none(), "one was counted, two are on their way");
        drop(two);
        count.reserve(3).unwrap().made();
        assert!(count.reserve(3).is_none());
        one.made();
        let numbers = count.lock();
        assert_eq!((numbers.open(), numbers.pending), (3, 0));
    }

    #[test]
    fn a_count_keeps_what_was_made_after_it_was_asked_for() {
        let count = counted(0);
        count.reserve(10).unwrap().made();
        let since = count.asks();
        count.reserve(10).unwrap().made();
        count.learns(1, since);
        assert_eq!(count.lock().open(), 2);
        assert!(count.lock().is_active, "the next round counts it");
    }

    #[test]
    fn where_more_is_open_than_was_counted_a_settlement_makes_no_room() {
        let count = counted(5);
        count.lock().since = -1;
        assert!(count.reserve(5).is_none());
        assert!(counted(4).reserve(5).is_some());
        assert!(Arc::new(Count::default()).reserve(5).is_none(), "nobody has counted yet");
    }
}
