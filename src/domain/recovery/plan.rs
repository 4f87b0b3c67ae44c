//! Plans and receipts of their executions, as they are sent and answered (protocol §9).

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::{Action, Blocker};
use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::{Name, Tenant, prefix};
use crate::domain::state::State;
use crate::domain::time::Timestamp;

/// What kind of root work belongs to: its session, or else its run, or else itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecoveryRootKind)]
pub enum RootKind {
    /// A session.
    Session,
    /// A run without a session.
    Run,
    /// A single effect.
    Effect,
}

/// The root that an effect belongs to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RecoveryRoot)]
pub struct Root {
    /// Its kind.
    pub kind: RootKind,
    /// Its name: a session, a run, or an operation id.
    #[schema(max_length = 256)]
    pub id: String,
}

/// One effect of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RecoveryPlanItem)]
pub struct PlanItem {
    /// What it belongs to.
    pub root: Root,
    /// The session, where it has one.
    #[schema(value_type = Option<String>)]
    pub session_id: Option<Name>,
    /// The operation; `null` where the record can't be read back.
    #[schema(value_type = Option<String>)]
    pub operation_id: Option<Name>,
    /// The revision that was seen.
    pub revision: Option<u32>,
    /// The state that was seen.
    pub state: Option<State>,
    /// Digest of everything that the item rests on.
    #[schema(value_type = String, example = "sha256:…")]
    pub fingerprint: Sha256Digest,
    /// What it waits for.
    pub blockers: Vec<Blocker>,
    /// What may be decided about it.
    pub allowed_actions: Vec<Action>,
}

/// A plan. Making one reads and stores nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = RecoveryPlan)]
pub struct Plan {
    /// Digest over the tenant and everything below.
    #[schema(value_type = String, example = "sha256:…")]
    pub plan_id: Sha256Digest,
    /// When it was made, by the database's time.
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The effects, at most 1,000.
    #[schema(max_items = 1000)]
    pub items: Vec<PlanItem>,
    /// Where the next plan starts; `null` at the end.
    pub next_cursor: Option<String>,
}

/// What the plan id covers, besides the tenant.
#[derive(Serialize)]
struct Covered<'a> {
    created_at: Timestamp,
    items: &'a [PlanItem],
    next_cursor: Option<&'a str>,
}

impl Plan {
    /// A plan with its id.
    #[must_use]
    pub fn new(tenant: &Tenant, created_at: Timestamp, items: Vec<PlanItem>, next_cursor: Option<String>) -> Self {
        let plan_id = id_of(tenant, &Covered { created_at, items: &items, next_cursor: next_cursor.as_deref() });
        Self { plan_id, created_at, items, next_cursor }
    }

    /// Whether it is as it was made, for this tenant.
    #[must_use]
    pub fn is_whole(&self, tenant: &Tenant) -> bool {
        let Self { plan_id, created_at, items, next_cursor } = self;
        let covered = Covered { created_at: *created_at, items, next_cursor: next_cursor.as_deref() };
        *plan_id == id_of(tenant, &covered)
    }

    /// The item of an operation.
    #[must_use]
    pub fn item(&self, operation_id: &Name) -> Option<&PlanItem> {
        self.items.iter().find(|item| item.operation_id.as_ref() == Some(operation_id))
    }
}

fn id_of(tenant: &Tenant, covered: &Covered<'_>) -> Sha256Digest {
    let mut hash = Sha256::new();
    hash.update(b"actonce recovery plan v1");
    hash.update(prefix(tenant.as_str()));
    hash.update(tenant.as_str());
    // The types always write the same bytes for the same values.
    hash.update(serde_json::to_vec(covered).unwrap_or_default());
    Sha256Digest::from_hash(hash.finalize().into())
}

/// What an operator decides about one item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ItemDecision {
    /// The operation.
    pub operation_id: Name,
    /// What to do.
    pub action: Action,
    /// Why, in the operator's words; required for `mark_completed` and `mark_failed`.
    pub message: Option<String>,
}

impl ItemDecision {
    /// Digest of the decision under a plan.
    #[must_use]
    pub fn digest(&self, plan_id: &Sha256Digest) -> Sha256Digest {
        Sha256Digest::of(&serde_json::to_vec(&(plan_id, self)).unwrap_or_default())
    }
}

/// What came of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecoveryItemOutcome)]
pub enum ItemOutcome {
    /// It was done, in the revision that the receipt names.
    Executed,
    /// Nothing was to be done.
    LeftIntact,
    /// Nothing was done; `blockers` say why.
    Blocked,
}

/// Why an item was not carried out: a blocker of protocol §9, or that it is not what was planned for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecoveryItemBlocker)]
pub enum ItemBlocker {
    /// The effect, its registration, or what time has decided about it, is not what was planned for.
    StalePlan,
    /// See [`Blocker::RegistrationUnavailable`].
    RegistrationUnavailable,
    /// See [`Blocker::RegistrationIncompatible`].
    RegistrationIncompatible,
    /// See [`Blocker::ActiveRecoveryClaim`].
    ActiveRecoveryClaim,
    /// See [`Blocker::ActiveExecutionOwner`].
    ActiveExecutionOwner,
    /// See [`Blocker::ToolEffectOutcomeUnknown`].
    ToolEffectOutcomeUnknown,
    /// See [`Blocker::ToolEffectContinuationRequired`].
    ToolEffectContinuationRequired,
    /// See [`Blocker::ToolApprovalRequired`]; also where the tool asks for four eyes.
    ToolApprovalRequired,
    /// See [`Blocker::InvalidDurableState`].
    InvalidDurableState,
}

impl From<Blocker> for ItemBlocker {
    fn from(blocker: Blocker) -> Self {
        match blocker {
            Blocker::RegistrationUnavailable => Self::RegistrationUnavailable,
            Blocker::RegistrationIncompatible => Self::RegistrationIncompatible,
            Blocker::ActiveRecoveryClaim => Self::ActiveRecoveryClaim,
            Blocker::ActiveExecutionOwner => Self::ActiveExecutionOwner,
            Blocker::ToolEffectOutcomeUnknown => Self::ToolEffectOutcomeUnknown,
            Blocker::ToolEffectContinuationRequired => Self::ToolEffectContinuationRequired,
            Blocker::ToolApprovalRequired => Self::ToolApprovalRequired,
            Blocker::InvalidDurableState => Self::InvalidDurableState,
        }
    }
}

/// The receipt of an item: written once, and answered as the bytes that were written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = RecoveryReceipt)]
pub struct ItemReceipt {
    /// The execution.
    #[schema(value_type = String)]
    pub execution_id: Name,
    /// The plan.
    #[schema(value_type = String)]
    pub plan_id: Sha256Digest,
    /// The operation.
    #[schema(value_type = String)]
    pub operation_id: Name,
    /// What was decided.
    pub action: Action,
    /// What came of it.
    pub outcome: ItemOutcome,
    /// Why nothing was done.
    pub blockers: Vec<ItemBlocker>,
    /// The state after it; `null` where it was not looked at.
    pub state: Option<State>,
    /// The revision after it.
    pub revision: Option<u32>,
    /// When, by the database's time.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edited_plan_is_not_whole_and_neither_is_a_foreign_one() {
        let (own, foreign) = (Tenant::new("a").unwrap(), Tenant::new("b").unwrap());
        let item = PlanItem {
            root: Root { kind: RootKind::Session, id: "s".to_owned() },
            session_id: Some(Name::new("s").unwrap()),
            operation_id: Some(Name::new("op").unwrap()),
            revision: Some(1),
            state: Some(State::IntentRecorded),
            fingerprint: Sha256Digest::of(b"x"),
            blockers: Vec::new(),
            allowed_actions: vec![Action::AutomaticRepair, Action::LeaveIntact],
        };
        let plan = Plan::new(&own, Timestamp::from_micros(7), vec![item], Some("next".to_owned()));
        assert!(plan.is_whole(&own));
        assert!(!plan.is_whole(&foreign));
        let text = serde_json::to_string(&plan).unwrap();
        let read: Plan = serde_json::from_str(&text).unwrap();
        assert_eq!(read, plan);
        for (from, to) in [
            ("\"op\"", "\"oq\""),
            ("automatic_repair", "mark_completed"),
            ("\"revision\":1", "\"revision\":2"),
            ("\"next\"", "null"),
            ("00.000007Z", "00.000008Z"),
            ("intent_recorded", "manual_review"),
        ] {
            assert!(text.contains(from), "{from}");
            let edited: Plan = serde_json::from_str(&text.replace(from, to)).unwrap();
            assert!(!edited.is_whole(&own), "{from}");
        }
    }
}
