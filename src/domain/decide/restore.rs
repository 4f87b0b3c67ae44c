//! The database was restored to an earlier point: what was open is not known any more (see [`crate::domain::restore`]).

use super::{Answer, Context, Decision, Next, asking};
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{FailureClass, FailureEvidence, FailurePhase, Record};
use crate::domain::restore::{LOST_TIME, Restore, fence_base};
use crate::domain::state::State;
use crate::limits;

/// Decides an effect's part in an epoch: once, and never for what is final. Time decides nothing first: a deadline
/// that has passed since says what would have become of the effect if nothing had happened to it meanwhile.
pub(super) fn restore(record: &Record, restore: &Restore, context: &Context) -> Decision {
    if record.life.restore_epoch >= restore.epoch || record.life.state.is_terminal() {
        return Decision::unchanged(Answer { owns_dispatch: false, replayed: true });
    }
    let mut next = Next::as_it_stands(record, context);
    let (fence, state) = (fence_base(restore.epoch).max(next.life.fence), next.life.state);
    next.event(
        Event::new(EventKind::Restored)
            .with("epoch", restore.epoch)
            .with("epoch_id", restore.epoch_id.as_str())
            .with("state_before", state.as_str())
            .with("fence_before", next.life.fence)
            .with("fence", fence),
    );
    next.life.fence = fence;
    next.life.restore_epoch = restore.epoch;
    next.supersede();
    match state {
        State::Proposed | State::IntentRecorded | State::Dispatched | State::SafeToRetry => {
            forget_approval(&mut next);
            // The earliest that it can have been dispatched: the downstream may know its key since then.
            next.life.first_dispatched_at.get_or_insert(record.life.updated_at);
            next.life.failure = Some(FailureEvidence {
                classification: FailureClass::Crash,
                phase: FailurePhase::Unknown,
                detail: LOST_TIME.to_owned(),
            });
            next.unknown();
        }
        State::OutcomeUnknown => {
            forget_approval(&mut next);
            next.life.ask_at = asking::looks_up(record, context).then_some(context.now);
        }
        // A receipt is on record, or a person decides anyway.
        _ => {}
    }
    if matches!(next.life.state, State::OutcomeUnknown | State::ManualReview) {
        // Somebody may have been granted it in the time that is lost, and be acting still.
        next.life.travelling_since = Some(context.now.plus_seconds(limits::LEASE_MAX_SECONDS));
    }
    next.answer(Answer::default())
}

/// An approval that was not used may have been, in the time that is lost: another try is asked for anew. A hold
/// keeps its place: two effects with the same content can't both stand as the first one.
fn forget_approval(next: &mut Next<'_>) {
    super::claim::remember_approvers(&mut next.life);
    match &mut next.life.approval {
        Some(approval) if approval.held_for.is_some() => approval.granted = false,
        approval => *approval = None,
    }
}
