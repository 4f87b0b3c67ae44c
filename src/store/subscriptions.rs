//! Subscriptions and the messages that are not delivered yet.

use async_trait::async_trait;
use uuid::Uuid;

use super::Result;
use super::feed::FeedMark;
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;

/// A subscription as stored.
#[derive(Debug, Clone)]
pub struct SubscriptionRow {
    /// The tenant.
    pub tenant: Tenant,
    /// Its id.
    pub id: Uuid,
    /// Grows with every change by a person.
    pub revision: u32,
    /// What was asked for, as a document.
    pub spec: String,
    /// Its secrets, sealed.
    pub secrets: String,
    /// Whether it is told anything.
    pub enabled: bool,
    /// Why the service disabled it.
    pub reason: Option<String>,
    /// Up to this entry messages were made.
    pub cursor: FeedMark,
    /// Failures in a row.
    pub failures: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// Who made it.
    pub created_by: Name,
    /// When it was changed last.
    pub changed_at: Timestamp,
}

/// A subscription as one names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscriptionKey {
    /// The tenant.
    pub tenant: Tenant,
    /// Its id.
    pub id: Uuid,
}

impl SubscriptionRow {
    /// Its key.
    #[must_use]
    pub fn key(&self) -> SubscriptionKey {
        SubscriptionKey { tenant: self.tenant.clone(), id: self.id }
    }
}

/// A message that was not made before.
#[derive(Debug, Clone)]
pub struct NewMessage {
    /// The event's id.
    pub message_id: String,
    /// The event's name.
    pub kind: String,
    /// The bytes.
    pub body: String,
}

/// A message that is not delivered.
#[derive(Debug, Clone)]
pub struct MessageRow {
    /// Its id.
    pub message_id: String,
    /// The event's name.
    pub kind: String,
    /// The bytes that every attempt sends.
    pub body: String,
    /// Attempts so far.
    pub attempts: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// What the last attempt came to.
    pub last_result: Option<String>,
    /// When that was.
    pub last_at: Option<Timestamp>,
    /// When it was given up.
    pub dead_at: Option<Timestamp>,
}

/// What an attempt came to.
#[derive(Debug, Clone)]
pub struct Attempted {
    /// The message.
    pub message_id: String,
    /// Attempts before this one; another number in the store changes nothing.
    pub attempts_seen: u32,
    /// What becomes of it.
    pub next: Next,
    /// A status or a word; never content.
    pub result: String,
}

/// What becomes of a message after an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// It is delivered, and forgotten.
    Delivered,
    /// It is sent again after so many microseconds.
    Again(i64),
    /// It is given up.
    Dead,
}

/// A tenant with enabled subscriptions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subscribed {
    /// The tenant.
    pub tenant: Tenant,
    /// Whether these are the ones whose endpoints failed last.
    pub failing: bool,
    /// When the first message of them is due, as far as is known.
    pub next_at: Timestamp,
}

/// What waits outside for a subscriber.
#[derive(Debug, Clone)]
pub struct Outstanding {
    /// When the oldest message that is due became so.
    pub oldest_due: Option<Timestamp>,
    /// The first entries, as stored, of which messages are still to be made.
    pub entries: Vec<String>,
    /// The database's time.
    pub now: Timestamp,
}

impl Outstanding {
    /// Nothing waits yet.
    #[must_use]
    pub const fn none(now: Timestamp) -> Self {
        Self { oldest_due: None, entries: Vec::new(), now }
    }

    /// Adds what waits for one subscription: since when its oldest message is due, and the first entry behind it.
    pub fn add(&mut self, due: Option<Timestamp>, entry: Option<String>) {
        self.oldest_due = self.oldest_due.into_iter().chain(due).min();
        self.entries.extend(entry);
    }
}

/// See the module. The database's time decides about leases and due times.
#[async_trait]
pub trait SubscriptionStore {
    /// One subscription.
    async fn subscription(&self, key: &SubscriptionKey) -> Result<Option<SubscriptionRow>>;

    /// A tenant's subscriptions by id, strictly after one.
    async fn subscriptions(&self, tenant: &Tenant, after: Option<Uuid>, limit: u32) -> Result<Vec<SubscriptionRow>>;

    /// Writes what a person asked for: a new one at revision 1, unless the tenant has `most`; else a change of
    /// the revision before. Cursor and failures of one that is there stay; it is looked at at once.
    async fn write_subscription(&self, row: &SubscriptionRow, most: u32) -> Result<bool>;

    /// Deletes one and its messages.
    async fn delete_subscription(&self, key: &SubscriptionKey, revision: u32) -> Result<bool>;

    /// Tenants with an enabled subscription, those of endpoints that fail by themselves.
    async fn subscribed(&self, limit: u32) -> Result<Vec<Subscribed>>;

    /// Takes subscriptions that have something to do and that nobody has in hand: of endpoints that failed last
    /// (`failing`), or of the others.
    async fn claim_subscriptions(
        &self,
        holder: Uuid,
        failing: bool,
        lease_seconds: u32,
        limit: u32,
    ) -> Result<Vec<SubscriptionRow>>;

    /// Holds on to one; what it is now, or `None` when it is lost or disabled.
    async fn hold_subscription(
        &self,
        key: &SubscriptionKey,
        holder: Uuid,
        lease_seconds: u32,
    ) -> Result<Option<SubscriptionRow>>;

    /// Gives one back: when it has to be looked at again is found in its messages, of which `most` may wait.
    async fn release_subscription(&self, key: &SubscriptionKey, holder: Uuid, most: u32) -> Result<()>;

    /// Gives back all that a holder has in hand, to be looked at at once.
    async fn release_holder(&self, holder: Uuid) -> Result<()>;

    /// Makes messages and moves the cursor, if it is still at `seen`.
    async fn make_messages(
        &self,
        key: &SubscriptionKey,
        seen: &FeedMark,
        cursor: &FeedMark,
        messages: &[NewMessage],
    ) -> Result<bool>;

    /// Messages that are due, the longest due first.
    async fn due_messages(&self, key: &SubscriptionKey, limit: u32) -> Result<Vec<MessageRow>>;

    /// Notes what attempts came to. `pause` leaves the endpoint alone for so many microseconds, and counts one
    /// more failure in a row; without it the row of failures ends.
    async fn note_attempts(&self, key: &SubscriptionKey, attempts: &[Attempted], pause: Option<i64>) -> Result<()>;

    /// Disables one for a reason of the service's.
    async fn disable_subscription(&self, key: &SubscriptionKey, reason: &str) -> Result<()>;

    /// How many messages wait, and how many were given up.
    async fn message_counts(&self, key: &SubscriptionKey) -> Result<(u64, u64)>;

    /// Messages that were given up, the first given up first, strictly after a place.
    async fn dead_messages(
        &self,
        key: &SubscriptionKey,
        after: Option<(Timestamp, &str)>,
        limit: u32,
    ) -> Result<Vec<MessageRow>>;

    /// Makes dead messages due again, these or the first ones; how many.
    async fn resend_messages(&self, key: &SubscriptionKey, ids: Option<&[String]>, limit: u32) -> Result<u64>;

    /// What waits over all tenants.
    async fn outstanding(&self) -> Result<Outstanding>;
}
