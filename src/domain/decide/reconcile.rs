//! Reconciliation (protocol §6): admission and settlement. The call between them is not ours.

use super::settle::{bind, settle as settle_by_receipt};
use super::{Answer, Context, Decision, Next, check_revision, state_conflict};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::Finding;
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{ReconciliationAttempt, Record, ReviewReason};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;

/// Step 2: admits a request, replacing an open one.
pub(super) fn admit(
    record: &Record,
    request_digest: &Sha256Digest,
    expected_revision: u32,
    lookup: bool,
    timeout_seconds: u32,
    context: &Context,
) -> Decision {
    if record.life.reconciliation.as_ref().is_some_and(|open| open.request_digest == *request_digest) {
        return Decision::unchanged(Answer { owns_dispatch: false, replayed: true });
    }
    if let Err(refusal) = check_revision(record, Some(expected_revision)) {
        return Decision::refuse(refusal);
    }
    let mut next = Next::of(record, context);
    if !matches!(next.life.state, State::OutcomeUnknown | State::ManualReview) {
        return Decision::refuse(state_conflict(next.life.state, "only a doubtful outcome can be reconciled"));
    }
    next.supersede();
    next.life.reconciliation = Some(ReconciliationAttempt {
        request_digest: request_digest.clone(),
        source_revision: expected_revision,
        admitted_revision: next.life.revision,
        lookup,
        deadline_at: context.now.plus_seconds(timeout_seconds),
    });
    next.event(
        Event::new(EventKind::ReconciliationStarted)
            .with("request_digest", request_digest.as_str())
            .with("source_revision", expected_revision)
            .with("lookup", lookup),
    );
    next.answer(Answer::default())
}

/// Step 4: settles, observes or rejects, on the admitted revision alone.
pub(super) fn settle(
    record: &Record,
    admitted_revision: u32,
    request_digest: &Sha256Digest,
    finding: &Finding,
    context: &Context,
) -> Decision {
    let mut next = Next::of(record, context);
    // Also when time alone has just closed the attempt, together with the doubt.
    let admitted = next
        .life
        .reconciliation
        .as_ref()
        .is_some_and(|open| open.admitted_revision == admitted_revision && open.request_digest == *request_digest);
    if !admitted || !matches!(next.life.state, State::OutcomeUnknown | State::ManualReview) {
        return Decision::refuse(Refusal::StaleRequest);
    }
    match finding {
        Finding::Receipt { receipt, verification } => {
            if let Err(refusal) = bind(&next, receipt, receipt.receipt.outcome, verification.as_ref()) {
                return Decision::refuse(refusal);
            }
            next.life.reconciliation = None;
            settle_by_receipt(&mut next, receipt, verification.as_ref(), None);
        }
        Finding::NotFound { earned: true } => {
            next.life.reconciliation = None;
            next.enter(State::SafeToRetry, None);
            next.event(Event::new(EventKind::SafeToRetry).with("reason", "authoritative_absence"));
        }
        Finding::Rejected => {
            next.life.reconciliation = None;
            next.event(
                Event::new(EventKind::ReconciliationConflict)
                    .with("kind", "validator_rejected")
                    .with("request_digest", request_digest.as_str()),
            );
            next.review(ReviewReason::ValidatorRejected);
        }
        // The doubt stays and the attempt stays: it can be continued or replaced.
        Finding::NoAnswer => return Decision::unchanged(Answer::default()),
        Finding::NotFound { earned: false } => observe(&mut next, request_digest, "not_found"),
        Finding::Pending => observe(&mut next, request_digest, "pending"),
        Finding::Unsupported => observe(&mut next, request_digest, "unsupported"),
    }
    next.answer(Answer::default())
}

fn observe(next: &mut Next<'_>, request_digest: &Sha256Digest, observation: &str) {
    next.life.reconciliation = None;
    next.event(
        Event::new(EventKind::ReconciliationObserved)
            .with("observation", observation)
            .with("request_digest", request_digest.as_str()),
    );
}
