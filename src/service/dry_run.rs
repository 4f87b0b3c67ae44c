//! Dry runs of declarative adapters.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::keys::marker;
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::adapter::Question;
use crate::domain::canonical::{ALGORITHM, Sha256Digest};
use crate::domain::declarative::DeclarativeSpec;
use crate::domain::declarative::subject::Subject;
use crate::domain::fault::Fault;
use crate::domain::ids::Name;
use crate::domain::receipt::{CheckedReceipt, Receipt, ReceiptOutcome};
use crate::domain::record::Intent;
use crate::domain::time::Timestamp;
use crate::domain::tool::{Tool, ToolSpec};
use crate::outbound::declarative::{DryRun, dry_run};

/// The effect of a dry run; what is left out is made up.
#[derive(Debug, Clone, Default)]
pub struct SampleEffect {
    /// Its operation id.
    pub operation_id: Option<Name>,
    /// Its target.
    pub target: Option<Name>,
    /// Its run.
    pub run_id: Option<Name>,
    /// The downstream key.
    pub idempotency_key: Option<Name>,
    /// The digest of its arguments.
    pub arguments_digest: Option<Sha256Digest>,
    /// Its dispatches so far.
    pub attempt: Option<u32>,
    /// When the newest one was granted.
    pub dispatched_at: Option<Timestamp>,
}

/// What is tried.
#[derive(Debug)]
pub struct DryRunRequest {
    /// What is asked.
    pub question: Question,
    /// The effect.
    pub effect: SampleEffect,
    /// The receipt that is validated or verified.
    pub receipt: Option<CheckedReceipt>,
    /// In place of what is registered.
    pub request: Option<DeclarativeSpec>,
    /// The answer of the downstream: status, headers, body.
    pub answer: (u16, BTreeMap<String, String>, Vec<u8>),
}

impl Service {
    /// Tries a declarative adapter: no call is made and nothing is stored.
    ///
    /// # Errors
    /// See [`ServiceError`]. A tool need not be registered where the request comes along.
    pub async fn dry_run_adapter(
        &self,
        caller: &Principal,
        name: &Name,
        mut asked: DryRunRequest,
    ) -> Result<DryRun, ServiceError> {
        let now = self.engine().clock().now();
        let registered = match self.tool(caller, name).await {
            Ok(tool) => Some(tool),
            Err(ServiceError::NotFound) if asked.request.is_some() => None,
            Err(error) => return Err(error),
        };
        let tool = registered.unwrap_or_else(|| Tool::new(name.clone(), 0, ToolSpec::ad_hoc(), false, 0, now));
        let spec = if let Some(request) = asked.request.take() {
            let under = |fault: Fault| Fault::new(&format!("/request{}", fault.pointer), &fault.reason);
            let faults: Vec<Fault> = request.faults().into_iter().map(under).collect();
            if !faults.is_empty() {
                return Err(ServiceError::Invalid(faults));
            }
            request
        } else {
            let adapter = tool.spec.adapter.as_ref();
            let request = adapter.and_then(|adapter| adapter.request.clone());
            request
                .ok_or_else(|| ServiceError::invalid("/request", "is required: the tool has no declarative adapter"))?
        };
        let inquiry = spec.inquiry(asked.question).cloned();
        let inquiry =
            inquiry.ok_or_else(|| ServiceError::invalid("/question", "is not one that this adapter answers"))?;
        let question = asked.question;
        let answer = std::mem::take(&mut asked.answer);
        let subject = subject(asked, tool, caller, now)?;
        Ok(dry_run(question, inquiry, subject, answer, now).await)
    }
}

fn subject(asked: DryRunRequest, tool: Arc<Tool>, caller: &Principal, now: Timestamp) -> Result<Subject, ServiceError> {
    let named = |given: Option<Name>, sample: &str| match given {
        Some(name) => Ok(name),
        None => Name::new(sample).map_err(|_| ServiceError::Internal("a sample is not a name")),
    };
    let effect = asked.effect;
    let key = named(effect.idempotency_key, "sample-key")?;
    let intent = Intent {
        operation_id: named(effect.operation_id, "sample-operation")?,
        tool: tool.name.clone(),
        tool_revision: tool.revision,
        class: tool.spec.effect,
        target: named(effect.target, "sample-target")?,
        arguments_digest: effect.arguments_digest.unwrap_or_else(|| Sha256Digest::of(b"{}")),
        digest_algorithm: ALGORITHM.into(),
        identity: None,
        run_id: effect.run_id,
        session_id: None,
        call_id: None,
        profile_id: None,
        proposer: caller.subject.clone(),
        created_at: now,
        idempotency_key: key.as_str().into(),
    };
    let receipt = match (asked.question, asked.receipt) {
        (Question::Lookup, _) => None,
        (_, Some(receipt)) => Some(receipt),
        (_, None) => Some(sample_receipt(&intent, &tool, now)?),
    };
    Ok(Subject {
        marker: marker(&intent.idempotency_key),
        intent: Arc::new(intent),
        tool,
        attempt: effect.attempt.unwrap_or(1),
        dispatched_at: Some(effect.dispatched_at.unwrap_or(now)),
        receipt,
    })
}

fn sample_receipt(intent: &Intent, tool: &Tool, now: Timestamp) -> Result<CheckedReceipt, ServiceError> {
    const FAULT: ServiceError = ServiceError::Internal("a sample is not a receipt");
    let name = |text: &str| Name::new(text).map_err(|_| FAULT);
    let receipt = Receipt {
        receipt_id: name("sample-receipt")?,
        schema: name(&tool.spec.receipt.schema)?,
        schema_version: tool.spec.receipt.schema_version,
        operation_id: intent.operation_id.clone(),
        target: intent.target.clone(),
        outcome: ReceiptOutcome::Completed,
        message: String::new(),
        structured: serde_json::value::to_raw_value(&serde_json::json!({})).map_err(|_| FAULT)?,
        artifacts: Vec::new(),
        resource_versions: BTreeMap::new(),
        integrity: BTreeMap::new(),
        observed_at: now,
        source: name("sample")?,
    };
    receipt.check().map_err(|_| FAULT)
}
