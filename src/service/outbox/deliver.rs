//! Deliveries: the loop that makes messages of the feed and sends them.
//!
//! A subscription is worked on by one replica at a time, which holds it by a lease in the database. What is
//! sent was written down before, bytes and all, and is forgotten only after the endpoint has taken it: a
//! crash anywhere sends the same again.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::port::Message;
use super::{Service, ServiceError, Subscription};
use crate::domain::adapter::NoAnswer;
use crate::limits;
use crate::service::events::events_of;
use crate::service::ports::SigningSecret;
use crate::store::StoreError;
use crate::store::feed::FeedMark;
use crate::store::subscriptions::{Attempted, MessageRow, NewMessage, Next, Subscribed, SubscriptionKey};
use crate::support::{random_bytes, random_id};

/// How often subscriptions are looked at, whatever was heard.
const POLL: Duration = Duration::from_secs(10);
/// The least time to the next look where something is due that could not be taken.
const POLL_MIN: Duration = Duration::from_millis(250);
/// After a bell: on Postgres what rang is shown a little later where an older transaction is under way.
const AGAIN: [Duration; 5] = [
    Duration::from_millis(20),
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
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
const REASON_CURSOR: &str = "cursor_gone";
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

/// What one process has in hand.
#[derive(Default)]
struct InHand {
    /// Each ends with whether it is one whose endpoint had failed. Tasks of their own, as one that waits for the
    /// store while it is not polled would keep everybody else from it.
    work: JoinSet<bool>,
    failing: usize,
}

impl Service {
    /// Delivers events to subscribers, until stopped.
    pub async fn run_deliveries(self: Arc<Self>, stop: CancellationToken) {
        let holder = random_id();
        let mut hand = InHand::default();
        let mut again = AGAIN.iter();
        // Whether to look for new entries, too, and not only for what is known to be due.
        let mut is_thorough = true;
        let mut last_thorough = Instant::now();
        loop {
            let next = match self.look_for_deliveries(holder, is_thorough, &mut hand).await {
                Ok(next) => next,
                Err(error) => {
                    tracing::warn!(%error, "subscriptions could not be looked at");
                    POLL
                }
            };
            if is_thorough {
                last_thorough = Instant::now();
            }
            let soon = again.next().copied();
            is_thorough = true;
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(soon.unwrap_or(next)) => {
                    is_thorough = soon.is_some() || last_thorough.elapsed() >= POLL;
                }
                () = self.outbox.bell.notified() => again = AGAIN.iter(),
                Some(was_failing) = hand.work.join_next() => {
                    hand.failing = hand.failing.saturating_sub(usize::from(was_failing.unwrap_or(false)));
                }
            }
        }
        // What is under way is cut off, and sent again by whoever comes next.
        hand.work.shutdown().await;
        if let Err(error) = self.let_go(holder).await {
            tracing::warn!(%error, "subscriptions could not be given back: their leases have to run out");
        }
    }

    /// Takes what has something to do. How long nothing more is due.
    async fn look_for_deliveries(
        self: &Arc<Self>,
        holder: Uuid,
        is_thorough: bool,
        hand: &mut InHand,
    ) -> Result<Duration, StoreError> {
        let subscribed = self.engine().store().subscribed(limits::SUBSCRIBED_TENANTS).await?;
        self.hang_bells(&subscribed);
        let now = self.engine().clock().now();
        for failing in [false, true] {
            let (mut has_any, mut has_due) = (false, false);
            for one in &subscribed {
                has_any |= one.failing == failing;
                has_due |= one.failing == failing && one.next_at <= now;
            }
            if !has_any || !(is_thorough || has_due) {
                continue;
            }
            let room = limits::DELIVERY_SUBSCRIPTIONS.saturating_sub(hand.work.len());
            let room = if failing { room.min(limits::DELIVERY_FAILING.saturating_sub(hand.failing)) } else { room };
            if room > 0 {
                self.take_subscriptions(holder, failing, u32::try_from(room).unwrap_or(u32::MAX), hand).await?;
            }
        }
        let next = subscribed.iter().map(|one| one.next_at.duration_since(now)).min();
        Ok(next.map_or(POLL, |next| next.clamp(POLL_MIN, POLL)))
    }

    fn hang_bells(&self, subscribed: &[Subscribed]) {
        let mut hung = self.outbox.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        for gone in hung.extract_if(|tenant| !subscribed.iter().any(|one| one.tenant == *tenant)) {
            self.engine().bells().take_down(&gone, &self.outbox.bell);
        }
        for one in subscribed {
            if hung.insert(one.tenant.clone()) {
                self.engine().bells().hang(&one.tenant, &self.outbox.bell);
            }
        }
    }

    async fn take_subscriptions(
        self: &Arc<Self>,
        holder: Uuid,
        failing: bool,
        room: u32,
        hand: &mut InHand,
    ) -> Result<(), StoreError> {
        let store = self.engine().store();
        for row in store.claim_subscriptions(holder, failing, limits::DELIVERY_LEASE_SECONDS, room).await? {
            let (service, key) = (Arc::clone(self), row.key());
            hand.failing = hand.failing.saturating_add(usize::from(failing));
            let work = async move {
                // One that panics takes no other with it.
                if AssertUnwindSafe(service.work_on(&key, holder)).catch_unwind().await.is_err() {
                    tracing::error!(subscription = %key.id, "a delivery panicked; it is tried again after its lease");
                }
                failing
            };
            hand.work.spawn(work);
        }
        Ok(())
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
            if made == Round::Failed {
                return Ok(());
            }
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
        let page = store.feed(&row.tenant, &row.cursor, limits::DELIVERY_ENTRIES).await?;
        if row.cursor != FeedMark::START
            && page.rows.first().is_none_or(|first| first.mark != row.cursor)
            && !store.feed_place_is_pruned(&row.tenant, &row.cursor).await?
        {
            // What was told and what was not can't be known: a person decides.
            store.disable_subscription(&row.key(), REASON_CURSOR).await?;
            return Ok(Round::Failed);
        }
        let fresh: Vec<_> = page.rows.iter().filter(|entry| entry.mark > row.cursor).collect();
        let has_own = fresh.iter().any(|entry| entry.content.is_some());
        let Some(last) = fresh.last().filter(|_| has_own || page.more) else { return Ok(Round::Done) };
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
        Ok(if page.more { Round::More } else { Round::Done })
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
            None => Err(NoAnswer::Unreachable),
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
