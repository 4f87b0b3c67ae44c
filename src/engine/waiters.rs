//! Waiting for a change of an effect without asking the database (protocol §4, `Prefer: wait`).

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::domain::ids::EffectKey;
use crate::limits;

/// All who wait in this process.
#[derive(Debug, Default)]
pub struct Waiters {
    effects: Mutex<HashMap<Uuid, Waited>>,
    count: AtomicUsize,
}

#[derive(Debug)]
struct Waited {
    key: EffectKey,
    notify: Arc<Notify>,
    tickets: usize,
    /// The newest revision that any waiter has seen.
    seen: u32,
}

/// One who waits. Register before looking, so that no change falls between.
#[derive(Debug)]
pub struct Ticket {
    waiters: Arc<Waiters>,
    effect: Uuid,
    notify: Arc<Notify>,
}

impl Waiters {
    fn lock(&self) -> MutexGuard<'_, HashMap<Uuid, Waited>> {
        self.effects.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers a waiter; `None` when [`limits::WAITERS`] wait already.
    #[must_use]
    pub fn register(self: &Arc<Self>, key: &EffectKey) -> Option<Ticket> {
        if self.count.fetch_add(1, Ordering::AcqRel) >= limits::WAITERS {
            self.count.fetch_sub(1, Ordering::AcqRel);
            return None;
        }
        let mut effects = self.lock();
        let waited = effects.entry(key.effect).or_insert_with(|| Waited {
            key: key.clone(),
            notify: Arc::default(),
            tickets: 0,
            seen: 0,
        });
        waited.tickets = waited.tickets.saturating_add(1);
        Some(Ticket { waiters: Arc::clone(self), effect: key.effect, notify: Arc::clone(&waited.notify) })
    }

    /// How many wait.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Acquire)
    }

    /// Wakes all who wait for an effect.
    pub fn wake(&self, effect: Uuid) {
        if self.count() > 0
            && let Some(waited) = self.lock().get(&effect)
        {
            waited.notify.notify_waiters();
        }
    }

    /// The effects waited for, with the newest revision seen: for the slow poll.
    #[must_use]
    pub fn watched(&self) -> Vec<(EffectKey, u32)> {
        self.lock().values().map(|waited| (waited.key.clone(), waited.seen)).collect()
    }
}

impl Ticket {
    /// A future that ends at the first change after this call; call it before looking.
    pub fn changed(&self) -> tokio::sync::futures::Notified<'_> {
        self.notify.notified()
    }

    /// Notes the revision that was found, so that the slow poll tells a change.
    pub fn saw(&self, revision: u32) {
        if let Some(waited) = self.waiters.lock().get_mut(&self.effect) {
            waited.seen = waited.seen.max(revision);
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut effects = self.waiters.lock();
        if let Some(waited) = effects.get_mut(&self.effect) {
            waited.tickets = waited.tickets.saturating_sub(1);
            if waited.tickets == 0 {
                effects.remove(&self.effect);
            }
        }
        drop(effects);
        self.waiters.count.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{Name, Tenant};

    #[tokio::test]
    async fn one_wake_reaches_all_and_nothing_stays_behind() {
        let waiters = Arc::new(Waiters::default());
        let key = EffectKey::of(&Tenant::new("t").unwrap(), &Name::new("o").unwrap());
        let (one, two) = (waiters.register(&key).unwrap(), waiters.register(&key).unwrap());
        let (mut a, mut b) = (Box::pin(one.changed()), Box::pin(two.changed()));
        a.as_mut().enable();
        b.as_mut().enable();
        waiters.wake(key.effect);
        a.await;
        b.await;
        one.saw(3);
        assert_eq!(waiters.watched(), vec![(key, 3)]);
        drop(one);
        drop(two);
        assert_eq!(waiters.count(), 0);
        assert!(waiters.watched().is_empty());
    }
}
