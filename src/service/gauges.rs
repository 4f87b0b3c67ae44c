//! Metrics that are looked up when they are asked for.
//!
//! What the database has to be asked for is asked for at most every few seconds, by one request at a
//! time, and for a bounded time: a database that is slow or away makes no scrape fail, as that is when
//! metrics are needed most.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::Service;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::limits;

/// What is known between two scrapes.
#[derive(Debug)]
pub(super) struct Gauges {
    asked: tokio::sync::Mutex<Option<Instant>>,
    swept: Mutex<Instant>,
}

impl Default for Gauges {
    fn default() -> Self {
        Self { asked: tokio::sync::Mutex::default(), swept: Mutex::new(Instant::now()) }
    }
}

impl Gauges {
    /// A sweep succeeded.
    pub(super) fn swept(&self) {
        *self.swept.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

fn unsettled() -> impl Iterator<Item = State> {
    State::ALL.into_iter().filter(|state| !state.is_terminal())
}

impl Service {
    /// Brings the gauges up to date, as far as that is possible in time.
    pub async fn refresh_gauges(&self) {
        let swept = *self.gauges.swept.lock().unwrap_or_else(PoisonError::into_inner);
        metrics::gauge!("actonce_sweep_age_seconds").set(swept.elapsed().as_secs_f64());
        let commits = u32::try_from(self.engine().backlog().count()).unwrap_or(u32::MAX);
        metrics::gauge!("actonce_commits_waiting").set(f64::from(commits));
        let waiters = u32::try_from(self.engine().waiters().count()).unwrap_or(u32::MAX);
        metrics::gauge!("actonce_waiters").set(f64::from(waiters));
        let listeners = u32::try_from(self.event_listeners()).unwrap_or(u32::MAX);
        metrics::gauge!("actonce_event_listeners").set(f64::from(listeners));
        for pool in self.engine().store().pools() {
            for (state, count) in [("in_use", pool.in_use), ("idle", pool.idle)] {
                metrics::gauge!("actonce_pool_connections", "pool" => pool.pool, "state" => state)
                    .set(f64::from(count));
            }
            metrics::gauge!("actonce_pool_limit", "pool" => pool.pool).set(f64::from(pool.limit));
        }
        let wait = Duration::from_secs(limits::METRICS_WAIT_SECONDS);
        let store = self.engine().store();
        // A write is tried where one has failed and none has succeeded since; otherwise nothing is asked.
        let takes_writes = !store.refuses_writes()
            || tokio::time::timeout(wait, store.takes_writes()).await.is_ok_and(|tried| tried.unwrap_or(false));
        metrics::gauge!("actonce_store_takes_writes").set(f64::from(u8::from(takes_writes)));
        if tokio::time::timeout(wait, self.refresh_open_effects()).await.is_err() {
            unknown();
        }
    }

    async fn refresh_open_effects(&self) {
        let mut asked = self.gauges.asked.lock().await;
        if asked.is_some_and(|at| at.elapsed() < Duration::from_secs(limits::METRICS_FRESH_SECONDS)) {
            return;
        }
        match self.engine().store().open_states().await {
            Ok(states) => {
                self.show_open_effects(&states);
                let age = self.outbox_age_seconds().await.unwrap_or(f64::NAN);
                metrics::gauge!("actonce_outbox_age_seconds").set(age);
                *asked = Some(Instant::now());
            }
            Err(error) => {
                tracing::warn!(%error, "the open effects could not be counted");
                unknown();
            }
        }
    }

    fn show_open_effects(&self, states: &[(State, u64, Timestamp)]) {
        let now = self.engine().clock().now();
        for state in unsettled() {
            let found = states.iter().find(|(found, _, _)| *found == state);
            let count = found.map_or(0, |(_, count, _)| u32::try_from(*count).unwrap_or(u32::MAX));
            let age = found.map_or(0.0, |(_, _, oldest)| now.duration_since(*oldest).as_secs_f64());
            metrics::gauge!("actonce_effects_open", "state" => state.as_str()).set(f64::from(count));
            metrics::gauge!("effects_unresolved_age_seconds", "state" => state.as_str()).set(age);
        }
        metrics::gauge!("actonce_store_up").set(1.0);
    }
}

/// A number that nobody knows is none: the old one would look like a fact.
fn unknown() {
    for state in unsettled() {
        metrics::gauge!("actonce_effects_open", "state" => state.as_str()).set(f64::NAN);
        metrics::gauge!("effects_unresolved_age_seconds", "state" => state.as_str()).set(f64::NAN);
    }
    metrics::gauge!("actonce_outbox_age_seconds").set(f64::NAN);
    metrics::gauge!("actonce_store_up").set(0.0);
}
