//! The newest timings of each tenant, in memory alone.
//!
//! Each tenant has a ring of its own: in a shared one the speed at which one's own records are pushed
//! out would tell how busy the others are. Whoever finds the rings in use leaves its record out and
//! counts it: no request waits for one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use super::probe::Timing;
use crate::domain::ids::Tenant;
use crate::limits;

/// One request that ended.
#[derive(Debug, Clone)]
pub struct Recent {
    /// Its method.
    pub method: &'static str,
    /// Its route, never its path.
    pub route: Arc<str>,
    /// Its status.
    pub status: u16,
    /// What was measured.
    pub timing: Arc<Timing>,
}

/// The rings.
#[derive(Debug, Default)]
pub(super) struct Rings {
    tenants: Mutex<Tenants>,
}

#[derive(Debug, Default)]
struct Tenants {
    rings: HashMap<Tenant, Ring>,
    pushes: u64,
}

#[derive(Debug, Default)]
struct Ring {
    records: VecDeque<Recent>,
    /// The number of its newest record among all.
    newest: u64,
}

impl Ring {
    fn push(&mut self, record: Recent, number: u64) {
        self.newest = number;
        if self.records.len() >= limits::TIMING_RING {
            self.records.pop_front();
        }
        self.records.push_back(record);
    }
}

impl Rings {
    /// Keeps a record; false if it was left out.
    pub(super) fn push(&self, tenant: &Tenant, record: Recent) -> bool {
        let mut tenants = match self.tenants.try_lock() {
            Ok(tenants) => tenants,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return false,
        };
        let Tenants { rings, pushes } = &mut *tenants;
        *pushes = pushes.wrapping_add(1);
        if let Some(ring) = rings.get_mut(tenant) {
            ring.push(record, *pushes);
            return true;
        }
        if rings.len() >= limits::TIMING_TENANTS {
            let stalest = rings.iter().min_by_key(|(_, ring)| ring.newest).map(|(tenant, _)| tenant.clone());
            stalest.and_then(|stalest| rings.remove(&stalest));
        }
        rings.entry(tenant.clone()).or_default().push(record, *pushes);
        true
    }

    /// The records of one tenant, the newest first.
    pub(super) fn of(&self, tenant: &Tenant) -> Vec<Recent> {
        let tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        tenants.rings.get(tenant).map(|ring| ring.records.iter().rev().cloned().collect()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::telemetry::phase::Phase;
    use crate::telemetry::probe::StoreCosts;
    use crate::telemetry::trace::{Sampling, Trace};

    fn record(status: u16) -> Recent {
        let timing = Timing {
            trace: Trace::root(Sampling::NONE),
            tenant: None,
            started_us: 0,
            total: Duration::ZERO,
            phases: [None; Phase::COUNT],
            store: StoreCosts::default(),
        };
        Recent { method: "GET", route: "/".into(), status, timing: Arc::new(timing) }
    }

    #[test]
    fn a_ring_keeps_the_newest_of_its_tenant() {
        let rings = Rings::default();
        let (a, b) = (Tenant::new("a").unwrap(), Tenant::new("b").unwrap());
        rings.push(&b, record(1));
        for status in 0..100 {
            assert!(rings.push(&a, record(status)));
        }
        let seen: Vec<u16> = rings.of(&a).iter().map(|record| record.status).collect();
        assert_eq!(seen, (36..100).rev().collect::<Vec<_>>());
        assert_eq!(rings.of(&b).len(), 1, "another tenant pushes nothing out");
    }

    #[test]
    fn tenants_are_bounded_and_the_stalest_goes() {
        let rings = Rings::default();
        let tenant = |number: usize| Tenant::new(&format!("t{number}")).unwrap();
        for number in 0..limits::TIMING_TENANTS {
            rings.push(&tenant(number), record(0));
        }
        rings.push(&tenant(0), record(0));
        rings.push(&tenant(limits::TIMING_TENANTS), record(0));
        assert_eq!(rings.tenants.lock().unwrap().rings.len(), limits::TIMING_TENANTS);
        assert_eq!(rings.of(&tenant(0)).len(), 2);
        assert!(rings.of(&tenant(1)).is_empty(), "it was silent for longest");
    }

    #[test]
    fn a_ring_in_use_makes_nobody_wait() {
        let rings = Rings::default();
        let held = rings.tenants.lock().unwrap();
        assert!(!rings.push(&Tenant::new("a").unwrap(), record(0)));
        drop(held);
    }
}
