//! Bulk resolution: a preview that names every effect with its revision, and its execution.
//!
//! Nothing is kept about a bulk decision as such: each effect's decision id is derived from the bulk
//! decision id and the operation id, so that a repeat replays what is done and does the rest, after a
//! crash and on any replica.

use std::collections::{BTreeMap, HashMap};

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};

use super::queue::{QueueFilter, belongs, walks};
use super::queue_item::{Horizon, QueueReason, outcomes};
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Command, Resolve};
use crate::domain::ids::{EffectKey, Name};
use crate::domain::record::{Record, ResolvedOutcome};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::limits;
use crate::store::QueueRow;
use crate::telemetry::probe;

/// What may be resolved by hand, so what a preview can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BulkReason {
    /// A person has to decide.
    ManualReview,
    /// Evidence excludes the recorded outcome.
    Contradicted,
}

/// Which effects are meant.
#[derive(Debug, Clone, Default)]
pub struct BulkFilter {
    /// The tool.
    pub tool: Option<Name>,
    /// The reason.
    pub reason: Option<BulkReason>,
    /// Created at least so long ago.
    pub older_than_seconds: Option<u32>,
    /// The run.
    pub run_id: Option<Name>,
    /// These and no others.
    pub operation_ids: Option<Vec<Name>>,
}

/// One effect of a preview.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewItem {
    /// The operation.
    #[schema(value_type = String)]
    pub operation_id: Name,
    /// The revision that was seen, and that a resolution expects.
    #[schema(minimum = 1)]
    pub revision: u32,
    /// The state that was seen.
    pub state: State,
    /// The tool.
    #[schema(value_type = String)]
    pub tool: Name,
    /// Whether evidence excludes the outcome.
    pub contradicted: bool,
}

/// What a bulk resolution would decide, as shown and as given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ResolutionPreview)]
pub struct Preview {
    /// How many effects.
    pub count: usize,
    /// Whether more fit the filter than a preview may have (1,000).
    pub truncated: bool,
    /// The effects, oldest first, or in the order in which they were named.
    #[schema(max_items = 1000)]
    pub items: Vec<PreviewItem>,
}

impl Preview {
    /// The digest over all of it.
    #[must_use]
    pub fn id(&self) -> Sha256Digest {
        let text = serde_json::to_string(&("actonce resolution preview v1", self)).unwrap_or_default();
        Sha256Digest::of(text.as_bytes())
    }
}

/// Why effects that were asked for are not in a preview.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Skipped {
    /// Named, and not there.
    pub not_found: u32,
    /// Settled, or not with a person.
    pub not_resolvable: u32,
    /// Named, and outside the rest of the filter.
    pub not_matching: u32,
    /// What is stored can't be read back.
    pub invalid_durable_state: u32,
}

/// A bulk decision, checked.
#[derive(Debug, Clone)]
pub struct BulkDecision {
    /// What it is about.
    pub preview: Preview,
    /// Its own idempotency key.
    pub decision_id: Name,
    /// What is decided.
    pub outcome: ResolvedOutcome,
    /// Why.
    pub reason: String,
    /// What it rests on.
    pub evidence: Box<str>,
}

/// What came of one effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BulkResult {
    /// Decided now.
    Resolved,
    /// Decided before, by this very decision.
    Replayed,
    /// It has changed since the preview; nothing was decided.
    StaleRevision,
    /// Its state does not allow it, or the decision id stands for another decision.
    StateConflict,
    /// The tool asks for four eyes.
    Forbidden,
    /// It is not there.
    NotFound,
    /// What is stored can't be read back.
    InvalidDurableState,
}

/// What came of one effect, with what was found.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct BulkItem {
    /// The operation.
    #[schema(value_type = String)]
    pub operation_id: Name,
    /// What came of it.
    pub result: BulkResult,
    /// The revision found, or made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<u32>,
    /// The state found, or entered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    /// What would be needed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<&'static str>,
}

impl Service {
    /// What a bulk resolution would decide.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn preview(&self, caller: &Principal, filter: &BulkFilter) -> Result<(Preview, Skipped), ServiceError> {
        let (mut preview, skipped) = match &filter.operation_ids {
            Some(named) => self.preview_named(caller, filter, named).await?,
            None => self.preview_queue(caller, filter).await?,
        };
        preview.count = preview.items.len();
        Ok((preview, skipped))
    }

    async fn preview_named(
        &self,
        caller: &Principal,
        filter: &BulkFilter,
        named: &[Name],
    ) -> Result<(Preview, Skipped), ServiceError> {
        let horizon = Horizon { now: self.engine().clock().now(), halves: HashMap::new() };
        let mut preview = Preview { count: 0, truncated: false, items: Vec::new() };
        let mut skipped = Skipped::default();
        for some in named.chunks(limits::COMMIT_CHANGES) {
            let keys: Vec<EffectKey> = some.iter().map(|name| EffectKey::of(&caller.tenant, name)).collect();
            for found in probe::read(self.engine().store().load(&keys)).await? {
                match found {
                    Err(_) => skipped.invalid_durable_state += 1,
                    Ok(None) => skipped.not_found += 1,
                    Ok(Some(record)) if outcomes(&record).is_empty() => skipped.not_resolvable += 1,
                    Ok(Some(record)) if !matches(filter, &horizon, &record) => skipped.not_matching += 1,
                    Ok(Some(record)) => preview.items.push(preview_item(&record)),
                }
            }
        }
        Ok((preview, skipped))
    }

    async fn preview_queue(&self, caller: &Principal, filter: &BulkFilter) -> Result<(Preview, Skipped), ServiceError> {
        let horizon = Horizon { now: self.engine().clock().now(), halves: HashMap::new() };
        let reasons = match filter.reason {
            Some(BulkReason::ManualReview) => vec![QueueReason::ManualReview],
            Some(BulkReason::Contradicted) => vec![QueueReason::Contradicted],
            None => vec![QueueReason::ManualReview, QueueReason::Contradicted],
        };
        let walks: Vec<_> = reasons.iter().flat_map(|reason| walks(&horizon, Some(*reason))).collect();
        let of_tool = QueueFilter { reason: None, tool: filter.tool.clone() };
        let mut preview = Preview { count: 0, truncated: false, items: Vec::new() };
        let mut skipped = Skipped::default();
        let (mut after, mut looked_at) = (None, 0);
        loop {
            let merged = self.merge(&caller.tenant, &walks, after, limits::PAGE_MAX).await?;
            looked_at += merged.rows.len();
            let rows: Vec<&QueueRow> = merged.rows.iter().filter(|row| belongs(&horizon, &of_tool, row)).collect();
            for (row, record) in rows.iter().zip(self.records(&caller.tenant, &rows).await?) {
                let Some(record) = record else {
                    skipped.invalid_durable_state += 1;
                    continue;
                };
                let is_asked_for = horizon.reason(row).is_some_and(|reason| reasons.contains(&reason));
                if !is_asked_for || !matches(filter, &horizon, &record) {
                    continue;
                }
                if outcomes(&record).is_empty() {
                    skipped.not_resolvable += 1;
                } else if preview.items.len() == limits::BULK_ITEMS {
                    preview.truncated = true;
                    return Ok((preview, skipped));
                } else {
                    preview.items.push(preview_item(&record));
                }
            }
            after = merged.next;
            if after.is_none() {
                return Ok((preview, skipped));
            }
            if looked_at >= limits::BULK_SCAN_ROWS {
                preview.truncated = true;
                return Ok((preview, skipped));
            }
        }
    }

    /// Decides each effect of a preview by itself, at the revision that was seen. A repeat replays what
    /// is done and does the rest.
    ///
    /// # Errors
    /// The store can't answer: some may be decided; the same request again finishes.
    pub async fn resolve_all(
        &self,
        caller: &Principal,
        decision: &BulkDecision,
    ) -> Result<(Vec<BulkItem>, BTreeMap<BulkResult, u64>), ServiceError> {
        let preview_id = decision.preview.id();
        let mut items = Vec::with_capacity(decision.preview.items.len());
        for some in decision.preview.items.chunks(limits::BULK_WIDTH) {
            let decided = join_all(some.iter().map(|item| self.resolve_one(caller, decision, &preview_id, item))).await;
            for item in decided {
                items.push(item?);
            }
        }
        let mut counts = BTreeMap::new();
        for item in &items {
            *counts.entry(item.result).or_default() += 1;
        }
        Ok((items, counts))
    }

    async fn resolve_one(
        &self,
        caller: &Principal,
        decision: &BulkDecision,
        preview_id: &Sha256Digest,
        item: &PreviewItem,
    ) -> Result<BulkItem, ServiceError> {
        let key = EffectKey::of(&caller.tenant, &item.operation_id);
        let command = Command::Resolve(Resolve {
            expected_revision: item.revision,
            decision_id: derived_id(&decision.decision_id, &item.operation_id)?,
            outcome: decision.outcome,
            reason: decision.reason.clone(),
            evidence: decision.evidence.clone(),
            bulk_decision_id: Some(decision.decision_id.clone()),
            digest: decision_digest(decision.outcome, &decision.reason, &decision.evidence, Some(preview_id)),
        });
        let answer = |result, found: Option<(u32, State)>, detail| BulkItem {
            operation_id: item.operation_id.clone(),
            result,
            revision: found.map(|found| found.0),
            state: found.map(|found| found.1),
            detail,
        };
        let known = |record: &Option<std::sync::Arc<Record>>| {
            record.as_ref().map(|record| (record.life.revision, record.life.state))
        };
        match self.engine().apply(&key, &caller.subject, command).await.map_err(ServiceError::from) {
            Ok(decided) => {
                let result = if decided.answer.replayed { BulkResult::Replayed } else { BulkResult::Resolved };
                Ok(answer(result, Some((decided.record.life.revision, decided.record.life.state)), None))
            }
            Err(ServiceError::Refused { refusal: Refusal::StaleRevision { found, state }, .. }) => {
                Ok(answer(BulkResult::StaleRevision, Some((found, state)), None))
            }
            Err(ServiceError::Refused { refusal: Refusal::StateConflict { reason, .. }, record }) => {
                Ok(answer(BulkResult::StateConflict, known(&record), Some(reason)))
            }
            Err(ServiceError::Refused { refusal: Refusal::Forbidden(reason), record }) => {
                Ok(answer(BulkResult::Forbidden, known(&record), Some(reason)))
            }
            Err(ServiceError::NotFound) => Ok(answer(BulkResult::NotFound, None, None)),
            Err(ServiceError::Corrupt(corruption)) => {
                tracing::error!(%corruption, "a stored row can't be read back");
                Ok(answer(BulkResult::InvalidDurableState, None, None))
            }
            Err(error) => Err(error),
        }
    }
}

fn matches(filter: &BulkFilter, horizon: &Horizon, record: &Record) -> bool {
    let (intent, life) = (&record.intent, &record.life);
    let is_reason = match filter.reason {
        None => true,
        Some(BulkReason::ManualReview) => life.state == State::ManualReview,
        Some(BulkReason::Contradicted) => life.state != State::ManualReview && life.contradicted,
    };
    let is_old = filter.older_than_seconds.is_none_or(|seconds| intent.created_at.plus_seconds(seconds) <= horizon.now);
    is_reason
        && is_old
        && filter.tool.as_ref().is_none_or(|tool| *tool == intent.tool)
        && filter.run_id.as_ref().is_none_or(|run| Some(run) == intent.run_id.as_ref())
}

fn preview_item(record: &Record) -> PreviewItem {
    PreviewItem {
        operation_id: record.intent.operation_id.clone(),
        revision: record.life.revision,
        state: record.life.state,
        tool: record.intent.tool.clone(),
        contradicted: record.life.contradicted,
    }
}

/// The decision id of one effect within a bulk decision: the same on every repeat and replica.
fn derived_id(bulk: &Name, operation_id: &Name) -> Result<Name, ServiceError> {
    let text = format!("actonce bulk decision v1\n{}\n{bulk}\n{operation_id}", bulk.as_str().len());
    let digest = Sha256Digest::of(text.as_bytes());
    Name::new(&format!("bulk:{}", digest.hex())).map_err(|_| ServiceError::Internal("a derived id is not a name"))
}

/// Over everything that a decision says, so that an equal repeat is known and another one is not.
#[must_use]
pub fn decision_digest(
    outcome: ResolvedOutcome,
    reason: &str,
    evidence: &str,
    preview_id: Option<&Sha256Digest>,
) -> Sha256Digest {
    let evidence = Sha256Digest::of(evidence.as_bytes());
    let preview = preview_id.map(Sha256Digest::as_str);
    let parts = serde_json::json!(["actonce resolution v1", outcome, reason, evidence.as_str(), preview]);
    Sha256Digest::of(parts.to_string().as_bytes())
}
