//! How many effects each tenant, and each of its principals, has open, nearly: what the store counted a moment ago, and
//! what this process has made and settled since.
//!
//! An exact number would cost every intent a count, or one row that all intents of a tenant queue for. So the count is
//! made beside them: every few seconds for tenants that made something meanwhile, and for one that seems to be at a
//! bound before it is refused. A process that makes nothing asks nothing. What other replicas make between two counts
//! is not seen: together they may pass the bound by what they take in that time.
//!
//! All principals of a tenant are counted at once, by one look at its open rows. An index by principal would answer for
//! one of them alone, and each step of every effect would pay for it, quota or not: it writes a fifth more, measured on
//! Postgres, for the row of an effect that opens, is dispatched and settles. The look costs as much as the tenant has
//! open, so it is given as much rest as it took, times [`limits::QUOTA_REST`].

use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use moka::sync::Cache;

use super::EngineError;
use crate::domain::ids::{Name, Tenant};
use crate::domain::quota::{Bounded, OpenQuota};
use crate::limits;
use crate::store::{Store, StoreError};

/// The least time between two counts of a tenant that is at a bound.
const RECOUNT: Duration = Duration::from_secs(1);

/// The bounds, and what is known about those who have one.
#[derive(Debug)]
pub struct Quotas {
    bounds: OnceLock<Bounds>,
    tenants: Cache<Tenant, Arc<Count>>,
}

#[derive(Debug)]
struct Bounds {
    tenants: OpenQuota,
    principals: OpenQuota,
}

/// The bounds that hold for an intent; one of them at least.
#[derive(Debug, Clone, Copy)]
struct Most {
    tenant: Option<NonZeroU32>,
    principal: Option<NonZeroU32>,
}

impl Most {
    const fn of(self, whose: Bounded) -> Option<NonZeroU32> {
        match whose {
            Bounded::Tenant => self.tenant,
            Bounded::Principal => self.principal,
        }
    }
}

/// What one process knows of a tenant.
#[derive(Debug, Default)]
struct Count {
    known: Mutex<Known>,
    /// One counts, and the others take what it found.
    counting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether the store has answered.
    is_counted: bool,
    /// When the store was last asked.
    asked: Option<Instant>,
    /// How long it took to answer.
    took: Duration,
    /// Whether something was made here since then.
    is_active: bool,
    tenant: Numbers,
    /// Of those who have something open, as far as is known.
    principals: HashMap<Name, Numbers>,
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Numbers {
    /// What the store counted; of a tenant at most the bound.
    counted: u64,
    /// Made here since then, less what was settled here.
    since: i64,
    /// On their way to the store.
    pending: u64,
}

/// What the store answers; `None` is not asked for.
#[derive(Debug, Default)]
struct Answer {
    tenant: Option<u64>,
    principals: Option<Vec<(Name, u64)>>,
}

/// What was made here, and not settled, when the store was asked: it is part of the answer.
#[derive(Debug, Default)]
struct Since {
    tenant: i64,
    principals: Vec<(Name, i64)>,
}

impl Numbers {
    fn open(&self) -> u64 {
        self.counted.saturating_add_signed(self.since).saturating_add(self.pending)
    }
}

impl Known {
    /// Whose bound one more would pass, as far as is known.
    fn passed(&self, principal: &Name, most: Most) -> Option<Bounded> {
        let open = self.principals.get(principal).map_or(0, Numbers::open);
        if most.principal.is_some_and(|most| open >= u64::from(most.get())) {
            return Some(Bounded::Principal);
        }
        // A count that came to the bound may stand for any number above it: what is settled here makes no room.
        let open = self.tenant.open().max(self.tenant.counted);
        most.tenant.is_some_and(|most| open >= u64::from(most.get())).then_some(Bounded::Tenant)
    }

    /// The numbers that an effect of a principal is part of.
    fn each(&mut self, principal: Option<&Name>, change: impl Fn(&mut Numbers)) {
        change(&mut self.tenant);
        if let Some(principal) = principal {
            let numbers = self.principals.entry(principal.clone()).or_default();
            change(numbers);
            if *numbers == Numbers::default() {
                self.principals.remove(principal);
            }
        }
    }
}

/// Why there is no place.
enum Full {
    /// Nobody has counted yet.
    Unknown,
    /// One more would pass this bound.
    At(Bounded),
}

impl Count {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reserve(self: &Arc<Self>, principal: &Name, most: Most) -> Result<Admitted, Full> {
        let mut known = self.lock();
        if !known.is_counted {
            return Err(Full::Unknown);
        }
        if let Some(whose) = known.passed(principal, most) {
            return Err(Full::At(whose));
        }
        let principal = most.principal.map(|_| principal.clone());
        known.each(principal.as_ref(), |numbers| numbers.pending = numbers.pending.saturating_add(1));
        drop(known);
        Ok(Admitted { count: Arc::clone(self), principal })
    }

    fn was_asked_lately(&self) -> bool {
        let known = self.lock();
        let rest = known.took.saturating_mul(limits::QUOTA_REST).max(RECOUNT);
        known.asked.is_some_and(|asked| asked.elapsed() < rest)
    }

    /// Before the store is asked: what is known to be part of the answer.
    fn asks(&self) -> Since {
        let mut known = self.lock();
        known.asked = Some(Instant::now());
        known.is_active = false;
        let changed = known.principals.iter().filter(|(_, numbers)| numbers.since != 0);
        let principals = changed.map(|(name, numbers)| (name.clone(), numbers.since)).collect();
        Since { tenant: known.tenant.since, principals }
    }

    fn learns(&self, answer: Answer, since: &Since) {
        let mut known = self.lock();
        known.is_counted = true;
        if let Some(counted) = answer.tenant {
            known.tenant.counted = counted;
            known.tenant.since = known.tenant.since.saturating_sub(since.tenant);
        }
        let Some(counted) = answer.principals else { return };
        for numbers in known.principals.values_mut() {
            numbers.counted = 0;
        }
        for (name, counted) in counted {
            known.principals.entry(name).or_default().counted = counted;
        }
        for (name, since) in &since.principals {
            let numbers = known.principals.entry(name.clone()).or_default();
            numbers.since = numbers.since.saturating_sub(*since);
        }
        known.principals.retain(|_, numbers| *numbers != Numbers::default());
    }

    /// Asks the store.
    async fn refresh(&self, store: &dyn Store, tenant: &Tenant, most: Most) -> Result<(), StoreError> {
        let since = self.asks();
        let began = Instant::now();
        let answer = counted(store, tenant, most).await;
        self.lock().took = began.elapsed();
        match answer {
            Ok(answer) => {
                self.learns(answer, &since);
                Ok(())
            }
            Err(error) => {
                self.lock().is_active = true;
                Err(error)
            }
        }
    }

    /// How much memory it takes, in tenants and principals.
    fn weight(&self) -> u32 {
        let known = self.lock().principals.len().saturating_add(1);
        u32::try_from(known).unwrap_or(u32::MAX).min(limits::QUOTA_PRINCIPALS.saturating_mul(2))
    }
}

/// What a tenant and its principals have open, where they have a bound.
async fn counted(store: &dyn Store, tenant: &Tenant, most: Most) -> Result<Answer, StoreError> {
    let mut answer = Answer::default();
    if let Some(most) = most.tenant {
        answer.tenant = Some(store.count_open(tenant, most.get()).await?);
    }
    if most.principal.is_some() {
        let rows = u32::try_from(limits::QUOTA_MAX_OPEN).unwrap_or(u32::MAX);
        let counted = store.count_open_by_principal(tenant, rows, limits::QUOTA_PRINCIPALS).await?;
        answer.principals = Some(counted);
    }
    Ok(answer)
}

/// A place within the bounds, for one effect that is being made. Given back where it is not.
#[derive(Debug)]
pub(super) struct Admitted {
    count: Arc<Count>,
    /// Who takes it, where principals have a bound.
    principal: Option<Name>,
}

impl Admitted {
    /// The effect is there and open.
    pub(super) fn made(self) {
        let mut known = self.count.lock();
        known.is_active = true;
        known.each(self.principal.as_ref(), |numbers| numbers.since = numbers.since.saturating_add(1));
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let mut known = self.count.lock();
        known.each(self.principal.as_ref(), |numbers| numbers.pending = numbers.pending.saturating_sub(1));
    }
}

impl Quotas {
    /// Nobody is bounded.
    pub(super) fn off() -> Self {
        // Who is forgotten is counted anew at the next intent.
        let tenants = Cache::builder()
            .max_capacity(limits::QUOTAS_REMEMBERED)
            .weigher(|_, count: &Arc<Count>| count.weight())
            .time_to_idle(Duration::from_mins(10));
        Self { bounds: OnceLock::new(), tenants: tenants.build() }
    }

    fn most(&self, tenant: &Tenant) -> Option<Most> {
        let bounds = self.bounds.get()?;
        let most = Most { tenant: bounds.tenants.of(tenant), principal: bounds.principals.of(tenant) };
        (most.tenant.is_some() || most.principal.is_some()).then_some(most)
    }

    /// A place for one more open effect of a tenant and a principal, where they have a bound.
    ///
    /// # Errors
    /// One of them is at its bound.
    pub(super) async fn admit(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
        principal: &Name,
    ) -> Result<Option<Admitted>, EngineError> {
        let Some(most) = self.most(tenant) else { return Ok(None) };
        let count = match self.tenants.get(tenant) {
            Some(known) => known,
            None => self.tenants.get_with(tenant.clone(), Arc::default),
        };
        if let Ok(admitted) = count.reserve(principal, most) {
            return Ok(Some(admitted));
        }
        // What is settled elsewhere is not seen here: nobody is refused by an old count.
        let counting = count.counting.lock().await;
        if !count.was_asked_lately()
            && let Err(error) = self.refresh(store, tenant, &count, most).await
        {
            tracing::warn!(%error, "the open effects of a tenant could not be counted");
        }
        drop(counting);
        let whose = match count.reserve(principal, most) {
            Ok(admitted) => return Ok(Some(admitted)),
            // The store does not answer: it will say so to the intent itself.
            Err(Full::Unknown) => return Ok(None),
            Err(Full::At(whose)) => whose,
        };
        metrics::counter!("actonce_quota_refused_total", "quota" => whose.as_str()).increment(1);
        Err(EngineError::OverQuota { whose, most: most.of(whose).map_or(0, NonZeroU32::get) })
    }

    /// An effect that a principal had proposed was settled here, whoever did it.
    pub(super) fn settled(&self, tenant: &Tenant, proposer: &Name) {
        let Some(most) = self.most(tenant) else { return };
        if let Some(count) = self.tenants.get(tenant) {
            let mut known = count.lock();
            // Of whom nothing is known to be open, nothing is taken off.
            let principal = most.principal.and_then(|_| known.principals.contains_key(proposer).then_some(proposer));
            known.each(principal, |numbers| numbers.since = numbers.since.saturating_sub(1));
        }
    }

    /// Sets the bounds; the first ones set stay.
    pub fn bound_by(&self, tenants: OpenQuota, principals: OpenQuota) {
        if !(tenants.is_off() && principals.is_off()) {
            self.bounds.get_or_init(|| Bounds { tenants, principals });
        }
    }

    /// Whether nobody is bounded.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.bounds.get().is_none()
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
            let counting = count.counting.lock().await;
            if count.was_asked_lately() {
                continue;
            }
            self.refresh(store, &tenant, &count, most).await?;
            drop(counting);
        }
        Ok(())
    }

    /// Asks the store; how many principals a tenant has may have changed then.
    async fn refresh(
        &self,
        store: &dyn Store,
        tenant: &Tenant,
        count: &Arc<Count>,
        most: Most,
    ) -> Result<(), StoreError> {
        count.refresh(store, tenant, most).await?;
        if self.bounds.get().is_some_and(|bounds| !bounds.principals.is_off()) {
            self.tenants.insert(tenant.clone(), Arc::clone(count));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TENANT: fn(u32) -> Most = |most| Most { tenant: NonZeroU32::new(most), principal: None };
    const PRINCIPAL: fn(u32) -> Most = |most| Most { tenant: None, principal: NonZeroU32::new(most) };

    fn name(name: &str) -> Name {
        Name::new(name).unwrap()
    }

    fn of_tenant(counted: u64) -> Answer {
        Answer { tenant: Some(counted), principals: None }
    }

    fn of_principals(counted: &[(&str, u64)]) -> Answer {
        let counted = counted.iter().map(|(who, counted)| (name(who), *counted)).collect();
        Answer { tenant: None, principals: Some(counted) }
    }

    fn counted(answer: Answer) -> Arc<Count> {
        let count = Arc::new(Count::default());
        count.learns(answer, &Since::default());
        count
    }

    fn reserve(count: &Arc<Count>, who: &str, most: Most) -> Option<Admitted> {
        count.reserve(&name(who), most).ok()
    }

    #[test]
    fn what_is_on_its_way_and_what_was_made_takes_a_place_and_what_failed_gives_it_back() {
        for (count, most) in [(counted(of_tenant(1)), TENANT(3)), (counted(of_principals(&[("a", 1)])), PRINCIPAL(3))] {
            let one = reserve(&count, "a", most).unwrap();
            let two = reserve(&count, "a", most).unwrap();
            assert!(reserve(&count, "a", most).is_none(), "one was counted, two are on their way");
            drop(two);
            reserve(&count, "a", most).unwrap().made();
            assert!(reserve(&count, "a", most).is_none());
            one.made();
            let known = count.lock();
            let numbers = if most.tenant.is_some() { &known.tenant } else { &known.principals[&name("a")] };
            assert_eq!((numbers.open(), numbers.pending), (3, 0));
        }
    }

    #[test]
    fn a_count_keeps_what_was_made_after_it_was_asked_for() {
        let most = Most { tenant: NonZeroU32::new(10), principal: NonZeroU32::new(10) };
        let count = counted(Answer { tenant: Some(0), principals: Some(Vec::new()) });
        reserve(&count, "a", most).unwrap().made();
        let since = count.asks();
        reserve(&count, "a", most).unwrap().made();
        count.learns(Answer { tenant: Some(1), principals: Some(vec![(name("a"), 1)]) }, &since);
        let known = count.lock();
        assert_eq!((known.tenant.open(), known.principals[&name("a")].open()), (2, 2));
        assert!(known.is_active, "the next round counts it");
    }

    #[test]
    fn where_more_is_open_than_was_counted_a_settlement_makes_no_room() {
        let count = counted(of_tenant(5));
        count.lock().tenant.since = -1;
        assert!(reserve(&count, "a", TENANT(5)).is_none());
        assert!(reserve(&counted(of_tenant(4)), "a", TENANT(5)).is_some());
        let unknown = Arc::new(Count::default());
        assert!(matches!(unknown.reserve(&name("a"), TENANT(5)), Err(Full::Unknown)), "nobody has counted yet");
    }

    #[test]
    fn principals_take_their_own_places_and_the_tenant_s_as_well() {
        let most = Most { tenant: NonZeroU32::new(4), principal: NonZeroU32::new(2) };
        let count = counted(Answer { tenant: Some(2), principals: Some(vec![(name("a"), 2)]) });
        assert!(matches!(count.reserve(&name("a"), most), Err(Full::At(Bounded::Principal))));
        let kept = [reserve(&count, "b", most).unwrap(), reserve(&count, "c", most).unwrap()];
        assert!(matches!(count.reserve(&name("b"), most), Err(Full::At(Bounded::Tenant))));
        drop(kept);
        assert_eq!(count.lock().principals.len(), 1, "who has nothing open is not kept");
        // All of the answer's are known, and the others have nothing open.
        count.learns(of_principals(&[("b", 7)]), &Since::default());
        assert!(matches!(count.reserve(&name("b"), most), Err(Full::At(Bounded::Principal))));
        assert!(reserve(&count, "a", most).is_some());
    }

    #[test]
    fn a_look_that_takes_long_is_given_its_rest() {
        let count = counted(of_principals(&[]));
        count.asks();
        count.lock().asked = Instant::now().checked_sub(RECOUNT * 2);
        assert!(!count.was_asked_lately());
        count.lock().took = Duration::from_secs(1);
        assert!(count.was_asked_lately());
    }
}
