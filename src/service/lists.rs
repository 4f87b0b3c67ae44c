//! Lists of effects, and runs.

use std::sync::Arc;

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::decide::Answer;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::record::Record;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::engine::{Decided, EngineError};
use crate::limits;
use crate::store::{Position, Walk};
use crate::telemetry::probe;

/// What a list of effects is filtered by (protocol §5).
#[derive(Debug, Clone, Default)]
pub struct EffectFilter {
    /// The state now.
    pub state: Option<State>,
    /// The tool.
    pub tool: Option<Name>,
    /// The target.
    pub target: Option<Name>,
    /// The run.
    pub run_id: Option<Name>,
    /// The session.
    pub session_id: Option<Name>,
    /// The worker of the newest dispatch.
    pub worker: Option<Name>,
    /// Flagged as contradicted, or not.
    pub contradicted: Option<bool>,
    /// Last changed before this time.
    pub updated_before: Option<Timestamp>,
}

/// A page of effects.
#[derive(Debug)]
pub struct EffectPage {
    /// The effects, oldest first.
    pub items: Vec<Decided>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

/// A run: how many effects are in each state.
#[derive(Debug)]
pub struct Run {
    /// Counts per state.
    pub counts: Vec<(State, u64)>,
    /// A page of its effects.
    pub page: EffectPage,
}

pub(super) fn bad_cursor() -> ServiceError {
    ServiceError::invalid("query:cursor", "is not a cursor of this list")
}

impl EffectFilter {
    /// The index to walk along: the narrowest that the filter names.
    fn walk(&self) -> Walk {
        if let Some(run) = &self.run_id {
            Walk::Run(run.clone())
        } else if let Some(session) = &self.session_id {
            Walk::Session(session.clone())
        } else if let Some(state) = self.state.filter(|state| !state.is_terminal()) {
            Walk::Open(state)
        } else if self.contradicted == Some(true) {
            Walk::Contradicted
        } else {
            Walk::All
        }
    }

    fn matches(&self, record: &Record) -> bool {
        let (intent, life) = (&record.intent, &record.life);
        let is =
            |wanted: &Option<Name>, found: Option<&Name>| wanted.as_ref().is_none_or(|wanted| found == Some(wanted));
        self.state.is_none_or(|state| state == life.state)
            && is(&self.tool, Some(&intent.tool))
            && is(&self.target, Some(&intent.target))
            && is(&self.run_id, intent.run_id.as_ref())
            && is(&self.session_id, intent.session_id.as_ref())
            && is(&self.worker, life.dispatch.as_ref().map(|dispatch| &dispatch.worker))
            && self.contradicted.is_none_or(|flag| flag == life.contradicted)
            && self.updated_before.is_none_or(|before| life.updated_at < before)
    }

    /// The filter as a text that a cursor is bound to.
    fn seal(&self) -> String {
        format!("{self:?}")
    }
}

impl Service {
    /// A page of effects. Filters beyond the index are applied to at most
    /// [`limits::LIST_SCAN_ROWS`] rows, so a page may be short and still have a next one.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn list(
        &self,
        caller: &Principal,
        filter: &EffectFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<EffectPage, ServiceError> {
        let seal = filter.seal();
        let mut after = match cursor {
            Some(cursor) => Some(self.position(caller, &seal, cursor)?),
            None => None,
        };
        let walk = filter.walk();
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut items: Vec<Decided> = Vec::new();
        let mut looked_at = 0;
        loop {
            let step = limits::PAGE_MAX.min(limit.saturating_add(1).max(20));
            let positions = probe::read(self.engine().store().walk(&caller.tenant, &walk, after, step)).await?;
            let exhausted = positions.len() < usize::try_from(step).unwrap_or(usize::MAX);
            looked_at += positions.len();
            let keys: Vec<EffectKey> = positions
                .iter()
                .map(|position| EffectKey { tenant: caller.tenant.clone(), effect: position.effect })
                .collect();
            let records = probe::read(self.engine().store().load(&keys)).await?;
            for (position, record) in positions.iter().zip(records) {
                if items.len() == wanted {
                    return Ok(EffectPage { items, next_cursor: self.seal_position(caller, &seal, after) });
                }
                after = Some(*position);
                // A row that can't be read back hides itself alone; `journal verify` names it.
                if let Ok(Some(record)) = record
                    && filter.matches(&record)
                {
                    items.push(self.listed(caller, record).await?);
                }
            }
            if exhausted {
                return Ok(EffectPage { items, next_cursor: None });
            }
            if looked_at >= limits::LIST_SCAN_ROWS {
                return Ok(EffectPage { items, next_cursor: self.seal_position(caller, &seal, after) });
            }
        }
    }

    /// A run: counts over all its effects, and a page of them.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn run(
        &self,
        caller: &Principal,
        run: &Name,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Run, ServiceError> {
        let counts = probe::read(self.engine().store().run_states(&caller.tenant, run)).await?;
        if counts.is_empty() {
            return Err(ServiceError::NotFound);
        }
        let filter = EffectFilter { run_id: Some(run.clone()), ..EffectFilter::default() };
        let page = self.list(caller, &filter, cursor, limit).await?;
        Ok(Run { counts, page })
    }

    async fn listed(&self, caller: &Principal, record: Record) -> Result<Decided, EngineError> {
        let context = self.engine().context(&record, &caller.subject).await?;
        let answer = Answer { owns_dispatch: false, replayed: false };
        Ok(Decided { record: Arc::new(record), answer, context, created: false })
    }

    /// Where a list goes on that is read by a key of its own; `None` without a cursor.
    pub(super) fn place_after<T>(
        &self,
        caller: &Principal,
        list: &str,
        cursor: Option<&str>,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, ServiceError> {
        let Some(cursor) = cursor else { return Ok(None) };
        let text = self.data_key.open_cursor(&caller.tenant, list, cursor);
        text.and_then(|text| read(&text)).map(Some).ok_or_else(bad_cursor)
    }

    /// Cuts rows to a page, of which one more was asked for; where the next page begins, if there is one.
    pub(super) fn cut_to_page<T>(
        &self,
        caller: &Principal,
        list: &str,
        rows: &mut Vec<T>,
        limit: u32,
        place: impl FnOnce(&T) -> String,
    ) -> Option<String> {
        let page = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > page;
        rows.truncate(page);
        let last = rows.last().filter(|_| more)?;
        Some(self.data_key.seal_cursor(&caller.tenant, list, &place(last)))
    }

    pub(super) fn position(&self, caller: &Principal, seal: &str, cursor: &str) -> Result<Position, ServiceError> {
        let text = self.data_key.open_cursor(&caller.tenant, seal, cursor).ok_or_else(bad_cursor)?;
        let (micros, effect) = text.split_once(':').ok_or_else(bad_cursor)?;
        Ok(Position {
            created_at: Timestamp::from_micros(micros.parse().map_err(|_| bad_cursor())?),
            effect: effect.parse().map_err(|_| bad_cursor())?,
        })
    }

    pub(super) fn seal_position(&self, caller: &Principal, seal: &str, position: Option<Position>) -> Option<String> {
        position.map(|position| {
            let text = format!("{}:{}", position.created_at.micros(), position.effect);
            self.data_key.seal_cursor(&caller.tenant, seal, &text)
        })
    }
}
