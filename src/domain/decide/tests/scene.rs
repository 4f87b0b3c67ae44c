//! One effect with its tool and a clock: what every test of the decisions stands on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;
use uuid::Uuid;

use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Claim, Command, Propose};
use crate::domain::decide::{Answer, Change, Context, Decision, decide, propose};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::record::{Life, Record};
use crate::domain::refusal::Refusal;
use crate::domain::state::{EffectClass, State};
use crate::domain::time::Timestamp;
use crate::domain::tool::{Tool, ToolSpec};

/// When everything begins: 2026-01-01T00:00:00Z.
pub(super) const START: Timestamp = Timestamp::from_micros(1_767_225_600_000_000);
/// The tool's lease.
pub(super) const LEASE: u32 = 60;
/// How long an approval, a verification and a reconciliation may take, as the tool registers it.
pub(super) const APPROVAL: u32 = 300;
pub(super) const VERIFY: u32 = 400;
pub(super) const RECONCILE: u32 = 250;

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(super) fn digest(text: &str) -> Sha256Digest {
    Sha256Digest::of(text.as_bytes())
}

/// The registration that most tests use: every class has to be verified.
pub(super) fn spec(class: EffectClass) -> ToolSpec {
    spec_with(class, &json!({}))
}

/// The same with some members replaced.
pub(super) fn spec_with(class: EffectClass, changes: &serde_json::Value) -> ToolSpec {
    let mut spec = json!({
        "effect": class,
        "lease_seconds": LEASE,
        "verification": "required",
        "verify_deadline_seconds": VERIFY,
        "reconcile_deadline_seconds": RECONCILE,
        "authorization": {"expires_after_seconds": APPROVAL},
        "adapter": {"url": "https://adapter.example/", "secret_ref": "adapter", "lookup": true, "authoritative": true},
    });
    if class == EffectClass::Idempotent {
        spec["replay_contract"] = json!("the key is honoured");
        spec["downstream_key_ttl_seconds"] = json!(1_000_000);
    }
    for (member, value) in changes.as_object().unwrap() {
        spec[member] = value.clone();
    }
    let spec: ToolSpec = serde_json::from_value(spec).unwrap();
    assert_eq!(spec.faults(), [], "a test registers what the service would take");
    spec
}

pub(super) fn tool(revision: u32, spec: ToolSpec) -> Arc<Tool> {
    Tool::new(name("payments.refund"), revision, spec, false, i64::from(revision), START)
}

/// A wish to act. Its claim id is the worker's name; its dispatch id is fresh each time.
pub(super) fn wish(worker: &str) -> Claim {
    static NEXT: AtomicU64 = AtomicU64::new(1_000);
    Claim {
        worker: name(worker),
        claim: Some(Claim::digest(&name(worker), worker)),
        lease_seconds: None,
        dispatch_id: Uuid::from_u128(NEXT.fetch_add(1, Ordering::Relaxed).into()),
    }
}

/// An effect, its tool, and the time.
#[derive(Debug, Clone)]
pub(super) struct Scene {
    pub(super) now: Timestamp,
    pub(super) principal: Name,
    /// The registration that the effect is made under.
    pub(super) tool: Arc<Tool>,
    /// The registration as it is now.
    pub(super) current: Option<Arc<Tool>>,
    /// The session has adopted another profile.
    pub(super) profile_changed: bool,
    /// What the tool's elapsed limit has counted.
    pub(super) elapsed_us: Option<i64>,
    pub(super) record: Option<Record>,
}

impl Scene {
    /// Nothing is there yet.
    pub(super) fn empty(spec: ToolSpec) -> Self {
        let tool = tool(1, spec);
        Self {
            now: START,
            principal: name("agent"),
            current: Some(Arc::clone(&tool)),
            tool,
            profile_changed: false,
            elapsed_us: None,
            record: None,
        }
    }

    /// An intent was recorded, without a claim.
    pub(super) fn recorded(spec: ToolSpec) -> Self {
        let mut scene = Self::empty(spec);
        scene.propose(&scene.intent()).answer.unwrap();
        scene
    }

    /// A worker named `one` acts.
    pub(super) fn dispatched(spec: ToolSpec) -> Self {
        let mut scene = Self::recorded(spec);
        scene.claim("one").answer.unwrap();
        assert_eq!(scene.state(), State::Dispatched);
        scene
    }

    /// Worker `one` acted, and does not know what came of it.
    pub(super) fn doubtful(spec: ToolSpec) -> Self {
        let mut scene = Self::dispatched(spec);
        scene.apply(&super::commands::unknown(scene.owner())).answer.unwrap();
        assert_eq!(scene.state(), State::OutcomeUnknown);
        scene
    }

    pub(super) fn intent(&self) -> Propose {
        Propose {
            operation_id: name("run-1:refund"),
            tool: self.tool.name.clone(),
            class: None,
            target: name("order-1"),
            arguments_digest: digest("arguments"),
            arguments: None,
            run_id: None,
            session_id: None,
            call_id: None,
            profile_id: None,
            claim: None,
            idempotency_key: "key-1".into(),
            duplicate_of: None,
            sent: None,
            grant: None,
            fence_base: 0,
        }
    }

    pub(super) fn context(&self) -> Context {
        Context {
            now: self.now,
            principal: self.principal.clone(),
            tool: Arc::clone(&self.tool),
            current: self.current.clone(),
            profile_changed: self.profile_changed,
            elapsed_us: self.elapsed_us,
        }
    }

    pub(super) fn record(&self) -> &Record {
        self.record.as_ref().expect("an effect")
    }

    pub(super) fn life(&self) -> &Life {
        &self.record().life
    }

    pub(super) fn state(&self) -> State {
        self.life().state
    }

    /// Dispatch id and fence of the newest dispatch.
    pub(super) fn owner(&self) -> (Uuid, u32) {
        let dispatch = self.life().dispatch.as_ref().expect("a dispatch");
        (dispatch.dispatch_id, dispatch.fence)
    }

    pub(super) fn decide(&self, command: &Command) -> Decision {
        decide(self.record(), command, &self.context())
    }

    /// Decides, and makes the change as a store would.
    pub(super) fn apply(&mut self, command: &Command) -> Decision {
        let decision = self.decide(command);
        self.carry_out(&decision);
        decision
    }

    pub(super) fn propose(&mut self, proposal: &Propose) -> Decision {
        let decision = propose(self.record.as_ref(), proposal, &self.context());
        self.carry_out(&decision);
        decision
    }

    pub(super) fn claim(&mut self, worker: &str) -> Decision {
        self.claim_with(wish(worker))
    }

    pub(super) fn claim_with(&mut self, claim: Claim) -> Decision {
        self.apply(&Command::Claim { claim, expected_revision: None, hold_released: false })
    }

    pub(super) fn expire(&mut self) -> Decision {
        self.apply(&Command::Expire { hold_released: false })
    }

    pub(super) fn after(&mut self, seconds: u32) -> &mut Self {
        self.now = self.now.plus_seconds(seconds);
        self
    }

    pub(super) fn until(&mut self, time: Timestamp) -> &mut Self {
        self.now = time;
        self
    }

    pub(super) fn by(&mut self, principal: &str) -> &mut Self {
        self.principal = name(principal);
        self
    }

    /// Registers the tool anew.
    pub(super) fn register(&mut self, spec: ToolSpec) {
        let revision = self.current.as_ref().unwrap_or(&self.tool).revision;
        self.current = Some(tool(revision + 1, spec));
    }

    /// Pauses or resumes the tool.
    pub(super) fn pause(&mut self, paused: bool) {
        let now = self.current.as_ref().expect("a tool");
        let stamp = now.stamp + 1;
        let changed = Tool::new(now.name.clone(), now.revision, now.spec.clone(), paused, stamp, START);
        if changed.revision == self.tool.revision {
            self.tool = Arc::clone(&changed);
        }
        self.current = Some(changed);
    }

    /// Makes a decided change, as the store does it.
    pub(super) fn carry_out(&mut self, decision: &Decision) {
        match &decision.change {
            None => {}
            Some(Change::Renew { revision, fence, until }) => {
                let record = self.record.as_mut().expect("an effect");
                assert_eq!((*revision, *fence), (record.life.revision, record.life.fence));
                record.life.dispatch.as_mut().expect("a dispatch").lease_expires_at = *until;
            }
            Some(Change::Revise(revision)) => {
                let (before, number) = (self.record.take(), revision.life.revision);
                let intent =
                    revision.intent.clone().or_else(|| before.as_ref().map(|record| Arc::clone(&record.intent)));
                let intent = intent.expect("the first revision brings the intent");
                let here = |at: Option<u32>| at == Some(number);
                let receipt = match &before {
                    _ if here(revision.life.receipt.as_ref().map(|receipt| receipt.revision)) => {
                        revision.receipt.clone()
                    }
                    before => before.as_ref().and_then(|record| record.receipt.clone()),
                };
                let result = match &before {
                    _ if here(revision.life.result.as_ref().map(|result| result.revision)) => revision.result.clone(),
                    before => before.as_ref().and_then(|record| record.result.clone()),
                };
                let key = EffectKey::of(&Tenant::new("tenant").unwrap(), &intent.operation_id);
                self.record = Some(Record { key, intent, life: revision.life.clone(), head: [0; 32], receipt, result });
            }
        }
    }
}

/// The events of a decision, without their common prefix.
pub(super) fn events(decision: &Decision) -> Vec<String> {
    let Some(Change::Revise(revision)) = &decision.change else { return Vec::new() };
    let kinds = revision.events.iter().map(|event| serde_json::to_value(event.kind).unwrap());
    kinds.map(|kind| kind.as_str().unwrap().trim_start_matches("effect.").to_owned()).collect()
}

/// Asserts that nothing was written, and gives the refusal.
pub(super) fn refused(decision: &Decision) -> &Refusal {
    assert!(decision.change.is_none(), "a refusal that writes");
    decision.answer.as_ref().unwrap_err()
}

/// Asserts that the answer was recorded before, and nothing was written.
pub(super) fn replayed(decision: &Decision) -> Answer {
    assert!(decision.change.is_none(), "a replay that writes");
    let answer = *decision.answer.as_ref().unwrap();
    assert!(answer.replayed);
    answer
}
