//! The operator's queue: everything that a person has to look at, oldest first (law 10).
//!
//! It is made of walks along indexes of the open effects, merged by their order of creation; whether a
//! row belongs in is decided in one place, [`Horizon::reason`].

use std::collections::{BTreeMap, HashMap};

use super::queue_item::{Horizon, QueueItem, QueueReason, micros};
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::record::Record;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::engine::EngineError;
use crate::limits;
use crate::store::{DoubtBound, Position, QueueRow, QueueWalk, StoreError};
use crate::telemetry::probe;

/// Records loaded by one call.
const LOAD: usize = 256;

/// What the queue is filtered by.
#[derive(Debug, Clone, Default)]
pub struct QueueFilter {
    /// The reason.
    pub reason: Option<QueueReason>,
    /// The tool.
    pub tool: Option<Name>,
}

/// How many effects stand in the queue.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// By reason.
    pub counts: BTreeMap<QueueReason, u64>,
    /// Whether there are more than were counted.
    pub is_capped: bool,
}

/// A page of the queue.
#[derive(Debug)]
pub struct QueuePage {
    /// The items, oldest first.
    pub items: Vec<QueueItem>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
    /// With the first page alone.
    pub counts: Option<QueueCounts>,
}

/// A part of the merged walks.
pub(super) struct Merged {
    /// Rows in order, each once.
    pub(super) rows: Vec<QueueRow>,
    /// From where to go on; `None` at the end.
    pub(super) next: Option<Position>,
}

impl Service {
    /// A page of the queue. Looks at a bounded number of rows, so a page may be short and still have a
    /// next one.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn queue(
        &self,
        caller: &Principal,
        filter: &QueueFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<QueuePage, ServiceError> {
        let seal = format!("queue {filter:?}");
        let mut after = cursor.map(|cursor| self.position(caller, &seal, cursor)).transpose()?;
        let horizon = self.horizon(&caller.tenant, filter.tool.as_ref()).await?;
        let counts = match after {
            None => Some(self.queue_counts(&caller.tenant, filter, &horizon).await?),
            Some(_) => None,
        };
        let walks = walks(&horizon, filter.reason);
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let step = limits::PAGE_MAX.min(limit.saturating_add(1).max(20));
        let (mut items, mut looked_at) = (Vec::new(), 0);
        loop {
            let merged = self.merge(&caller.tenant, &walks, after, step).await?;
            looked_at += merged.rows.len();
            let belongs = |row: &&QueueRow| belongs(&horizon, filter, row);
            let rows: Vec<&QueueRow> = merged.rows.iter().filter(belongs).collect();
            for some in rows.chunks(LOAD) {
                let records = self.records(&caller.tenant, some).await?;
                for (row, record) in some.iter().zip(records) {
                    if items.len() == wanted {
                        return Ok(QueuePage { items, next_cursor: self.seal_position(caller, &seal, after), counts });
                    }
                    after = Some(row.position);
                    let item = self.queue_item(caller, &horizon, row, record).await?;
                    items.extend(item.filter(|item| filter.reason.is_none_or(|reason| reason == item.reason)));
                }
            }
            after = merged.next;
            if after.is_none() || looked_at >= limits::QUEUE_SCAN_ROWS {
                return Ok(QueuePage { items, next_cursor: self.seal_position(caller, &seal, after), counts });
            }
        }
    }

    /// Time, and how long doubt of each tool may last.
    pub(super) async fn horizon(&self, tenant: &Tenant, only: Option<&Name>) -> Result<Horizon, ServiceError> {
        let engine = self.engine();
        let tools = match only {
            Some(tool) => vec![tool.clone()],
            None => engine.store().doubtful_tools(tenant, limits::QUEUE_TOOLS).await?,
        };
        let mut halves = HashMap::new();
        for tool in tools {
            let seconds = match engine.tools().current(tenant, &tool).await {
                Ok(Some(tool)) => Some(tool.spec.reconcile_deadline_seconds / 2),
                Ok(None) => Some(engine.tools().ad_hoc().spec.reconcile_deadline_seconds / 2),
                Err(StoreError::Corrupt(_)) => None,
                Err(error) => return Err(error.into()),
            };
            halves.insert(tool, seconds);
        }
        Ok(Horizon { now: engine.clock().now(), halves })
    }

    /// How many there are, without looking at records. Up to [`limits::QUEUE_COUNT`] per walk.
    async fn queue_counts(
        &self,
        tenant: &Tenant,
        filter: &QueueFilter,
        horizon: &Horizon,
    ) -> Result<QueueCounts, ServiceError> {
        let any_reason = QueueFilter { reason: None, tool: filter.tool.clone() };
        let mut found = QueueCounts { counts: QueueReason::ALL.map(|reason| (reason, 0)).into(), is_capped: false };
        let mut seen = std::collections::HashSet::new();
        for walk in walks(horizon, None) {
            let rows = probe::read(self.engine().store().queue(tenant, &walk, None, limits::QUEUE_COUNT)).await?;
            found.is_capped |= rows.len() == usize::try_from(limits::QUEUE_COUNT).unwrap_or(usize::MAX);
            for row in rows.iter().filter(|row| belongs(horizon, &any_reason, row)) {
                if let (true, Some(reason)) = (seen.insert(row.position.effect), horizon.reason(row)) {
                    *found.counts.entry(reason).or_default() += 1;
                }
            }
        }
        Ok(found)
    }

    /// The next rows of several walks, in order. A walk that has more rows than it gave bounds how far
    /// the others count.
    pub(super) async fn merge(
        &self,
        tenant: &Tenant,
        walks: &[QueueWalk],
        after: Option<Position>,
        step: u32,
    ) -> Result<Merged, ServiceError> {
        let mut rows: Vec<QueueRow> = Vec::new();
        let mut next: Option<Position> = None;
        for walk in walks {
            let found = probe::read(self.engine().store().queue(tenant, walk, after, step)).await?;
            if found.len() >= usize::try_from(step).unwrap_or(usize::MAX)
                && let Some(last) = found.last()
            {
                next = Some(next.map_or(last.position, |next| next.min(last.position)));
            }
            rows.extend(found);
        }
        rows.sort_unstable_by_key(|row| row.position);
        rows.dedup_by_key(|row| row.position);
        rows.retain(|row| next.is_none_or(|next| row.position <= next));
        Ok(Merged { rows, next })
    }

    /// The records of rows, `None` where one can't be read back or is not there.
    pub(super) async fn records(
        &self,
        tenant: &Tenant,
        rows: &[&QueueRow],
    ) -> Result<Vec<Option<Record>>, EngineError> {
        let key = |row: &&QueueRow| EffectKey { tenant: tenant.clone(), effect: row.position.effect };
        let keys: Vec<EffectKey> = rows.iter().map(key).collect();
        let loaded = probe::read(self.engine().store().load(&keys)).await?;
        Ok(loaded.into_iter().map(Result::unwrap_or_default).collect())
    }
}

/// Whether a row belongs into the queue that is asked for.
pub(super) fn belongs(horizon: &Horizon, filter: &QueueFilter, row: &QueueRow) -> bool {
    let reason = horizon.reason(row);
    let fits = filter.tool.is_none() || filter.tool == row.tool;
    fits && reason.is_some() && filter.reason.is_none_or(|wanted| reason == Some(wanted))
}

/// The walks in which all effects with a reason, or any, are found.
pub(super) fn walks(horizon: &Horizon, reason: Option<QueueReason>) -> Vec<QueueWalk> {
    let state = |state, created_until| QueueWalk::State { state, created_until };
    let doubt = || {
        let bound = |(tool, half): (&Name, &Option<u32>)| DoubtBound {
            tool: tool.clone(),
            // It was created before it became doubtful, so half of the time has passed since at least.
            created_until_us: half
                .map_or(i64::MAX, |half| horizon.now.plus_micros(micros(half).saturating_neg()).micros()),
            doubt_until_us: half.map_or(i64::MAX, |half| horizon.now.plus_seconds(half).micros()),
        };
        QueueWalk::Doubt(horizon.halves.iter().map(bound).collect())
    };
    match reason {
        None => QueueReason::ALL.into_iter().flat_map(|reason| walks(horizon, Some(reason))).collect(),
        Some(QueueReason::ManualReview) => vec![state(State::ManualReview, Timestamp::from_micros(i64::MAX))],
        Some(QueueReason::Contradicted) => vec![QueueWalk::Contradicted],
        Some(QueueReason::Blocked) => vec![QueueWalk::Overdue { due_until: horizon.overdue_until() }],
        Some(QueueReason::OutcomeUnknown) => vec![doubt()],
        Some(QueueReason::Unclaimed) => {
            [State::IntentRecorded, State::SafeToRetry].map(|open| state(open, horizon.unclaimed_until())).into()
        }
    }
}
