//! Why a command changes nothing, or changes less than was asked.

use super::elapsed::ElapsedLimit;
use super::fault::Fault;
use super::ids::Name;
use super::profile::ProfileDifference;
use super::retention::Tombstone;
use super::state::State;

/// The refusals of the domain. Each becomes one problem type of protocol §11, in one place of the
/// HTTP layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refusal {
    /// What was sent is faulty.
    Invalid(Vec<Fault>),
    /// Same operation id, other content (law 1). Names the parts that differ.
    OperationReused(Vec<&'static str>),
    /// The receipt or verification does not bind.
    ReceiptRejected(Vec<Fault>),
    /// The state does not allow it.
    StateConflict {
        /// The state found.
        state: State,
        /// What would be needed.
        reason: &'static str,
        /// Whether the report was stored as evidence (law 7).
        evidence_recorded: bool,
    },
    /// The report names an old fence or another dispatch (law 3).
    StaleFence {
        /// The newest fence.
        newest: u32,
        /// Whether the report was stored as evidence (law 7).
        evidence_recorded: bool,
    },
    /// The lease is gone: stop acting.
    LeaseLost,
    /// The revision named is not the one found (law 8).
    StaleRevision {
        /// The revision found.
        found: u32,
        /// The state found.
        state: State,
    },
    /// The proposal changed since it was read, or its approval is no longer good.
    ApprovalStale(&'static str),
    /// The session has another profile; in which classes they differ.
    ProfileMismatch(Vec<ProfileDifference>),
    /// The same act is unresolved under another operation id.
    SuspectedDuplicate(Name),
    /// The run or the session has been at work for longer than the tool allows.
    ElapsedLimit {
        /// The limit.
        limit: ElapsedLimit,
        /// What was counted, in microseconds.
        elapsed_us: Option<i64>,
    },
    /// No such effect for this tenant.
    NotFound,
    /// It was settled, and what was recorded about it was pruned.
    Pruned(Box<Tombstone>),
    /// The request was superseded by a newer one.
    StaleRequest,
    /// The principal may not do this, such as approving an own proposal.
    Forbidden(&'static str),
}
