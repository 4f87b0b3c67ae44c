//! Settlement by a receipt: the one place where an effect becomes completed or failed.

use std::sync::Arc;

use super::{Next, asking};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::ResultDocument;
use crate::domain::fault::Fault;
use crate::domain::journal::{Event, EventKind};
use crate::domain::receipt::{CheckedReceipt, Receipt, ReceiptOutcome, Verification};
use crate::domain::record::{ReceiptRef, ResultRef, ReviewReason};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::tool::VerificationRule;

/// Checks that a receipt, and the verification beside it, speak about the effect.
pub(super) fn bind(
    next: &Next<'_>,
    receipt: &CheckedReceipt,
    expected: ReceiptOutcome,
    verification: Option<&Verification>,
) -> Result<(), Refusal> {
    let mut faults = Vec::new();
    if let Err(found) = receipt.bind(&next.record.intent, &next.context.tool) {
        faults.extend(found.into_iter().map(|fault| under("/receipt", &fault)));
    }
    if receipt.receipt.outcome != expected {
        faults.push(Fault::new("/receipt/outcome", "contradicts the reported outcome"));
    }
    if let Some(verification) = verification
        && let Err(found) = verification.bind(&next.record.intent, receipt.receipt.observed_at)
    {
        faults.extend(found.into_iter().map(|fault| under("/verification", &fault)));
    }
    if faults.is_empty() { Ok(()) } else { Err(Refusal::ReceiptRejected(faults)) }
}

pub(super) fn under(prefix: &str, fault: &Fault) -> Fault {
    Fault::new(&format!("{prefix}{}", fault.pointer), &fault.reason)
}

/// Settles by a receipt that was found to bind: completed, failed, verifying, or with a person.
pub(super) fn settle(
    next: &mut Next<'_>,
    receipt: &CheckedReceipt,
    verification: Option<&Verification>,
    result: Option<&ResultDocument>,
) {
    next.supersede();
    let revision = next.life.revision;
    let body = &receipt.receipt;
    next.life.receipt = Some(ReceiptRef {
        revision,
        receipt_id: body.receipt_id.clone(),
        digest: receipt.digest.clone(),
        outcome: body.outcome,
        observed_at: body.observed_at,
    });
    next.receipt = Some(Arc::clone(&receipt.text));
    if let Some(result) = result {
        next.life.result = Some(ResultRef {
            revision,
            digest: result.digest.clone(),
            size_bytes: result.size_bytes,
            truncated: result.text.is_none(),
        });
        next.result.clone_from(&result.text);
    }
    next.event(evidence_event(EventKind::ReceiptValidated, receipt));
    match body.outcome {
        ReceiptOutcome::Failed => {
            next.life.executed = Some(true);
            next.enter(State::Failed, None);
            next.event(settled_event(EventKind::Failed, receipt).with("executed", true));
        }
        ReceiptOutcome::Completed => match verification {
            Some(verification) => verified(next, verification),
            None => {
                let rule = next.context.tool.spec.verification_rule(next.record.intent.class);
                if rule == VerificationRule::Waived {
                    next.enter(State::Completed, None);
                    next.event(settled_event(EventKind::Completed, receipt));
                } else {
                    let spec = &next.context.tool.spec;
                    let deadline = next.context.now.plus_seconds(spec.verify_deadline_seconds);
                    next.enter(State::Verifying, Some(deadline));
                    next.life.ask_at = asking::verifies(next.record, next.context).then_some(next.context.now);
                }
            }
        },
    }
}

/// Records a fresh read that binds: it completes, or a person has to look.
pub(super) fn verified(next: &mut Next<'_>, verification: &Verification) {
    next.event(
        Event::new(EventKind::Verified)
            .with("verified", verification.verified)
            .with("source", verification.source.as_str())
            .with("observed_at", verification.observed_at.to_string()),
    );
    next.life.verification = Some(verification.clone());
    if verification.verified {
        next.enter(State::Completed, None);
        let event = completed_event(next);
        next.event(event);
    } else {
        next.review(ReviewReason::VerificationFailed);
    }
}

/// The terminal event of an entry that carries the receipt evidence already.
fn settled_event(kind: EventKind, receipt: &CheckedReceipt) -> Event {
    Event::new(kind).with("receipt_digest", receipt.digest.as_str())
}

/// `effect.completed` after a verification. The terminal entry carries the receipt evidence: it is
/// repeated here where the receipt was recorded by an earlier entry.
fn completed_event(next: &Next<'_>) -> Event {
    let event = Event::new(EventKind::Completed);
    let Some(recorded) = &next.life.receipt else { return event };
    let earlier = next.record.receipt.as_deref().filter(|_| recorded.revision != next.life.revision);
    match earlier.and_then(|text| serde_json::from_str::<Receipt>(text).ok()) {
        Some(receipt) => evidence(event, &receipt, &recorded.digest),
        None => event.with("receipt_digest", recorded.digest.as_str()),
    }
}

/// The receipt evidence of a journal entry (protocol §6): audit evidence, not an authorization.
pub(super) fn evidence_event(kind: EventKind, receipt: &CheckedReceipt) -> Event {
    evidence(Event::new(kind), &receipt.receipt, &receipt.digest)
}

fn evidence(event: Event, receipt: &Receipt, digest: &Sha256Digest) -> Event {
    let mut event = event
        .with("schema_version", 1)
        .with("receipt_id", receipt.receipt_id.as_str())
        .with("receipt_schema", receipt.schema.as_str())
        .with("receipt_schema_version", receipt.schema_version)
        .with("outcome", receipt.outcome.as_str())
        .with("source", receipt.source.as_str())
        .with("observed_at", receipt.observed_at.to_string())
        .with("receipt_digest", digest.as_str());
    for (name, map) in [("integrity", &receipt.integrity), ("resource_versions", &receipt.resource_versions)] {
        if !map.is_empty() {
            event = event.with(name, serde_json::to_value(map).unwrap_or_default());
        }
    }
    event
}
