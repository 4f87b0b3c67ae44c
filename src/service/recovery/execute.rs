//! Executions: exactly one plan, each item at most once, whatever breaks in between.
//!
//! What was decided is written first. Then each item is taken by a claim of its own, looked at again,
//! carried out by one commit that names the execution, and acknowledged by a receipt. A crash anywhere
//! between is repaired by the same request: the effect itself says what this execution has done.

use std::time::Duration;

use futures_util::StreamExt as _;
use uuid::Uuid;

use super::{Looked, Service, ServiceError};
use crate::auth::Principal;
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::Command;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::record::Record;
use crate::domain::recovery::plan::{ItemBlocker, ItemDecision, ItemOutcome, ItemReceipt, Plan, PlanItem};
use crate::domain::recovery::{Action, Recover, RecoveryMark};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::engine::EngineError;
use crate::limits;
use crate::store::recovery::{ExecutionRow, ItemClaim};
use crate::support::random_id;
use crate::telemetry::probe;

/// `POST /api/recovery/executions`, checked in form.
#[derive(Debug, Clone)]
pub struct ExecutionRequest {
    /// The caller's name for the execution.
    pub execution_id: Name,
    /// The plan, as it was made.
    pub plan: Plan,
    /// One decision per item, in the order of their receipts.
    pub decisions: Vec<ItemDecision>,
}

/// An execution as it is now.
#[derive(Debug)]
pub struct Execution {
    /// The execution.
    pub execution_id: Name,
    /// The plan.
    pub plan_id: String,
    /// How many decisions it has.
    pub items: u32,
    /// The receipts as they were written, by item.
    pub receipts: Vec<String>,
    /// Operations whose items another executor has in hand. The same request goes on with them later.
    pub pending: Vec<Name>,
    /// Whether everything had been done before this request.
    pub replayed: bool,
}

impl Execution {
    /// Whether each decision has its receipt.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        u32::try_from(self.receipts.len()).is_ok_and(|receipts| receipts >= self.items)
    }
}

/// One request's work on one item.
struct Item<'a> {
    caller: &'a Principal,
    execution_id: &'a Name,
    plan_id: &'a Sha256Digest,
    planned: &'a PlanItem,
    decision: &'a ItemDecision,
    key: EffectKey,
}

impl Service {
    /// Executes a plan, or goes on with its execution, or answers its receipts again.
    ///
    /// # Errors
    /// See [`ServiceError`]. What was done until then stays done; the same request does the rest.
    pub async fn execute_plan(
        &self,
        caller: &Principal,
        request: &ExecutionRequest,
    ) -> Result<Execution, ServiceError> {
        let row = self.begin(caller, request).await?;
        let before = self.receipts(caller, &row).await?;
        let missing: Vec<u32> =
            (0..row.items).filter(|n| before.binary_search_by_key(n, |(item, _)| *item).is_err()).collect();
        let executor = random_id();
        let work = missing.iter().copied().map(|number| self.work(caller, request, number, executor));
        let mut working = futures_util::stream::iter(work).buffer_unordered(limits::RECOVERY_EXECUTION_WIDTH);
        let (mut pending, mut failed) = (Vec::new(), None);
        while let Some(done) = working.next().await {
            match done {
                Ok(None) => {}
                Ok(Some(held)) => pending.push(held),
                // The others are not left half way for that.
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        pending.sort_unstable();
        let receipts = self.receipts(caller, &row).await?;
        Ok(answer(row, receipts, pending, missing.is_empty()))
    }

    /// An execution with its receipts so far.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn execution(&self, caller: &Principal, execution_id: &Name) -> Result<Execution, ServiceError> {
        let row = probe::read(self.engine().store().execution(&caller.tenant, execution_id)).await?;
        let row = row.ok_or(ServiceError::NotFound)?;
        let receipts = self.receipts(caller, &row).await?;
        Ok(answer(row, receipts, Vec::new(), true))
    }

    /// Checks a request against its plan, and writes what was decided.
    async fn begin(&self, caller: &Principal, request: &ExecutionRequest) -> Result<ExecutionRow, ServiceError> {
        let plan = &request.plan;
        if !plan.is_whole(&caller.tenant) {
            return Err(ServiceError::invalid(
                "/plan/plan_id",
                "is not the id of this plan: it was edited, or is not yours",
            ));
        }
        let decisions = serde_json::to_string(&request.decisions)
            .map_err(|_| ServiceError::Internal("decisions can't be serialized"))?;
        let digest = Sha256Digest::of(format!("{}\n{decisions}", plan.plan_id.as_str()).as_bytes());
        let row = ExecutionRow {
            execution_id: request.execution_id.clone(),
            digest: digest.as_str().to_owned(),
            plan_id: plan.plan_id.as_str().to_owned(),
            decisions,
            items: u32::try_from(request.decisions.len()).unwrap_or(u32::MAX),
            begun_by: caller.subject.as_str().to_owned(),
            begun_at: probe::read(self.engine().store().now()).await?,
        };
        let store = self.engine().store();
        let found = match probe::read(store.execution(&caller.tenant, &row.execution_id)).await? {
            Some(found) => found,
            None => probe::write(store.begin_execution(&caller.tenant, &row)).await?,
        };
        if found.digest != row.digest {
            return Err(ServiceError::Conflict("this execution id stands for another plan or other decisions"));
        }
        Ok(found)
    }

    async fn receipts(&self, caller: &Principal, row: &ExecutionRow) -> Result<Vec<(u32, String)>, ServiceError> {
        Ok(probe::read(self.engine().store().execution_receipts(&caller.tenant, &row.execution_id)).await?)
    }

    /// Takes an item, carries it out and writes its receipt. Answers the operation where somebody else
    /// has it in hand.
    async fn work(
        &self,
        caller: &Principal,
        request: &ExecutionRequest,
        number: u32,
        executor: Uuid,
    ) -> Result<Option<Name>, ServiceError> {
        let decision = usize::try_from(number).ok().and_then(|number| request.decisions.get(number));
        let decision = decision.ok_or(ServiceError::Internal("an execution has fewer decisions than items"))?;
        let planned = request.plan.item(&decision.operation_id);
        let item = Item {
            caller,
            execution_id: &request.execution_id,
            plan_id: &request.plan.plan_id,
            planned: planned.ok_or(ServiceError::Internal("a decision is about nothing in its plan"))?,
            decision,
            key: EffectKey::of(&caller.tenant, &decision.operation_id),
        };
        let claim = ItemClaim { key: item.key.clone(), executor, lease_seconds: limits::RECOVERY_CLAIM_SECONDS };
        let store = self.engine().store();
        if !probe::write(store.claim_item(&claim)).await? {
            return Ok(Some(decision.operation_id.clone()));
        }
        // What another request under this execution wrote meanwhile is its answer, too.
        let closed = match probe::read(store.item_receipt(&caller.tenant, item.execution_id, number)).await {
            Ok(None) => self.close(&item, number, &claim).await,
            Ok(Some(_)) => Ok(Some(false)),
            Err(error) => Err(error.into()),
        };
        match closed {
            // Closed, and given back by that.
            Ok(Some(true)) => return Ok(None),
            // Somebody else has it by now; what is done, is done under the effect's own compare-and-set.
            Ok(None) => return Ok(Some(decision.operation_id.clone())),
            Ok(Some(false)) | Err(_) => {}
        }
        if let Err(error) = probe::write(store.release_item(&claim)).await {
            tracing::warn!(%error, "a recovery claim was not given back; it ends by itself");
        }
        closed.map(|_| None)
    }

    /// Settles an item and closes it with its receipt. `None` when the claim was lost meanwhile.
    async fn close(&self, item: &Item<'_>, number: u32, claim: &ItemClaim) -> Result<Option<bool>, ServiceError> {
        let Some(receipt) = self.while_held(claim, self.settle(item)).await? else { return Ok(None) };
        let text =
            serde_json::to_string(&receipt).map_err(|_| ServiceError::Internal("a receipt can't be serialized"))?;
        probe::write(self.engine().store().close_item(claim, item.execution_id, number, &text)).await?;
        Ok(Some(true))
    }

    /// Beats for a claim while its item is worked on. `None` when the claim is lost.
    async fn while_held<T>(
        &self,
        claim: &ItemClaim,
        work: impl Future<Output = Result<T, ServiceError>>,
    ) -> Result<Option<T>, ServiceError> {
        let mut work = std::pin::pin!(work);
        let beat = Duration::from_secs(u64::from(claim.lease_seconds / 3).max(1));
        loop {
            tokio::select! {
                done = &mut work => return done.map(Some),
                () = tokio::time::sleep(beat) => {
                    if !self.engine().store().claim_item(claim).await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Does what was decided, if everything is still as it was planned for.
    async fn settle(&self, item: &Item<'_>) -> Result<ItemReceipt, ServiceError> {
        let now = self.engine().clock().now();
        let blocked = |blockers: Vec<ItemBlocker>, record: Option<&Record>| ItemReceipt {
            outcome: ItemOutcome::Blocked,
            blockers,
            state: record.map(|record| record.life.state),
            revision: record.map(|record| record.life.revision),
            ..item.receipt(now)
        };
        let loaded = probe::read(self.engine().store().load(std::slice::from_ref(&item.key))).await?.pop();
        let record = match loaded {
            Some(Ok(Some(record))) => record,
            Some(Ok(None)) | None => return Ok(blocked(vec![ItemBlocker::StalePlan], None)),
            Some(Err(corruption)) => {
                tracing::error!(%corruption, "a recovery execution can't read an effect back");
                return Ok(blocked(vec![ItemBlocker::InvalidDurableState], None));
            }
        };
        if let Some(mark) = item.mark(&record) {
            return Ok(item.executed(mark));
        }
        let Looked::At(assessment) = self.look(&record, &item.caller.subject, false).await? else {
            return Ok(blocked(vec![ItemBlocker::InvalidDurableState], Some(&record)));
        };
        let is_as_planned =
            assessment.fingerprint == item.planned.fingerprint && item.planned.revision == Some(record.life.revision);
        if !is_as_planned {
            return Ok(blocked(vec![ItemBlocker::StalePlan], Some(&record)));
        }
        if !assessment.actions.contains(&item.decision.action) {
            let mut blockers: Vec<ItemBlocker> = assessment.blockers.into_iter().map(ItemBlocker::from).collect();
            if blockers.is_empty() {
                blockers.push(ItemBlocker::StalePlan);
            }
            return Ok(blocked(blockers, Some(&record)));
        }
        if item.decision.action == Action::LeaveIntact {
            return Ok(ItemReceipt {
                outcome: ItemOutcome::LeftIntact,
                blockers: Vec::new(),
                ..blocked(Vec::new(), Some(&record))
            });
        }
        let command = Command::Recover(Box::new(item.command(record.life.revision)));
        match self.engine().apply(&item.key, &item.caller.subject, command).await {
            Ok(decided) => {
                let mark = item.mark(&decided.record).ok_or(ServiceError::Internal("an execution left no mark"))?;
                metrics::counter!("actonce_recovery_items_total", "action" => item.decision.action.as_str())
                    .increment(1);
                Ok(item.executed(mark))
            }
            Err(EngineError::Refused { refusal, record }) => Ok(blocked(vec![because(&refusal)], record.as_deref())),
            Err(error) => Err(error.into()),
        }
    }
}

/// A refusal at the last moment: a claim, a report or a cancellation was first, or four eyes are asked for.
const fn because(refusal: &Refusal) -> ItemBlocker {
    match refusal {
        Refusal::Forbidden(_) => ItemBlocker::ToolApprovalRequired,
        _ => ItemBlocker::StalePlan,
    }
}

impl Item<'_> {
    fn digest(&self) -> Sha256Digest {
        self.decision.digest(self.plan_id)
    }

    fn command(&self, expected_revision: u32) -> Recover {
        Recover {
            expected_revision,
            fingerprint: self.planned.fingerprint.clone(),
            execution_id: self.execution_id.clone(),
            plan_id: self.plan_id.clone(),
            action: self.decision.action,
            digest: self.digest(),
        }
    }

    /// What this very execution has done to the effect.
    fn mark<'r>(&self, record: &'r Record) -> Option<&'r RecoveryMark> {
        let mark = record.life.recovery.as_ref()?;
        (mark.execution_id == *self.execution_id && mark.digest == self.digest()).then_some(mark)
    }

    fn receipt(&self, at: crate::domain::time::Timestamp) -> ItemReceipt {
        ItemReceipt {
            execution_id: self.execution_id.clone(),
            plan_id: self.plan_id.clone(),
            operation_id: self.decision.operation_id.clone(),
            action: self.decision.action,
            outcome: ItemOutcome::Executed,
            blockers: Vec::new(),
            state: None,
            revision: None,
            at,
        }
    }

    /// Made of the mark alone: the same bytes, whoever writes it and however often.
    fn executed(&self, mark: &RecoveryMark) -> ItemReceipt {
        let state = match mark.action {
            Action::MarkCompleted => State::Completed,
            Action::AutomaticRepair | Action::MarkFailed | Action::LeaveIntact => State::Failed,
        };
        ItemReceipt { state: Some(state), revision: Some(mark.revision), ..self.receipt(mark.at) }
    }
}

fn answer(row: ExecutionRow, receipts: Vec<(u32, String)>, pending: Vec<Name>, replayed: bool) -> Execution {
    Execution {
        execution_id: row.execution_id,
        plan_id: row.plan_id,
        items: row.items,
        receipts: receipts.into_iter().map(|(_, receipt)| receipt).collect(),
        pending,
        replayed,
    }
}
