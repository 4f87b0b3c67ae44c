//! Receipt sources, deliveries and the quarantine, as sent and as answered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::Faults;
use crate::domain::source::SourceSpec;
use crate::domain::time::Timestamp;
use crate::http::problem::Problem;
use crate::limits;
use crate::service::inbound::{Attach, Disposition, QuarantineDecision, QuarantineItem};
use crate::service::sources::Source;
use crate::store::receipts::QuarantineStatus;

/// A registered receipt source.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SourceView {
    /// Its name.
    name: String,
    /// Where the vendor sends its webhooks, below the address of this service. Random, and never reused.
    url_path: String,
    /// Grows with every change; also the `ETag`.
    revision: u32,
    /// When it was changed last.
    #[schema(value_type = String, format = DateTime)]
    changed_at: Timestamp,
    /// Secrets that are kept for it.
    secret_count: usize,
    /// The registration.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    spec: SourceSpec,
}

impl SourceView {
    /// A source under the base path of this service.
    #[must_use]
    pub fn new(source: &Source, base_path: &str) -> Self {
        Self {
            name: source.row.name.as_str().to_owned(),
            url_path: format!("{base_path}/api/receipts/{}", source.address()),
            revision: source.row.revision,
            changed_at: source.row.changed_at,
            secret_count: source.secret_count,
            spec: source.spec.clone(),
        }
    }
}

/// A page of receipt sources.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ReceiptSourcePage)]
pub struct SourcePage {
    /// The sources, by name.
    items: Vec<SourceView>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DispositionWord {
    /// It ended a doubt.
    Settled,
    /// It is kept as evidence.
    Evidence,
    /// It says what is known already; nothing was written.
    Known,
    /// It waits in quarantine.
    Quarantined,
    /// It says nothing that counts.
    Ignored,
}

/// The answer to a delivery. It tells a vendor nothing about the effect.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct DeliveryView {
    /// What became of it.
    disposition: DispositionWord,
}

impl From<Disposition> for DeliveryView {
    fn from(disposition: Disposition) -> Self {
        let disposition = match disposition {
            Disposition::Settled => DispositionWord::Settled,
            Disposition::Evidence => DispositionWord::Evidence,
            Disposition::Known => DispositionWord::Known,
            Disposition::Quarantined => DispositionWord::Quarantined,
            Disposition::Ignored => DispositionWord::Ignored,
        };
        Self { disposition }
    }
}

/// Whether a delivery in quarantine was decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuarantineStatusWord {
    /// It waits.
    Waiting,
    /// It was attached to an effect.
    Attached,
    /// It was discarded.
    Discarded,
}

impl From<QuarantineStatusWord> for QuarantineStatus {
    fn from(word: QuarantineStatusWord) -> Self {
        match word {
            QuarantineStatusWord::Waiting => Self::Waiting,
            QuarantineStatusWord::Attached => Self::Attached,
            QuarantineStatusWord::Discarded => Self::Discarded,
        }
    }
}

/// A delivery in quarantine.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct QuarantineView {
    /// Its id.
    id: Uuid,
    /// The source.
    source: String,
    /// Whether it was decided about.
    status: QuarantineStatusWord,
    /// Why it is here.
    reason: String,
    /// The operation that it names, where that could be read.
    operation_id: Option<String>,
    /// When it came.
    #[schema(value_type = String, format = DateTime)]
    received_at: Timestamp,
    /// When it is dropped.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// How often it was tried again.
    attempts: u32,
    /// When it is tried again by itself; `null`: a person has to.
    #[schema(value_type = Option<String>, format = DateTime)]
    next_try_at: Option<Timestamp>,
    /// Digest of its body.
    body_digest: String,
    /// How it came.
    facts: BTreeMap<String, String>,
    /// What was decided about it.
    decision: Option<QuarantineDecision>,
    /// Its body, as delivered. In a single read, while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    body: Option<Box<RawValue>>,
}

impl From<QuarantineItem> for QuarantineView {
    fn from(item: QuarantineItem) -> Self {
        let row = item.row;
        Self {
            id: row.id,
            source: row.source.as_str().to_owned(),
            status: match row.status {
                QuarantineStatus::Waiting => QuarantineStatusWord::Waiting,
                QuarantineStatus::Attached => QuarantineStatusWord::Attached,
                QuarantineStatus::Discarded => QuarantineStatusWord::Discarded,
            },
            reason: row.reason,
            operation_id: row.operation_id.map(|id| id.as_str().to_owned()),
            received_at: row.received_at,
            expires_at: row.expires_at,
            attempts: row.attempts,
            next_try_at: row.next_try_at,
            body_digest: row.body_digest,
            facts: serde_json::from_str(&row.facts).unwrap_or_default(),
            decision: item.decision,
            body: row.body.and_then(|body| RawValue::from_string(body).ok()),
        }
    }
}

/// A page of the quarantine.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = QuarantinePage)]
pub struct QuarantinePage {
    /// The deliveries, oldest first, without their bodies.
    items: Vec<QuarantineView>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
}

/// Attaches a delivery to an effect.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttachBody {
    /// The effect.
    #[schema(min_length = 1, max_length = 256)]
    pub operation_id: String,
    /// Its revision as read.
    #[schema(minimum = 1)]
    pub expected_revision: u32,
    /// Why (at most 2 KiB).
    #[schema(min_length = 1)]
    pub reason: String,
}

/// Discards a delivery.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DiscardBody {
    /// Why (at most 2 KiB).
    #[schema(min_length = 1)]
    pub reason: String,
}

fn check_reason(reason: &str, faults: &mut Faults) {
    if reason.trim().is_empty() || reason.len() > limits::REASON_BYTES || reason.contains('\0') {
        faults.add("/reason", "must be a text of 1 to 2048 bytes without NUL characters");
    }
}

impl AttachBody {
    /// Checks the wish.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self) -> Result<Attach, Problem> {
        let mut faults = Faults::default();
        let operation_id = faults.name("/operation_id", &self.operation_id);
        check_reason(&self.reason, &mut faults);
        match operation_id {
            Some(operation_id) if faults.is_empty() => {
                Ok(Attach { operation_id, expected_revision: self.expected_revision, reason: self.reason })
            }
            _ => Err(faults.problem()),
        }
    }
}

impl DiscardBody {
    /// Checks the reason.
    ///
    /// # Errors
    /// Its fault.
    pub fn check(self) -> Result<String, Problem> {
        let mut faults = Faults::default();
        check_reason(&self.reason, &mut faults);
        if faults.is_empty() { Ok(self.reason) } else { Err(faults.problem()) }
    }
}
