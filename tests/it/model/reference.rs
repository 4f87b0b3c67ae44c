//! The reference: a map of records and one of tools. It decides with the domain, and knows neither
//! rows nor batches nor caches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use actonce::domain::canonical::Sha256Digest;
use actonce::domain::command::{Command, Propose};
use actonce::domain::decide::{self, Answer, Change, Context, Decision};
use actonce::domain::ids::{EffectKey, Name, Tenant};
use actonce::domain::journal::Entry;
use actonce::domain::record::Record;
use actonce::domain::recovery::assess;
use actonce::domain::refusal::Refusal;
use actonce::domain::state::State;
use actonce::domain::time::Timestamp;
use actonce::domain::tool::{DuplicateRule, Tool, ToolSpec};
use actonce::engine::encode::duplicate_key;
use actonce::store::{ToolWrite, Walk};
use uuid::Uuid;

use super::compare::{self, Base};
use super::history::{Step, expiry, tenants};
use super::{no_silent_state, sorted};
use crate::store::effects::name;

/// The reference's clock at the beginning.
const BASE: Timestamp = Timestamp::from_micros(1_900_000_000_000_000);

struct Kept {
    record: Record,
    /// The guard against the same act under another id, while the effect is open.
    guard: Option<Uuid>,
    entries: Vec<String>,
}

/// A tool's row and its revisions.
#[derive(Debug, Clone)]
pub(super) struct KeptTool {
    pub(super) revision: u32,
    pub(super) stamp: i64,
    pub(super) paused: bool,
    pub(super) deleted: bool,
    pub(super) specs: Vec<String>,
}

pub(super) struct Reference {
    now: Timestamp,
    effects: BTreeMap<(String, Uuid), Kept>,
    tools: BTreeMap<(Tenant, Name), KeptTool>,
    ad_hoc_tenant: &'static str,
}

/// States, events and refusals that histories came to.
static SEEN: Mutex<BTreeSet<String>> = Mutex::new(BTreeSet::new());

/// What no history has come to, of all that the domain knows.
pub(super) fn unseen() -> Vec<String> {
    let events = [
        "proposed",
        "authorized",
        "intent_recorded",
        "dispatched",
        "lease_expired",
        "outcome_unknown",
        "receipt.validated",
        "verified",
        "completed",
        "failed",
        "refused",
        "safe_to_retry",
        "manual_review",
        "late_report",
        "reconciliation.started",
        "reconciliation.observed",
        "reconciliation.conflict",
        "resolved",
    ];
    let refusals = [
        "Invalid",
        "OperationReused",
        "ReceiptRejected",
        "StateConflict",
        "StaleFence",
        "LeaseLost",
        "StaleRevision",
        "ApprovalStale",
        "SuspectedDuplicate",
        "NotFound",
        "StaleRequest",
        "Forbidden",
    ];
    let events = events.map(|event| format!("effect.{event}")).into_iter();
    let events = events.chain(["recovery.item.executed".to_owned()]);
    let all = State::ALL.map(|state| state.as_str().to_owned()).into_iter().chain(events);
    let seen = SEEN.lock().unwrap();
    all.chain(refusals.map(str::to_owned)).filter(|word| !seen.contains(word)).collect()
}

fn saw(word: &str) {
    SEEN.lock().unwrap().insert(word.to_owned());
}

impl Reference {
    pub(super) fn new(ad_hoc_tenant: &'static str) -> Self {
        Self { now: BASE, effects: BTreeMap::new(), tools: BTreeMap::new(), ad_hoc_tenant }
    }

    pub(super) fn keys(&self) -> Vec<EffectKey> {
        self.effects.values().map(|kept| kept.record.key.clone()).collect()
    }

    pub(super) fn record(&self, key: &EffectKey) -> Option<&Record> {
        self.effects.get(&sorted(key)).map(|kept| &kept.record)
    }

    pub(super) fn kept_tool(&self, tenant: &Tenant, tool: &Name) -> Option<&KeptTool> {
        self.tools.get(&(tenant.clone(), tool.clone()))
    }

    fn ad_hoc() -> Arc<Tool> {
        Tool::new(name("ad-hoc"), 0, ToolSpec::ad_hoc(), false, 0, Timestamp::from_micros(0))
    }

    fn tool(&self, tenant: &Tenant, tool: &Name, revision: Option<u32>) -> Option<Arc<Tool>> {
        let kept = self.kept_tool(tenant, tool)?;
        let revision = match revision {
            None if kept.deleted => return None,
            None => kept.revision,
            Some(revision) => revision,
        };
        let spec = serde_json::from_str(&kept.specs[usize::try_from(revision).unwrap() - 1]).unwrap();
        Some(Tool::new(tool.clone(), revision, spec, kept.paused, kept.stamp, BASE))
    }

    fn context(&self, record: &Record, principal: &Name) -> Context {
        let (tenant, intent) = (&record.key.tenant, &record.intent);
        let current = match self.tool(tenant, &intent.tool, None) {
            None if intent.tool_revision == 0 => Some(Self::ad_hoc()),
            current => current,
        };
        let tool = match intent.tool_revision {
            0 => Self::ad_hoc(),
            revision => self.tool(tenant, &intent.tool, Some(revision)).unwrap(),
        };
        Context { now: self.now, principal: principal.clone(), tool, current, profile_changed: false, elapsed_us: None }
    }

    /// The open effect of the tenant that guards this act.
    fn twin(&self, tenant: &Tenant, guard: Uuid) -> Option<&Record> {
        let of_tenant = self.effects.values().filter(|kept| kept.record.key.tenant == *tenant);
        of_tenant.filter(|kept| kept.guard == Some(guard)).map(|kept| &kept.record).next()
    }

    /// For a held effect: who it is held for now.
    fn held_for(&self, record: &Record) -> Option<Name> {
        let approval = record.life.approval.as_ref().filter(|_| record.life.state == State::Proposed)?;
        let first = approval.held_for.as_ref()?;
        let key = EffectKey::of(&record.key.tenant, first);
        if self.record(&key).is_some_and(|first| !first.life.state.is_terminal()) {
            return Some(first.clone());
        }
        let twin = self.twin(&record.key.tenant, duplicate_key(&record.intent));
        twin.map(|twin| twin.intent.operation_id.clone())
    }

    pub(super) fn play(&mut self, step: &Step) -> String {
        match step {
            Step::Propose { tenant, principal, proposal } => self.propose(tenant, principal, proposal),
            Step::Ask { key, principal, command } => self.ask(key, principal, command),
            Step::Read { key, principal } => match self.record(key) {
                None => refused(&Refusal::NotFound),
                Some(record) => {
                    let answer = Answer { owns_dispatch: false, replayed: record.life.state.is_terminal() };
                    compare::told(record, answer, &self.context(record, principal), false, Base(BASE))
                }
            },
            Step::Pass(seconds) => {
                self.now = self.now.plus_seconds(*seconds);
                String::new()
            }
            Step::Sweep { principal } => {
                let is_due = |kept: &&Kept| kept.record.life.due_at().is_some_and(|due| due <= self.now);
                let due: Vec<EffectKey> =
                    self.effects.values().filter(is_due).map(|kept| kept.record.key.clone()).collect();
                let said: Vec<String> = due.iter().map(|key| self.ask(key, principal, &expiry())).collect();
                said.join("\n")
            }
            Step::Tool(write) => self.write_tool(write).to_owned(),
        }
    }

    fn propose(&mut self, tenant: &Tenant, principal: &Name, proposal: &Propose) -> String {
        let key = EffectKey::of(tenant, &proposal.operation_id);
        let mut proposal = proposal.clone();
        if let Some(record) = self.record(&key).cloned() {
            proposal.duplicate_of = self.held_for(&record);
            let context = self.context(&record, principal);
            let decision = decide::propose(Some(&record), &proposal, &context);
            return self.carry_out(&key, decision, &context, false);
        }
        let tool = match self.tool(tenant, &proposal.tool, None) {
            Some(tool) => tool,
            None if tenant.as_str() == self.ad_hoc_tenant => Self::ad_hoc(),
            None => return "unknown tool".to_owned(),
        };
        let current = Some(Arc::clone(&tool));
        let context = Context {
            now: self.now,
            principal: principal.clone(),
            tool,
            current,
            profile_changed: false,
            elapsed_us: None,
        };
        if let Ok(intent) = decide::intent_of(&proposal, &context)
            && context.tool.spec.duplicate_rule(intent.class) != DuplicateRule::Allow
        {
            let twin = self.twin(tenant, duplicate_key(&intent));
            proposal.duplicate_of = twin.map(|twin| twin.intent.operation_id.clone());
        }
        let decision = decide::propose(None, &proposal, &context);
        self.carry_out(&key, decision, &context, true)
    }

    fn ask(&mut self, key: &EffectKey, principal: &Name, command: &Command) -> String {
        let Some(record) = self.record(key).cloned() else { return refused(&Refusal::NotFound) };
        let mut command = command.clone();
        if let Command::Claim { hold_released, .. } | Command::Expire { hold_released } = &mut command {
            *hold_released = self.held_for(&record).is_none();
        }
        let context = self.context(&record, principal);
        if let Command::Recover(recover) = &mut command {
            recover.fingerprint = assess(&record, &context).fingerprint;
        }
        let decision = decide::decide(&record, &command, &context);
        self.carry_out(key, decision, &context, false)
    }

    fn carry_out(&mut self, key: &EffectKey, decision: Decision, context: &Context, fresh: bool) -> String {
        match decision.change {
            None => {}
            Some(Change::Renew { until, .. }) => {
                let kept = self.effects.get_mut(&sorted(key)).unwrap();
                kept.record.life.dispatch.as_mut().unwrap().lease_expires_at = until;
            }
            Some(Change::Revise(revision)) => {
                saw(revision.life.state.as_str());
                for event in &revision.events {
                    saw(serde_json::to_value(event.kind).unwrap().as_str().unwrap());
                }
                let before = self.effects.remove(&sorted(key));
                let kept = revise(key, before, *revision, context);
                no_silent_state(&kept.record.life);
                self.effects.insert(sorted(key), kept);
            }
        }
        match (decision.answer, self.record(key)) {
            (Ok(answer), Some(record)) => compare::told(record, answer, context, fresh, Base(BASE)),
            (Err(refusal), found) => {
                let words = format!("{refusal:?}");
                saw(words.split(|c: char| !c.is_alphanumeric()).next().unwrap());
                let found = found.map(|found| compare::record(found, Base(BASE))).unwrap_or_default();
                format!("{refusal:?}\n{found}")
            }
            (Ok(_), None) => panic!("an answer about nothing"),
        }
    }

    fn write_tool(&mut self, write: &ToolWrite) -> &'static str {
        let key = (write.tenant.clone(), write.name.clone());
        let kept = self.tools.get(&key);
        if kept.map(|kept| kept.stamp) != write.expected_stamp {
            return "lost";
        }
        let uses = |kept: &Kept| {
            kept.record.key.tenant == write.tenant
                && kept.record.intent.tool == write.name
                && !kept.record.life.state.is_terminal()
        };
        if write.deleted && self.effects.values().any(uses) {
            return "in use";
        }
        let mut specs = kept.map(|kept| kept.specs.clone()).unwrap_or_default();
        specs.extend(write.spec.clone());
        let stamp = write.expected_stamp.unwrap_or(0) + 1;
        let (revision, paused, deleted) = (write.revision, write.paused, write.deleted);
        self.tools.insert(key, KeptTool { revision, stamp, paused, deleted, specs });
        "applied"
    }

    pub(super) fn dump(&self) -> Vec<String> {
        let mut dump = Vec::new();
        for kept in self.effects.values() {
            dump.push(compare::record(&kept.record, Base(BASE)));
            dump.extend(kept.entries.iter().cloned());
        }
        for tenant in tenants() {
            let mut walks = vec![Walk::All, Walk::Contradicted, Walk::Run(name("run 1")), Walk::Run(name("run 2"))];
            walks.extend(State::ALL.map(Walk::Open));
            for walk in walks {
                let found = self.effects.values().filter(|kept| kept.record.key.tenant == tenant);
                let mut effects: Vec<Uuid> =
                    found.filter(|kept| is_listed(&kept.record, &walk)).map(|kept| kept.record.key.effect).collect();
                effects.sort();
                dump.push(format!("{tenant} {walk:?} {effects:?}"));
            }
        }
        for kept in self.effects.values().filter(|kept| kept.record.life.is_open()) {
            let (key, revision) = (&kept.record.key, kept.record.life.revision);
            dump.push(format!("open {} {} {revision}", key.tenant, key.effect));
        }
        dump
    }
}

fn is_listed(record: &Record, walk: &Walk) -> bool {
    match walk {
        Walk::All => true,
        Walk::Run(run) => record.intent.run_id.as_ref() == Some(run),
        Walk::Session(session) => record.intent.session_id.as_ref() == Some(session),
        Walk::Open(state) => record.life.is_open() && record.life.state == *state,
        Walk::Contradicted => record.life.contradicted,
    }
}

fn refused(refusal: &Refusal) -> String {
    saw("NotFound");
    format!("{refusal:?}\n")
}

/// The record after a revision, its guard, and its entries.
fn revise(key: &EffectKey, before: Option<Kept>, revision: decide::Revision, context: &Context) -> Kept {
    let intent = revision.intent.clone().unwrap_or_else(|| Arc::clone(&before.as_ref().unwrap().record.intent));
    let (record, mut entries) = match before {
        Some(kept) => (Some(kept.record), kept.entries),
        None => (None, Vec::new()),
    };
    let life = revision.life;
    let digest = |text: &Arc<str>| Sha256Digest::of(text.as_bytes());
    let (receipt_digest, result_digest) = (revision.receipt.as_ref().map(digest), revision.result.as_ref().map(digest));
    let covered = Sha256Digest::of(b"covers times");
    let service = Name::new("actonce").unwrap();
    let entry = Entry {
        revision: life.revision,
        at: life.updated_at,
        by: if revision.is_lapse { &service } else { &context.principal },
        state: life.state,
        events: &revision.events,
        intent_digest: revision.intent.is_some().then_some(&covered),
        record_digest: &covered,
        receipt_digest: receipt_digest.as_ref(),
        result_digest: result_digest.as_ref(),
    };
    entries.push(compare::entry(&serde_json::to_string(&entry).unwrap(), Base(BASE)));
    let here = |at: Option<u32>| at == Some(life.revision);
    let (mut receipt, mut result) = record.map_or((None, None), |record| (record.receipt, record.result));
    if here(life.receipt.as_ref().map(|receipt| receipt.revision)) {
        receipt = revision.receipt;
    }
    if here(life.result.as_ref().map(|result| result.revision)) {
        result = revision.result;
    }
    let held = life.approval.as_ref().is_some_and(|approval| approval.held_for.is_some());
    let minds = context.tool.spec.duplicate_rule(intent.class) != DuplicateRule::Allow;
    let guard = (minds && !held && !life.state.is_terminal()).then(|| duplicate_key(&intent));
    let record = Record { key: key.clone(), intent, life, head: [0; 32], receipt, result };
    Kept { record, guard, entries }
}
