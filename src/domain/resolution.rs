//! Operators' decisions, as they are kept.

use serde::{Deserialize, Serialize};

use super::canonical::Sha256Digest;
use super::ids::Name;
use super::time::Timestamp;

/// An operator's decision. Reason and evidence stay in the record alone: they go into no event, log,
/// metric or error (law 11).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resolution {
    /// The operator's name for the decision.
    pub decision_id: Name,
    /// The decision on many effects that this one is part of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bulk_decision_id: Option<Name>,
    /// Digest of the whole decision.
    pub digest: Sha256Digest,
    /// What was decided.
    pub outcome: ResolvedOutcome,
    /// Why, in the operator's words.
    pub reason: String,
    /// What it rests on: a JSON object, as it was sent.
    pub evidence: Box<str>,
    /// Who decided.
    pub principal: Name,
    /// When.
    pub at: Timestamp,
}

/// Where an operator may send an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedOutcome {
    /// It happened.
    Completed,
    /// It did not, or failed.
    Failed,
    /// It may be tried again.
    SafeToRetry,
    /// Still unknown.
    OutcomeUnknown,
}

impl ResolvedOutcome {
    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::SafeToRetry => "safe_to_retry",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }

    /// Whether it settles the effect.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// One resolution, so that a repeat is known again after later ones.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecisionMark {
    /// 128 bits of the digest of its decision id.
    pub id: Box<str>,
    /// 128 bits of the digest of the whole decision.
    pub digest: Box<str>,
    /// The revision that made it.
    pub revision: u32,
}
