//! A reconciliation that is neither open nor the last one: told from the journal.

use super::reconciliation::{Reconciliation, Status, events, text};
use crate::domain::canonical::Sha256Digest;
use crate::store::JournalRow;

/// The reconciliation admitted by the first row, as the rows after it tell its end.
pub(super) fn of_rows(rows: &[JournalRow], admitted_revision: u32) -> Option<Reconciliation> {
    let first = rows.first().filter(|row| row.revision == admitted_revision)?;
    let started = events(&first.entry);
    let started = started.iter().find(|event| text(event, "type") == Some("effect.reconciliation.started"))?;
    let digest = text(started, "request_digest")?;
    let number = |name: &str| started.get(name).and_then(serde_json::Value::as_u64);
    let mut told = Reconciliation {
        admitted_revision,
        request_digest: Sha256Digest::parse(digest)?,
        source_revision: number("source_revision").and_then(|number| u32::try_from(number).ok())?,
        lookup: started.get("lookup").and_then(serde_json::Value::as_bool).unwrap_or(false),
        status: Status::Open,
        observation: None,
        closed_revision: None,
        deadline_at: None,
    };
    for row in rows.iter().skip(1) {
        for event in events(&row.entry) {
            let is_own = text(&event, "request_digest") == Some(digest);
            let (status, observation) = match text(&event, "type") {
                Some("effect.reconciliation.conflict") if is_own => match text(&event, "kind") {
                    Some("superseded") => (Status::Superseded, told.observation.clone()),
                    _ => (Status::Rejected, text(&event, "verdict").map(str::to_owned)),
                },
                Some("effect.reconciliation.observed") if is_own => {
                    let word = text(&event, "reason").or_else(|| text(&event, "observation"));
                    (Status::Observed, word.map(str::to_owned))
                }
                Some("effect.safe_to_retry") if is_own => (Status::Settled, text(&event, "verdict").map(str::to_owned)),
                Some("effect.receipt.validated") => (Status::Settled, text(&event, "outcome").map(str::to_owned)),
                _ => continue,
            };
            told.status = status;
            told.observation = observation;
            told.closed_revision = Some(row.revision);
            // Silence closes nothing: the same request may go on.
            let went_on = status == Status::Observed && text(&event, "observation") == Some("no_answer");
            if !went_on {
                return Some(told);
            }
        }
    }
    Some(told)
}
