//! Deliveries: the loop that makes messages of the feed and sends them.
//!
//! A subscription is worked on by one replica at a time, which holds it by a lease in the database. What is
//! sent was written down before, bytes and all, and is forgotten only after the endpoint has taken it: a
//! crash anywhere sends the same again.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::port::Message;
use super::{Service, ServiceError, Subscription};
use crate::domain::adapter::NoAnswer;
use crate::limits;
use crate::service::events::events_of;
use crate::service::ports::SigningSecret;
use crate::store::StoreError;
use crate::store::subscriptions::{Attempted, MessageRow, NewMessage, Next, SubscriptionKey};
use crate::support::{random_bytes, random_id};

/// How often subscriptions are looked at, whatever was heard, while there are any; and while there is none.
const POLL: Duration = Duration::from_secs(1);
const POLL_IDLE: Duration = Duration::from_secs(5);
/// After a bell: on Postgres what rang is shown a little later where an older transaction is under way.
const AGAIN: [Duration; 3] = [Duration::from_millis(20), Duration::from_millis(100), Duration::from_millis(300)];
/// Rounds on one subscription until others get their turn.
const ROUNDS: u32 = 100;
/// After the first failure; each further one triples it.
const BACKOFF_SECONDS: u32 = 5;
const BACKOFF_MAX_SECONDS: u32 = 6 * 3600;
/// How long an endpoint is left alone after a failure; each further one in a row doubles it.
const PAUSE_SECONDS: u32 = 1;
const PAUSE_MAX_SECONDS: u32 = 60;
/// The endpoint wants no more.
const GONE: u16 = 410;
/// Why the service disables a subscription.
const REASON_GONE: &str = "gone";
const REASON_DEAD: &str = "too_many_dead_letters";

/// How a subscription is left.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Round {
    /// There may be more to do.
    More,
    /// Nothing to do now.
    Done,
    /// The endpoint failed, and is left alone for a while.
    Failed,
}

impl Service {
    /// Delivers events to subscribers, until stopped.
    pub async fn run_deliveries(self: Arc<Self>, stop: CancellationToken) {
        let holder = random_id();
        let mut work: FuturesUnordered<BoxFuture<'static, SubscriptionKey>> = FuturesUnordered::new();
        let mut again = AGAIN.iter();
        loop {
            let is_watching = match self.look(holder, &mut work).await {
                Ok(is_watching) => is_watching,
                Err(error) => {
                    tracing::warn!(%error, "subscriptions could not be looked at");
                    true
                }
            };
            let pause = again.next().copied().unwrap_or(if is_watching { POLL } else { POLL_IDLE });
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(pause) => {}
                () = self.outbox.bell.notified() => again = AGAIN.iter(),
                Some(_) = work.next(), if !work.is_empty() => {}
            }
        }
        // What is under way is cut off, and sent again by whoever comes next.
        drop(work);
        if let Err(error) = self.let_go(holder).await {
            tracing::warn!(%error, "subscriptions could not be given back: their leases have to run out");
        }
    }

    /// Takes what has something to do. Whether there is any subscription at all.
    async fn look(
        self: &Arc<Self>,
        holder: Uuid,
        work: &mut FuturesUnordered<BoxFuture<'static, SubscriptionKey>>,
    ) -> Result<bool, StoreError> {
        let store = self.engine().store();
        let tenants = store.subscribed_tenants(limits::SUBSCRIBED_TENANTS).await?;
        let is_watching = !tenants.is_empty();
        {
            let mut watched = self.outbox.tenants.lock().unwrap_or_else(PoisonError::into_inner);
            for gone in watched.extract_if(|tenant| !tenants.contains(tenant)) {
                self.engine().bells().take_down(&gone, &self.outbox.bell);
            }
            for tenant in tenants {
                if !watched.contains(&tenant) {
                    self.engine().bells().hang(&tenant, &self.outbox.bell);
                    watched.insert(tenant);
                }
            }
        }
        let room = limits::DELIVERY_SUBSCRIPTIONS.saturating_sub(work.len());
        if !is_watching || room == 0 {
            return Ok(is_watching);
        }
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        for row in store.claim_subscriptions(holder, limits::DELIVERY_LEASE_SECONDS, room).await? {
            let (service, key) = (Arc::clone(self), row.key());
            work.push(
                async move {
                    // One that panics takes no other with it.
                    if AssertUnwindSafe(service.work_on(&row.key(), holder)).catch_unwind().await.is_err() {
                        tracing::error!(subscription = %row.id, "a delivery panicked; it is tried again after its lease");
                    }
                    key
                }
                .boxed(),
            );
        }
        Ok(is_watching)
    }

    async fn let_go(&self, holder: Uuid) -> Result<(), StoreError> {
        self.engine().store().release_holder(holder).await
    }

    async fn work_on(&self, key: &SubscriptionKey, holder: Uuid) {
        match self.work_rounds(key, holder).await {
            Ok(()) => {}
            Err(error) => {
                tracing::warn!(%error, subscription = %key.id, "a subscription could not be worked on");
                // Its lease is what keeps it from being tried again at once.
                return;
            }
        }
        if let Err(error) = self.engine().store().release_subscription(key, holder, limits::DELIVERIES_WAITING).await {
            tracing::warn!(%error, subscription = %key.id, "a subscription could not be given back");
        }
    }

    async fn work_rounds(&self, key: &SubscriptionKey, holder: Uuid) -> Result<(), ServiceError> {
        for _ in 0..ROUNDS {
            let held = self.engine().store().hold_subscription(key, holder, limits::DELIVERY_LEASE_SECONDS).await?;
            // Lost, disabled or deleted meanwhile.
            let Some(row) = held else { return Ok(()) };
            let subscription = Self::subscription_of(row)?;
            let made = self.make_messages_of(&subscription).await?;
            let sent = self.send_due(&subscription).await?;
            if sent == Round::Failed || (made == Round::Done && sent == Round::Done) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Makes messages of the next entries, while not too many wait.
    async fn make_messages_of(&self, subscription: &Subscription) -> Result<Round, ServiceError> {
        let (row, store) = (&subscription.row, self.engine().store());
        let (waiting, _) = store.message_counts(&row.key()).await?;
        if waiting >= u64::from(limits::DELIVERIES_WAITING) {
            return Ok(Round::Done);
        }
        let entries = store.feed(&row.tenant, &row.cursor, limits::DELIVERY_ENTRIES).await?;
        let is_full = entries.len() == usize::try_from(limits::DELIVERY_ENTRIES).unwrap_or(usize::MAX);
        let fresh: Vec<_> = entries.iter().filter(|entry| entry.mark > row.cursor).collect();
        let Some(last) = fresh.last() else { return Ok(Round::Done) };
        let mut messages = Vec::new();
        for event in fresh.iter().flat_map(|entry| events_of(entry)) {
            if subscription.spec.filter.wants(&event) {
                let kind = serde_json::to_value(event.kind).ok();
                messages.push(NewMessage {
                    message_id: event.id.to_string(),
                    kind: kind.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned(),
                    body: event.json.to_string(),
                });
            }
        }
        let is_moved = store.make_messages(&row.key(), &row.cursor, &last.mark, &messages).await?;
        metrics::counter!("actonce_messages_made_total").increment(if is_moved {
            u64::try_from(messages.len()).unwrap_or(0)
        } else {
            0
        });
        Ok(if is_full { Round::More } else { Round::Done })
    }

    async fn send_due(&self, subscription: &Subscription) -> Result<Round, ServiceError> {
        let (row, store) = (&subscription.row, self.engine().store());
        // An endpoint that failed last is probed before it is trusted with several at once.
        let width = if row.failures > 0 { 1 } else { limits::DELIVERIES_AT_ONCE };
        let due = store.due_messages(&row.key(), width).await?;
        if due.is_empty() {
            return Ok(Round::Done);
        }
        let secrets = self.subscription_secrets(row)?;
        let tries = due.iter().map(|message| self.send_one(subscription, &secrets, message));
        let tried: Vec<(Attempted, bool)> = futures_util::future::join_all(tries).await;
        let is_gone = tried.iter().any(|(_, is_gone)| *is_gone);
        let attempts: Vec<Attempted> = tried.into_iter().map(|(attempt, _)| attempt).collect();
        let has_failed = attempts.iter().any(|attempt| attempt.next != Next::Delivered);
        let pause = has_failed.then(|| pause_micros(row.failures));
        store.note_attempts(&row.key(), &attempts, pause).await?;
        if is_gone {
            store.disable_subscription(&row.key(), REASON_GONE).await?;
        } else if attempts.iter().any(|attempt| attempt.next == Next::Dead)
            && store.message_counts(&row.key()).await?.1 >= limits::DEAD_LETTERS
        {
            // Nothing is dropped: what comes after them stays in the journal until a person has looked.
            store.disable_subscription(&row.key(), REASON_DEAD).await?;
        }
        Ok(if has_failed { Round::Failed } else { Round::More })
    }

    /// One attempt; whether the endpoint wants no more at all.
    async fn send_one(
        &self,
        subscription: &Subscription,
        secrets: &[SigningSecret],
        message: &MessageRow,
    ) -> (Attempted, bool) {
        let sent = match self.outbox.webhooks.get() {
            Some(webhooks) => {
                let timeout = Duration::from_secs(limits::DELIVERY_TIMEOUT_SECONDS);
                let (url, id, body) = (&subscription.spec.url, &message.message_id, &message.body);
                webhooks.send(Message { url, id, body, secrets, timeout }).await
            }
            None => Err(NoAnswer::Capacity),
        };
        let (result, asked, is_gone) = match &sent {
            Ok(received) => (received.status.to_string(), received.retry_after_seconds, received.status == GONE),
            Err(no) => (no.as_str().to_owned(), None, false),
        };
        let is_taken = sent.is_ok_and(|received| (200..300).contains(&received.status));
        let attempts = message.attempts.saturating_add(1);
        let age = self.engine().clock().now().since(message.created_at);
        let next = if is_taken {
            Next::Delivered
        } else if attempts >= limits::DELIVERY_ATTEMPTS || age > i64::from(limits::DELIVERY_AGE_SECONDS) * 1_000_000 {
            Next::Dead
        } else {
            Next::Again(backoff_micros(attempts, asked))
        };
        let word = match next {
            Next::Delivered => "delivered",
            Next::Again(_) => "again",
            Next::Dead => "dead",
        };
        metrics::counter!("actonce_deliveries_total", "result" => word).increment(1);
        let attempt =
            Attempted { message_id: message.message_id.clone(), attempts_seen: message.attempts, next, result };
        (attempt, is_gone)
    }
}

/// A time and up to a fifth of it more, by chance: those that failed together do not come back together.
fn jittered(seconds: u32) -> i64 {
    let chance = random_bytes::<2>().map_or(0, u16::from_be_bytes);
    let micros = i64::from(seconds).saturating_mul(1_000_000);
    micros.saturating_add(micros / 5 * i64::from(chance) / i64::from(u16::MAX))
}

/// When a message is sent again after so many attempts; the endpoint may ask for later, within bounds.
fn backoff_micros(attempts: u32, asked_seconds: Option<u32>) -> i64 {
    let factor = 3_u32.saturating_pow(attempts.saturating_sub(1));
    let seconds = BACKOFF_SECONDS.saturating_mul(factor).min(BACKOFF_MAX_SECONDS);
    let asked = asked_seconds.unwrap_or(0).min(limits::DELIVERY_RETRY_AFTER_MAX_SECONDS);
    jittered(seconds.max(asked))
}

/// How long an endpoint is left alone that had failed so many times in a row before.
fn pause_micros(failures: u32) -> i64 {
    jittered(PAUSE_SECONDS.saturating_mul(2_u32.saturating_pow(failures)).min(PAUSE_MAX_SECONDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_within_bounds_and_are_never_all_alike() {
        let seconds = |micros: i64| micros / 1_000_000;
        assert!((5..=6).contains(&seconds(backoff_micros(1, None))));
        assert!((15..=18).contains(&seconds(backoff_micros(2, None))));
        assert!((21_600..=25_920).contains(&seconds(backoff_micros(60, None))));
        assert!((100..=120).contains(&seconds(backoff_micros(1, Some(100)))), "the endpoint asks for later");
        assert!((3600..=4320).contains(&seconds(backoff_micros(1, Some(u32::MAX)))), "within bounds");
        assert!((1..=2).contains(&seconds(pause_micros(0))));
        assert!((60..=72).contains(&seconds(pause_micros(40))));
        let some: std::collections::BTreeSet<i64> = (0..20).map(|_| backoff_micros(3, None)).collect();
        assert!(some.len() > 1);
    }
}
