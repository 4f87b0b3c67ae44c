//! What may happen: few tenants, few operation ids and few targets, so that everything collides.

use actonce::domain::adapter::{NoAnswer, Verdict};
use actonce::domain::canonical::Sha256Digest;
use actonce::domain::command::{
    Admission, Claim, Command, Finding, Outcome, Propose, Report, Resolve, ResolvedOutcome, ResultDocument,
};
use actonce::domain::ids::{EffectKey, Name, Tenant};
use actonce::domain::record::Record;
use actonce::domain::recovery::{Action, Recover};
use actonce::domain::state::{EffectClass, State};
use actonce::domain::time::Timestamp;
use actonce::store::ToolWrite;
use serde_json::{Value, json};
use uuid::Uuid;

use super::reference::Reference;
use crate::store::effects::{failure, name, receipt, spec, tenant, verification};

/// Reproducible chance (splitmix64).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// True once in so many times.
    fn once_in(&mut self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.below(u64::try_from(of.len()).unwrap())).unwrap()]
    }

    fn id(&mut self) -> Uuid {
        Uuid::from_u64_pair(self.next(), self.next())
    }
}

/// One thing that happens.
#[derive(Debug)]
pub(super) enum Step {
    Propose {
        tenant: Tenant,
        principal: Name,
        proposal: Box<Propose>,
    },
    Ask {
        key: EffectKey,
        principal: Name,
        command: Command,
    },
    Read {
        key: EffectKey,
        principal: Name,
    },
    /// Seconds pass; whole minutes.
    Pass(u32),
    /// Whatever is due is let pass.
    Sweep {
        principal: Name,
    },
    Tool(Box<ToolWrite>),
}

pub(super) fn tenants() -> [Tenant; 3] {
    ["tenant 1", "tenant 2", "tenant 3"].map(tenant)
}

pub(super) fn expiry() -> Command {
    Command::Expire { hold_released: false }
}

const OPERATIONS: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const TOOLS: [&str; 6] = ["refund", "transfer", "notify", "approve", "approve", "read"];

/// The registrations of a tool, from revision to revision.
fn registered(tool: &str, revision: u32) -> Value {
    let times = json!({
        "lease_seconds": 60, "verify_deadline_seconds": 180, "reconcile_deadline_seconds": 240,
        "settle_window_seconds": 30,
        "adapter": {"url": "https://adapter.example/", "secret_ref": "adapter", "lookup": true, "verify": revision > 1,
            "authoritative": true},
        "description": format!("revision {revision}"),
    });
    let (class, rest) = match tool {
        "refund" => (EffectClass::External, json!({"on_suspected_duplicate": "refuse"})),
        "transfer" => (
            EffectClass::External,
            json!({"on_suspected_duplicate": "hold", "verification": "waived",
            "authorization": {"expires_after_seconds": 360}}),
        ),
        "notify" => {
            let changes = json!({"downstream_key_ttl_seconds": 300, "verification": "required"});
            (EffectClass::Idempotent, changes)
        }
        "approve" => (
            EffectClass::Idempotent,
            json!({"downstream_key_ttl_seconds": 600, "not_sent": "doubt",
            "authorization": {"mode": "approval", "approvals": 1 + revision % 2, "expires_after_seconds": 120}}),
        ),
        _ => (EffectClass::None, json!({})),
    };
    let mut changes = times;
    for (member, value) in rest.as_object().unwrap() {
        changes[member] = value.clone();
    }
    serde_json::to_value(spec(class, &changes)).unwrap()
}

/// What a history begins with: two tenants have registered their tools, the third has not yet.
pub(super) fn beginning() -> Vec<Step> {
    let registration = |tenant: Tenant, tool: &str| {
        Step::Tool(Box::new(ToolWrite {
            tenant,
            name: name(tool),
            expected_stamp: None,
            revision: 1,
            spec: Some(registered(tool, 1).to_string()),
            paused: false,
            deleted: false,
            wakes_doubts: false,
            secret: None,
            by: name("operator"),
            at: Timestamp::from_micros(0),
        }))
    };
    let [first, second, _] = tenants();
    let tools = ["refund", "transfer", "notify", "approve", "read"];
    tools.into_iter().flat_map(|tool| [registration(first.clone(), tool), registration(second.clone(), tool)]).collect()
}

/// The next thing that happens, after what the reference knows.
pub(super) fn step(dice: &mut Dice, reference: &Reference) -> Step {
    let tenant = dice.pick(&[0, 0, 0, 1, 1, 2]);
    let tenant = tenants()[tenant].clone();
    let principal = name(dice.pick(&["agent", "agent", "ann", "ben"]));
    let mut operation = dice.pick(&OPERATIONS);
    let find = |operation| reference.record(&EffectKey::of(&tenant, &name(operation)));
    if find(operation).is_some_and(|record| record.life.state.is_terminal()) && !dice.once_in(5) {
        operation = dice.pick(&OPERATIONS);
    }
    let (key, found) = (EffectKey::of(&tenant, &name(operation)), find(operation));
    match dice.below(26) {
        0 => Step::Pass(60 * u32::try_from(1 + dice.below(4)).unwrap()),
        1 => Step::Sweep { principal: name("actonce") },
        2 => Step::Read { key, principal },
        3 | 4 | 24 | 25 => Step::Tool(Box::new(tool_change(dice, reference, tenant))),
        5..=9 => {
            let proposal = Box::new(proposal(dice, operation, found));
            Step::Propose { tenant, principal, proposal }
        }
        _ => {
            // Something else than what the state asks for, now and then.
            let principal = if dice.once_in(3) { principal } else { name("ann") };
            let Some(record) = found else {
                let command = Command::Cancel { expected_revision: None };
                return Step::Ask { key, principal, command };
            };
            let command = command(dice, record);
            Step::Ask { key, principal, command }
        }
    }
}

fn wish(dice: &mut Dice) -> Claim {
    let worker = name(dice.pick(&["one", "two", "three"]));
    let claim_id = dice.pick(&["first", "second", ""]);
    let claim = (!claim_id.is_empty()).then(|| Claim::digest(&worker, claim_id));
    let lease_seconds = dice.pick(&[None, Some(60), Some(120)]);
    Claim { worker, claim, lease_seconds, dispatch_id: dice.id() }
}

fn proposal(dice: &mut Dice, operation: &str, found: Option<&Record>) -> Propose {
    let known = found.filter(|_| !dice.once_in(6));
    let tool = known.map_or_else(|| name(dice.pick(&TOOLS)), |known| known.intent.tool.clone());
    let target = known.map_or_else(|| name(dice.pick(&["order-1", "order-2"])), |known| known.intent.target.clone());
    Propose {
        operation_id: name(operation),
        tool,
        class: dice.once_in(12).then_some(EffectClass::Idempotent),
        target,
        arguments_digest: Sha256Digest::of(if dice.once_in(12) { b"other" } else { b"arguments" }),
        arguments: None,
        run_id: dice.pick(&[None, Some("run 1"), Some("run 2")]).map(name),
        session_id: None,
        call_id: None,
        profile_id: None,
        claim: if dice.once_in(3) { None } else { Some(wish(dice)) },
        idempotency_key: format!("key of {operation}").into(),
        duplicate_of: None,
        sent: None,
        grant: None,
        fence_base: 0,
    }
}

/// A proposal without anything special.
pub(super) fn plain(operation: &str, tool: &str) -> Propose {
    let mut proposal = proposal(&mut Dice(1), operation, None);
    (proposal.tool, proposal.class, proposal.run_id) = (name(tool), None, None);
    proposal
}

fn tool_change(dice: &mut Dice, reference: &Reference, tenant: Tenant) -> ToolWrite {
    let tool = name(dice.pick(&TOOLS));
    let kept = reference.kept_tool(&tenant, &tool).cloned();
    let (found, paused, deleted) = kept.as_ref().map_or((0, false, false), |t| (t.revision, t.paused, t.deleted));
    let mut write = ToolWrite {
        tenant,
        expected_stamp: kept.map(|kept| kept.stamp),
        revision: found,
        spec: None,
        paused,
        deleted: false,
        wakes_doubts: false,
        secret: None,
        by: name("operator"),
        at: Timestamp::from_micros(0),
        name: tool,
    };
    match dice.below(if found == 0 || deleted { 1 } else { 9 }) {
        0 | 8 => {
            write.revision = found + 1;
            write.spec = Some(registered(write.name.as_str(), write.revision).to_string());
            write.paused = false;
        }
        // A paused tool is resumed sooner than another one is paused.
        1..=3 => write.paused = paused && dice.once_in(4),
        4 => write.paused = true,
        5 => write.deleted = true,
        _ => write.expected_stamp = Some(0),
    }
    write
}

/// Dispatch id and fence: of the owner most of the time.
fn reporter(dice: &mut Dice, record: &Record) -> (Uuid, u32) {
    match &record.life.dispatch {
        Some(dispatch) if !dice.once_in(5) => (dispatch.dispatch_id, dispatch.fence),
        _ => (Uuid::from_u128(5), u32::try_from(dice.below(4)).unwrap()),
    }
}

fn outcome(dice: &mut Dice, record: &Record) -> Command {
    let (dispatch_id, fence) = reporter(dice, record);
    let receipt_of = |outcome: &str, dice: &mut Dice| {
        let receipt_id = dice.pick(&["re_1", "re_1", "re_2"]);
        let target = if dice.once_in(12) { "elsewhere" } else { record.intent.target.as_str() };
        receipt(
            record,
            &json!({"receipt_id": receipt_id, "outcome": outcome, "target": target,
            "observed_at": "2020-01-01T00:00:00Z"}),
        )
    };
    let report = match dice.below(12) {
        0..=2 => {
            let verified = dice.pick(&[None, None, Some(true), Some(false)]);
            let verification = verified.map(|verified| verification(record, verified));
            Report::Succeeded { receipt: receipt_of("completed", dice), verification }
        }
        3 => Report::Failed { receipt: Some(receipt_of("failed", dice)), failure: None },
        4 => Report::Failed { receipt: None, failure: None },
        5..=8 => Report::NotSent(None),
        _ => Report::Unknown(failure(dice.pick(&["", "slow"]))),
    };
    let text = dice.pick(&[None, Some("{\"refund\": 1.0}"), Some("null")]);
    let result = text.map(|text| ResultDocument {
        text: Some(text.into()),
        digest: Sha256Digest::of(text.as_bytes()),
        size_bytes: u64::try_from(text.len()).unwrap(),
    });
    let digest = Sha256Digest::of(format!("{dispatch_id} {fence} {report:?} {text:?}").as_bytes());
    Command::Outcome(Box::new(Outcome { dispatch_id, fence, report, result, digest }))
}

fn command(dice: &mut Dice, record: &Record) -> Command {
    let revision = record.life.revision;
    let expected_revision = if dice.once_in(8) { revision.saturating_sub(1) } else { revision };
    let digest = |text: &str| Sha256Digest::of(text.as_bytes());
    let wanted: &[u64] = match record.life.state {
        _ if dice.once_in(3) => &[],
        State::Proposed => &[13, 13, 0],
        State::IntentRecorded => &[0, 0, 0, 0, 18],
        State::SafeToRetry => &[0],
        State::Dispatched => &[5, 5, 4],
        State::Verifying => &[10],
        State::OutcomeUnknown => &[0, 5, 13, 16, 16, 17, 17, 17, 17, 18],
        State::ManualReview => &[16, 17, 19, 18],
        State::Completed | State::Failed | State::Refused => &[],
    };
    let any = dice.below(20);
    match if wanted.is_empty() { any } else { dice.pick(wanted) } {
        0..=3 => {
            let named = dice.once_in(3).then_some(expected_revision);
            Command::Claim { claim: wish(dice), expected_revision: named, hold_released: false }
        }
        4 => {
            let (dispatch_id, fence) = reporter(dice, record);
            Command::Heartbeat { dispatch_id, fence }
        }
        5..=9 => outcome(dice, record),
        10 | 11 => Command::Verify(verification(record, !dice.once_in(3))),
        12 => Command::Cancel { expected_revision: dice.once_in(3).then_some(expected_revision) },
        13 | 14 => Command::Authorize {
            expected_revision,
            proposal_digest: record
                .life
                .approval
                .as_ref()
                .map_or_else(|| digest("none"), |approval| approval.proposal_digest.clone()),
            approve: !dice.once_in(4),
            reason: "read".to_owned(),
        },
        15 => Command::SettleUndispatched { expected_revision },
        16 => Command::AdmitReconciliation(Box::new(Admission {
            request_digest: digest(dice.pick(&["request 1", "request 2"])),
            expected_revision,
            lookup: true,
            automatic: dice.once_in(2),
            timeout_seconds: 60,
            worker: None,
            handoff_id: None,
            review_reference: None,
        })),
        17 => finding(dice, record),
        18 => recovery(dice, expected_revision),
        _ => {
            let outcome = dice.pick(&[
                ResolvedOutcome::Completed,
                ResolvedOutcome::Failed,
                ResolvedOutcome::SafeToRetry,
                ResolvedOutcome::OutcomeUnknown,
            ]);
            let decision = dice.pick(&["d-1", "d-2", "d-3"]);
            Command::Resolve(Resolve {
                expected_revision,
                decision_id: name(decision),
                outcome,
                reason: "looked at it".to_owned(),
                evidence: "{\"ticket\":7}".into(),
                bulk_decision_id: None,
                digest: digest(&format!("{decision} {outcome:?}")),
            })
        }
    }
}

fn recovery(dice: &mut Dice, expected_revision: u32) -> Command {
    let digest = |text: &str| Sha256Digest::of(text.as_bytes());
    let execution = dice.pick(&["e-1", "e-2"]);
    let action =
        dice.pick(&[Action::AutomaticRepair, Action::AutomaticRepair, Action::MarkCompleted, Action::MarkFailed]);
    Command::Recover(Box::new(Recover {
        expected_revision,
        // Each side plans for what it has itself.
        fingerprint: digest("planned"),
        execution_id: name(execution),
        plan_id: digest("plan"),
        action,
        digest: digest(&format!("{execution} {action:?}")),
    }))
}

fn finding(dice: &mut Dice, record: &Record) -> Command {
    let open = record.life.reconciliation.as_ref();
    let finding = match dice.below(6) {
        0 => Finding::Receipt { receipt: receipt(record, &json!({})), verification: None },
        1 | 2 => Finding::Absent {
            verdict: Verdict::NotFound,
            authoritative: !dice.once_in(3),
            is_final: dice.once_in(2),
            asked_at: record.life.updated_at,
        },
        3 => Finding::Observed("pending"),
        4 => Finding::Rejected(Verdict::Multiple),
        _ => Finding::NoAnswer(dice.pick(&[NoAnswer::Timeout, NoAnswer::Contract("clause")])),
    };
    Command::SettleReconciliation {
        admitted_revision: open.map_or(1, |open| open.admitted_revision),
        request_digest: open.map_or_else(|| Sha256Digest::of(b"none"), |open| open.request_digest.clone()),
        finding: Box::new(finding),
    }
}
