//! Plans and executions as asked for, and executions as answered (protocol §9).

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use super::Faults;
use crate::domain::ids::Name;
use crate::domain::object;
use crate::domain::recovery::Action;
use crate::domain::recovery::plan::{ItemDecision, ItemReceipt, Plan};
use crate::domain::state::State;
use crate::http::problem::Problem;
use crate::limits;
use crate::service::recovery::execute::{Execution, ExecutionRequest};
use crate::service::recovery::plan::{PlanRequest, PlanScope};

/// What a plan is about: sessions, or states, or everything that is not final.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RecoveryPlanRequest)]
pub struct PlanBody {
    /// Incomplete work of these sessions.
    #[serde(default)]
    #[schema(min_items = 1, max_items = 200)]
    pub session_ids: Option<Vec<String>>,
    /// Effects in these states, none of them final. Not together with `session_ids`.
    #[serde(default)]
    #[schema(min_items = 1)]
    pub states: Option<Vec<State>>,
    /// Effects that nobody has touched for so long, heartbeats included.
    #[serde(default)]
    #[schema(maximum = 31_536_000)]
    pub inactive_for_seconds: Option<u32>,
    /// Items at most (default 200).
    #[serde(default)]
    #[schema(minimum = 1, maximum = 1000)]
    pub limit: Option<u32>,
    /// Where the plan starts: `next_cursor` of the plan before.
    #[serde(default)]
    pub cursor: Option<String>,
}

impl PlanBody {
    /// Checks it.
    ///
    /// # Errors
    /// All faults at once.
    pub fn check(self) -> Result<PlanRequest, Problem> {
        let mut faults = Faults::default();
        let limit = self.limit.unwrap_or(limits::RECOVERY_PLAN_DEFAULT);
        if !(1..=limits::RECOVERY_PLAN_ITEMS).contains(&limit) {
            faults.add("/limit", "must be between 1 and 1000");
        }
        let inactive_for_seconds = self.inactive_for_seconds.unwrap_or(0);
        if inactive_for_seconds > limits::DEADLINE_MAX_SECONDS {
            faults.add("/inactive_for_seconds", "must be at most 31536000");
        }
        let scope = match (self.session_ids, self.states) {
            (Some(sessions), None) => PlanScope::Sessions(checked_sessions(&sessions, &mut faults)),
            (None, states) => PlanScope::States(checked_states(states, &mut faults)),
            (Some(_), Some(_)) => {
                faults.add("/states", "can't stand beside `session_ids`");
                PlanScope::States(Vec::new())
            }
        };
        if !faults.is_empty() {
            return Err(faults.problem());
        }
        Ok(PlanRequest { scope, inactive_for_seconds, limit, cursor: self.cursor })
    }
}

fn checked_sessions(sessions: &[String], faults: &mut Faults) -> Vec<Name> {
    if sessions.is_empty() || sessions.len() > limits::RECOVERY_PLAN_SESSIONS {
        faults.add("/session_ids", "must have between 1 and 200 entries");
        return Vec::new();
    }
    let mut names: Vec<Name> = Vec::with_capacity(sessions.len());
    for (number, session) in sessions.iter().enumerate() {
        if let Some(name) = faults.name(&format!("/session_ids/{number}"), session)
            && !names.contains(&name)
        {
            names.push(name);
        }
    }
    names
}

fn checked_states(states: Option<Vec<State>>, faults: &mut Faults) -> Vec<State> {
    let Some(states) = states else {
        return State::ALL.into_iter().filter(|state| !state.is_terminal()).collect();
    };
    if states.is_empty() || states.len() > State::ALL.len() {
        faults.add("/states", "must have between 1 and 10 entries");
    }
    let mut wanted = Vec::new();
    for (number, state) in states.into_iter().take(State::ALL.len()).enumerate() {
        if state.is_terminal() {
            faults.add(&format!("/states/{number}"), "is final: nothing is incomplete there");
        } else if !wanted.contains(&state) {
            wanted.push(state);
        }
    }
    wanted
}

/// A decision about one item of a plan.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RecoveryDecision)]
pub struct DecisionBody {
    /// The operation.
    #[schema(min_length = 1, max_length = 256)]
    pub operation_id: String,
    /// One of the item's allowed actions.
    pub action: Action,
    /// Why; required for `mark_completed` and `mark_failed`. At most 2,048 bytes.
    #[serde(default)]
    #[schema(max_length = 2048)]
    pub message: Option<String>,
}

/// A plan to execute. Items without a decision are left alone and get no receipt.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RecoveryExecutionRequest)]
pub struct ExecutionBody {
    /// The plan as it was answered.
    #[serde(deserialize_with = "object::required")]
    pub plan: Plan,
    /// The caller's name for this execution; the same on every retry.
    #[schema(min_length = 1, max_length = 256)]
    pub execution_id: String,
    /// One per item at most. Receipts come in this order.
    #[schema(min_items = 1, max_items = 1000)]
    pub decisions: Vec<DecisionBody>,
}

impl ExecutionBody {
    /// Checks it.
    ///
    /// # Errors
    /// All faults at once.
    pub fn check(self) -> Result<ExecutionRequest, Problem> {
        let mut faults = Faults::default();
        let most = usize::try_from(limits::RECOVERY_PLAN_ITEMS).unwrap_or(usize::MAX);
        if self.plan.items.len() > most {
            faults.add("/plan/items", "must have at most 1000 entries");
        }
        if self.decisions.is_empty() || self.decisions.len() > most {
            faults.add("/decisions", "must have between 1 and 1000 entries");
        }
        let execution_id = faults.name("/execution_id", &self.execution_id);
        let (Some(execution_id), true) = (execution_id, faults.is_empty()) else { return Err(faults.problem()) };
        let mut seen = HashSet::new();
        let mut decisions = Vec::with_capacity(self.decisions.len());
        for (number, body) in self.decisions.into_iter().enumerate() {
            let decision = body.check(&format!("/decisions/{number}"), &self.plan, &mut faults);
            let Some(decision) = decision else { continue };
            if !seen.insert(decision.operation_id.clone()) {
                faults.add(&format!("/decisions/{number}/operation_id"), "is decided twice");
            }
            decisions.push(decision);
        }
        if !faults.is_empty() {
            return Err(faults.problem());
        }
        Ok(ExecutionRequest { execution_id, plan: self.plan, decisions })
    }
}

impl DecisionBody {
    fn check(self, pointer: &str, plan: &Plan, faults: &mut Faults) -> Option<ItemDecision> {
        let operation_id = faults.name(&format!("{pointer}/operation_id"), &self.operation_id)?;
        let Some(item) = plan.item(&operation_id) else {
            faults.add(&format!("{pointer}/operation_id"), "is not in the plan");
            return None;
        };
        if !item.allowed_actions.contains(&self.action) {
            faults.add(&format!("{pointer}/action"), "is not an allowed action of this item");
        }
        match self.message.as_deref() {
            None if self.action.needs_message() => {
                faults.add(&format!("{pointer}/message"), "is required for this action");
            }
            Some(text) if text.trim().is_empty() => faults.add(&format!("{pointer}/message"), "must not be empty"),
            Some(text) if text.len() > limits::REASON_BYTES => {
                faults.add(&format!("{pointer}/message"), "must be at most 2048 bytes");
            }
            Some(text) if text.contains('\0') => {
                faults.add(&format!("{pointer}/message"), "must not contain a NUL character");
            }
            _ => {}
        }
        Some(ItemDecision { operation_id, action: self.action, message: self.message })
    }
}

/// An execution.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = RecoveryExecution)]
pub struct ExecutionDocument {
    /// The execution.
    execution_id: String,
    /// The plan.
    plan_id: String,
    /// Whether every decision has its receipt.
    completed: bool,
    /// Whether every receipt had been written before this request.
    replayed: bool,
    /// How many decisions there are.
    items: u32,
    /// The receipts, in the order of the decisions, byte for byte as written.
    receipts: Vec<ItemReceipt>,
    /// Items that another executor has in hand. Send the same request again: they are done then, or tried.
    pending: Vec<PendingItem>,
}

/// An item that was not touched.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = RecoveryPending)]
pub struct PendingItem {
    /// The operation.
    operation_id: String,
    /// `active_recovery_claim`.
    blockers: Vec<crate::domain::recovery::Blocker>,
}

/// The JSON of an execution: its receipts are the bytes that were written (law 9).
#[must_use]
pub fn body(execution: &Execution) -> String {
    let pending = execution.pending.iter().map(|operation| PendingItem {
        operation_id: operation.as_str().to_owned(),
        blockers: vec![crate::domain::recovery::Blocker::ActiveRecoveryClaim],
    });
    let head = ExecutionDocument {
        execution_id: execution.execution_id.as_str().to_owned(),
        plan_id: execution.plan_id.clone(),
        completed: execution.is_complete(),
        replayed: execution.replayed,
        items: execution.items,
        receipts: Vec::new(),
        pending: pending.collect(),
    };
    let json = serde_json::to_string(&head).unwrap_or_default();
    json.replacen("\"receipts\":[]", &format!("\"receipts\":[{}]", execution.receipts.join(",")), 1)
}
