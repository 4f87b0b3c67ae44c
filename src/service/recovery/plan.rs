//! Plans: read-only, stored nowhere.

use std::collections::HashSet;

use super::{Looked, Service, ServiceError, root_of};
use crate::auth::Principal;
use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::record::Record;
use crate::domain::recovery::Blocker;
use crate::domain::recovery::plan::{Plan, PlanItem, Root, RootKind};
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::{Corruption, Position, Unloadable, Walk};
use crate::telemetry::probe;

/// What a plan is about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanScope {
    /// These sessions.
    Sessions(Vec<Name>),
    /// Effects in these states, none of them final.
    States(Vec<State>),
}

/// `POST /api/recovery/plans`, checked.
#[derive(Debug, Clone)]
pub struct PlanRequest {
    /// What it is about.
    pub scope: PlanScope,
    /// Effects that nobody has touched for so long, heartbeats included.
    pub inactive_for_seconds: u32,
    /// Items at most.
    pub limit: u32,
    /// Where it starts.
    pub cursor: Option<String>,
}

impl PlanRequest {
    fn walks(&self) -> Vec<Walk> {
        match &self.scope {
            PlanScope::Sessions(sessions) => sessions.iter().cloned().map(Walk::Session).collect(),
            PlanScope::States(states) => states.iter().copied().map(Walk::Open).collect(),
        }
    }

    /// What a cursor is bound to.
    fn seal(&self) -> String {
        format!("recovery plan {:?} {}", self.scope, self.inactive_for_seconds)
    }

    fn wants(&self, record: &Record, now: Timestamp) -> bool {
        let life = &record.life;
        let listed = match &self.scope {
            PlanScope::Sessions(_) => !life.state.is_terminal(),
            PlanScope::States(states) => states.contains(&life.state),
        };
        let beat = life.lease_end().zip(life.dispatch.as_ref()).map_or(life.updated_at, |(end, dispatch)| {
            end.plus_micros(i64::from(dispatch.lease_seconds).saturating_mul(-1_000_000))
        });
        // Nobody waits for nothing: two ideas of database time may differ by less than a round trip.
        let rests =
            self.inactive_for_seconds == 0 || beat.max(life.updated_at).plus_seconds(self.inactive_for_seconds) <= now;
        listed && rests
    }
}

/// How far a plan has come.
#[derive(Debug, Clone, Copy)]
struct Place {
    walk: usize,
    after: Option<Position>,
}

impl Service {
    /// Makes a plan. Looks at no more than a bounded number of rows, so that a plan may be short and
    /// still have a next one.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn recovery_plan(&self, caller: &Principal, request: &PlanRequest) -> Result<Plan, ServiceError> {
        let now = probe::read(self.engine().store().now()).await?;
        let (walks, seal) = (request.walks(), request.seal());
        let mut place = match &request.cursor {
            Some(cursor) => self.plan_place(caller, &seal, cursor)?,
            None => Place { walk: 0, after: None },
        };
        let wanted = usize::try_from(request.limit).unwrap_or(usize::MAX);
        let (mut items, mut looked_at) = (Vec::new(), 0_usize);
        // An effect that moves on from one state to another while the states are walked stands in the plan once.
        let mut seen = HashSet::new();
        while let Some(walk) = walks.get(place.walk) {
            if items.len() >= wanted || looked_at >= limits::LIST_SCAN_ROWS {
                let cursor = self.plan_cursor(caller, &seal, place);
                return Ok(Plan::new(&caller.tenant, now, items, Some(cursor)));
            }
            let left = u32::try_from(wanted.saturating_sub(items.len())).unwrap_or(u32::MAX);
            let step = limits::PAGE_MAX.min(left.max(20));
            let positions = probe::read(self.engine().store().walk(&caller.tenant, walk, place.after, step)).await?;
            let exhausted = positions.len() < usize::try_from(step).unwrap_or(usize::MAX);
            looked_at = looked_at.saturating_add(positions.len());
            let mut taken = 0_usize;
            for (position, item) in self.plan_items(caller, request, walk, &positions, now).await? {
                if items.len() >= wanted {
                    break;
                }
                taken = taken.saturating_add(1);
                place.after = Some(position);
                items.extend(item.filter(|_| seen.insert(position.effect)));
            }
            if exhausted && taken == positions.len() {
                place = Place { walk: place.walk.saturating_add(1), after: None };
            }
        }
        Ok(Plan::new(&caller.tenant, now, items, None))
    }

    /// An item per position, where the request wants one.
    async fn plan_items(
        &self,
        caller: &Principal,
        request: &PlanRequest,
        walk: &Walk,
        positions: &[Position],
        now: Timestamp,
    ) -> Result<Vec<(Position, Option<PlanItem>)>, ServiceError> {
        let key = |position: &Position| EffectKey { tenant: caller.tenant.clone(), effect: position.effect };
        let keys: Vec<EffectKey> = positions.iter().map(key).collect();
        let store = self.engine().store();
        let records = probe::read(store.load(&keys)).await?;
        let claimed = probe::read(store.recovery_claimed(&keys)).await?;
        let mut items = Vec::with_capacity(positions.len());
        for ((position, record), claimed) in positions.iter().zip(records).zip(claimed) {
            let item = match record {
                Ok(Some(record)) if request.wants(&record, now) => {
                    Some(self.plan_item(caller, &record, claimed).await?)
                }
                Ok(_) | Err(Unloadable::Pruned(_)) => None,
                Err(Unloadable::Corrupt(corruption)) => Some(unreadable(walk, position, &corruption)),
            };
            items.push((*position, item));
        }
        Ok(items)
    }

    async fn plan_item(&self, caller: &Principal, record: &Record, claimed: bool) -> Result<PlanItem, ServiceError> {
        let (fingerprint, blockers, allowed_actions) = match self.look(record, &caller.subject, claimed).await? {
            Looked::At(assessment) => (assessment.fingerprint, assessment.blockers, assessment.actions),
            Looked::Unreadable => (Sha256Digest::of(&record.head), vec![Blocker::InvalidDurableState], Vec::new()),
        };
        Ok(PlanItem {
            root: root_of(record),
            session_id: record.intent.session_id.clone(),
            operation_id: Some(record.intent.operation_id.clone()),
            revision: Some(record.life.revision),
            state: Some(record.life.state),
            fingerprint,
            blockers,
            allowed_actions,
        })
    }

    fn plan_cursor(&self, caller: &Principal, seal: &str, place: Place) -> String {
        let (micros, effect) = place.after.map_or_else(
            || (String::new(), String::new()),
            |at| (at.created_at.micros().to_string(), at.effect.to_string()),
        );
        self.data_key.seal_cursor(&caller.tenant, seal, &format!("{}:{micros}:{effect}", place.walk))
    }

    fn plan_place(&self, caller: &Principal, seal: &str, cursor: &str) -> Result<Place, ServiceError> {
        let bad = || ServiceError::invalid("/cursor", "is not a cursor of this plan");
        let text = self.data_key.open_cursor(&caller.tenant, seal, cursor).ok_or_else(bad)?;
        let mut parts = text.split(':');
        let (Some(walk), Some(micros), Some(effect)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(bad());
        };
        let after = if micros.is_empty() {
            None
        } else {
            let created_at = Timestamp::from_micros(micros.parse().map_err(|_| bad())?);
            Some(Position { created_at, effect: effect.parse().map_err(|_| bad())? })
        };
        Ok(Place { walk: walk.parse().map_err(|_| bad())?, after })
    }
}

/// A row that can't be read back is an item of its own, and nobody else's trouble.
fn unreadable(walk: &Walk, position: &Position, corruption: &Corruption) -> PlanItem {
    tracing::error!(%corruption, "a recovery plan can't read an effect back");
    let session = match walk {
        Walk::Session(session) => Some(session.clone()),
        _ => None,
    };
    let root = match &session {
        Some(session) => Root { kind: RootKind::Session, id: session.as_str().to_owned() },
        None => Root { kind: RootKind::Effect, id: position.effect.to_string() },
    };
    PlanItem {
        root,
        session_id: session,
        operation_id: None,
        revision: None,
        state: None,
        fingerprint: Sha256Digest::of(position.effect.as_bytes()),
        blockers: vec![Blocker::InvalidDurableState],
        allowed_actions: Vec::new(),
    }
}
