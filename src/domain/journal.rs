//! Journal entries: append-only, one per revision, hash-chained per effect (protocol §10).

use serde::ser::SerializeMap as _;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::canonical::Sha256Digest;
use super::ids::{EffectKey, Name, prefix};
use super::state::State;
use super::time::Timestamp;

/// The event names of protocol §10 that a journal entry may list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = EventName)]
pub enum EventKind {
    /// The intent was stated.
    #[serde(rename = "effect.proposed")]
    Proposed,
    /// The dispatch is allowed.
    #[serde(rename = "effect.authorized")]
    Authorized,
    /// The intent may be claimed.
    #[serde(rename = "effect.intent_recorded")]
    IntentRecorded,
    /// A dispatch was granted.
    #[serde(rename = "effect.dispatched")]
    Dispatched,
    /// A dispatch stayed silent.
    #[serde(rename = "effect.lease_expired")]
    LeaseExpired,
    /// Nobody knows.
    #[serde(rename = "effect.outcome_unknown")]
    OutcomeUnknown,
    /// A receipt binds.
    #[serde(rename = "effect.receipt.validated")]
    ReceiptValidated,
    /// A fresh read was recorded.
    #[serde(rename = "effect.verified")]
    Verified,
    /// It happened.
    #[serde(rename = "effect.completed")]
    Completed,
    /// It did not.
    #[serde(rename = "effect.failed")]
    Failed,
    /// It was denied or withdrawn.
    #[serde(rename = "effect.refused")]
    Refused,
    /// It may be tried again.
    #[serde(rename = "effect.safe_to_retry")]
    SafeToRetry,
    /// A person decides.
    #[serde(rename = "effect.manual_review")]
    ManualReview,
    /// A report came under an old fence or after settlement.
    #[serde(rename = "effect.late_report")]
    LateReport,
    /// A reconciliation was admitted.
    #[serde(rename = "effect.reconciliation.started")]
    ReconciliationStarted,
    /// It answered without settling.
    #[serde(rename = "effect.reconciliation.observed")]
    ReconciliationObserved,
    /// It was superseded or rejected.
    #[serde(rename = "effect.reconciliation.conflict")]
    ReconciliationConflict,
    /// An operator decided.
    #[serde(rename = "effect.resolved")]
    Resolved,
    /// An item of a recovery execution was carried out.
    #[serde(rename = "recovery.item.executed")]
    RecoveryItemExecuted,
    /// The database was restored to an earlier point.
    #[serde(rename = "effect.restored")]
    Restored,
}

/// One event of a journal entry: a name and public facts, never content (law 11).
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// The name.
    pub kind: EventKind,
    /// Public facts, in the order they are told.
    pub facts: Vec<(&'static str, Value)>,
}

impl Event {
    /// An event without facts.
    #[must_use]
    pub const fn new(kind: EventKind) -> Self {
        Self { kind, facts: Vec::new() }
    }

    /// The same with one fact more.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: impl Into<Value>) -> Self {
        self.facts.push((name, value.into()));
        self
    }
}

impl Serialize for Event {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.facts.len().saturating_add(1)))?;
        map.serialize_entry("type", &self.kind)?;
        for (name, value) in &self.facts {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

/// What a journal entry says. Serialized once; the bytes are stored, hashed and answered as they are.
#[derive(Debug, Serialize)]
pub struct Entry<'a> {
    /// The revision that the entry made.
    pub revision: u32,
    /// When, by database time.
    pub at: Timestamp,
    /// Who: a principal, or `actonce` for the service itself.
    pub by: &'a Name,
    /// The state after it.
    pub state: State,
    /// The events that the change stands for.
    pub events: &'a [Event],
    /// Digest of the intent, in the first entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub intent_digest: Option<&'a Sha256Digest>,
    /// Digest of the record's life after the change.
    pub record_digest: &'a Sha256Digest,
    /// Digest of the receipt stored with this entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub receipt_digest: Option<&'a Sha256Digest>,
    /// Digest of the result stored with this entry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result_digest: Option<&'a Sha256Digest>,
}

/// The `prev_hash` of a first entry.
pub const GENESIS: [u8; 32] = [0; 32];

/// The hash of an entry: SHA-256 over a domain tag, the tenant (length first), the effect, the
/// revision, the previous hash and the entry's bytes as stored.
#[must_use]
pub fn entry_hash(key: &EffectKey, revision: u32, prev_hash: &[u8; 32], entry: &str) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(b"actonce entry v1");
    hash.update(prefix(key.tenant.as_str()));
    hash.update(key.tenant.as_str());
    hash.update(key.effect.as_bytes());
    hash.update(revision.to_be_bytes());
    hash.update(prev_hash);
    hash.update(entry);
    hash.finalize().into()
}
