//! Recovery: what incomplete work waits for, and what an operator may do about it (protocol §9). Pure:
//! a plan reads, and only an execution decides.

pub mod plan;

use serde::{Deserialize, Serialize};

use super::canonical::Sha256Digest;
use super::decide::Context;
use super::ids::Name;
use super::record::Record;
use super::state::State;
use super::time::Timestamp;
use super::tool::Tool;

/// Why work does not go on by itself (protocol §9). In the order of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecoveryBlocker)]
pub enum Blocker {
    /// The tool is not registered any more.
    RegistrationUnavailable,
    /// The tool was registered anew as something else, and does not say that it settles older revisions.
    RegistrationIncompatible,
    /// An executor of a recovery plan has the item in hand.
    ActiveRecoveryClaim,
    /// A dispatch is live.
    ActiveExecutionOwner,
    /// Nobody knows what came of it.
    ToolEffectOutcomeUnknown,
    /// A client has to go on: verify, or claim again.
    ToolEffectContinuationRequired,
    /// People have to approve it.
    ToolApprovalRequired,
    /// What is stored can't be read back.
    InvalidDurableState,
}

impl Blocker {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::RegistrationUnavailable,
        Self::RegistrationIncompatible,
        Self::ActiveRecoveryClaim,
        Self::ActiveExecutionOwner,
        Self::ToolEffectOutcomeUnknown,
        Self::ToolEffectContinuationRequired,
        Self::ToolApprovalRequired,
        Self::InvalidDurableState,
    ];
}

/// What an operator may decide about an item of a plan (protocol §9).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecoveryAction)]
pub enum Action {
    /// Settles what was prepared and never dispatched as not executed. Calls nobody.
    AutomaticRepair,
    /// A person says that it happened.
    MarkCompleted,
    /// A person says that it did not, or failed.
    MarkFailed,
    /// Nothing.
    LeaveIntact,
}

impl Action {
    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::AutomaticRepair => "automatic_repair",
            Self::MarkCompleted => "mark_completed",
            Self::MarkFailed => "mark_failed",
            Self::LeaveIntact => "leave_intact",
        }
    }

    /// Whether a person has to say why.
    #[must_use]
    pub const fn needs_message(self) -> bool {
        matches!(self, Self::MarkCompleted | Self::MarkFailed)
    }
}

/// One item's decision, as it is carried out.
#[derive(Debug, Clone)]
pub struct Recover {
    /// The revision that was planned for.
    pub expected_revision: u32,
    /// The state that was planned for.
    pub fingerprint: Sha256Digest,
    /// The execution.
    pub execution_id: Name,
    /// The plan.
    pub plan_id: Sha256Digest,
    /// What is done.
    pub action: Action,
    /// Digest of the decision, its message included.
    pub digest: Sha256Digest,
}

/// What an execution did to an effect, kept with it: a repeat after a crash finds its own work done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecoveryMark {
    /// The execution.
    pub execution_id: Name,
    /// Digest of the decision.
    pub digest: Sha256Digest,
    /// What was done.
    pub action: Action,
    /// The revision that did it.
    pub revision: u32,
    /// When.
    pub at: Timestamp,
}

/// What a plan says about one effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assessment {
    /// The state, with everything that time has already decided, written or not.
    pub state: State,
    /// What it waits for.
    pub blockers: Vec<Blocker>,
    /// What may be decided about it.
    pub actions: Vec<Action>,
    /// Digest of everything that the assessment rests on. A heartbeat does not move it.
    pub fingerprint: Sha256Digest,
}

/// Assesses an effect. Reads nothing but what it is given, and changes nothing.
#[must_use]
pub fn assess(record: &Record, context: &Context) -> Assessment {
    let state = state_at(record, context.now);
    let life = &record.life;
    let mut blockers = Vec::new();
    match &context.current {
        None => blockers.push(Blocker::RegistrationUnavailable),
        Some(current) if is_other(current, record.intent.tool_revision, &context.tool) => {
            blockers.push(Blocker::RegistrationIncompatible);
        }
        Some(_) => {}
    }
    let registered = blockers.is_empty();
    let prepared = state == State::IntentRecorded && life.dispatch.is_none();
    match state {
        State::Dispatched => blockers.push(Blocker::ActiveExecutionOwner),
        State::OutcomeUnknown | State::ManualReview => blockers.push(Blocker::ToolEffectOutcomeUnknown),
        State::Proposed => blockers.push(Blocker::ToolApprovalRequired),
        State::Verifying | State::SafeToRetry => blockers.push(Blocker::ToolEffectContinuationRequired),
        State::IntentRecorded if !prepared => blockers.push(Blocker::ToolEffectContinuationRequired),
        State::IntentRecorded => {}
        // Settled: nothing waits.
        State::Completed | State::Failed | State::Refused => blockers.clear(),
    }
    let mut actions = Vec::new();
    // What time has decided is written first: it moves the fingerprint.
    if state == life.state {
        if prepared && registered {
            actions.push(Action::AutomaticRepair);
        }
        if matches!(state, State::OutcomeUnknown | State::ManualReview) && !has_receipt_evidence(record) {
            actions.extend([Action::MarkCompleted, Action::MarkFailed]);
        }
    }
    actions.push(Action::LeaveIntact);
    Assessment { state, blockers, actions, fingerprint: fingerprint(record, context, state) }
}

/// The state that time alone has brought an effect to.
fn state_at(record: &Record, now: Timestamp) -> State {
    let life = &record.life;
    // Not a question that is due, nor an attempt that closes: they leave the state as it is.
    let ends = life.lease_end().or(life.deadline_at);
    if ends.is_none_or(|end| end > now) {
        return life.state;
    }
    match life.state {
        State::Dispatched => State::OutcomeUnknown,
        State::Proposed => State::Refused,
        State::Verifying | State::OutcomeUnknown => State::ManualReview,
        state => state,
    }
}

/// Whether downstream evidence speaks about the effect: then reconciliation or a resolution decides,
/// and never a person who may not have seen it.
fn has_receipt_evidence(record: &Record) -> bool {
    let life = &record.life;
    life.contradicted || life.receipt.is_some() || life.reports.iter().any(|mark| mark.receipt)
}

/// Whether a newer registration is another kind of operation, as far as settling an older effect goes.
fn is_other(current: &Tool, made_under: u32, tool: &Tool) -> bool {
    if current.revision == made_under || current.spec.settles_revisions.contains(&made_under) {
        return false;
    }
    let (now, then) = (&current.spec, &tool.spec);
    let behaviour = |spec: &super::tool::ToolSpec| {
        spec.component.as_ref().map(|component| (component.name.clone(), component.behavior_version.clone()))
    };
    now.effect != then.effect
        || now.receipt.schema != then.receipt.schema
        || now.receipt.schema_version != then.receipt.schema_version
        || behaviour(now) != behaviour(then)
}

/// The head of the journal covers intent and life; beside it counts what is registered now, and what
/// time has decided.
fn fingerprint(record: &Record, context: &Context, state: State) -> Sha256Digest {
    let head = hex::encode(record.head);
    let registered = context.current.as_ref().map(|tool| tool.revision);
    let text = format!(
        "actonce recovery fingerprint v1\n{}\n{head}\n{}\n{registered:?}",
        record.intent.operation_id,
        state.as_str()
    );
    Sha256Digest::of(text.as_bytes())
}
