//! One batch, one transaction, two calls to the database: begin and look, write and commit.

use std::collections::HashSet;
use std::time::Instant;

use serde::Serialize;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::plan::plan;
use super::{SqliteStore, beside, sql};
use crate::domain::ids::Tenant;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::store::rows::state_code;
use crate::store::{ChangeSet, Committed, Postponed, Renewal, Result, RevisionRow};
use crate::telemetry::probe;

pub(super) async fn commit(store: &SqliteStore, batch: &[ChangeSet]) -> Result<Vec<Committed>> {
    if batch.is_empty() {
        return Ok(Vec::new());
    }
    let probes: Vec<Probe<'_>> = batch.iter().map(Probe::of).collect();
    let mut lent = store.writer.lend().await?;
    let rows = sqlx::query(sql::LOOK).bind(Json(&probes)).fetch_all(&mut lent.connection).await?;
    let mut found: Vec<Option<Found>> = Vec::new();
    found.resize_with(batch.len(), || None);
    for row in &rows {
        let number: i64 = row.try_get("number")?;
        store.clock.reach(row.try_get("latest_us")?);
        if let Some(slot) = usize::try_from(number).ok().and_then(|number| found.get_mut(number)) {
            *slot = Some(Found::read(row)?);
        }
    }
    let now = store.clock.now();
    let mut outcome = judge(batch, &found, now);
    if beside::is_in(batch) {
        beside::write(&mut lent.connection, batch, &mut outcome, now).await?;
    }
    match plan(batch, &outcome, now) {
        Some((plan, documents)) => {
            let began = Instant::now();
            sqlx::query(sql::WRITE).bind(Json(&plan)).bind(documents).execute(&mut lent.connection).await?;
            probe::committed(began);
        }
        None => {
            sqlx::query(sql::ROLLBACK).execute(&mut lent.connection).await?;
        }
    }
    lent.give_back();
    Ok(outcome)
}

/// What to look up for one change.
#[derive(Serialize)]
struct Probe<'a> {
    tenant: &'a Tenant,
    effect: Uuid,
    revision: u32,
    duplicate: Option<Uuid>,
    tool: Option<&'a str>,
}

impl<'a> Probe<'a> {
    fn of(change: &'a ChangeSet) -> Self {
        let key = change.key();
        let (revision, duplicate, tool) = match change {
            ChangeSet::Revise(row) => (
                row.revision,
                row.open.as_ref().and_then(|open| open.duplicate),
                row.tool_stamp.as_ref().map(|(name, _)| name.as_str()),
            ),
            ChangeSet::Renew(renewal) => (renewal.revision, None, None),
        };
        Self { tenant: &key.tenant, effect: key.effect, revision, duplicate, tool }
    }
}

/// What is there for one change, before the batch.
struct Found {
    /// The newest revision.
    newest: Option<i64>,
    /// Whether the revision itself is there.
    taken: bool,
    open: Option<FoundOpen>,
    /// The stamp of the tool, if it is there and not deleted.
    stamp: Option<i64>,
    /// Whether another open effect has the duplicate key.
    twin: bool,
}

struct FoundOpen {
    revision: i64,
    state: i64,
    fence: i64,
    due_us: Option<i64>,
}

impl Found {
    fn read(row: &SqliteRow) -> Result<Self> {
        let open = match row.try_get("open_revision")? {
            None => None,
            Some(revision) => Some(FoundOpen {
                revision,
                state: row.try_get("state")?,
                fence: row.try_get("fence")?,
                due_us: row.try_get("due_us")?,
            }),
        };
        let deleted: Option<bool> = row.try_get("deleted")?;
        Ok(Self {
            newest: row.try_get("newest")?,
            taken: row.try_get("taken")?,
            open,
            stamp: if deleted == Some(false) { row.try_get("stamp")? } else { None },
            twin: row.try_get("twin")?,
        })
    }
}

/// Which changes find what they expect. Everything is compared with what was there before the
/// batch; of two changes of one effect, or two effects with one duplicate key, the first wins.
fn judge(batch: &[ChangeSet], found: &[Option<Found>], now: Timestamp) -> Vec<Committed> {
    let mut effects = HashSet::new();
    let mut duplicates = HashSet::new();
    batch
        .iter()
        .zip(found)
        .map(|(change, found)| {
            let key = change.key();
            let duplicate = match change {
                ChangeSet::Revise(row) => row.open.as_ref().and_then(|open| open.duplicate),
                ChangeSet::Renew(_) => None,
            };
            let free = !effects.contains(key) && duplicate.is_none_or(|d| !duplicates.contains(&(&key.tenant, d)));
            let expected = found.as_ref().is_some_and(|found| match change {
                ChangeSet::Revise(row) => may_revise(row, found, now),
                ChangeSet::Renew(renewal) => may_renew(renewal, found, now),
            });
            if !(free && expected) {
                return Committed::Lost;
            }
            effects.insert(key);
            duplicates.extend(duplicate.map(|d| (&key.tenant, d)));
            Committed::Applied
        })
        .collect()
}

/// The conditions of [`RevisionRow`].
fn may_revise(row: &RevisionRow, found: &Found, now: Timestamp) -> bool {
    let before = i64::from(row.revision) - 1;
    let next = !found.taken && (row.intent.is_some() || found.newest == Some(before));
    let open = !row.was_open
        || found.open.as_ref().is_some_and(|open| {
            open.revision == before
                && row.lease_seen.is_none_or(|seen| open.due_us == Some(seen.micros()) && seen <= now)
        });
    let tool = row.tool_stamp.as_ref().is_none_or(|(_, stamp)| found.stamp == Some(*stamp));
    next && open && tool && !found.twin
}

/// The conditions of [`Renewal`].
fn may_renew(renewal: &Renewal, found: &Found, now: Timestamp) -> bool {
    found.open.as_ref().is_some_and(|open| {
        open.revision == i64::from(renewal.revision)
            && open.fence == i64::from(renewal.fence)
            && open.state == i64::from(state_code(State::Dispatched))
            && open.due_us.is_some_and(|due| due > now.micros())
    })
}

/// Puts off what is due (see [`Postponed`]).
pub(super) async fn postpone(store: &SqliteStore, rows: &[Postponed]) -> Result<Vec<Uuid>> {
    #[derive(Serialize)]
    struct Row<'a> {
        tenant: &'a Tenant,
        effect: Uuid,
        revision: u32,
        until_us: i64,
    }
    let rows: Vec<Row<'_>> = rows
        .iter()
        .map(|row| Row {
            tenant: &row.key.tenant,
            effect: row.key.effect,
            revision: row.revision,
            until_us: row.until.micros(),
        })
        .collect();
    let mut lent = store.writer.lend().await?;
    let done = sqlx::query(sql::POSTPONE)
        .bind(Json(&rows))
        .bind(store.clock.now().micros())
        .fetch_all(&mut lent.connection)
        .await?;
    lent.give_back();
    done.iter().map(|row| Ok(row.try_get(0)?)).collect()
}
