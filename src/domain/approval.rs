//! Where an approval stands, as people are told.

use serde::{Deserialize, Serialize};

use super::decide::Context;
use super::record::Record;
use super::state::State;

/// Where an approval stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// People are asked.
    Pending,
    /// Granted, and not used by a dispatch yet.
    Approved,
    /// Used by a dispatch.
    Used,
    /// Somebody said no.
    Denied,
    /// Nobody answered in time.
    Expired,
    /// What it was asked for was withdrawn or settled otherwise.
    Withdrawn,
}

/// Where the approval of an effect stands; `None` for an effect that asks for none.
#[must_use]
pub fn approval_state(record: &Record, context: &Context) -> Option<ApprovalState> {
    let approval = record.life.approval.as_ref()?;
    let is_reached = !approval.is_denied() && approval.has_quorum();
    Some(match record.life.state {
        _ if approval.is_denied() => ApprovalState::Denied,
        // What is granted and not used when the effect settles can't be used any more.
        state if approval.granted && state.is_terminal() => ApprovalState::Withdrawn,
        _ if approval.granted => ApprovalState::Approved,
        _ if is_reached => ApprovalState::Used,
        State::Proposed | State::OutcomeUnknown if approval.expires_at > context.now => ApprovalState::Pending,
        State::Proposed | State::OutcomeUnknown => ApprovalState::Expired,
        State::Refused if approval.expires_at <= record.life.updated_at => ApprovalState::Expired,
        _ => ApprovalState::Withdrawn,
    })
}

/// Whether an approval that is asked for or granted can't be used, because something it was asked
/// under has changed.
#[must_use]
pub fn is_stale(record: &Record, context: &Context) -> bool {
    let current = context.current.as_ref().map_or(0, |tool| tool.revision);
    let is_live = matches!(approval_state(record, context), Some(ApprovalState::Pending | ApprovalState::Approved));
    is_live && (current != record.intent.tool_revision || context.profile_changed)
}
