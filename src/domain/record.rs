//! The effect record: an immutable intent and the life that changes with every revision.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::canonical::Sha256Digest;
use super::ids::{EffectKey, Name};
use super::receipt::{ReceiptOutcome, Verification};
use super::recovery::RecoveryMark;
pub use super::resolution::{DecisionMark, Resolution, ResolvedOutcome};
use super::state::{EffectClass, State};
use super::time::Timestamp;
use crate::limits;

/// The immutable statement of one bounded operation. Written once, with revision 1 (law 1).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Intent {
    /// The caller's stable name for the operation.
    pub operation_id: Name,
    /// The tool.
    pub tool: Name,
    /// The revision of the tool that the effect was made under; 0 for an ad-hoc tool.
    pub tool_revision: u32,
    /// The effect class.
    pub class: EffectClass,
    /// What is acted on.
    pub target: Name,
    /// Digest of the arguments.
    pub arguments_digest: Sha256Digest,
    /// How the digest was made.
    pub digest_algorithm: Box<str>,
    /// Where the tool names identity fields: those, and the digest over them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// The run it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Name>,
    /// The session it belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Name>,
    /// The model's name for the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<Name>,
    /// The profile that the client declared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile_id: Option<Name>,
    /// Who proposed it.
    pub proposer: Name,
    /// When, by database time.
    pub created_at: Timestamp,
    /// The key to send downstream: the same on every attempt (protocol §4).
    pub idempotency_key: Box<str>,
}

impl Intent {
    /// The digest that decides whether two intents are the same act.
    #[must_use]
    pub fn identity_digest(&self) -> &Sha256Digest {
        self.identity.as_ref().map_or(&self.arguments_digest, |identity| &identity.digest)
    }
}

/// The argument fields that make the identity, and their digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Top-level argument fields.
    pub fields: Vec<String>,
    /// Digest over them.
    pub digest: Sha256Digest,
}

/// One permitted attempt to act.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dispatch {
    /// Random, known to the owner.
    pub dispatch_id: Uuid,
    /// 1 for the first.
    pub attempt: u32,
    /// Grows with every dispatch.
    pub fence: u32,
    /// Who acts.
    pub worker: Name,
    /// Digest of worker and claim id, where one was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim: Option<Sha256Digest>,
    /// When it was granted, by database time.
    pub dispatched_at: Timestamp,
    /// How long it may stay silent.
    pub lease_seconds: u32,
    /// When the lease ends unless renewed, by database time.
    pub lease_expires_at: Timestamp,
    /// Whether the outcome came after the lease had run out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

/// Where the accepted receipt stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptRef {
    /// The journal revision that carries the bytes.
    pub revision: u32,
    /// The downstream's name.
    pub receipt_id: Name,
    /// Digest of the stored bytes.
    pub digest: Sha256Digest,
    /// What it says.
    pub outcome: ReceiptOutcome,
    /// When the downstream was seen to say so.
    pub observed_at: Timestamp,
}

/// Where the recorded result stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResultRef {
    /// The journal revision that carries the bytes, if they were kept.
    pub revision: u32,
    /// Digest of the bytes as sent.
    pub digest: Sha256Digest,
    /// Their number.
    pub size_bytes: u64,
    /// Whether they were too many to keep.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub truncated: bool,
}

/// How an attempt went wrong (protocol §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailureClass {
    /// No answer in time.
    Timeout,
    /// The caller's own deadline.
    Deadline,
    /// The connection broke.
    Disconnect,
    /// The caller was cancelled.
    Cancelled,
    /// The process died.
    Crash,
    /// The tool raised an error.
    Exception,
    /// The tool's answer made no sense.
    InvalidResult,
    /// The dispatch stayed silent beyond its lease.
    LeaseExpired,
}

/// How far the attempt had come.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum FailurePhase {
    /// Nothing was sent.
    BeforeSend,
    /// Something was sent, no answer was read.
    InFlight,
    /// An answer was being read.
    AfterSend,
    /// Nobody can say.
    #[default]
    Unknown,
}

/// Bounded evidence of a failure. `detail` was masked and stays in the record alone: it goes
/// into no event, log, metric or error (law 11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FailureEvidence {
    /// How it went wrong.
    pub classification: FailureClass,
    /// How far it had come.
    #[serde(default)]
    pub phase: FailurePhase,
    /// At most 2 KiB; no arguments, no results.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

/// One report that was stored, so that an equal repeat is known again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportMark {
    /// Digest of the whole report.
    pub digest: Sha256Digest,
    /// The revision that stored it.
    pub revision: u32,
    /// Whether it was stored as evidence only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evidence_only: bool,
    /// Whether that evidence was taken without a conflict: the owner added to his doubt. A repeat is
    /// answered likewise.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub taken: bool,
    /// Whether a receipt came with it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receipt: bool,
}

/// A decision of one principal about a proposal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApprovalDecision {
    /// Who.
    pub principal: Name,
    /// Whether they approved.
    pub approve: bool,
    /// Why, in their words.
    pub reason: String,
    /// When.
    pub at: Timestamp,
}

/// An open or granted approval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Covers operation id, tool and revision, class, target and arguments digest.
    pub proposal_digest: Sha256Digest,
    /// Approvals needed.
    pub needed: u32,
    /// Whether the proposer's own approval is refused.
    pub four_eyes: bool,
    /// When it is refused by itself.
    pub expires_at: Timestamp,
    /// Decisions so far.
    #[serde(default)]
    pub decisions: Vec<ApprovalDecision>,
    /// The unresolved effect that this one seems to repeat, where it is held for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_for: Option<Name>,
    /// Granted and not yet consumed by a dispatch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub granted: bool,
    /// The standing grant that authorized it: nobody was asked, so nobody is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant_id: Option<Uuid>,
}

impl Approval {
    /// Whether somebody said no.
    #[must_use]
    pub fn is_denied(&self) -> bool {
        self.decisions.iter().any(|decision| !decision.approve)
    }

    /// How many said yes.
    #[must_use]
    pub fn approvals(&self) -> usize {
        self.decisions.iter().filter(|decision| decision.approve).count()
    }

    /// Whether enough said yes.
    #[must_use]
    pub fn has_quorum(&self) -> bool {
        usize::try_from(self.needed).is_ok_and(|needed| self.approvals() >= needed)
    }

    /// Whether it still waits for people at that time.
    #[must_use]
    pub fn is_open(&self, now: Timestamp) -> bool {
        !self.is_denied() && !self.has_quorum() && self.expires_at > now
    }
}

/// An admitted reconciliation that has not been settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReconciliationAttempt {
    /// Digest of the request.
    pub request_digest: Sha256Digest,
    /// The revision the request named.
    pub source_revision: u32,
    /// The revision of the admission; a settlement must name it.
    pub admitted_revision: u32,
    /// Whether the downstream is asked.
    pub lookup: bool,
    /// Whether the service itself asked for it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub automatic: bool,
    /// Until when an answer is waited for. A while after that the attempt is closed as observed.
    pub deadline_at: Timestamp,
}

impl ReconciliationAttempt {
    /// When the attempt is closed as observed, whoever made it.
    #[must_use]
    pub fn closes_at(&self) -> Timestamp {
        self.deadline_at.plus_seconds(limits::RECONCILIATION_GRACE_SECONDS)
    }
}

/// The last reconciliation that was closed, kept so that its exact repeat gets the same answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reconciled {
    /// Digest of the request.
    pub request_digest: Sha256Digest,
    /// The revision the request named.
    pub source_revision: u32,
    /// The revision of the admission.
    pub admitted_revision: u32,
    /// The revision that closed it.
    pub closed_revision: u32,
    /// Whether the downstream was asked.
    pub lookup: bool,
    /// What was found, in a word: a verdict, or why there was none.
    pub observation: Box<str>,
    /// How it ended.
    pub closing: Closing,
}

/// How a reconciliation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Closing {
    /// It ended the doubt.
    Settled,
    /// The doubt stays.
    Observed,
    /// The validator refused.
    Rejected,
}

/// Why an effect is with a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReviewReason {
    /// The outcome stayed unknown too long.
    ReconcileDeadline,
    /// The verification stayed out too long.
    VerifyDeadline,
    /// The fresh read denied the receipt.
    VerificationFailed,
    /// Two pieces of evidence exclude each other.
    Contradiction,
    /// The validator refused: conflict, multiple, partial or another identity.
    ValidatorRejected,
    /// The dispatches ran out.
    AttemptsExhausted,
    /// The adapter broke its contract too often.
    AdapterBroken,
}

/// Everything about an effect that changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Life {
    /// The state.
    pub state: State,
    /// The revision: grows by 1 with every change.
    pub revision: u32,
    /// When this revision was made.
    pub updated_at: Timestamp,
    /// The newest fence.
    #[serde(default)]
    pub fence: u32,
    /// Dispatches so far.
    #[serde(default)]
    pub attempt: u32,
    /// The newest dispatch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dispatch: Option<Dispatch>,
    /// The claims that earlier dispatches were granted to (the first half of their digests): a claim id
    /// is granted once, however late its request comes again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_claims: Vec<Box<str>>,
    /// When the first dispatch was granted: the downstream key's age.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_dispatched_at: Option<Timestamp>,
    /// The accepted receipt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptRef>,
    /// The accepted verification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// The recorded result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultRef>,
    /// For `failed`: whether the downstream was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<bool>,
    /// The last failure evidence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureEvidence>,
    /// Since when the outcome is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown_since: Option<Timestamp>,
    /// When the state is left by itself, by database time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_at: Option<Timestamp>,
    /// Evidence excludes the outcome.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub contradicted: bool,
    /// Why a person has to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<ReviewReason>,
    /// Reports stored so far, for recognition of repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reports: Vec<ReportMark>,
    /// The approval, where the tool or a suspicion asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<Approval>,
    /// The open reconciliation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciliation: Option<ReconciliationAttempt>,
    /// The last one that was closed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reconciled: Option<Reconciled>,
    /// Since when what was dispatched last has not been heard of: the end of its lease, or its owner's
    /// last report. From here the settle window is counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub travelling_since: Option<Timestamp>,
    /// When the service asks the adapter next, by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ask_at: Option<Timestamp>,
    /// Answers about this doubt that broke the adapter's contract.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub breaks: u32,
    /// Who approved what an earlier approval, now replaced, was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_approvers: Vec<Name>,
    /// The last resolution by an operator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
    /// Every resolution so far, for recognition of repeats.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub decisions: Vec<DecisionMark>,
    /// What a recovery execution did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recovery: Option<RecoveryMark>,
    /// The last restore that it has been through.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub restore_epoch: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
const fn is_zero(number: &u32) -> bool {
    *number == 0
}

impl Life {
    /// Revision 1 of an effect that waits for everything.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            state: State::Proposed,
            revision: 1,
            updated_at: now,
            fence: 0,
            attempt: 0,
            dispatch: None,
            past_claims: Vec::new(),
            first_dispatched_at: None,
            receipt: None,
            verification: None,
            result: None,
            executed: None,
            failure: None,
            unknown_since: None,
            deadline_at: None,
            contradicted: false,
            review: None,
            reports: Vec::new(),
            approval: None,
            reconciliation: None,
            reconciled: None,
            travelling_since: None,
            ask_at: None,
            breaks: 0,
            past_approvers: Vec::new(),
            resolution: None,
            decisions: Vec::new(),
            recovery: None,
            restore_epoch: 0,
        }
    }

    /// Whether the effect belongs into the table of open effects: it may still change by itself or
    /// somebody has to look at it.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        !self.state.is_terminal() || self.contradicted
    }

    /// When the lease of the live dispatch ends.
    #[must_use]
    pub fn lease_end(&self) -> Option<Timestamp> {
        match (&self.dispatch, self.state) {
            (Some(dispatch), State::Dispatched) => Some(dispatch.lease_expires_at),
            _ => None,
        }
    }

    /// When a doubt ends: not when the adapter is asked next.
    #[must_use]
    pub fn doubt_until(&self) -> Option<Timestamp> {
        self.deadline_at.filter(|_| self.state == State::OutcomeUnknown)
    }

    /// When a sweep has to look: the lease's end, the state's deadline, the end of an open attempt, or
    /// the next question to the adapter.
    #[must_use]
    pub fn due_at(&self) -> Option<Timestamp> {
        if self.state.is_terminal() {
            return None;
        }
        if let Some(end) = self.lease_end() {
            return Some(end);
        }
        let attempt = match &self.reconciliation {
            Some(attempt) => Some(attempt.closes_at()),
            None => self.ask_at,
        };
        [self.deadline_at, attempt].into_iter().flatten().min()
    }
}

/// An effect as loaded: intent, life, the head of its hash chain, and its recorded documents.
#[derive(Debug, Clone)]
pub struct Record {
    /// Its key.
    pub key: EffectKey,
    /// What was stated, once.
    pub intent: Arc<Intent>,
    /// What came of it.
    pub life: Life,
    /// The hash of its newest journal entry.
    pub head: [u8; 32],
    /// The bytes of the accepted receipt.
    pub receipt: Option<Arc<str>>,
    /// The bytes of the recorded result.
    pub result: Option<Arc<str>>,
}

impl Record {
    /// Whether a replay is harmless now: class `none`, or `idempotent` while the downstream still
    /// knows the key. `idempotent` decays to `external` after that (protocol §3).
    #[must_use]
    pub fn replay_safe(&self, key_ttl_seconds: Option<u32>, now: Timestamp) -> bool {
        match self.intent.class {
            EffectClass::None => true,
            EffectClass::External => false,
            EffectClass::Idempotent => match (key_ttl_seconds, self.life.first_dispatched_at) {
                (Some(ttl), Some(first)) => now < first.plus_seconds(ttl),
                (_, None) => true,
                (None, Some(_)) => false,
            },
        }
    }
}
