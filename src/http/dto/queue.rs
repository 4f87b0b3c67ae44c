//! The operator's queue as answered.

use std::collections::BTreeMap;

use serde::Serialize;
use uuid::Uuid;

use crate::domain::ids::Name;
use crate::domain::record::{ResolvedOutcome, ReviewReason};
use crate::domain::state::{EffectClass, State};
use crate::domain::time::Timestamp;
use crate::service::bulk::{BulkItem, BulkResult, Preview, Skipped};
use crate::service::queue::QueuePage;
use crate::service::queue_item::{Blocker, QueueAction, QueueItem, QueueReason};

/// An effect that somebody has to look at. What can't be read back is shown by its `effect_id` alone,
/// with the blocker `invalid_durable_state`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = QueueItem)]
pub struct QueueItemView {
    /// The effect's id in the store, as `actonce journal verify` names it.
    effect_id: Uuid,
    /// Why it is here.
    reason: QueueReason,
    /// More about why: the reason of the review, how the last attempt went wrong.
    reason_codes: Vec<String>,
    /// What stands in its way.
    blockers: Vec<Blocker>,
    /// What can be done.
    actions: Vec<QueueAction>,
    /// What it may be resolved to.
    outcomes: Vec<ResolvedOutcome>,
    /// When the effect was created.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Seconds since then, by database time.
    age_seconds: u64,
    /// The tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    tool: Option<String>,
    /// The effect.
    #[serde(flatten)]
    effect: QueueEffect,
}

/// What is shown of an effect: all of it where it can be read back, and otherwise nothing.
#[derive(Debug, Default, Serialize, utoipa::ToSchema)]
pub struct QueueEffect {
    /// The operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation_id: Option<String>,
    /// The effect class.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<EffectClass>,
    /// What is acted on.
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    /// The state.
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    /// The revision, for `If-Match`.
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<u32>,
    /// When this revision was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    updated_at: Option<Timestamp>,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<String>,
    /// The session.
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<String>,
    /// Since when the outcome is unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    unknown_since: Option<Timestamp>,
    /// When the state is left by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    deadline_at: Option<Timestamp>,
    /// Why a person has to look.
    #[serde(skip_serializing_if = "Option::is_none")]
    review_reason: Option<ReviewReason>,
    /// Whether evidence excludes the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    contradicted: Option<bool>,
    /// Late reports that were stored as evidence.
    #[serde(skip_serializing_if = "Option::is_none")]
    late_reports: Option<usize>,
}

impl From<QueueItem> for QueueItemView {
    fn from(item: QueueItem) -> Self {
        let text = |name: &Name| name.as_str().to_owned();
        let effect = item.record.as_ref().map(|record| {
            let (intent, life) = (&record.intent, &record.life);
            QueueEffect {
                operation_id: Some(text(&intent.operation_id)),
                effect: Some(intent.class),
                target: Some(text(&intent.target)),
                state: Some(life.state),
                revision: Some(life.revision),
                updated_at: Some(life.updated_at),
                run_id: intent.run_id.as_ref().map(text),
                session_id: intent.session_id.as_ref().map(text),
                unknown_since: life.unknown_since,
                deadline_at: life.lease_end().or(life.deadline_at),
                review_reason: life.review,
                contradicted: Some(life.contradicted),
                late_reports: Some(life.reports.iter().filter(|mark| mark.evidence_only).count()),
            }
        });
        Self {
            effect_id: item.effect,
            reason: item.reason,
            reason_codes: item.reason_codes,
            blockers: item.blockers,
            actions: item.actions,
            outcomes: item.outcomes,
            created_at: item.created_at,
            age_seconds: item.age_seconds,
            tool: item.tool.as_ref().map(text),
            effect: effect.unwrap_or_default(),
        }
    }
}

/// A page of the queue.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = QueuePage)]
pub struct QueueDocument {
    /// The items, oldest first.
    items: Vec<QueueItemView>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
    /// How many there are by reason, whatever `reason` the request names. On the first page alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<BTreeMap<String, u64>>)]
    counts: Option<BTreeMap<QueueReason, u64>>,
    /// Whether there are more than these counts say: each is exact up to 10,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    counts_capped: Option<bool>,
}

impl From<QueuePage> for QueueDocument {
    fn from(page: QueuePage) -> Self {
        Self {
            items: page.items.into_iter().map(QueueItemView::from).collect(),
            next_cursor: page.next_cursor,
            counts_capped: page.counts.as_ref().map(|counts| counts.is_capped),
            counts: page.counts.map(|counts| counts.counts),
        }
    }
}

/// A preview with its id.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ResolutionPreviewAnswer)]
pub struct PreviewDocument {
    /// To be given back as it is.
    #[schema(inline = false)]
    pub preview: Preview,
    /// The digest over all of it.
    pub preview_id: String,
    /// What was asked for and is not in it.
    pub skipped: Skipped,
}

/// What came of a bulk resolution.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = BulkResolutionAnswer)]
pub struct BulkDocument {
    /// The decision.
    pub decision_id: String,
    /// What was decided.
    pub outcome: ResolvedOutcome,
    /// How many came to what.
    #[schema(value_type = BTreeMap<String, u64>)]
    pub counts: BTreeMap<BulkResult, u64>,
    /// One answer per effect, in the order of the preview.
    pub items: Vec<BulkItem>,
}
