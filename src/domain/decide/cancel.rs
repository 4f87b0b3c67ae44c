//! `POST …/cancel`, giving up, and the recovery of prepared effects: reruns nothing.

use super::{Answer, Context, Decision, Next, check_revision, state_conflict};
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{FailureClass, FailureEvidence, FailurePhase, Record};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;

/// Withdraws: what was never dispatched settles at once, what was dispatched becomes doubt.
pub(super) fn cancel(record: &Record, expected_revision: Option<u32>, context: &Context) -> Decision {
    if was_cancelled(record) {
        return Decision::unchanged(Answer { owns_dispatch: false, replayed: true });
    }
    if let Err(refusal) = check_revision(record, expected_revision) {
        return Decision::refuse(refusal);
    }
    let mut next = Next::of(record, context);
    match next.life.state {
        // `refused` by a cancellation is for what was never dispatched (protocol §3).
        State::Proposed if next.life.dispatch.is_none() => {
            next.enter(State::Refused, None);
            next.event(Event::new(EventKind::Refused).with("reason", "cancelled"));
        }
        State::Proposed | State::IntentRecorded | State::SafeToRetry => not_executed(&mut next, "cancelled"),
        // The approval expired before anybody noticed: time has withdrawn it already.
        State::Refused => {}
        State::Dispatched => {
            next.life.failure = Some(FailureEvidence {
                classification: FailureClass::Cancelled,
                phase: FailurePhase::Unknown,
                detail: String::new(),
            });
            next.unknown();
        }
        state => {
            return Decision::refuse(state_conflict(
                state,
                "only an effect without an outcome can be cancelled; an unknown outcome has to be reconciled",
            ));
        }
    }
    next.answer(Answer::default())
}

fn was_cancelled(record: &Record) -> bool {
    match record.life.state {
        State::Refused => true,
        State::Failed => record.life.executed == Some(false),
        State::OutcomeUnknown => {
            record.life.failure.as_ref().is_some_and(|failure| failure.classification == FailureClass::Cancelled)
        }
        _ => false,
    }
}

pub(super) fn not_executed(next: &mut Next<'_>, reason: &str) {
    next.supersede();
    next.life.executed = Some(false);
    next.enter(State::Failed, None);
    next.event(Event::new(EventKind::Failed).with("executed", false).with("reason", reason));
}

/// Settles a prepared, never dispatched effect as not executed. Competes with a claim on the same
/// compare-and-set.
pub(super) fn settle_undispatched(record: &Record, expected_revision: u32, context: &Context) -> Decision {
    let life = &record.life;
    let settled = life.state == State::Failed && life.executed == Some(false) && life.dispatch.is_none();
    if settled && expected_revision.checked_add(1) == Some(life.revision) {
        // The answer to this very settlement was lost (law 9).
        return Decision::unchanged(Answer { owns_dispatch: false, replayed: true });
    }
    if let Err(refusal) = check_revision(record, Some(expected_revision)) {
        return Decision::refuse(refusal);
    }
    if record.life.state != State::IntentRecorded || record.life.dispatch.is_some() {
        return Decision::refuse(Refusal::StateConflict {
            state: record.life.state,
            reason: "only a prepared effect that was never dispatched can be settled this way",
            evidence_recorded: false,
        });
    }
    let mut next = Next::of(record, context);
    not_executed(&mut next, "recovered_undispatched");
    next.answer(Answer::default())
}
