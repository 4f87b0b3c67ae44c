//! Effect classes, states and directives: the closed vocabularies of the protocol.

use serde::{Deserialize, Serialize};

/// What a replay can do to durable state outside (protocol §1). Ordered from weak to strong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing outside.
    None,
    /// The downstream promises that the same key acts once, for a stated time.
    Idempotent,
    /// Acts on the world; a replay may act twice.
    External,
}

impl EffectClass {
    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Idempotent => "idempotent",
            Self::External => "external",
        }
    }
}

/// The states of protocol §3. `authorized` is passed through inside one transaction and never
/// stored by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Waits for approval.
    Proposed,
    /// May be claimed.
    IntentRecorded,
    /// A dispatch was granted; its outcome is not known yet.
    Dispatched,
    /// A receipt was accepted; a fresh read has to confirm it.
    Verifying,
    /// Nobody knows whether it happened.
    OutcomeUnknown,
    /// There is proof that it did not happen; it may be tried again.
    SafeToRetry,
    /// A person has to decide.
    ManualReview,
    /// It happened and was checked. Terminal.
    Completed,
    /// It did not happen, or the downstream failed it. Terminal.
    Failed,
    /// It was denied or withdrawn before any dispatch. Terminal.
    Refused,
}

impl State {
    /// All states.
    pub const ALL: [Self; 10] = [
        Self::Proposed,
        Self::IntentRecorded,
        Self::Dispatched,
        Self::Verifying,
        Self::OutcomeUnknown,
        Self::SafeToRetry,
        Self::ManualReview,
        Self::Completed,
        Self::Failed,
        Self::Refused,
    ];

    /// Whether the state is final.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Refused)
    }

    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Proposed => "proposed",
            Self::IntentRecorded => "intent_recorded",
            Self::Dispatched => "dispatched",
            Self::Verifying => "verifying",
            Self::OutcomeUnknown => "outcome_unknown",
            Self::SafeToRetry => "safe_to_retry",
            Self::ManualReview => "manual_review",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Refused => "refused",
        }
    }

    /// The state of a word.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

/// The one word that tells the client what to do now (protocol §4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Directive {
    /// Act now, sending the downstream key along.
    Dispatch,
    /// Use the recorded result; do not act.
    Replay,
    /// Read the resulting state afresh and report it.
    Verify,
    /// Another dispatch is live, or an adapter verifies.
    Wait,
    /// Waits for an approval.
    Authorize,
    /// Do not act; ask for or await reconciliation.
    Reconcile,
    /// Do not act; a person decides.
    Review,
    /// May be claimed.
    Claim,
    /// Give up.
    Stop,
}

impl Directive {
    /// Every directive, in the order of the protocol.
    pub const ALL: [Self; 9] = [
        Self::Dispatch,
        Self::Replay,
        Self::Verify,
        Self::Wait,
        Self::Authorize,
        Self::Reconcile,
        Self::Review,
        Self::Claim,
        Self::Stop,
    ];

    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Replay => "replay",
            Self::Verify => "verify",
            Self::Wait => "wait",
            Self::Authorize => "authorize",
            Self::Reconcile => "reconcile",
            Self::Review => "review",
            Self::Claim => "claim",
            Self::Stop => "stop",
        }
    }
}
