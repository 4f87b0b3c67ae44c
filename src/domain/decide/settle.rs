//! Settlement by a receipt: the one place where an effect becomes completed or failed.

use std::sync::Arc;

use super::Next;
use crate::domain::command::ResultDocument;
use crate::domain::fault::Fault;
use crate::domain::journal::{Event, EventKind};
use crate::domain::receipt::{CheckedReceipt, ReceiptOutcome, Verification};
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
            next.event(evidence_event(EventKind::Failed, receipt).with("executed", true));
        }
        ReceiptOutcome::Completed => match verification {
            Some(verification) => verified(next, verification),
            None => {
                let rule = next.context.tool.spec.verification_rule(next.record.intent.class);
                if rule == VerificationRule::Waived {
                    next.enter(State::Completed, None);
                    next.event(evidence_event(EventKind::Completed, receipt));
                } else {
                    let spec = &next.context.tool.spec;
                    let deadline = next.context.now.plus_seconds(spec.verify_deadline_seconds);
                    next.enter(State::Verifying, Some(deadline));
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
        let mut event = Event::new(EventKind::Completed);
        if let Some(receipt) = &next.life.receipt {
            event =
                event.with("receipt_digest", receipt.digest.as_str()).with("receipt_id", receipt.receipt_id.as_str());
        }
        next.event(event);
    } else {
        next.review(ReviewReason::VerificationFailed);
    }
}

/// The receipt evidence of a journal entry (protocol §6): audit evidence, not an authorization.
pub(super) fn evidence_event(kind: EventKind, receipt: &CheckedReceipt) -> Event {
    let body = &receipt.receipt;
    Event::new(kind)
        .with("schema_version", 1)
        .with("receipt_id", body.receipt_id.as_str())
        .with("receipt_schema", body.schema.as_str())
        .with("receipt_schema_version", body.schema_version)
        .with("outcome", serde_json::to_value(body.outcome).unwrap_or_default())
        .with("source", body.source.as_str())
        .with("observed_at", body.observed_at.to_string())
        .with("receipt_digest", receipt.digest.as_str())
        .with("integrity", serde_json::to_value(&body.integrity).unwrap_or_default())
        .with("resource_versions", serde_json::to_value(&body.resource_versions).unwrap_or_default())
}
