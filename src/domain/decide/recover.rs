//! One item of a recovery execution: exactly what was planned, or nothing.

use super::cancel::not_executed;
use super::resolve::has_other_eyes;
use super::{Answer, Context, Decision, Next, check_revision, state_conflict};
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::Record;
use crate::domain::recovery::{Action, Recover, RecoveryMark, assess};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;

/// Decides an item. A repeat under the same execution finds its own work done, whoever has written to
/// the effect since; everything else needs the very state that was planned for.
pub(super) fn recover(record: &Record, recover: &Recover, context: &Context) -> Decision {
    if let Some(mark) = &record.life.recovery
        && mark.execution_id == recover.execution_id
    {
        return if mark.digest == recover.digest {
            Decision::unchanged(Answer { owns_dispatch: false, replayed: true })
        } else {
            Decision::refuse(state_conflict(record.life.state, "this execution id stands for another decision"))
        };
    }
    if let Err(refusal) = check_revision(record, Some(recover.expected_revision)) {
        return Decision::refuse(refusal);
    }
    let assessment = assess(record, context);
    if assessment.fingerprint != recover.fingerprint {
        return Decision::refuse(Refusal::StaleRevision { found: record.life.revision, state: record.life.state });
    }
    if !assessment.actions.contains(&recover.action) {
        return Decision::refuse(state_conflict(record.life.state, "recovery does not offer this action here"));
    }
    if recover.action == Action::LeaveIntact {
        return Decision::unchanged(Answer::default());
    }
    if recover.action.needs_message() && !has_other_eyes(record, context) {
        return Decision::refuse(Refusal::Forbidden("for this tool, who proposed or approved an effect can't mark it"));
    }
    let mut next = Next::of(record, context);
    match recover.action {
        Action::AutomaticRepair => not_executed(&mut next, "recovered_undispatched"),
        Action::MarkCompleted => resolve(&mut next, recover, State::Completed),
        Action::MarkFailed => resolve(&mut next, recover, State::Failed),
        Action::LeaveIntact => {}
    }
    next.life.recovery = Some(RecoveryMark {
        execution_id: recover.execution_id.clone(),
        digest: recover.digest.clone(),
        action: recover.action,
        revision: next.life.revision,
        at: context.now,
    });
    next.event(
        Event::new(EventKind::RecoveryItemExecuted)
            .with("execution_id", recover.execution_id.as_str())
            .with("plan_id", recover.plan_id.as_str())
            .with("action", recover.action.as_str())
            .with("decision_digest", recover.digest.as_str()),
    );
    // What was planned for holds until it is written, the registration included.
    next.tool_stamp = context.current.as_ref().filter(|tool| tool.revision > 0).map(|tool| tool.stamp);
    next.answer(Answer::default())
}

/// A person's word ends a doubt. From `outcome_unknown` it goes by way of `manual_review`, in the same
/// revision: what was under way is superseded, and the journal shows both steps.
fn resolve(next: &mut Next<'_>, recover: &Recover, state: State) {
    next.supersede();
    if next.life.state == State::OutcomeUnknown {
        next.event(Event::new(EventKind::ManualReview).with("reason", "recovery"));
    }
    next.event(
        Event::new(EventKind::Resolved)
            .with("decision_id", recover.execution_id.as_str())
            .with("outcome", state.as_str())
            .with("decision_digest", recover.digest.as_str()),
    );
    next.enter(state, None);
    if state == State::Completed {
        next.kind(EventKind::Completed);
    } else {
        // As in a resolution: without a receipt nothing says that the downstream was reached.
        next.life.executed = Some(false);
        next.event(Event::new(EventKind::Failed).with("executed", false));
    }
}
