//! Late truth is kept (law 7): evidence that decides nothing, and the contradictions it shows.

use std::sync::Arc;

use super::{Next, is_replay_safe};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::Report;
use crate::domain::journal::{Event, EventKind};
use crate::domain::receipt::ReceiptOutcome;
use crate::domain::record::{ReportMark, ReviewReason};
use crate::domain::state::State;
use crate::limits;

/// Remembers a report, so that an equal repeat is known again.
pub(super) fn mark(next: &mut Next<'_>, digest: &Sha256Digest, evidence_only: bool) {
    let revision = next.life.revision;
    next.life.reports.push(ReportMark {
        digest: digest.clone(),
        revision,
        evidence_only,
        taken: false,
        receipt: false,
    });
}

/// Stores the owner's report on a doubt that it can't end. Returns whether it was stored.
pub(super) fn take(next: &mut Next<'_>, report: &Report, fence: u32, digest: &Sha256Digest) -> bool {
    let kept = keep(next, report, fence, digest);
    if let (true, Some(mark)) = (kept, next.life.reports.last_mut()) {
        mark.taken = true;
    }
    if kept {
        // The owner is alive: what it sent may have been sent until now.
        next.life.travelling_since = Some(next.context.now);
    }
    kept
}

/// Stores a report as evidence. Returns whether it was stored; past [`limits::LATE_REPORTS`] it is not.
pub(super) fn keep(next: &mut Next<'_>, report: &Report, fence: u32, digest: &Sha256Digest) -> bool {
    if next.life.reports.iter().filter(|mark| mark.evidence_only).count() >= limits::LATE_REPORTS {
        return false;
    }
    mark(next, digest, true);
    let word = match report {
        Report::Succeeded { .. } => "succeeded",
        Report::Failed { .. } => "failed",
        Report::NotSent(_) => "not_sent",
        Report::Unknown(_) => "unknown",
    };
    let mut event = Event::new(EventKind::LateReport)
        .with("fence", fence)
        .with("outcome", word)
        .with("report_digest", digest.as_str());
    if let Some(failure) = report.failure() {
        event = event
            .with("classification", serde_json::to_value(failure.classification).unwrap_or_default())
            .with("phase", serde_json::to_value(failure.phase).unwrap_or_default());
    }
    if let Some((receipt, _)) = report.receipt() {
        event = event
            .with("receipt_id", receipt.receipt.receipt_id.as_str())
            .with("receipt_digest", receipt.digest.as_str());
        next.receipt = Some(Arc::clone(&receipt.text));
        if let Some(mark) = next.life.reports.last_mut() {
            mark.receipt = true;
        }
    }
    let contradicts = contradicts(next, report);
    if contradicts {
        event = event.with("contradicts", true);
    }
    next.event(event);
    if contradicts {
        next.life.contradicted = true;
        // A settled outcome stays (evidence never decides alone); what might still be acted on stops.
        match next.life.state {
            State::Proposed | State::IntentRecorded | State::SafeToRetry | State::Verifying | State::OutcomeUnknown => {
                next.review(ReviewReason::Contradiction);
            }
            _ => {}
        }
    }
    true
}

/// Whether the report's receipt and what is recorded can't both be true.
fn contradicts(next: &Next<'_>, report: &Report) -> bool {
    let Some((receipt, says)) = report.receipt() else { return false };
    let recorded = next.life.receipt.as_ref();
    let another_receipt = recorded.is_some_and(|recorded| recorded.receipt_id != receipt.receipt.receipt_id);
    let committed = says == ReceiptOutcome::Completed;
    match next.life.state {
        State::Completed | State::Verifying => !committed || another_receipt,
        // For `safe_to_retry`: the proof that nothing was committed is refuted.
        State::Failed | State::Refused | State::Proposed | State::IntentRecorded | State::SafeToRetry => committed,
        // An earlier dispatch committed although a later one was earned by proof that it had not. Where
        // a replay is harmless the later one was no second act, as long as the downstream knows the key.
        State::Dispatched | State::OutcomeUnknown => committed && !is_replay_safe(next.record, next.context),
        State::ManualReview => false,
    }
}
