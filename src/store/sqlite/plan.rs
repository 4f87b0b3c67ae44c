//! What a batch writes, in the form that the write script takes apart.

use serde::Serialize;
use uuid::Uuid;

use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::rows::state_code;
use crate::store::{ChangeSet, Committed, OpenRow, RevisionRow};

/// The applied changes as one document, and all their long columns in one blob. `None` if nothing
/// was applied.
pub(super) fn plan<'a>(batch: &'a [ChangeSet], outcome: &[Committed], now: Timestamp) -> Option<(Plan<'a>, Vec<u8>)> {
    let mut plan = Plan { revised: Vec::new(), renewed: Vec::new(), now_us: now.micros() };
    let mut documents = Documents::default();
    for (change, outcome) in batch.iter().zip(outcome) {
        match (outcome, change) {
            (Committed::Lost, _) => {}
            (Committed::Applied, ChangeSet::Revise(row)) => plan.revised.push(Revised::of(row, &mut documents)),
            (Committed::Applied, ChangeSet::Renew(renewal)) => plan.renewed.push(Renewed {
                tenant: &renewal.key.tenant,
                effect: renewal.key.effect,
                until_us: renewal.until.micros(),
            }),
        }
    }
    let empty = plan.revised.is_empty() && plan.renewed.is_empty();
    (!empty).then_some((plan, documents.0))
}

/// The document. Its field names are the ones that the script reads.
#[derive(Serialize)]
pub(super) struct Plan<'a> {
    revised: Vec<Revised<'a>>,
    renewed: Vec<Renewed<'a>>,
    now_us: i64,
}

#[derive(Serialize)]
struct Revised<'a> {
    tenant: &'a Tenant,
    effect: Uuid,
    revision: u32,
    state: i16,
    created_us: Option<i64>,
    run_id: Option<&'a str>,
    session_id: Option<&'a str>,
    intent: Option<Span>,
    life: Span,
    entry: Span,
    receipt: Option<Span>,
    result: Option<Span>,
    prev_hash: Span,
    hash: Span,
    open: Option<Opened<'a>>,
}

impl<'a> Revised<'a> {
    fn of(row: &'a RevisionRow, documents: &mut Documents) -> Self {
        let mut text = |text: &str| documents.put(text.as_bytes());
        Self {
            tenant: &row.key.tenant,
            effect: row.key.effect,
            revision: row.revision,
            state: state_code(row.state),
            created_us: row.intent.as_ref().map(|intent| intent.created_at.micros()),
            run_id: row.run_id.as_ref().map(Name::as_str),
            session_id: row.session_id.as_ref().map(Name::as_str),
            intent: row.intent.as_ref().map(|intent| text(&intent.text)),
            life: text(&row.life),
            entry: text(&row.entry),
            receipt: row.receipt.as_deref().map(&mut text),
            result: row.result.as_deref().map(&mut text),
            prev_hash: documents.put(&row.prev_hash),
            hash: documents.put(&row.hash),
            open: row.open.as_ref().map(|open| Opened::of(open, row.was_open)),
        }
    }
}

#[derive(Serialize)]
struct Opened<'a> {
    fence: u32,
    due_us: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline_us: Option<i64>,
    duplicate: Option<Uuid>,
    created_us: i64,
    contradicted: bool,
    tool: &'a str,
    /// Of a row that is made; one that stays keeps what it says.
    #[serde(skip_serializing_if = "Option::is_none")]
    proposed_by: Option<&'a str>,
}

impl<'a> Opened<'a> {
    fn of(open: &'a OpenRow, was_open: bool) -> Self {
        Self {
            fence: open.fence,
            due_us: open.due_at.map(Timestamp::micros),
            deadline_us: open.doubt_until.map(Timestamp::micros),
            duplicate: open.duplicate,
            created_us: open.created_at.micros(),
            contradicted: open.contradicted,
            tool: open.tool.as_str(),
            proposed_by: (!was_open).then(|| open.proposer.as_str()),
        }
    }
}

#[derive(Serialize)]
struct Renewed<'a> {
    tenant: &'a Tenant,
    effect: Uuid,
    until_us: i64,
}

/// Where a column lies among the documents: the first byte, counted from 1, and their number.
#[derive(Serialize)]
struct Span(usize, usize);

#[derive(Default)]
struct Documents(Vec<u8>);

impl Documents {
    fn put(&mut self, bytes: &[u8]) -> Span {
        let span = Span(self.0.len().saturating_add(1), bytes.len());
        self.0.extend_from_slice(bytes);
        span
    }
}
