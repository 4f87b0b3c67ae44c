//! Reconciliation as sent and as answered (protocol §6).

use serde::{Deserialize, Serialize};

use super::Faults;
use crate::domain::ids::Name;
use crate::domain::object;
use crate::domain::receipt::{CheckedReceipt, Receipt};
use crate::domain::state::{Directive, State};
use crate::domain::time::Timestamp;
use crate::http::problem::Problem;
use crate::service::reconciliation::{
    Basis, Disposition, Inspection, Reconciled, Reconciliation, ReconciliationRequest, Status,
};

/// The open attempt of a target.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptView {
    /// Its name within the effect.
    id: String,
    /// Digest of its request.
    request_digest: String,
    /// Whether the downstream is asked.
    lookup: bool,
    /// Until when an answer is awaited.
    #[schema(value_type = String, format = DateTime)]
    deadline_at: Timestamp,
}

/// What a reconciliation names: send it back with a `lookup`, a `receipt` or a `journal`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct TargetView {
    /// The operation.
    operation_id: String,
    /// Its tool.
    tool: String,
    /// Its revision.
    expected_revision: u32,
    /// Its state.
    state: State,
    /// The open attempt, if there is one.
    attempt: Option<AttemptView>,
    /// Alias of the downstream key.
    idempotency_key: String,
    /// Alias of the session, if there is one.
    session_instance_id: Option<String>,
}

impl From<&Inspection> for TargetView {
    fn from(inspection: &Inspection) -> Self {
        let (intent, life) = (&inspection.decided.record.intent, &inspection.decided.record.life);
        Self {
            operation_id: intent.operation_id.to_string(),
            tool: intent.tool.to_string(),
            expected_revision: life.revision,
            state: life.state,
            attempt: life.reconciliation.as_ref().map(|open| AttemptView {
                id: open.admitted_revision.to_string(),
                request_digest: open.request_digest.as_str().to_owned(),
                lookup: open.lookup,
                deadline_at: open.deadline_at,
            }),
            idempotency_key: inspection.idempotency_key.clone(),
            session_instance_id: inspection.session_instance_id.clone(),
        }
    }
}

/// What the client's own durable journal says.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct JournalBody {
    /// What it says.
    disposition: Disposition,
    /// Exactly with `confirmed`.
    #[serde(default, deserialize_with = "object::optional")]
    receipt: Option<Receipt>,
}

/// `POST …/reconciliations`: the target, and exactly one of `lookup`, `receipt`, `journal`.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReconciliationBody {
    /// As inspected; must be that of the path.
    #[serde(default)]
    operation_id: Option<String>,
    /// As inspected.
    #[serde(default)]
    tool: Option<String>,
    /// As inspected.
    expected_revision: u32,
    /// As inspected.
    #[serde(default)]
    state: Option<State>,
    /// As inspected; the revision decides.
    #[serde(default, deserialize_with = "object::optional")]
    attempt: Option<AttemptView>,
    /// The alias, as inspected.
    #[serde(default)]
    idempotency_key: Option<String>,
    /// The alias, as inspected.
    #[serde(default)]
    session_instance_id: Option<String>,
    /// `true`: ask the adapter.
    #[serde(default)]
    lookup: Option<bool>,
    /// Downstream evidence.
    #[serde(default, deserialize_with = "object::optional")]
    receipt: Option<Receipt>,
    /// What the client's own journal says.
    #[serde(default, deserialize_with = "object::optional")]
    journal: Option<JournalBody>,
    /// Who reconciles.
    #[serde(default)]
    worker: Option<String>,
    /// The caller's name for the hand-over; needs a worker.
    #[serde(default)]
    handoff_id: Option<String>,
    /// The caller's reference to a review.
    #[serde(default)]
    review_reference: Option<String>,
}

impl ReconciliationBody {
    /// The request, if it has no faults.
    ///
    /// # Errors
    /// All faults at once.
    pub fn check(self, operation_id: Name) -> Result<ReconciliationRequest, Problem> {
        let mut faults = Faults::default();
        if self.operation_id.as_deref().is_some_and(|id| id != operation_id.as_str()) {
            faults.add("/operation_id", "differs from the operation of the path");
        }
        if self.attempt.as_ref().is_some_and(|attempt| attempt.id.parse::<u32>().is_err()) {
            faults.add("/attempt/id", "is not the id of an attempt");
        }
        let tool = faults.optional("/tool", self.tool.as_ref());
        let worker = faults.optional("/worker", self.worker.as_ref());
        let handoff_id = faults.optional("/handoff_id", self.handoff_id.as_ref());
        let review_reference = faults.optional("/review_reference", self.review_reference.as_ref());
        if handoff_id.is_some() && worker.is_none() {
            faults.add("/worker", "is required with a `handoff_id`");
        }
        let basis = basis(self.lookup, self.receipt, self.journal, &mut faults);
        match basis {
            Some(basis) if faults.is_empty() => Ok(ReconciliationRequest {
                operation_id,
                tool,
                expected_revision: self.expected_revision,
                state: self.state,
                idempotency_key: self.idempotency_key,
                session_instance_id: self.session_instance_id,
                basis,
                worker,
                handoff_id,
                review_reference,
            }),
            _ => Err(faults.problem()),
        }
    }
}

fn basis(
    lookup: Option<bool>,
    receipt: Option<Receipt>,
    journal: Option<JournalBody>,
    faults: &mut Faults,
) -> Option<Basis> {
    match (lookup, receipt, journal) {
        (Some(true), None, None) => Some(Basis::Lookup),
        (Some(false), None, None) => {
            faults.add("/lookup", "must be true, or absent");
            None
        }
        (None, Some(receipt), None) => checked(receipt, "/receipt", faults).map(Basis::Receipt),
        (None, None, Some(journal)) => match (journal.disposition, journal.receipt) {
            (Disposition::Confirmed, Some(receipt)) => checked(receipt, "/journal/receipt", faults)
                .map(|receipt| Basis::Journal(Disposition::Confirmed, Some(receipt))),
            (Disposition::Confirmed, None) => {
                faults.add("/journal/receipt", "is required with `confirmed`");
                None
            }
            (_, Some(_)) => {
                faults.add("/journal/receipt", "may stand with `confirmed` only");
                None
            }
            (disposition, None) => Some(Basis::Journal(disposition, None)),
        },
        _ => {
            faults.add("", "must have exactly one of `lookup`, `receipt` and `journal`");
            None
        }
    }
}

fn checked(receipt: Receipt, pointer: &str, faults: &mut Faults) -> Option<CheckedReceipt> {
    receipt.check().map_err(|found| faults.under(pointer, found)).ok()
}

/// How the effect stands after it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct StandingView {
    /// The state.
    state: State,
    /// The revision.
    revision: u32,
    /// What a client is told to do.
    directive: Directive,
}

/// A reconciliation.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Reconciliation)]
pub struct ReconciliationView {
    /// Its name within the effect: the revision that admitted it.
    id: String,
    /// The operation.
    operation_id: String,
    /// How it stands.
    status: Status,
    /// What was found, in a word.
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<String>,
    /// Digest of the request: the same request is answered the same.
    request_digest: String,
    /// The revision that the request named.
    source_revision: u32,
    /// The revision that admitted it.
    admitted_revision: u32,
    /// The revision that closed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    closed_revision: Option<u32>,
    /// Whether the downstream is asked.
    lookup: bool,
    /// Until when an answer is awaited.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline_at: Option<Timestamp>,
    /// The effect now.
    effect: StandingView,
}

impl From<&Reconciled> for ReconciliationView {
    fn from(reconciled: &Reconciled) -> Self {
        let Reconciliation {
            admitted_revision,
            request_digest,
            source_revision,
            lookup,
            status,
            observation,
            closed_revision,
            deadline_at,
        } = reconciled.reconciliation.clone();
        let record = &reconciled.decided.record;
        Self {
            id: admitted_revision.to_string(),
            operation_id: record.intent.operation_id.to_string(),
            status,
            observation,
            request_digest: request_digest.as_str().to_owned(),
            source_revision,
            admitted_revision,
            closed_revision,
            lookup,
            deadline_at,
            effect: StandingView {
                state: record.life.state,
                revision: record.life.revision,
                directive: reconciled.decided.directive(),
            },
        }
    }
}
