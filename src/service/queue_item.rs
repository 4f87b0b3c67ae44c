//! One item of the operator's queue: why it is there, what stands in its way, what can be done.

use std::collections::HashMap;
use std::sync::Arc;

use uuid::Uuid;

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::decide::{self, Context};
use crate::domain::ids::Name;
use crate::domain::record::{Record, ResolvedOutcome, ReviewReason};
use crate::domain::state::{Directive, State};
use crate::domain::time::Timestamp;
use crate::engine::EngineError;
use crate::limits;
use crate::store::{QueueRow, StoreError};

/// Why an effect stands in the queue. An effect has one reason, the first that fits.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum QueueReason {
    /// A person has to decide.
    ManualReview,
    /// Evidence excludes the recorded outcome.
    Contradicted,
    /// Its deadline passed and nothing moved it: what is stored can't be read, or no sweep runs.
    Blocked,
    /// The outcome is unknown, and half of the time to reconcile it is over.
    OutcomeUnknown,
    /// It may be claimed and nobody does.
    Unclaimed,
}

impl QueueReason {
    /// All reasons.
    pub const ALL: [Self; 5] =
        [Self::ManualReview, Self::Contradicted, Self::Blocked, Self::OutcomeUnknown, Self::Unclaimed];
}

/// What can stand in the way of an effect: the codes of protocol §9.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Blocker {
    /// What is stored can't be read back; `actonce journal verify` says more.
    InvalidDurableState,
    /// The tool was deleted, or its registration can't be read back.
    RegistrationUnavailable,
    /// The tool is paused, so nothing of it can be claimed.
    ToolPaused,
    /// People are asked and have not decided.
    ToolApprovalRequired,
    /// A dispatch is live.
    ActiveExecutionOwner,
    /// Nobody knows what the last dispatch did.
    ToolEffectOutcomeUnknown,
}

/// What an operator can do with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QueueAction {
    /// `POST …/resolution`, with one of the item's `outcomes`.
    Resolve,
    /// Reconcile by a lookup or a receipt.
    Reconcile,
    /// `POST …/verification`.
    Verify,
    /// `POST …/dispatch`, by a worker.
    Claim,
    /// `POST …/cancel`.
    Cancel,
    /// `POST …/authorization`.
    Authorize,
    /// `POST /api/tools/{name}/resume`.
    ResumeTool,
}

/// What the queue is judged by: the time, and how long doubt of each tool may last.
#[derive(Debug, Clone)]
pub(super) struct Horizon {
    pub(super) now: Timestamp,
    /// Half of the reconcile deadline, in seconds; `None` where nobody can say, so that all is shown.
    pub(super) halves: HashMap<Name, Option<u32>>,
}

impl Horizon {
    /// Created then or before, an effect has waited for a claim for too long.
    pub(super) fn unclaimed_until(&self) -> Timestamp {
        self.now.plus_micros(micros(limits::UNCLAIMED_SECONDS).saturating_neg())
    }

    /// Due then or before, an effect should have been moved.
    pub(super) fn overdue_until(&self) -> Timestamp {
        self.now.plus_micros(micros(limits::OVERDUE_SECONDS).saturating_neg())
    }

    /// Why a row stands in the queue, if it does.
    pub(super) fn reason(&self, row: &QueueRow) -> Option<QueueReason> {
        let is_overdue = row.due_at.is_some_and(|due| due <= self.overdue_until());
        let half = row.tool.as_ref().and_then(|tool| self.halves.get(tool)).copied().unwrap_or(Some(0));
        match row.state {
            Some(State::ManualReview) => Some(QueueReason::ManualReview),
            _ if row.contradicted => Some(QueueReason::Contradicted),
            _ if is_overdue => Some(QueueReason::Blocked),
            Some(State::OutcomeUnknown) => {
                let end = half.map(|half| self.now.plus_seconds(half));
                let is_near = row.doubt_until.is_none_or(|due| end.is_none_or(|end| due <= end));
                is_near.then_some(QueueReason::OutcomeUnknown)
            }
            Some(State::IntentRecorded | State::SafeToRetry) => {
                (row.position.created_at <= self.unclaimed_until()).then_some(QueueReason::Unclaimed)
            }
            _ => None,
        }
    }
}

pub(super) fn micros(seconds: u32) -> i64 {
    i64::from(seconds).saturating_mul(1_000_000)
}

/// An item of the queue.
#[derive(Debug, Clone)]
pub struct QueueItem {
    /// The effect's id in the store.
    pub effect: Uuid,
    /// Why it is here.
    pub reason: QueueReason,
    /// When the effect was created.
    pub created_at: Timestamp,
    /// Seconds since then, by database time.
    pub age_seconds: u64,
    /// The tool, where it can be read.
    pub tool: Option<Name>,
    /// The effect; `None` where it can't be read back.
    pub record: Option<Arc<Record>>,
    /// More about why.
    pub reason_codes: Vec<String>,
    /// What stands in its way.
    pub blockers: Vec<Blocker>,
    /// What can be done.
    pub actions: Vec<QueueAction>,
    /// What it may be resolved to.
    pub outcomes: Vec<ResolvedOutcome>,
}

impl Service {
    /// An item from its row and its record; `None` if the effect has moved on meanwhile.
    pub(super) async fn queue_item(
        &self,
        caller: &Principal,
        horizon: &Horizon,
        row: &QueueRow,
        record: Option<Record>,
    ) -> Result<Option<QueueItem>, ServiceError> {
        let (mut reason, mut tool) = (horizon.reason(row), row.tool.clone());
        if let Some(record) = &record {
            tool = Some(record.intent.tool.clone());
            let life = &record.life;
            // What the row says of times is what the counts went by; of an effect that has moved on since, the
            // record tells.
            let is_same = row.state == Some(life.state) && row.contradicted == life.contradicted;
            reason = if !life.is_open() {
                None
            } else if is_same {
                horizon.reason(&QueueRow { tool: tool.clone(), ..row.clone() })
            } else {
                horizon.reason(&QueueRow {
                    position: row.position,
                    state: Some(life.state),
                    due_at: life.due_at(),
                    doubt_until: life.doubt_until(),
                    contradicted: life.contradicted,
                    tool: tool.clone(),
                })
            };
        }
        let Some(reason) = reason else { return Ok(None) };
        let created_at = row.position.created_at;
        let mut item = QueueItem {
            effect: row.position.effect,
            reason,
            created_at,
            age_seconds: horizon.now.duration_since(created_at).as_secs(),
            tool,
            record: None,
            reason_codes: Vec::new(),
            blockers: vec![Blocker::InvalidDurableState],
            actions: Vec::new(),
            outcomes: Vec::new(),
        };
        if let Some(record) = record {
            let context = match self.engine().context(&record, &caller.subject).await {
                Ok(context) => Some(context),
                Err(EngineError::Store(StoreError::Corrupt(corruption)) | EngineError::Corrupt(corruption)) => {
                    tracing::warn!(%corruption, "a tool can't be read back");
                    None
                }
                Err(error) => return Err(error.into()),
            };
            item.reason_codes = reason_codes(&record);
            item.blockers = blockers(&record, context.as_ref(), horizon.now);
            item.actions = actions(&record, context.as_ref());
            item.outcomes = outcomes(&record);
            item.record = Some(Arc::new(record));
        }
        Ok(Some(item))
    }
}

fn reason_codes(record: &Record) -> Vec<String> {
    let life = &record.life;
    let word =
        |value: serde_json::Result<serde_json::Value>| value.ok().and_then(|value| value.as_str().map(str::to_owned));
    let mut codes: Vec<String> =
        life.review.and_then(|reason| word(serde_json::to_value(reason))).into_iter().collect();
    if life.contradicted && life.review != Some(ReviewReason::Contradiction) {
        codes.push("contradicted".to_owned());
    }
    if matches!(life.state, State::ManualReview | State::OutcomeUnknown) {
        codes.extend(life.failure.as_ref().and_then(|failure| word(serde_json::to_value(failure.classification))));
    }
    codes
}

fn is_claimable(state: State) -> bool {
    matches!(state, State::IntentRecorded | State::SafeToRetry)
}

fn blockers(record: &Record, context: Option<&Context>, now: Timestamp) -> Vec<Blocker> {
    let life = &record.life;
    let current = context.and_then(|context| context.current.as_ref());
    let is_paused = current.is_some_and(|tool| tool.paused);
    let asks = life.approval.as_ref().is_some_and(|approval| approval.is_open(now));
    let is_live = life.lease_end().is_some_and(|end| end > now);
    [
        (current.is_none(), Blocker::RegistrationUnavailable),
        (is_paused && (is_claimable(life.state) || life.state == State::OutcomeUnknown), Blocker::ToolPaused),
        (asks && matches!(life.state, State::Proposed | State::OutcomeUnknown), Blocker::ToolApprovalRequired),
        (is_live, Blocker::ActiveExecutionOwner),
        (life.state == State::OutcomeUnknown, Blocker::ToolEffectOutcomeUnknown),
    ]
    .into_iter()
    .filter_map(|(stands, blocker)| stands.then_some(blocker))
    .collect()
}

fn actions(record: &Record, context: Option<&Context>) -> Vec<QueueAction> {
    let state = record.life.state;
    let directive = context.map(|context| decide::directive(record, context, false));
    let is_paused = context.and_then(|context| context.current.as_ref()).is_some_and(|tool| tool.paused);
    let mut actions = match state {
        State::ManualReview => vec![QueueAction::Resolve, QueueAction::Reconcile],
        State::OutcomeUnknown => vec![QueueAction::Reconcile],
        State::Verifying => vec![QueueAction::Verify],
        State::Proposed => vec![QueueAction::Authorize, QueueAction::Cancel],
        State::Dispatched | State::IntentRecorded | State::SafeToRetry => vec![QueueAction::Cancel],
        State::Completed | State::Failed | State::Refused => vec![QueueAction::Resolve],
    };
    match directive {
        Some(Directive::Claim) => actions.push(QueueAction::Claim),
        Some(Directive::Authorize) if state == State::OutcomeUnknown => actions.push(QueueAction::Authorize),
        Some(Directive::Stop) if is_paused && !state.is_terminal() => actions.push(QueueAction::ResumeTool),
        _ => {}
    }
    actions
}

/// What the effect may be resolved to: what [`crate::domain::decide`] would take.
pub(super) fn outcomes(record: &Record) -> Vec<ResolvedOutcome> {
    let life = &record.life;
    let settling = [ResolvedOutcome::Completed, ResolvedOutcome::Failed];
    let open = [ResolvedOutcome::SafeToRetry, ResolvedOutcome::OutcomeUnknown];
    match life.state {
        State::ManualReview if life.decisions.len() >= limits::RESOLUTIONS => settling.to_vec(),
        State::ManualReview => settling.into_iter().chain(open).collect(),
        state if state.is_terminal() && life.contradicted => settling.to_vec(),
        _ => Vec::new(),
    }
}
