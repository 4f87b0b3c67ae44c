//! `POST …/authorization`: people decide about a proposal (protocol §8).

use super::{Answer, Context, Decision, Next, check_revision, state_conflict};
use crate::domain::canonical::Sha256Digest;
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{ApprovalDecision, Record};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;

/// Decides a decision: bound to the proposal as read, one per principal and final.
pub(super) fn authorize(
    record: &Record,
    expected_revision: u32,
    proposal_digest: &Sha256Digest,
    approve: bool,
    reason: &str,
    context: &Context,
) -> Decision {
    let Some(approval) = &record.life.approval else {
        return Decision::refuse(state_conflict(record.life.state, "this effect asks for no approval"));
    };
    if let Some(earlier) = approval.decisions.iter().find(|decision| decision.principal == context.principal) {
        let same = earlier.approve == approve && approval.proposal_digest == *proposal_digest;
        return if same {
            Decision::unchanged(Answer { owns_dispatch: false, replayed: true })
        } else {
            Decision::refuse(state_conflict(record.life.state, "the first decision of a principal is final"))
        };
    }
    let mut next = Next::of(record, context);
    // A doubtful effect stays in doubt while people decide whether it may be tried again.
    let in_doubt = next.life.state == State::OutcomeUnknown && approval.is_open(context.now);
    if next.life.state != State::Proposed && !in_doubt {
        return Decision::refuse(state_conflict(next.life.state, "this effect does not wait for an approval"));
    }
    if approval.proposal_digest != *proposal_digest {
        return Decision::refuse(Refusal::ApprovalStale("the proposal is not the one that was read"));
    }
    let current = context.current.as_ref().map_or(0, |tool| tool.revision);
    if current != record.intent.tool_revision {
        return Decision::refuse(Refusal::ApprovalStale("the tool was changed after the proposal"));
    }
    if context.profile_changed {
        return Decision::refuse(Refusal::ApprovalStale("the session adopted another profile after the proposal"));
    }
    if let Err(refusal) = check_revision(record, Some(expected_revision)) {
        return Decision::refuse(refusal);
    }
    if approval.four_eyes && approve && context.principal == record.intent.proposer {
        return Decision::refuse(Refusal::Forbidden("the proposer's own approval does not count for this tool"));
    }
    let Some(open) = &mut next.life.approval else { return Decision::refuse(Refusal::NotFound) };
    open.decisions.push(ApprovalDecision {
        principal: context.principal.clone(),
        approve,
        reason: reason.to_owned(),
        at: context.now,
    });
    let (approvals, quorum) = (open.approvals(), open.has_quorum());
    open.granted = approve && quorum;
    if in_doubt && !approve {
        next.event(Event::new(EventKind::Proposed).with("reason", "denied"));
    } else if in_doubt && quorum {
        next.event(Event::new(EventKind::Authorized).with("approvals", approvals));
    } else if !approve {
        next.enter(State::Refused, None);
        next.event(Event::new(EventKind::Refused).with("reason", "denied"));
    } else if quorum {
        next.enter(State::IntentRecorded, None);
        next.event(Event::new(EventKind::Authorized).with("approvals", approvals));
        next.kind(EventKind::IntentRecorded);
    } else {
        next.event(Event::new(EventKind::Proposed).with("reason", "approved_in_part").with("approvals", approvals));
    }
    next.answer(Answer::default())
}
