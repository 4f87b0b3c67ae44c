//! `POST …/outcome` and `POST …/verification`: what came of a dispatch.

use super::evidence::{keep, mark, take};
use super::settle::{bind, settle, under, verified};
use super::{Answer, Context, Decision, Next, state_conflict};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Outcome, Report};
use crate::domain::fault::Fault;
use crate::domain::journal::{Event, EventKind};
use crate::domain::receipt::Verification;
use crate::domain::record::{FailureClass, FailureEvidence, FailurePhase, Record};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::tool::NotSentRule;
use crate::limits;

/// Decides a report.
pub(super) fn outcome(record: &Record, outcome: &Outcome, context: &Context) -> Decision {
    // After a restore no dispatch has the newest fence: nobody knows who was granted one meanwhile.
    let owns_newest = record.life.dispatch.as_ref().is_some_and(|dispatch| {
        dispatch.fence == outcome.fence
            && dispatch.dispatch_id == outcome.dispatch_id
            && dispatch.fence == record.life.fence
    });
    if let Some(mark) = record.life.reports.iter().find(|mark| mark.digest == outcome.digest) {
        return if mark.evidence_only && !mark.taken {
            Decision::refuse(conflict(record, record.life.state, owns_newest, true))
        } else {
            Decision::unchanged(Answer { owns_dispatch: owns_newest, replayed: true })
        };
    }
    let mut next = Next::of(record, context);
    if let Some((receipt, says)) = outcome.report.receipt() {
        let verification = match &outcome.report {
            Report::Succeeded { verification, .. } => verification.as_ref(),
            _ => None,
        };
        if let Err(refusal) = bind(&next, receipt, says, verification) {
            return Decision::refuse(refusal);
        }
    }
    let state = next.life.state;
    if !owns_newest || !matches!(state, State::Dispatched | State::OutcomeUnknown) {
        let kept = keep(&mut next, &outcome.report, outcome.fence, &outcome.digest);
        let refusal = conflict(record, next.life.state, owns_newest, kept);
        return if kept { next.answer_with_refusal(refusal) } else { Decision::refuse(refusal) };
    }
    let late = state == State::OutcomeUnknown;
    if late && outcome.report.receipt().is_none() {
        // The lease ran out before; the report adds evidence to the doubt and takes none away.
        if !take(&mut next, &outcome.report, outcome.fence, &outcome.digest) {
            return Decision::refuse(state_conflict(state, "no more reports are kept for this effect"));
        }
        return next.answer(Answer { owns_dispatch: true, replayed: false });
    }
    mark(&mut next, &outcome.digest, false);
    if late && let Some(dispatch) = &mut next.life.dispatch {
        dispatch.late = true;
    }
    apply(&mut next, outcome);
    next.answer(Answer { owns_dispatch: true, replayed: false })
}

fn apply(next: &mut Next<'_>, outcome: &Outcome) {
    match &outcome.report {
        Report::Succeeded { receipt, verification } => {
            settle(next, receipt, verification.as_ref(), outcome.result.as_ref());
        }
        Report::Failed { receipt: Some(receipt), .. } => settle(next, receipt, None, outcome.result.as_ref()),
        Report::Failed { receipt: None, failure } => {
            doubt(next, failure.clone().unwrap_or_else(|| evidence(FailureClass::Exception, FailurePhase::Unknown)));
        }
        Report::NotSent(failure) => {
            let failure =
                failure.clone().unwrap_or_else(|| evidence(FailureClass::Exception, FailurePhase::BeforeSend));
            if next.context.tool.spec.not_sent == NotSentRule::Accept {
                next.life.failure = Some(failure);
                next.enter(State::SafeToRetry, None);
                next.event(Event::new(EventKind::SafeToRetry).with("reason", "not_sent"));
            } else {
                doubt(next, failure);
            }
        }
        Report::Unknown(failure) => doubt(next, failure.clone()),
    }
}

fn doubt(next: &mut Next<'_>, failure: FailureEvidence) {
    next.life.failure = Some(failure);
    next.unknown();
}

fn evidence(classification: FailureClass, phase: FailurePhase) -> FailureEvidence {
    FailureEvidence { classification, phase, detail: String::new() }
}

fn conflict(record: &Record, state: State, owns_newest: bool, evidence_recorded: bool) -> Refusal {
    if owns_newest {
        Refusal::StateConflict { state, reason: "the outcome of this effect is decided already", evidence_recorded }
    } else {
        Refusal::StaleFence { newest: record.life.fence, evidence_recorded }
    }
}

/// Decides a verification that comes after the outcome.
pub(super) fn verify(record: &Record, verification: &Verification, context: &Context) -> Decision {
    if record.life.verification.as_ref() == Some(verification) {
        return Decision::unchanged(Answer { owns_dispatch: false, replayed: true });
    }
    let digest = Sha256Digest::of(serde_json::to_string(verification).unwrap_or_default().as_bytes());
    if record.life.reports.iter().any(|mark| mark.digest == digest) {
        return Decision::refuse(settled(record.life.state, true));
    }
    let Some(receipt) = &record.life.receipt else {
        return Decision::refuse(state_conflict(record.life.state, "there is no receipt yet that could be verified"));
    };
    if let Err(found) = verification.bind(&record.intent, receipt.observed_at) {
        let faults: Vec<Fault> = found.iter().map(|fault| under("", fault)).collect();
        return Decision::refuse(Refusal::ReceiptRejected(faults));
    }
    let mut next = Next::of(record, context);
    if next.life.state == State::Verifying {
        verified(&mut next, verification);
        return next.answer(Answer::default());
    }
    if record.life.reports.iter().filter(|mark| mark.evidence_only).count() >= limits::LATE_REPORTS {
        return Decision::refuse(settled(next.life.state, false));
    }
    mark(&mut next, &digest, true);
    let contradicts = next.life.state == State::Completed && !verification.verified;
    next.life.contradicted |= contradicts;
    let mut event = Event::new(EventKind::LateReport)
        .with("verified", verification.verified)
        .with("report_digest", digest.as_str());
    if contradicts {
        event = event.with("contradicts", true);
    }
    next.event(event);
    let refusal = settled(next.life.state, true);
    next.answer_with_refusal(refusal)
}

fn settled(state: State, evidence_recorded: bool) -> Refusal {
    Refusal::StateConflict { state, reason: "this effect does not wait for a verification", evidence_recorded }
}
