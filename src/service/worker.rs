//! The background: what becomes due, wake-ups between replicas, the clock. Safe in all replicas at
//! once, because every write repeats what it saw.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::Service;
use super::asking::Done;
use crate::domain::ids::EffectKey;
use crate::domain::time::Timestamp;
use crate::engine::wakes::{HELLO_EVERY, Heard};
use crate::store::StoreError;

/// The longest sleep of the sweep. Another replica's lease may end, or its process die, unheard.
const SWEEP_MAX: Duration = Duration::from_secs(5);
/// The shortest, so that a due effect that can't be settled never makes the sweep spin.
const SWEEP_MIN: Duration = Duration::from_millis(20);
/// Effects per look.
const SWEEP_PAGE: u32 = 256;
/// Most effects remembered as stuck.
const SWEEP_STUCK: u32 = 5_000;
/// The pause of a sweep that knows of stuck effects.
const SWEEP_STUCK_PAUSE: Duration = Duration::from_secs(1);
/// How often the waiters are compared with the store, whatever was heard.
const WAITER_POLL: Duration = Duration::from_secs(2);
/// How often the database's clock is asked.
const CLOCK_REFRESH: Duration = Duration::from_secs(15);
/// How far the database's time may be from what is known of it, a slow answer included.
const CLOCK_JUMP: Duration = Duration::from_secs(2);

impl Service {
    /// Lets pass what is due, until stopped.
    pub async fn run_sweep(self: Arc<Self>, stop: CancellationToken) {
        let mut stuck = HashSet::new();
        loop {
            let pause = match self.sweep(&mut stuck).await {
                Ok(pause) => {
                    self.gauges.swept();
                    pause
                }
                Err(error) => {
                    tracing::warn!(error = %error, "the sweep failed and is tried again");
                    SWEEP_MAX
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                () = self.engine().wakes().sweep_sooner() => {}
            }
        }
    }

    /// One sweep. Returns how long to sleep. Effects that can't be moved (a row that can't be read
    /// back) are remembered in `stuck`: they neither hide the others nor make the sweep spin.
    async fn sweep(self: &Arc<Self>, stuck: &mut HashSet<Uuid>) -> Result<Duration, StoreError> {
        let store = self.engine().store();
        metrics::counter!("actonce_sweeps_total").increment(1);
        let (mut next, mut now) = store.next_due().await?;
        self.follow_clock(now).await?;
        // Mostly nothing is due, and that was all to be asked.
        if next.is_some_and(|next| next <= now) {
            self.pass_due(stuck).await?;
            (next, now) = store.next_due().await?;
        }
        let planned = now.plus(SWEEP_MAX);
        if !stuck.is_empty() {
            // What is due and stuck would name the past; others are looked for soon enough.
            self.engine().wakes().sweep_planned(planned);
            return Ok(SWEEP_STUCK_PAUSE);
        }
        let at = next.map_or(planned, |next| next.min(planned));
        self.engine().wakes().sweep_planned(at);
        Ok(at.duration_since(now).max(SWEEP_MIN))
    }

    /// Asks for the database's time again where it is not what it was thought to be: somebody has set its clock.
    async fn follow_clock(&self, now: Timestamp) -> Result<(), StoreError> {
        let clock = self.engine().clock();
        let known = clock.now();
        if known.duration_since(now).max(now.duration_since(known)) > CLOCK_JUMP {
            let seconds = now.micros().saturating_sub(known.micros()) / 1_000_000;
            tracing::warn!(seconds, "the database's clock has jumped: leases and deadlines are judged by its new time");
            clock.refresh(self.engine().store().as_ref()).await?;
        }
        Ok(())
    }

    /// Settles what is due, page by page.
    async fn pass_due(self: &Arc<Self>, stuck: &mut HashSet<Uuid>) -> Result<(), StoreError> {
        let store = self.engine().store();
        let mut tried = HashSet::new();
        loop {
            let hidden = u32::try_from(stuck.len()).unwrap_or(SWEEP_STUCK);
            let limit = SWEEP_PAGE.saturating_add(hidden);
            let due = store.due(limit).await?;
            let full = due.len() == usize::try_from(limit).unwrap_or(usize::MAX);
            let fresh: Vec<&EffectKey> = due.iter().filter(|key| tried.insert(key.effect)).collect();
            let done = futures_util::future::join_all(fresh.iter().map(|key| self.settle_due(key))).await;
            let mut postponed = Vec::new();
            for (key, done) in fresh.iter().zip(done) {
                match done {
                    Done::Stuck if stuck.len() < usize::try_from(SWEEP_STUCK).unwrap_or(0) => {
                        stuck.insert(key.effect);
                        continue;
                    }
                    Done::Later(later) => postponed.push(later),
                    Done::Moved | Done::Stuck => {}
                }
                stuck.remove(&key.effect);
            }
            if !postponed.is_empty() {
                store.postpone(&postponed).await?;
            }
            if !full || fresh.is_empty() {
                return Ok(());
            }
        }
    }

    /// Keeps the idea of database time fresh, until stopped.
    pub async fn run_clock(self: Arc<Self>, stop: CancellationToken) {
        while pause(&stop, CLOCK_REFRESH).await {
            if let Err(error) = self.engine().clock().refresh(self.engine().store().as_ref()).await {
                tracing::warn!(error = %error, "the database's clock could not be asked");
            }
        }
    }

    /// Compares the waiters with the store now and then, whatever was heard, until stopped.
    pub async fn run_waiter_poll(self: Arc<Self>, stop: CancellationToken) {
        while pause(&stop, WAITER_POLL).await {
            let watched = self.engine().waiters().watched();
            for some in watched.chunks(1_000) {
                let keys: Vec<EffectKey> = some.iter().map(|(key, _)| key.clone()).collect();
                match self.engine().store().revisions(&keys).await {
                    Ok(found) => {
                        for ((key, seen), found) in some.iter().zip(found) {
                            if found > *seen {
                                self.engine().forget(key.effect);
                            }
                        }
                    }
                    Err(error) => tracing::warn!(error = %error, "the waiters could not be compared"),
                }
            }
        }
    }

    /// Announces what changed here to other replicas, until stopped.
    pub async fn run_announcer(self: Arc<Self>, stop: CancellationToken) {
        let (engine, wakes) = (self.engine(), self.engine().wakes());
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = wakes.announce_needed() => {}
            }
            if let Err(error) = wakes.announce(engine.store().as_ref()).await {
                tracing::warn!(error = %error, "changes could not be announced");
            }
            // What changes meanwhile goes with the next announcement.
            if !pause(&stop, Duration::from_millis(5)).await {
                return;
            }
        }
    }

    /// Listens to other replicas, until stopped; listens again after a break.
    pub async fn run_listener(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let (sink, mut heard) = mpsc::channel(1_000);
            let store = Arc::clone(self.engine().store());
            let listening = store.listen(sink);
            let understanding = async {
                self.say_hello().await;
                let mut hello = tokio::time::interval(HELLO_EVERY);
                loop {
                    tokio::select! {
                        message = heard.recv() => match message {
                            Some(message) => self.hear(&message).await,
                            None => return,
                        },
                        _ = hello.tick() => self.say_hello().await,
                    }
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                result = async { tokio::join!(listening, understanding).0 } => match result {
                    Ok(()) => return,
                    Err(error) => tracing::warn!(error = %error, "listening broke and is begun again"),
                },
            }
            if !pause(&stop, Duration::from_secs(1)).await {
                return;
            }
        }
    }

    async fn say_hello(&self) {
        if let Err(error) = self.engine().wakes().hello(self.engine().store().as_ref()).await {
            tracing::warn!(error = %error, "other replicas could not be greeted");
        }
    }

    async fn hear(&self, message: &str) {
        match self.engine().wakes().hear(message) {
            Heard::Nothing | Heard::Hello { first: false } => {}
            Heard::Hello { first: true } => self.say_hello().await,
            Heard::Changed(effects) => {
                self.engine().bells().ring_elsewhere();
                for effect in effects {
                    self.engine().forget(effect);
                }
            }
        }
    }
}

/// Sleeps; false when stopped.
async fn pause(stop: &CancellationToken, time: Duration) -> bool {
    tokio::select! {
        () = stop.cancelled() => false,
        () = tokio::time::sleep(time) => true,
    }
}
