//! Places for adapter calls under way in this process: so many in all, for one tenant, and for one tool.
//! Who finds none is told so at once; nobody queues. One count for all, and a call carries its place.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::ids::{Name, Tenant};
use crate::limits;

/// The places.
#[derive(Debug, Clone, Default)]
pub struct Places(Arc<Mutex<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    all: usize,
    tenants: HashMap<Tenant, usize>,
    tools: HashMap<(Tenant, Name), usize>,
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
