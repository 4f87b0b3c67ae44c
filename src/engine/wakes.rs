//! Wake-ups: of the sweep when something becomes due sooner than it thought, and of other replicas
//! when an effect changed. Replicas announce themselves; while no other one is heard, nothing is
//! announced and nothing is paid.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;
use uuid::Uuid;

use crate::domain::time::Timestamp;
use crate::store::{Result, Store};
use crate::support::random_id;

/// How often a replica says that it is there.
pub const HELLO_EVERY: Duration = Duration::from_secs(10);
/// How long a replica that was heard counts as there.
const PEER_TTL: Duration = Duration::from_secs(35);
/// Most changed effects that wait to be announced; more are found by the slow poll of the others.
const PENDING: usize = 20_000;
/// Effects per announcement: 32 hex digits each, within the store's 7,900 bytes.
const PER_MESSAGE: usize = 240;

/// See the module.
#[derive(Debug)]
pub struct Wakes {
    /// Whether other replicas are possible at all.
    shared: bool,
    me: String,
    pending: Mutex<HashSet<Uuid>>,
    changes: Notify,
    has_peers: AtomicBool,
    peer_heard: Mutex<Option<Instant>>,
    /// When the sweep means to look next, in microseconds of database time.
    sweep_at_us: AtomicI64,
    sweep: Notify,
}

/// What another replica said.
#[derive(Debug, PartialEq, Eq)]
pub enum Heard {
    /// Ourselves, or nothing of interest.
    Nothing,
    /// It is there; answer if it is new.
    Hello {
        /// Whether no replica was known before.
        first: bool,
    },
    /// Effects changed.
    Changed(Vec<Uuid>),
}

impl Wakes {
    /// `shared`: other processes may write to the same store.
    #[must_use]
    pub fn new(shared: bool) -> Self {
        Self {
            shared,
            me: random_id().simple().to_string(),
            pending: Mutex::default(),
            changes: Notify::new(),
            has_peers: AtomicBool::new(false),
            peer_heard: Mutex::new(None),
            sweep_at_us: AtomicI64::new(i64::MAX),
            sweep: Notify::new(),
        }
    }

    /// An effect was changed here.
    pub fn changed(&self, effect: Uuid, due_at: Option<Timestamp>) {
        if let Some(due) = due_at
            && due.micros() < self.sweep_at_us.load(Ordering::Relaxed)
        {
            self.sweep.notify_one();
        }
        if self.has_peers.load(Ordering::Relaxed) {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            if pending.len() < PENDING {
                pending.insert(effect);
            }
            drop(pending);
            self.changes.notify_one();
        }
    }

    /// Something was made due.
    pub fn sweep_now(&self) {
        self.sweep.notify_one();
    }

    /// Ends when something may be due before the time the sweep had planned.
    pub async fn sweep_sooner(&self) {
        self.sweep.notified().await;
    }

    /// The sweep means to look again at this time.
    pub fn sweep_planned(&self, at: Timestamp) {
        self.sweep_at_us.store(at.micros(), Ordering::Relaxed);
    }

    /// Ends when there is something to announce.
    pub async fn announce_needed(&self) {
        self.changes.notified().await;
    }

    /// Announces what changed here.
    ///
    /// # Errors
    /// The store can't answer; what was pending is dropped, and found by the others' slow poll.
    pub async fn announce(&self, store: &dyn Store) -> Result<()> {
        let heard = *self.peer_heard.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = heard.is_some_and(|at| at.elapsed() < PEER_TTL);
        self.has_peers.store(alive, Ordering::Relaxed);
        let effects: Vec<Uuid> = self.pending.lock().unwrap_or_else(PoisonError::into_inner).drain().collect();
        if alive {
            for some in effects.chunks(PER_MESSAGE) {
                let list: String = some.iter().map(|effect| effect.simple().to_string()).collect();
                store.announce(&format!("c{}{list}", self.me)).await?;
            }
        }
        Ok(())
    }

    /// Says that this replica is there.
    ///
    /// # Errors
    /// The store can't answer.
    pub async fn hello(&self, store: &dyn Store) -> Result<()> {
        if self.shared { store.announce(&format!("h{}", self.me)).await } else { Ok(()) }
    }

    /// Understands what was heard.
    pub fn hear(&self, message: &str) -> Heard {
        let Some((who, rest)) = message.get(1..).and_then(|tail| tail.split_at_checked(32)) else {
            return Heard::Nothing;
        };
        if who == self.me {
            return Heard::Nothing;
        }
        *self.peer_heard.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        let first = !self.has_peers.swap(true, Ordering::Relaxed);
        match message.as_bytes().first() {
            Some(b'h') => Heard::Hello { first },
            Some(b'c') => {
                Heard::Changed(rest.as_bytes().chunks(32).filter_map(|hex| Uuid::try_parse_ascii(hex).ok()).collect())
            }
            _ => Heard::Nothing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_voice_is_not_a_peer() {
        let (a, b) = (Wakes::new(true), Wakes::new(true));
        let hello = format!("h{}", a.me);
        assert_eq!(a.hear(&hello), Heard::Nothing);
        assert_eq!(b.hear(&hello), Heard::Hello { first: true });
        assert_eq!(b.hear(&hello), Heard::Hello { first: false });
        let effect = random_id();
        assert_eq!(b.hear(&format!("c{}{}", a.me, effect.simple())), Heard::Changed(vec![effect]));
        assert_eq!(b.hear("x"), Heard::Nothing);
    }
}
