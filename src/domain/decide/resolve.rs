//! An operator's resolution: a person decides, with a name, a reason and a revision.

use super::{Answer, Context, Decision, Next, check_revision, state_conflict};
use crate::domain::command::{Resolve, ResolvedOutcome};
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{Record, Resolution};
use crate::domain::state::State;

/// Decides a resolution. The same decision again is a replay; another one needs the new revision.
pub(super) fn resolve(record: &Record, resolve: &Resolve, context: &Context) -> Decision {
    if let Some(earlier) = &record.life.resolution
        && earlier.decision_id == resolve.decision_id
    {
        return if earlier.digest == resolve.digest {
            Decision::unchanged(Answer { owns_dispatch: false, replayed: true })
        } else {
            Decision::refuse(state_conflict(record.life.state, "this decision id stands for another decision"))
        };
    }
    if let Err(refusal) = check_revision(record, Some(resolve.expected_revision)) {
        return Decision::refuse(refusal);
    }
    let mut next = Next::of(record, context);
    let flagged = next.life.state.is_terminal() && next.life.contradicted;
    if next.life.state != State::ManualReview && !flagged {
        return Decision::refuse(state_conflict(next.life.state, "only an effect in manual review can be resolved"));
    }
    next.supersede();
    next.life.resolution = Some(Resolution {
        decision_id: resolve.decision_id.clone(),
        digest: resolve.digest.clone(),
        principal: context.principal.clone(),
    });
    next.life.contradicted = false;
    let word = match resolve.outcome {
        ResolvedOutcome::Completed => "completed",
        ResolvedOutcome::Failed => "failed",
        ResolvedOutcome::SafeToRetry => "safe_to_retry",
        ResolvedOutcome::OutcomeUnknown => "outcome_unknown",
    };
    next.event(
        Event::new(EventKind::Resolved)
            .with("decision_id", resolve.decision_id.as_str())
            .with("outcome", word)
            .with("decision_digest", resolve.digest.as_str()),
    );
    if flagged {
        // A settled outcome is write-once (law 9): the decision is recorded and the flag goes.
        return next.answer(Answer::default());
    }
    match resolve.outcome {
        ResolvedOutcome::Completed => {
            next.enter(State::Completed, None);
            next.kind(EventKind::Completed);
        }
        ResolvedOutcome::Failed => {
            let reached = next.life.receipt.is_some();
            next.life.executed = Some(reached);
            next.enter(State::Failed, None);
            next.event(Event::new(EventKind::Failed).with("executed", reached));
        }
        ResolvedOutcome::SafeToRetry => {
            next.enter(State::SafeToRetry, None);
            next.event(Event::new(EventKind::SafeToRetry).with("reason", "resolved"));
        }
        ResolvedOutcome::OutcomeUnknown => next.unknown(),
    }
    next.answer(Answer::default())
}
