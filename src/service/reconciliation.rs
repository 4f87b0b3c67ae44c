//! Reconciliation (protocol §6): inspect, admit, call, settle. The adapter is called outside every
//! transaction; what it says counts only for the attempt that was admitted for it.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use super::aliases::{Field, Private};
use super::places::Place;
use super::ports::AdapterCall;
use super::redact::Unredactable;
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::adapter::{AdapterAnswer, NoAnswer, Question, Verdict};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Admission, Command, Finding};
use crate::domain::decide::asking::settler;
use crate::domain::fault::Fault;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::receipt::CheckedReceipt;
use crate::domain::record::{Closing, ReconciliationAttempt, Record};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::domain::tool::Tool;
use crate::engine::{Decided, EngineError};
use crate::limits;
use crate::telemetry::probe;

/// What the client's own durable journal says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// It was done; with a receipt.
    Confirmed,
    /// It was not begun. Evidence, and no more.
    NotStarted,
    /// It does not know either.
    Unresolved,
}

/// What a reconciliation is to go by.
#[derive(Debug, Clone)]
pub enum Basis {
    /// Ask the adapter.
    Lookup,
    /// A receipt.
    Receipt(CheckedReceipt),
    /// The client's own journal; a receipt exactly with `confirmed`.
    Journal(Disposition, Option<CheckedReceipt>),
}

impl Basis {
    fn receipt(&self) -> Option<&CheckedReceipt> {
        match self {
            Self::Lookup => None,
            Self::Receipt(receipt) => Some(receipt),
            Self::Journal(_, receipt) => receipt.as_ref(),
        }
    }

    const fn receipt_mut(&mut self) -> Option<&mut CheckedReceipt> {
        match self {
            Self::Lookup => None,
            Self::Receipt(receipt) => Some(receipt),
            Self::Journal(_, receipt) => receipt.as_mut(),
        }
    }

    const fn word(&self) -> &'static str {
        match self {
            Self::Lookup => "lookup",
            Self::Receipt(_) => "receipt",
            Self::Journal(Disposition::Confirmed, _) => "journal:confirmed",
            Self::Journal(Disposition::NotStarted, _) => "journal:not_started",
            Self::Journal(Disposition::Unresolved, _) => "journal:unresolved",
        }
    }
}

/// `POST …/reconciliations`, checked. What is stated of the target must be what is there.
#[derive(Debug, Clone)]
pub struct ReconciliationRequest {
    /// The effect.
    pub operation_id: Name,
    /// The tool, where stated.
    pub tool: Option<Name>,
    /// The revision that was inspected.
    pub expected_revision: u32,
    /// The state, where stated.
    pub state: Option<State>,
    /// Alias of the downstream key, where stated.
    pub idempotency_key: Option<String>,
    /// Alias of the session, where stated.
    pub session_instance_id: Option<String>,
    /// What to go by.
    pub basis: Basis,
    /// Who reconciles.
    pub worker: Option<Name>,
    /// The caller's name for the hand-over.
    pub handoff_id: Option<Name>,
    /// The caller's reference to a review.
    pub review_reference: Option<Name>,
}

impl ReconciliationRequest {
    /// Digest over everything that makes the request what it is. Aliases are not: they change with the
    /// keyring.
    fn digest(&self) -> Sha256Digest {
        #[derive(Serialize)]
        struct Parts<'a> {
            operation_id: &'a Name,
            expected_revision: u32,
            basis: &'static str,
            receipt: Option<&'a Sha256Digest>,
            worker: Option<&'a Name>,
            handoff_id: Option<&'a Name>,
            review_reference: Option<&'a Name>,
        }
        let parts = Parts {
            operation_id: &self.operation_id,
            expected_revision: self.expected_revision,
            basis: self.basis.word(),
            receipt: self.basis.receipt().map(|receipt| &receipt.digest),
            worker: self.worker.as_ref(),
            handoff_id: self.handoff_id.as_ref(),
            review_reference: self.review_reference.as_ref(),
        };
        Sha256Digest::of(serde_json::to_string(&parts).unwrap_or_default().as_bytes())
    }
}

/// The target of a reconciliation (`GET …/inspection`).
#[derive(Debug)]
pub struct Inspection {
    /// The effect.
    pub decided: Decided,
    /// Alias of the downstream key.
    pub idempotency_key: String,
    /// Alias of the session, where the effect has one.
    pub session_instance_id: Option<String>,
}

/// How a reconciliation stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Admitted, and not closed.
    Open,
    /// It ended the doubt.
    Settled,
    /// It ended, and the doubt stays.
    Observed,
    /// The validator refused; a person decides.
    Rejected,
    /// A newer request or another change took its place.
    Superseded,
}

/// A reconciliation as it is told.
#[derive(Debug, Clone)]
pub struct Reconciliation {
    /// The admitted revision: the name of a reconciliation within its effect.
    pub admitted_revision: u32,
    /// Digest of the request.
    pub request_digest: Sha256Digest,
    /// The revision that the request named.
    pub source_revision: u32,
    /// Whether the downstream is asked.
    pub lookup: bool,
    /// How it stands.
    pub status: Status,
    /// What was found, in a word.
    pub observation: Option<String>,
    /// The revision that closed it.
    pub closed_revision: Option<u32>,
    /// Until when an answer is awaited.
    pub deadline_at: Option<Timestamp>,
}

/// A reconciliation and its effect.
#[derive(Debug)]
pub struct Reconciled {
    /// How it stands.
    pub reconciliation: Reconciliation,
    /// The effect now.
    pub decided: Decided,
}

impl Service {
    /// What a reconciliation needs to name. Read-only.
    ///
    /// # Errors
    /// See [`ServiceError`]; without a keyring there are no aliases, and nothing is answered.
    pub async fn inspect(&self, caller: &Principal, operation_id: &Name) -> Result<Inspection, ServiceError> {
        let ring = self.keyring.as_ref().ok_or(ServiceError::NoKeyring)?;
        let decided = self.read(caller, operation_id, None).await?;
        let alias = |field| private(&decided.record, field).and_then(|private| ring.alias(&private));
        let idempotency_key =
            alias(Field::IdempotencyKey).ok_or(ServiceError::Internal("an effect without a downstream key"))?;
        let session_instance_id = alias(Field::SessionInstance);
        Ok(Inspection { decided, idempotency_key, session_instance_id })
    }

    /// Admits a reconciliation and sees it through; answers at once, or under `wait` when it is closed.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn reconcile(
        self: &Arc<Self>,
        caller: &Principal,
        mut request: ReconciliationRequest,
        wait: Option<Duration>,
    ) -> Result<Reconciled, ServiceError> {
        let key = EffectKey::of(&caller.tenant, &request.operation_id);
        let found = self.engine().read(&key, &caller.subject).await?;
        let tool = self.preflight(&found, &request)?;
        // Of what was sent, so that it stays the same request whatever secrets are known later.
        let digest = request.digest();
        if let Some(receipt) = request.basis.receipt_mut() {
            *receipt = self.without_secrets(receipt, &found, &tool).await?;
        }
        let question = question(&tool, &request.basis);
        // Before the admission: what can't be called is not admitted.
        let place = match question {
            Some(_) => Some(
                self.asks
                    .places
                    .take(&caller.tenant, &tool.name)
                    .ok_or(ServiceError::Capacity("too many adapter calls are under way"))?,
            ),
            None => None,
        };
        let admission = Admission {
            request_digest: digest.clone(),
            expected_revision: request.expected_revision,
            lookup: matches!(request.basis, Basis::Lookup),
            automatic: false,
            timeout_seconds: timeout_of(&tool),
            worker: request.worker,
            handoff_id: request.handoff_id,
            review_reference: request.review_reference,
        };
        let admitted = self.admit(caller, &key, admission).await?;
        let open = admitted.record.life.reconciliation.clone().filter(|open| open.request_digest == digest);
        let Some(open) = open else { return closed(admitted, &digest) };
        let Some((question, place)) = question.zip(place) else {
            let finding = supplied(&request.basis);
            match self.settle_attempt(&key, &caller.subject, &open, finding).await {
                // Somebody else was first: what is there is told.
                Ok(_) | Err(ServiceError::Refused { refusal: Refusal::StaleRequest, .. }) => {}
                Err(error) => return Err(error),
            }
            return self.told(caller, &key, open.admitted_revision).await;
        };
        let receipt = request.basis.receipt().cloned();
        let record = Arc::clone(&admitted.record);
        self.begin_call(Ask { admitted: record, open: open.clone(), tool, question, receipt, place });
        self.await_closing(caller, &key, &open, wait).await
    }

    /// One reconciliation of an effect, by its admitted revision.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn reconciliation(
        &self,
        caller: &Principal,
        operation_id: &Name,
        admitted_revision: u32,
    ) -> Result<Reconciled, ServiceError> {
        let key = EffectKey::of(&caller.tenant, operation_id);
        self.told(caller, &key, admitted_revision).await
    }

    /// A reconciliation as it stands now.
    async fn told(
        &self,
        caller: &Principal,
        key: &EffectKey,
        admitted_revision: u32,
    ) -> Result<Reconciled, ServiceError> {
        let decided = self.engine().read(key, &caller.subject).await?;
        let reconciliation = match of_record(&decided.record, admitted_revision) {
            Some(reconciliation) => reconciliation,
            None => self.of_journal(key, admitted_revision).await?.ok_or(ServiceError::NotFound)?,
        };
        Ok(Reconciled { reconciliation, decided })
    }

    /// Step 1: the tool revision that may settle, if everything that is stated of the target is true.
    fn preflight(&self, found: &Decided, request: &ReconciliationRequest) -> Result<Arc<Tool>, ServiceError> {
        let record = &found.record;
        let mut faults = Vec::new();
        if request.tool.as_ref().is_some_and(|tool| *tool != record.intent.tool) {
            faults.push(Fault::new("/tool", "is not the tool of this effect"));
        }
        for (sent, field) in
            [(&request.idempotency_key, Field::IdempotencyKey), (&request.session_instance_id, Field::SessionInstance)]
        {
            let Some(alias) = sent else { continue };
            let ring = self.keyring.as_ref().ok_or(ServiceError::NoKeyring)?;
            let checked = match private(record, field) {
                Some(private) => ring.check(alias, &private),
                None => Err(super::aliases::AliasFault::Foreign),
            };
            if let Err(fault) = checked {
                faults.push(Fault::new(&format!("/{}", field.as_str()), fault.reason()));
            }
        }
        if !faults.is_empty() {
            return Err(ServiceError::Invalid(faults));
        }
        let is_revision = request.expected_revision == record.life.revision;
        if is_revision && request.state.is_some_and(|state| state != record.life.state) {
            let refusal = Refusal::StaleRevision { found: record.life.revision, state: record.life.state };
            return Err(refused(refusal, found));
        }
        let tool = settler(record, &found.context).map_err(|refusal| refused(refusal, found))?;
        if let Some(receipt) = request.basis.receipt()
            && let Err(found_faults) = receipt.bind(&record.intent, &tool)
        {
            let under = |fault: Fault| Fault::new(&format!("/receipt{}", fault.pointer), &fault.reason);
            let faults = found_faults.into_iter().map(under).collect();
            return Err(refused(Refusal::ReceiptRejected(faults), found));
        }
        Ok(tool)
    }

    /// A supplied receipt as it may be stored: without the secrets that the tool's adapter could know (law 11).
    async fn without_secrets(
        &self,
        receipt: &CheckedReceipt,
        found: &Decided,
        tool: &Tool,
    ) -> Result<CheckedReceipt, ServiceError> {
        let known = self.secrets.known(&found.record.key.tenant, tool).await?;
        let rejected = |reason| {
            let faults = vec![Fault::new("/receipt", reason)];
            refused(Refusal::ReceiptRejected(faults), found)
        };
        let redacted = known.redact(receipt).map_err(|fault| match fault {
            Unredactable::Exact => rejected("has a secret of the tool's adapter where it must stay exact"),
            Unredactable::Form => rejected("is not a receipt any more once a secret of the tool's adapter is masked"),
        })?;
        if redacted.digest != receipt.digest && redacted.bind(&found.record.intent, tool).is_err() {
            return Err(rejected("does not satisfy the tool once a secret of its adapter is masked"));
        }
        Ok(redacted)
    }

    /// Step 2. A request that an older admission stands for, and a newer one replaced, is stale.
    async fn admit(&self, caller: &Principal, key: &EffectKey, admission: Admission) -> Result<Decided, ServiceError> {
        let digest = admission.request_digest.clone();
        let source = admission.expected_revision;
        match self.engine().apply(key, &caller.subject, Command::AdmitReconciliation(Box::new(admission))).await {
            Err(EngineError::Refused { refusal: Refusal::StaleRevision { .. }, record })
                if self.was_admitted(key, source, &digest).await? =>
            {
                Err(ServiceError::Refused { refusal: Refusal::StaleRequest, record })
            }
            other => Ok(other?),
        }
    }

    /// Whether the journal has an admission of this very request: it would follow the revision it names.
    async fn was_admitted(&self, key: &EffectKey, source: u32, digest: &Sha256Digest) -> Result<bool, ServiceError> {
        let rows = probe::read(self.engine().store().journal(key, source, 1)).await?;
        Ok(rows.iter().any(|row| {
            events(&row.entry).iter().any(|event| {
                text(event, "type") == Some("effect.reconciliation.started")
                    && text(event, "request_digest") == Some(digest.as_str())
            })
        }))
    }

    /// Step 3 and 4, apart from the request that asked for it.
    pub(super) fn begin_call(self: &Arc<Self>, ask: Ask) {
        let key = ask.admitted.key.clone();
        let effect = key.effect;
        // The same attempt is asked for once at a time in this process. Marked here and not in the task:
        // who waits for its end must not look before its beginning.
        let Some(running) = self.asks.begin(effect, ask.open.admitted_revision) else { return };
        let service = Arc::clone(self);
        self.tasks.spawn(probe::carry(async move {
            let finding = service.call(&ask).await;
            let principal = &service.principal;
            if let Err(error) = service.settle_attempt(&key, principal, &ask.open, finding).await {
                match error {
                    ServiceError::Refused { refusal: Refusal::StaleRequest, .. } => {
                        metrics::counter!("actonce_reconciliations_overtaken_total").increment(1);
                    }
                    error => tracing::warn!(tenant = %key.tenant, %effect, %error, "a reconciliation was not settled"),
                }
            }
            drop(running);
            service.engine().waiters().wake(effect);
        }));
    }

    async fn call(&self, ask: &Ask) -> Finding {
        let asked_at = self.engine().clock().now();
        let left = ask.open.deadline_at.since(asked_at);
        let Some(timeout) = u64::try_from(left).ok().filter(|left| *left > 0).map(Duration::from_micros) else {
            return Finding::NoAnswer(NoAnswer::Timeout);
        };
        let call = AdapterCall {
            question: ask.question,
            call_id: format!("{}-{}", ask.admitted.key.effect.simple(), ask.open.admitted_revision),
            tenant: ask.admitted.key.tenant.clone(),
            tool: Arc::clone(&ask.tool),
            record: Arc::clone(&ask.admitted),
            receipt: ask.receipt.clone(),
            timeout,
            place: Arc::clone(&ask.place),
        };
        // The deadline is kept here as well, whatever stands behind the port.
        match tokio::time::timeout(timeout, self.adapters.ask(call)).await {
            Ok(Ok(answer)) => finding(answer, ask, asked_at),
            Ok(Err(reason)) => Finding::NoAnswer(reason),
            Err(_) => Finding::NoAnswer(NoAnswer::Timeout),
        }
    }

    /// Step 4.
    pub(super) async fn settle_attempt(
        &self,
        key: &EffectKey,
        principal: &Name,
        open: &ReconciliationAttempt,
        finding: Finding,
    ) -> Result<Decided, ServiceError> {
        let command = Command::SettleReconciliation {
            admitted_revision: open.admitted_revision,
            request_digest: open.request_digest.clone(),
            finding: Box::new(finding),
        };
        Ok(self.engine().apply(key, principal, command).await?)
    }

    /// Waits until the attempt is closed, or its call came back without an answer.
    async fn await_closing(
        &self,
        caller: &Principal,
        key: &EffectKey,
        open: &ReconciliationAttempt,
        wait: Option<Duration>,
    ) -> Result<Reconciled, ServiceError> {
        let deadline = Instant::now() + wait.unwrap_or_default();
        let ticket = match wait {
            Some(_) => Some(self.engine().waiters().register(key).ok_or(EngineError::TooManyWaiters)?),
            None => None,
        };
        loop {
            let mut changed = std::pin::pin!(ticket.as_ref().map(crate::engine::waiters::Ticket::changed));
            if let Some(changed) = changed.as_mut().as_pin_mut() {
                changed.enable();
            }
            // Before the look: what ends in between is seen by it.
            let is_running = self.asks.is_running(key.effect, open.admitted_revision);
            let told = self.told(caller, key, open.admitted_revision).await?;
            let revision = told.decided.record.life.revision;
            let answered = revision > open.admitted_revision && !is_running;
            let Some(changed) = changed.as_mut().as_pin_mut() else { return Ok(told) };
            if told.reconciliation.status != Status::Open || answered {
                return Ok(told);
            }
            if let Some(ticket) = &ticket {
                ticket.saw(revision);
            }
            tokio::select! {
                () = changed => {}
                () = tokio::time::sleep_until(deadline) => return Ok(told),
                () = self.stopping.cancelled() => return Ok(told),
            }
        }
    }

    async fn of_journal(&self, key: &EffectKey, admitted: u32) -> Result<Option<Reconciliation>, ServiceError> {
        let Some(before) = admitted.checked_sub(1) else { return Ok(None) };
        let rows = probe::read(self.engine().store().journal(key, before, limits::PAGE_MAX)).await?;
        Ok(super::reconciliation_history::of_rows(&rows, admitted))
    }
}

/// A call to be made for an admitted attempt.
#[derive(Debug)]
pub(super) struct Ask {
    /// The effect as admitted.
    pub(super) admitted: Arc<Record>,
    /// The attempt.
    pub(super) open: ReconciliationAttempt,
    /// The tool revision whose adapter is asked.
    pub(super) tool: Arc<Tool>,
    /// What is asked.
    pub(super) question: Question,
    /// The receipt to be validated.
    pub(super) receipt: Option<CheckedReceipt>,
    /// Held until what is found is settled.
    pub(super) place: Arc<Place>,
}

/// How long an attempt may take.
pub(super) fn timeout_of(tool: &Tool) -> u32 {
    tool.spec.adapter.as_ref().map_or(limits::ADAPTER_TIMEOUT_DEFAULT_SECONDS, |adapter| adapter.timeout_seconds)
}

/// What the adapter is asked, if it takes part.
fn question(tool: &Tool, basis: &Basis) -> Option<Question> {
    let adapter = tool.spec.adapter.as_ref()?;
    match basis {
        Basis::Lookup => adapter.lookup.then_some(Question::Lookup),
        Basis::Receipt(_) | Basis::Journal(Disposition::Confirmed, _) => adapter.validate.then_some(Question::Validate),
        Basis::Journal(..) => None,
    }
}

/// What is found without asking anybody.
fn supplied(basis: &Basis) -> Finding {
    match basis {
        Basis::Lookup => Finding::Observed("unsupported"),
        Basis::Receipt(receipt) | Basis::Journal(Disposition::Confirmed, Some(receipt)) => {
            Finding::Receipt { receipt: receipt.clone(), verification: None }
        }
        Basis::Journal(Disposition::NotStarted, _) => Finding::Observed("journal_not_started"),
        Basis::Journal(..) => Finding::Observed("journal_unresolved"),
    }
}

/// What an answer comes to (protocol §6, table).
fn finding(answer: AdapterAnswer, ask: &Ask, asked_at: Timestamp) -> Finding {
    match answer.verdict {
        Verdict::Completed | Verdict::Failed => {
            let Some(receipt) = answer.receipt else {
                return Finding::NoAnswer(NoAnswer::Contract("a receipt stands exactly beside completed and failed"));
            };
            let supplied = ask.receipt.as_ref().map(|supplied| &supplied.receipt.receipt_id);
            if supplied.is_some_and(|supplied| *supplied != receipt.receipt.receipt_id) {
                return Finding::NoAnswer(NoAnswer::Contract("the receipt is not the one that was asked about"));
            }
            Finding::Receipt { receipt, verification: answer.verification }
        }
        // A validator that does not find a receipt's operation says nothing about the operation.
        Verdict::NotFound if ask.question != Question::Lookup => Finding::Observed("not_found"),
        Verdict::NotSent if ask.question != Question::Lookup => Finding::Observed("not_sent"),
        verdict @ (Verdict::NotFound | Verdict::NotSent) => {
            Finding::Absent { verdict, authoritative: answer.authoritative, is_final: answer.is_final, asked_at }
        }
        Verdict::Pending => Finding::Observed("pending"),
        Verdict::Unsupported => Finding::Observed("unsupported"),
        verdict => Finding::Rejected(verdict),
    }
}

fn private(record: &Record, field: Field) -> Option<Private<'_>> {
    let session = record.intent.session_id.as_ref();
    let value = match field {
        Field::IdempotencyKey => &*record.intent.idempotency_key,
        Field::SessionInstance => session?.as_str(),
    };
    Some(Private { tenant: &record.key.tenant, field, session, value })
}

fn refused(refusal: Refusal, found: &Decided) -> ServiceError {
    ServiceError::Refused { refusal, record: Some(Arc::clone(&found.record)) }
}

/// The repeat of a request that was closed.
fn closed(admitted: Decided, digest: &Sha256Digest) -> Result<Reconciled, ServiceError> {
    let last = admitted.record.life.reconciled.as_ref().filter(|last| last.request_digest == *digest);
    let admitted_revision = last.map(|last| last.admitted_revision);
    let told = admitted_revision.and_then(|revision| of_record(&admitted.record, revision));
    let reconciliation = told.ok_or(ServiceError::Internal("an admitted reconciliation is nowhere"))?;
    Ok(Reconciled { reconciliation, decided: admitted })
}

/// The open attempt, or the one that was closed last.
fn of_record(record: &Record, admitted_revision: u32) -> Option<Reconciliation> {
    if let Some(open) = &record.life.reconciliation
        && open.admitted_revision == admitted_revision
    {
        return Some(Reconciliation {
            admitted_revision,
            request_digest: open.request_digest.clone(),
            source_revision: open.source_revision,
            lookup: open.lookup,
            status: Status::Open,
            observation: None,
            closed_revision: None,
            deadline_at: Some(open.deadline_at),
        });
    }
    let last = record.life.reconciled.as_ref().filter(|last| last.admitted_revision == admitted_revision)?;
    Some(Reconciliation {
        admitted_revision,
        request_digest: last.request_digest.clone(),
        source_revision: last.source_revision,
        lookup: last.lookup,
        status: status_of(last.closing),
        observation: Some(last.observation.to_string()),
        closed_revision: Some(last.closed_revision),
        deadline_at: None,
    })
}

const fn status_of(closing: Closing) -> Status {
    match closing {
        Closing::Settled => Status::Settled,
        Closing::Observed => Status::Observed,
        Closing::Rejected => Status::Rejected,
    }
}

pub(super) fn events(entry: &str) -> Vec<serde_json::Value> {
    let entry: serde_json::Value = serde_json::from_str(entry).unwrap_or_default();
    entry.get("events").and_then(serde_json::Value::as_array).cloned().unwrap_or_default()
}

pub(super) fn text<'a>(event: &'a serde_json::Value, name: &str) -> Option<&'a str> {
    event.get(name).and_then(serde_json::Value::as_str)
}
