//! Effects as the engine writes them, decided and encoded, without the engine.

use std::sync::Arc;

use actonce::domain::canonical::Sha256Digest;
use actonce::domain::command::{Claim, Command, Outcome, Propose, Report};
use actonce::domain::decide::{self, Change, Context};
use actonce::domain::ids::{EffectKey, Name, Tenant};
use actonce::domain::receipt::{CheckedReceipt, Receipt, Verification};
use actonce::domain::record::{FailureClass, FailureEvidence, FailurePhase, Record};
use actonce::domain::state::EffectClass;
use actonce::domain::time::Timestamp;
use actonce::domain::tool::{Tool, ToolSpec};
use actonce::engine::encode::encode;
use actonce::store::{ChangeSet, RevisionRow, ToolWrite};
use actonce::support::random_id;
use serde_json::{Value, json};
use uuid::Uuid;

pub(crate) const TOOL: &str = "payments.refund";

pub(crate) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(crate) fn tenant(text: &str) -> Tenant {
    Tenant::new(text).unwrap()
}

pub(crate) fn spec(class: EffectClass, changes: &Value) -> ToolSpec {
    let mut spec = json!({ "effect": class, "on_suspected_duplicate": "allow" });
    if class == EffectClass::Idempotent {
        spec["replay_contract"] = json!("the key is honoured");
        spec["downstream_key_ttl_seconds"] = json!(86_400);
    }
    for (member, value) in changes.as_object().unwrap() {
        spec[member] = value.clone();
    }
    serde_json::from_value(spec).unwrap()
}

/// The registration of a tool, as its first row.
pub(crate) fn registration(tenant: &Tenant, tool: &str, spec: &ToolSpec) -> ToolWrite {
    ToolWrite {
        tenant: tenant.clone(),
        name: name(tool),
        expected_stamp: None,
        revision: 1,
        spec: Some(serde_json::to_string(spec).unwrap()),
        paused: false,
        deleted: false,
        wakes_doubts: false,
        secret: None,
        by: name("operator"),
        at: Timestamp::from_micros(0),
    }
}

/// A tenant's effects of one tool that nobody registered, so that no grant depends on a row.
#[derive(Debug, Clone)]
pub(crate) struct Maker {
    pub(crate) tenant: Tenant,
    pub(crate) tool: Arc<Tool>,
    pub(crate) now: Timestamp,
}

impl Maker {
    pub(crate) fn new(tenant_name: &str, spec: ToolSpec, now: Timestamp) -> Self {
        let tool = Tool::new(name(TOOL), 0, spec, false, 0, Timestamp::from_micros(0));
        Self { tenant: tenant(tenant_name), tool, now }
    }

    /// Effects that are `external` and need no verification.
    pub(crate) fn external(tenant_name: &str, now: Timestamp) -> Self {
        Self::new(tenant_name, spec(EffectClass::External, &json!({ "verification": "waived" })), now)
    }

    pub(crate) fn key(&self, operation: &str) -> EffectKey {
        EffectKey::of(&self.tenant, &name(operation))
    }

    pub(crate) fn context(&self) -> Context {
        let tool = Arc::clone(&self.tool);
        Context {
            now: self.now,
            principal: name("agent"),
            current: Some(Arc::clone(&tool)),
            tool,
            profile_changed: false,
            elapsed_us: None,
        }
    }

    pub(crate) fn proposal(&self, operation: &str) -> Propose {
        Propose {
            operation_id: name(operation),
            tool: self.tool.name.clone(),
            class: None,
            target: name(&format!("target of {operation}")),
            arguments_digest: Sha256Digest::of(b"arguments"),
            arguments: None,
            run_id: Some(name("run")),
            session_id: Some(name("session")),
            call_id: None,
            profile_id: None,
            claim: None,
            idempotency_key: "key".into(),
            duplicate_of: None,
            sent: None,
            grant: None,
            fence_base: 0,
        }
    }

    /// Revision 1 of a proposal.
    pub(crate) fn first(&self, proposal: &Propose) -> (RevisionRow, Record) {
        let context = self.context();
        let decision = decide::propose(None, proposal, &context);
        let Some(Change::Revise(revision)) = decision.change else { panic!("not a new effect: {decision:?}") };
        let intent = revision.intent.clone().unwrap();
        let key = EffectKey::of(&self.tenant, &proposal.operation_id);
        row(encode(&key, None, &intent, *revision, &context).unwrap())
    }

    /// Revision 1 without anything special.
    pub(crate) fn create(&self, operation: &str) -> (RevisionRow, Record) {
        self.first(&self.proposal(operation))
    }

    /// The next revision that a command asks for, whatever its answer.
    pub(crate) fn next(&self, record: &Record, command: &Command) -> (RevisionRow, Record) {
        let context = self.context();
        let decision = decide::decide(record, command, &context);
        let Some(Change::Revise(revision)) = decision.change else { panic!("no revision: {decision:?}") };
        row(encode(&record.key, Some(record), &record.intent, *revision, &context).unwrap())
    }

    /// The grant of a dispatch.
    pub(crate) fn dispatch(&self, record: &Record, worker: &str) -> (RevisionRow, Record) {
        self.next(record, &claim(worker))
    }
}

fn row((change, record): (ChangeSet, Record)) -> (RevisionRow, Record) {
    let ChangeSet::Revise(row) = change else { panic!("not a revision") };
    (*row, record)
}

pub(crate) fn wish(worker: &str) -> Claim {
    Claim {
        worker: name(worker),
        claim: Some(Claim::digest(&name(worker), worker)),
        lease_seconds: Some(60),
        dispatch_id: random_id(),
    }
}

pub(crate) fn claim(worker: &str) -> Command {
    Command::Claim { claim: wish(worker), expected_revision: None, hold_released: false }
}

pub(crate) fn expire() -> Command {
    Command::Expire { hold_released: false }
}

/// Dispatch id and fence of the newest dispatch.
pub(crate) fn owner(record: &Record) -> (Uuid, u32) {
    let dispatch = record.life.dispatch.as_ref().expect("a dispatch");
    (dispatch.dispatch_id, dispatch.fence)
}

/// A receipt for an effect, with some members replaced.
pub(crate) fn receipt(record: &Record, changes: &Value) -> CheckedReceipt {
    let mut receipt = json!({
        "receipt_id": "re_1",
        "schema": "generic",
        "schema_version": 1,
        "operation_id": record.intent.operation_id,
        "target": record.intent.target,
        "outcome": "completed",
        "observed_at": "2026-01-01T00:00:00Z",
        "source": "downstream",
    });
    for (member, value) in changes.as_object().unwrap() {
        receipt[member] = value.clone();
    }
    let receipt: Receipt = serde_json::from_str(&receipt.to_string()).unwrap();
    receipt.check().unwrap()
}

pub(crate) fn report((dispatch_id, fence): (Uuid, u32), report: Report) -> Command {
    let digest = Sha256Digest::of(format!("{dispatch_id} {fence} {report:?}").as_bytes());
    Command::Outcome(Box::new(Outcome { dispatch_id, fence, report, result: None, digest }))
}

pub(crate) fn succeeded(record: &Record) -> Command {
    report(owner(record), Report::Succeeded { receipt: receipt(record, &json!({})), verification: None })
}

/// A report of a dispatch that is not on record, which says that it failed.
pub(crate) fn contradiction(record: &Record) -> Command {
    let receipt = receipt(record, &json!({"receipt_id": "re_2", "outcome": "failed"}));
    report((Uuid::from_u128(5), 1), Report::Failed { receipt: Some(receipt), failure: None })
}

pub(crate) fn failure(detail: &str) -> FailureEvidence {
    FailureEvidence { classification: FailureClass::Timeout, phase: FailurePhase::InFlight, detail: detail.to_owned() }
}

pub(crate) fn verification(record: &Record, verified: bool) -> Verification {
    let observed_at = Timestamp::parse("2026-01-01T00:00:01Z").unwrap();
    Verification { verified, observed_at, source: name("GET"), target: record.intent.target.clone() }
}
