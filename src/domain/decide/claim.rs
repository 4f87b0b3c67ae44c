//! Claims and heartbeats: one owner, and no more than one (laws 2 and 3).

use uuid::Uuid;

use super::expire::release_hold;
use super::propose::ask;
use super::{AnotherTry, Answer, Change, Context, Decision, Next, another_try, check_revision, is_replay_safe};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::Claim;
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{Dispatch, Life, Record, ReviewReason};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::tool::AuthorizationMode;
use crate::limits;

/// Decides a claim. A claim that can't be granted is no error: the answer's directive says what to
/// do instead, the same by every route.
pub(super) fn claim(
    record: &Record,
    wish: &Claim,
    expected_revision: Option<u32>,
    hold_released: bool,
    context: &Context,
) -> Decision {
    let mut next = Next::of(record, context);
    let repeats_last = repeats_last(&next.life, wish);
    if next.life.state == State::Dispatched {
        // Only who still holds the claim id in memory gets a lost answer again (protocol §4).
        return next.answer(Answer { owns_dispatch: repeats_last, replayed: repeats_last });
    }
    if let Err(refusal) = check_revision(record, expected_revision) {
        return Decision::refuse(refusal);
    }
    if hold_released {
        release_hold(&mut next);
    }
    let replayed = record.life.state.is_terminal();
    let spent = repeats_last || is_past(&next.life, wish);
    let may_grant = match next.life.state {
        State::IntentRecorded | State::SafeToRetry => !spent,
        State::OutcomeUnknown => {
            let free = matches!(another_try(&next.life, context), AnotherTry::Free);
            !spent && is_replay_safe(record, context) && free
        }
        _ => false,
    };
    if !may_grant || context.is_paused() {
        return next.answer(Answer { owns_dispatch: false, replayed });
    }
    if next.life.attempt >= limits::ATTEMPTS {
        next.review(ReviewReason::AttemptsExhausted);
        return next.answer(Answer::default());
    }
    // Nobody is asked to approve what can't be dispatched any more.
    if let Some(refusal) = context.is_over_time() {
        return next.answer_with_refusal(refusal);
    }
    if let Some(refusal) = authorization_gap(&mut next, hold_released) {
        return next.answer_or(refusal);
    }
    next.supersede();
    next.tool_stamp = context.current.as_ref().filter(|tool| tool.revision > 0).map(|tool| tool.stamp);
    let event = grant(&mut next.life, wish, context);
    next.event(event);
    next.answer(Answer { owns_dispatch: true, replayed: false })
}

/// What stands between a claimable effect and its dispatch, for tools that ask for approval: each
/// dispatch consumes exactly one approval, and an approval is good for what was approved alone.
enum Gap {
    /// The answer says so; what happened is written.
    Answered,
    /// The claim is refused.
    Refused(Refusal),
}

fn authorization_gap(next: &mut Next<'_>, hold_released: bool) -> Option<Gap> {
    let context = next.context;
    let needs_approval = context.tool.spec.authorization.mode == AuthorizationMode::Approval;
    let granted = next.life.approval.as_ref().is_some_and(|approval| approval.granted);
    if needs_approval && !granted {
        // What it seemed to repeat may still be open: without the hold the two would claim one place.
        let held = next.life.approval.as_ref().filter(|_| !hold_released);
        let held_for = held.and_then(|approval| approval.held_for.clone());
        let approval = ask(&next.record.intent, context, held_for);
        if next.life.state != State::OutcomeUnknown {
            next.enter(State::Proposed, Some(approval.expires_at));
        }
        next.event(
            Event::new(EventKind::Proposed)
                .with("reason", "reauthorization")
                .with("proposal_digest", approval.proposal_digest.as_str()),
        );
        remember_approvers(&mut next.life);
        next.life.approval = Some(approval);
        return Some(Gap::Answered);
    }
    let current = context.current.as_ref().map_or(0, |tool| tool.revision);
    if granted && current != next.record.intent.tool_revision {
        return Some(Gap::Refused(Refusal::ApprovalStale("the tool was changed after the approval")));
    }
    if granted && context.profile_changed {
        return Some(Gap::Refused(Refusal::ApprovalStale("the session adopted another profile after the approval")));
    }
    None
}

/// An approval is replaced; who gave it is not forgotten (four eyes on a resolution).
pub(super) fn remember_approvers(life: &mut Life) {
    for decision in life.approval.iter().flat_map(|approval| &approval.decisions) {
        let is_new = decision.approve && !life.past_approvers.contains(&decision.principal);
        if is_new && life.past_approvers.len() < limits::PAST_APPROVERS {
            life.past_approvers.push(decision.principal.clone());
        }
    }
}

impl Next<'_> {
    fn answer_or(self, gap: Gap) -> Decision {
        match gap {
            Gap::Answered => self.answer(Answer::default()),
            Gap::Refused(refusal) => Decision::refuse(refusal),
        }
    }
}

/// Grants a dispatch: new id, next attempt, next fence, a lease from now.
pub(super) fn grant(life: &mut Life, wish: &Claim, context: &Context) -> Event {
    let lease_seconds = wish.lease_seconds.unwrap_or(context.tool.spec.lease_seconds);
    let dispatch = Dispatch {
        dispatch_id: wish.dispatch_id,
        attempt: life.attempt.saturating_add(1),
        fence: life.fence.saturating_add(1),
        worker: wish.worker.clone(),
        claim: wish.claim.clone(),
        dispatched_at: context.now,
        lease_seconds,
        lease_expires_at: context.now.plus_seconds(lease_seconds),
        late: false,
    };
    if let Some(claim) = life.dispatch.as_ref().and_then(|dispatch| dispatch.claim.as_ref()) {
        life.past_claims.push(past_claim(claim));
    }
    life.attempt = dispatch.attempt;
    life.fence = dispatch.fence;
    life.state = State::Dispatched;
    life.deadline_at = None;
    life.unknown_since = None;
    life.ask_at = None;
    life.failure = None;
    life.first_dispatched_at.get_or_insert(context.now);
    if let Some(approval) = &mut life.approval {
        approval.granted = false;
    }
    let event = Event::new(EventKind::Dispatched)
        .with("dispatch_id", dispatch.dispatch_id.to_string())
        .with("attempt", dispatch.attempt)
        .with("fence", dispatch.fence)
        .with("worker", dispatch.worker.as_str())
        .with("lease_expires_at", dispatch.lease_expires_at.to_string());
    life.dispatch = Some(dispatch);
    event
}

/// Whether an earlier dispatch was granted to this wish: whoever sends it is not about to act.
fn is_past(life: &Life, wish: &Claim) -> bool {
    wish.claim.as_ref().is_some_and(|claim| life.past_claims.contains(&past_claim(claim)))
}

/// 128 bits of a claim's digest.
fn past_claim(claim: &Sha256Digest) -> Box<str> {
    claim.hex().chars().take(32).collect()
}

/// Whether the newest dispatch was granted to this very wish: the same claim id, or the same
/// request decided again after a commit whose answer the service itself had lost.
fn repeats_last(life: &Life, wish: &Claim) -> bool {
    life.dispatch.as_ref().is_some_and(|dispatch| {
        dispatch.dispatch_id == wish.dispatch_id || (wish.claim.is_some() && dispatch.claim == wish.claim)
    })
}

/// Decides a heartbeat. It never shortens a lease, so a repeat after a lost answer is harmless.
pub(super) fn heartbeat(record: &Record, dispatch_id: Uuid, fence: u32, context: &Context) -> Decision {
    let live = match (&record.life.dispatch, record.life.lease_end()) {
        (Some(dispatch), Some(end)) => {
            dispatch.dispatch_id == dispatch_id && dispatch.fence == fence && end > context.now
        }
        _ => false,
    };
    let (true, Some(dispatch)) = (live, &record.life.dispatch) else {
        return Decision::refuse(Refusal::LeaseLost);
    };
    let until = context.now.plus_seconds(dispatch.lease_seconds).max(dispatch.lease_expires_at);
    Decision {
        change: Some(Change::Renew { revision: record.life.revision, fence, until }),
        answer: Ok(Answer { owns_dispatch: true, replayed: false }),
    }
}
