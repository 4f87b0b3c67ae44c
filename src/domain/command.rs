//! Commands: what a caller, or the service itself, asks an effect to do.

use std::sync::Arc;

use uuid::Uuid;

use super::adapter::{NoAnswer, Verdict};
use super::canonical::{Canonical, Sha256Digest};
use super::grant::LiveGrant;
use super::ids::Name;
use super::receipt::{CheckedReceipt, ReceiptOutcome, Verification};
use super::record::FailureEvidence;
pub use super::record::ResolvedOutcome;
use super::recovery::Recover;
use super::restore::Restore;
use super::state::EffectClass;
use super::time::Timestamp;

/// A wish to act now.
#[derive(Debug, Clone)]
pub struct Claim {
    /// Who would act.
    pub worker: Name,
    /// Digest of worker and claim id, where a claim id was sent.
    pub claim: Option<Sha256Digest>,
    /// The lease wished for; the tool's where absent.
    pub lease_seconds: Option<u32>,
    /// The id that the dispatch gets if it is granted.
    pub dispatch_id: Uuid,
}

impl Claim {
    /// The digest under which a claim id is kept: the id itself never leaves the client's memory
    /// and the request.
    #[must_use]
    pub fn digest(worker: &Name, claim_id: &str) -> Sha256Digest {
        Sha256Digest::of(format!("{}\n{worker}\n{claim_id}", worker.as_str().len()).as_bytes())
    }
}

/// `POST /api/intents`.
#[derive(Debug, Clone)]
pub struct Propose {
    /// The operation.
    pub operation_id: Name,
    /// The tool.
    pub tool: Name,
    /// The class the caller states, if any.
    pub class: Option<EffectClass>,
    /// What is acted on.
    pub target: Name,
    /// Digest of the arguments.
    pub arguments_digest: Sha256Digest,
    /// The arguments in canonical form, where they were sent.
    pub arguments: Option<Arc<Canonical>>,
    /// Correlation.
    pub run_id: Option<Name>,
    /// Correlation.
    pub session_id: Option<Name>,
    /// Correlation.
    pub call_id: Option<Name>,
    /// The declared profile.
    pub profile_id: Option<Name>,
    /// The wish to act at once.
    pub claim: Option<Claim>,
    /// The downstream key that a new effect gets.
    pub idempotency_key: Box<str>,
    /// The unresolved effect with the same content, where one was found.
    pub duplicate_of: Option<Name>,
    /// The arguments as sent, byte for byte, for tools that retain them.
    pub sent: Option<Arc<str>>,
    /// The live grant that covers the intent, where one was found.
    pub grant: Option<Arc<LiveGrant>>,
    /// The fence before the first one: what was lost in a restore may have had lower ones.
    pub fence_base: u32,
}

/// What a report says.
#[derive(Debug, Clone)]
pub enum Report {
    /// It was done.
    Succeeded {
        /// The evidence.
        receipt: CheckedReceipt,
        /// The fresh read, where already made.
        verification: Option<Verification>,
    },
    /// It failed; terminal only with a receipt.
    Failed {
        /// The evidence.
        receipt: Option<CheckedReceipt>,
        /// Otherwise, how it failed.
        failure: Option<FailureEvidence>,
    },
    /// It was never sent.
    NotSent(Option<FailureEvidence>),
    /// Nobody knows.
    Unknown(FailureEvidence),
}

/// The result that replays return, as sent.
#[derive(Debug, Clone)]
pub struct ResultDocument {
    /// The bytes, unless there were too many to keep.
    pub text: Option<Arc<str>>,
    /// Digest of the bytes as sent.
    pub digest: Sha256Digest,
    /// Their number.
    pub size_bytes: u64,
}

/// `POST …/outcome`.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// The dispatch that reports.
    pub dispatch_id: Uuid,
    /// Its fence.
    pub fence: u32,
    /// What it says.
    pub report: Report,
    /// The recorded result.
    pub result: Option<ResultDocument>,
    /// Digest over the whole report.
    pub digest: Sha256Digest,
}

/// `POST …/reconciliations`, or the service's own lookup: step 2 of a reconciliation (protocol §6).
#[derive(Debug, Clone)]
pub struct Admission {
    /// Digest of the request.
    pub request_digest: Sha256Digest,
    /// The revision the request names.
    pub expected_revision: u32,
    /// Whether the downstream is asked.
    pub lookup: bool,
    /// Whether the service itself asks.
    pub automatic: bool,
    /// How long the call may take.
    pub timeout_seconds: u32,
    /// Who reconciles, in the caller's words.
    pub worker: Option<Name>,
    /// The caller's name for the hand-over.
    pub handoff_id: Option<Name>,
    /// The caller's reference to a review.
    pub review_reference: Option<Name>,
}

/// What came of the call, or of what was supplied (protocol §6, table of answers).
#[derive(Debug, Clone)]
pub enum Finding {
    /// A receipt; it settles if it binds.
    Receipt {
        /// The evidence.
        receipt: CheckedReceipt,
        /// The fresh read that came with it.
        verification: Option<Verification>,
    },
    /// The mutation is not there, or was never sent.
    Absent {
        /// Which of the two was said.
        verdict: Verdict,
        /// Whether the reading was authoritative.
        authoritative: bool,
        /// Whether the downstream can no longer accept the original.
        is_final: bool,
        /// When the question was put: the settle window has to have passed by then.
        asked_at: Timestamp,
    },
    /// It does not settle: pending, unsupported, or what the caller's own journal says.
    Observed(&'static str),
    /// The validator refused: conflict, multiple, partial or another identity.
    Rejected(Verdict),
    /// No usable answer.
    NoAnswer(NoAnswer),
}

/// An operator's decision.
#[derive(Debug, Clone)]
pub struct Resolve {
    /// The revision it was made for.
    pub expected_revision: u32,
    /// The operator's name for it.
    pub decision_id: Name,
    /// The state to go to.
    pub outcome: ResolvedOutcome,
    /// Why.
    pub reason: String,
    /// What it rests on: a JSON object, as it was sent.
    pub evidence: Box<str>,
    /// The decision on many effects that this one is part of.
    pub bulk_decision_id: Option<Name>,
    /// Digest over the whole decision.
    pub digest: Sha256Digest,
}

/// All commands on an existing effect. `Propose` is apart because it may find none.
#[derive(Debug, Clone)]
pub enum Command {
    /// `POST …/dispatch`.
    Claim {
        /// The wish.
        claim: Claim,
        /// `If-Match`.
        expected_revision: Option<u32>,
        /// The effect it is held for has settled.
        hold_released: bool,
    },
    /// `POST …/heartbeat`.
    Heartbeat {
        /// The dispatch.
        dispatch_id: Uuid,
        /// Its fence.
        fence: u32,
    },
    /// `POST …/outcome`.
    Outcome(Box<Outcome>),
    /// `POST …/verification`.
    Verify(Verification),
    /// `POST …/cancel`.
    Cancel {
        /// `If-Match`.
        expected_revision: Option<u32>,
    },
    /// A deadline passed: lease, approval, verification or reconciliation.
    Expire {
        /// The effect it is held for has settled.
        hold_released: bool,
    },
    /// `POST …/authorization`.
    Authorize {
        /// `If-Match`.
        expected_revision: u32,
        /// The proposal that was read.
        proposal_digest: Sha256Digest,
        /// Yes or no.
        approve: bool,
        /// Why.
        reason: String,
    },
    /// Recovery of a prepared, never dispatched effect.
    SettleUndispatched {
        /// The revision it was planned for.
        expected_revision: u32,
    },
    /// Step 2 of a reconciliation.
    AdmitReconciliation(Box<Admission>),
    /// Step 4 of a reconciliation.
    SettleReconciliation {
        /// The revision of the admission.
        admitted_revision: u32,
        /// The request that was admitted.
        request_digest: Sha256Digest,
        /// What was found.
        finding: Box<Finding>,
    },
    /// An operator's decision.
    Resolve(Resolve),
    /// One item of a recovery execution.
    Recover(Box<Recover>),
    /// The database was restored to an earlier point.
    Restore(Restore),
    /// A receipt from outside that may not settle the effect as it is now.
    Evidence {
        /// The receipt.
        receipt: CheckedReceipt,
        /// Digest over what it says, so that a repeat is known.
        digest: Sha256Digest,
    },
}

impl Report {
    /// What the report claims about the world, where it has a receipt.
    #[must_use]
    pub fn receipt(&self) -> Option<(&CheckedReceipt, ReceiptOutcome)> {
        match self {
            Self::Succeeded { receipt, .. } => Some((receipt, ReceiptOutcome::Completed)),
            Self::Failed { receipt: Some(receipt), .. } => Some((receipt, ReceiptOutcome::Failed)),
            _ => None,
        }
    }

    /// How the attempt went wrong, where the report says so.
    #[must_use]
    pub const fn failure(&self) -> Option<&FailureEvidence> {
        match self {
            Self::Failed { failure, .. } | Self::NotSent(failure) => failure.as_ref(),
            Self::Unknown(failure) => Some(failure),
            Self::Succeeded { .. } => None,
        }
    }
}
