//! Bells: who reads the feed of a tenant hears that something of it was written here, or that another
//! replica wrote something of somebody. A bell may ring for nothing, and a ring may be lost; readers look
//! now and then all the same.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::domain::ids::Tenant;

/// See the module. While no bell hangs, a write pays for one load of a number.
#[derive(Debug, Default)]
pub struct Bells {
    hung: AtomicUsize,
    tenants: Mutex<HashMap<Tenant, Vec<Arc<Notify>>>>,
    elsewhere: Notify,
}

impl Bells {
    fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, Vec<Arc<Notify>>>> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hangs a bell for a tenant.
    pub fn hang(&self, tenant: &Tenant, bell: &Arc<Notify>) {
        self.hung.fetch_add(1, Ordering::AcqRel);
        self.lock().entry(tenant.clone()).or_default().push(Arc::clone(bell));
    }

    /// Takes it down.
    pub fn take_down(&self, tenant: &Tenant, bell: &Arc<Notify>) {
        let mut tenants = self.lock();
        let Some(bells) = tenants.get_mut(tenant) else { return };
        if let Some(at) = bells.iter().position(|one| Arc::ptr_eq(one, bell)) {
            bells.swap_remove(at);
            self.hung.fetch_sub(1, Ordering::AcqRel);
        }
        if bells.is_empty() {
            tenants.remove(tenant);
        }
    }

    /// Something of a tenant was written.
    pub fn ring(&self, tenant: &Tenant) {
        if self.hung.load(Ordering::Acquire) > 0
            && let Some(bells) = self.lock().get(tenant)
        {
            for bell in bells {
                bell.notify_one();
            }
        }
    }

    /// Another replica wrote something.
    pub fn ring_elsewhere(&self) {
        if self.hung.load(Ordering::Acquire) > 0 {
            self.elsewhere.notify_one();
        }
    }

    /// Ends when another replica wrote something.
    pub async fn rung_elsewhere(&self) {
        self.elsewhere.notified().await;
    }
}
