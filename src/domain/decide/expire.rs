//! What time decides: leases, approvals, verifications and reconciliations that ran out.

use super::{Answer, Context, Decision, Next};
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{FailureClass, FailureEvidence, FailurePhase, Record, ReviewReason};
use crate::domain::state::State;

/// The background's command: let pass what is due, or do nothing.
pub(super) fn expire(record: &Record, hold_released: bool, context: &Context) -> Decision {
    let mut next = Next::of(record, context);
    if hold_released {
        release_hold(&mut next);
    }
    next.answer(Answer::default())
}

/// Lets pass what is due at the context's time. Silence never becomes failure (law 4): a lease that
/// ran out becomes doubt, a deadline of doubt becomes a person's work.
pub(super) fn let_pass(next: &mut Next<'_>) {
    let now = next.context.now;
    match next.life.state {
        State::Dispatched => {
            let Some(end) = next.life.lease_end() else { return };
            if end > now {
                return;
            }
            next.lease_seen = Some(end);
            let fence = next.life.fence;
            next.event(
                Event::new(EventKind::LeaseExpired).with("fence", fence).with("lease_expires_at", end.to_string()),
            );
            next.life.failure = Some(FailureEvidence {
                classification: FailureClass::LeaseExpired,
                phase: FailurePhase::Unknown,
                detail: String::new(),
            });
            next.unknown();
        }
        State::Proposed if is_due(next) => {
            next.enter(State::Refused, None);
            next.event(Event::new(EventKind::Refused).with("reason", "approval_expired"));
        }
        State::Verifying if is_due(next) => next.review(ReviewReason::VerifyDeadline),
        State::OutcomeUnknown if is_due(next) => next.review(ReviewReason::ReconcileDeadline),
        // An attempt whose call died with its process, or never came back.
        State::OutcomeUnknown | State::ManualReview => super::reconcile::let_close(next),
        _ => {}
    }
}

/// Ends a hold: the effect it was held for has settled, so the suspicion is gone.
pub(super) fn release_hold(next: &mut Next<'_>) {
    let held = next.life.approval.as_ref().is_some_and(|approval| approval.held_for.is_some());
    // What was proposed under another profile than the session has now is not let go by itself.
    if next.life.state == State::Proposed && held && !next.context.profile_changed {
        if next.context.tool.spec.authorization.mode == crate::domain::tool::AuthorizationMode::Approval {
            // The tool asks for approval anyway; only the suspicion goes.
            if let Some(approval) = &mut next.life.approval {
                approval.held_for = None;
            }
            next.event(Event::new(EventKind::Proposed).with("reason", "hold_released"));
            return;
        }
        next.life.approval = None;
        next.enter(State::IntentRecorded, None);
        next.event(Event::new(EventKind::Authorized).with("reason", "hold_released"));
        next.kind(EventKind::IntentRecorded);
    }
}

fn is_due(next: &Next<'_>) -> bool {
    next.life.deadline_at.is_some_and(|deadline| deadline <= next.context.now)
}
