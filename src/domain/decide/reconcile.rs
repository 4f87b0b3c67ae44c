//! Reconciliation (protocol §6): admission and settlement. The call between them is not ours.

use super::settle::{bind, settle as settle_by_receipt};
use super::{Answer, Context, Decision, Next, asking, check_revision, state_conflict};
use crate::domain::adapter::NoAnswer;
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Admission, Finding};
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{Closing, Reconciled, ReconciliationAttempt, Record, ReviewReason};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::limits;

/// Step 2: admits a request, replacing an open one.
pub(super) fn admit(record: &Record, admission: &Admission, context: &Context) -> Decision {
    let mut next = Next::of(record, context);
    let life = &next.life;
    let is_open = life.reconciliation.as_ref().is_some_and(|open| open.request_digest == admission.request_digest);
    let is_closed = life.reconciled.as_ref().is_some_and(|last| last.request_digest == admission.request_digest);
    if is_open || is_closed {
        // The same question: the open attempt goes on, or what was found is told again.
        return next.answer(Answer { owns_dispatch: false, replayed: true });
    }
    if let Err(refusal) = check_revision(record, Some(admission.expected_revision)) {
        return Decision::refuse(refusal);
    }
    if let Err(refusal) = asking::settler(record, context) {
        return Decision::refuse(refusal);
    }
    if !matches!(next.life.state, State::OutcomeUnknown | State::ManualReview) {
        return Decision::refuse(state_conflict(next.life.state, "only a doubtful outcome can be reconciled"));
    }
    next.supersede();
    next.life.reconciled = None;
    next.life.reconciliation = Some(ReconciliationAttempt {
        request_digest: admission.request_digest.clone(),
        source_revision: admission.expected_revision,
        admitted_revision: next.life.revision,
        lookup: admission.lookup,
        automatic: admission.automatic,
        deadline_at: context.now.plus_seconds(admission.timeout_seconds),
    });
    let mut event = Event::new(EventKind::ReconciliationStarted)
        .with("request_digest", admission.request_digest.as_str())
        .with("source_revision", admission.expected_revision)
        .with("lookup", admission.lookup);
    for (name, value) in [
        ("worker", &admission.worker),
        ("handoff_id", &admission.handoff_id),
        ("review_reference", &admission.review_reference),
    ] {
        if let Some(value) = value {
            event = event.with(name, value.as_str());
        }
    }
    next.event(event);
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
    // The tool revision that may settle decides what binds.
    let context = match asking::settler(record, context) {
        Ok(tool) => &Context { tool, ..context.clone() },
        Err(refusal) => return Decision::refuse(refusal),
    };
    let mut next = Next::of(record, context);
    // Also when time alone has just closed the attempt, together with the doubt.
    let admitted = next.life.reconciliation.clone().filter(|open| {
        open.admitted_revision == admitted_revision
            && open.request_digest == *request_digest
            && matches!(next.life.state, State::OutcomeUnknown | State::ManualReview)
    });
    let Some(attempt) = admitted else { return Decision::refuse(Refusal::StaleRequest) };
    match finding {
        Finding::Receipt { receipt, verification } => {
            if bind(&next, receipt, receipt.receipt.outcome, verification.as_ref()).is_err() {
                no_answer(&mut next, &attempt, NoAnswer::Contract("the receipt does not bind to the effect"));
                return next.answer(Answer::default());
            }
            next.life.reconciliation = None;
            settle_by_receipt(&mut next, receipt, verification.as_ref(), None);
            close(&mut next, &attempt, receipt.receipt.outcome.as_str(), Closing::Settled);
        }
        Finding::Absent { verdict, authoritative, is_final, asked_at } => {
            if *authoritative && is_earned(&next, *is_final, *asked_at) {
                next.life.reconciliation = None;
                next.enter(State::SafeToRetry, None);
                let event = Event::new(EventKind::SafeToRetry)
                    .with("reason", "authoritative_absence")
                    .with("verdict", verdict.as_str())
                    .with("request_digest", request_digest.as_str());
                next.event(if *is_final { event.with("final", true) } else { event });
                close(&mut next, &attempt, verdict.as_str(), Closing::Settled);
            } else {
                let earliest = settled_by(&next);
                observe(&mut next, &attempt, verdict.as_str(), Some(*authoritative));
                ask_again(&mut next, earliest);
            }
        }
        Finding::Rejected(verdict) => {
            next.life.reconciliation = None;
            next.event(
                Event::new(EventKind::ReconciliationConflict)
                    .with("kind", "validator_rejected")
                    .with("verdict", verdict.as_str())
                    .with("request_digest", request_digest.as_str()),
            );
            next.review(ReviewReason::ValidatorRejected);
            close(&mut next, &attempt, verdict.as_str(), Closing::Rejected);
        }
        Finding::Observed(word) => {
            observe(&mut next, &attempt, word, None);
            ask_again(&mut next, None);
        }
        Finding::NoAnswer(reason) => no_answer(&mut next, &attempt, *reason),
    }
    next.answer(Answer::default())
}

/// Whether an authoritative absence earns a retry (law 6): the tool declares authoritative lookups, and
/// what was dispatched last can't be travelling any more.
fn is_earned(next: &Next<'_>, is_final: bool, asked_at: Timestamp) -> bool {
    let declared = next.context.tool.spec.adapter.as_ref().is_some_and(|adapter| adapter.authoritative);
    let arrived = settled_by(next).is_some_and(|settled| asked_at >= settled);
    declared && (is_final || arrived)
}

/// When the settle window of the last dispatch has passed.
fn settled_by(next: &Next<'_>) -> Option<Timestamp> {
    let window = next.context.tool.spec.settle_window_seconds;
    next.life.travelling_since.map(|since| since.plus_seconds(window))
}

/// Closes an attempt that settled nothing.
fn observe(next: &mut Next<'_>, attempt: &ReconciliationAttempt, observation: &str, authoritative: Option<bool>) {
    next.life.reconciliation = None;
    let mut event = Event::new(EventKind::ReconciliationObserved)
        .with("observation", observation)
        .with("request_digest", attempt.request_digest.as_str());
    if let Some(authoritative) = authoritative {
        event = event.with("consistency", if authoritative { "authoritative" } else { "eventual" });
    }
    next.event(event);
    close(next, attempt, observation, Closing::Observed);
}

/// There was no usable answer: the doubt stays, and so does an attempt that somebody asked for, which can
/// be continued by the same request. The service's own attempt ends and comes again.
fn no_answer(next: &mut Next<'_>, attempt: &ReconciliationAttempt, reason: NoAnswer) {
    let mut event = Event::new(EventKind::ReconciliationObserved)
        .with("observation", "no_answer")
        .with("reason", reason.as_str())
        .with("request_digest", attempt.request_digest.as_str());
    if let Some(clause) = reason.clause() {
        event = event.with("clause", clause);
        next.life.breaks = next.life.breaks.saturating_add(1);
    }
    next.event(event);
    if attempt.automatic {
        next.life.reconciliation = None;
        close(next, attempt, reason.as_str(), Closing::Observed);
        if next.life.breaks >= limits::ADAPTER_BREAKS && next.life.state == State::OutcomeUnknown {
            next.review(ReviewReason::AdapterBroken);
        } else {
            ask_again(next, None);
        }
    }
}

/// Closes an attempt whose answer never came (a crash between admission and settlement among others).
pub(super) fn let_close(next: &mut Next<'_>) {
    let overdue = next.life.reconciliation.clone().filter(|attempt| attempt.closes_at() <= next.context.now);
    if let Some(attempt) = overdue {
        observe(next, &attempt, "abandoned", None);
        ask_again(next, None);
    }
}

/// Plans the service's next question about a doubt that stays.
fn ask_again(next: &mut Next<'_>, earliest: Option<Timestamp>) {
    let now = next.context.now;
    if next.life.state == State::OutcomeUnknown && asking::looks_up(next.record, next.context) {
        let since = next.life.unknown_since.unwrap_or(now);
        next.life.ask_at = Some(asking::again(next.record, since, earliest.filter(|at| *at > now), now));
    }
}

/// Remembers how an attempt ended, so that its exact repeat gets the same answer.
fn close(next: &mut Next<'_>, attempt: &ReconciliationAttempt, observation: &str, closing: Closing) {
    next.life.reconciled = Some(Reconciled {
        request_digest: attempt.request_digest.clone(),
        source_revision: attempt.source_revision,
        admitted_revision: attempt.admitted_revision,
        closed_revision: next.life.revision,
        lookup: attempt.lookup,
        observation: observation.into(),
        closing,
    });
}
