//! Receipts that come in from outside, unasked (protocol §6): what an effect's state makes of one, and
//! the evidence that it stays where it may not settle (law 7).

use super::settle::bind;
use super::{Answer, Context, Decision, Next, evidence, state_conflict};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::Report;
use crate::domain::receipt::{CheckedReceipt, ReceiptOutcome};
use crate::domain::record::Life;
use crate::domain::state::State;

/// What an effect makes of a receipt from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It says what is recorded already.
    Known,
    /// It may end the doubt, like a supplied receipt.
    Settles,
    /// It is kept and decides nothing alone.
    Evidence,
}

/// What an effect in this life makes of a receipt. A dispatch whose lease is live is for its owner
/// alone to decide (law 3): that is told apart by the admission, which lets pass what time has decided.
#[must_use]
pub fn standing(life: &Life, receipt: &CheckedReceipt, digest: &Sha256Digest) -> Standing {
    let body = &receipt.receipt;
    let is_recorded =
        life.receipt.as_ref().is_some_and(|known| known.receipt_id == body.receipt_id && known.outcome == body.outcome);
    // A person resolved back to doubt what the receipt had not settled: it is no news.
    if is_recorded || life.reports.iter().any(|mark| mark.digest == *digest) {
        return Standing::Known;
    }
    match life.state {
        State::Dispatched | State::OutcomeUnknown => Standing::Settles,
        // Where a receipt was accepted before, or evidence excludes itself, one more is for a person to weigh.
        State::ManualReview if life.receipt.is_none() && !life.contradicted => Standing::Settles,
        _ => Standing::Evidence,
    }
}

/// Keeps a receipt as evidence.
pub(super) fn keep(
    record: &crate::domain::record::Record,
    receipt: &CheckedReceipt,
    digest: &Sha256Digest,
    context: &Context,
) -> Decision {
    let mut next = Next::of(record, context);
    match standing(&next.life, receipt, digest) {
        Standing::Known => return Decision::unchanged(Answer { owns_dispatch: false, replayed: true }),
        Standing::Settles => {
            return Decision::refuse(state_conflict(next.life.state, "this receipt may settle the effect"));
        }
        Standing::Evidence => {}
    }
    if let Err(refusal) = bind(&next, receipt, receipt.receipt.outcome, None) {
        return Decision::refuse(refusal);
    }
    let report = match receipt.receipt.outcome {
        ReceiptOutcome::Completed => Report::Succeeded { receipt: receipt.clone(), verification: None },
        ReceiptOutcome::Failed => Report::Failed { receipt: Some(receipt.clone()), failure: None },
    };
    // No dispatch speaks here, so no fence does.
    if !evidence::keep(&mut next, &report, 0, digest) {
        return Decision::refuse(state_conflict(next.life.state, "no more reports are kept for this effect"));
    }
    next.answer(Answer::default())
}
