//! Reads on Postgres.

use std::result::Result as StdResult;

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::sql;
use super::wall::{Purpose, Tenants, Wall};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::record::Record;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::store::rows::{EntryColumns, bad_entry, record_of, state_code, state_of};
use crate::store::{Corruption, JournalRow, OpenMark, Position, Result, Unloadable, Walk};

/// Keys as the two arrays that statements take.
pub(super) fn columns(keys: &[EffectKey]) -> (Vec<&str>, Vec<Uuid>) {
    keys.iter().map(|key| (key.tenant.as_str(), key.effect)).unzip()
}

pub(super) async fn load(wall: &Wall, wanted: &[EffectKey]) -> Result<Vec<StdResult<Option<Record>, Unloadable>>> {
    let (tenants, effects) = columns(wanted);
    let reader = wall.scope(Tenants::of(wanted)).await?;
    let rows = sqlx::query(sql::LOAD).bind(tenants).bind(effects).fetch_all(reader).await?;
    let mut grouped: Vec<(Vec<EntryColumns>, Option<Timestamp>)> = Vec::new();
    grouped.resize_with(wanted.len(), || (Vec::new(), None));
    for row in &rows {
        let ordinal: i64 = row.try_get(0)?;
        let slot = usize::try_from(ordinal).ok().and_then(|n| n.checked_sub(1)).and_then(|n| grouped.get_mut(n));
        let Some((entries, due)) = slot else { continue };
        *due = row.try_get::<Option<i64>, _>(7)?.map(Timestamp::from_micros);
        entries.push(EntryColumns {
            revision: row.try_get(1)?,
            intent: row.try_get(2)?,
            life: row.try_get(3)?,
            receipt: row.try_get(4)?,
            result: row.try_get(5)?,
            hash: row.try_get(6)?,
        });
    }
    Ok(wanted.iter().zip(grouped).map(|(key, (entries, due))| record_of(key, entries, due)).collect())
}

pub(super) async fn revisions(wall: &Wall, wanted: &[EffectKey]) -> Result<Vec<u32>> {
    let (tenants, effects) = columns(wanted);
    let reader = wall.scope(Tenants::of(wanted)).await?;
    let found: Vec<i32> = sqlx::query_scalar(sql::REVISIONS).bind(tenants).bind(effects).fetch_all(reader).await?;
    Ok(found.into_iter().map(|revision| u32::try_from(revision).unwrap_or(0)).collect())
}

pub(super) async fn twin(wall: &Wall, tenant: &Tenant, duplicate: Uuid) -> Result<Option<EffectKey>> {
    let found: Option<Uuid> = sqlx::query_scalar(sql::TWIN)
        .bind(tenant.as_str())
        .bind(duplicate)
        .fetch_optional(wall.scope(Tenants::One(tenant)).await?)
        .await?;
    Ok(found.map(|effect| EffectKey { tenant: tenant.clone(), effect }))
}

pub(super) async fn due(wall: &Wall, limit: u32) -> Result<Vec<EffectKey>> {
    let rows =
        sqlx::query(sql::DUE).bind(i64::from(limit)).fetch_all(wall.scope(Tenants::All(Purpose::Sweep)).await?).await?;
    let mut keys = Vec::with_capacity(rows.len());
    for row in &rows {
        match key_of(row, "open_effects") {
            Ok(key) => keys.push(key),
            // One bad row must not keep the others from their deadlines.
            Err(error) => tracing::error!(%error, "an open effect can't be read back"),
        }
    }
    Ok(keys)
}

pub(super) async fn next_due(wall: &Wall) -> Result<(Option<Timestamp>, Timestamp)> {
    let row = sqlx::query(sql::NEXT_DUE).fetch_one(wall.scope(Tenants::All(Purpose::Sweep)).await?).await?;
    let due: Option<i64> = row.try_get(0)?;
    Ok((due.map(Timestamp::from_micros), Timestamp::from_micros(row.try_get(1)?)))
}

/// Tenant and effect from the first two columns.
fn key_of(row: &PgRow, table: &'static str) -> Result<EffectKey> {
    let effect: Uuid = row.try_get(1)?;
    let tenant =
        Tenant::new(row.try_get(0)?).map_err(|_| Corruption { table, column: "tenant", key: effect.to_string() })?;
    Ok(EffectKey { tenant, effect })
}

pub(super) async fn walk(
    wall: &Wall,
    tenant: &Tenant,
    walk: &Walk,
    after: Option<Position>,
    limit: u32,
) -> Result<Vec<Position>> {
    let statement = match walk {
        Walk::All => sql::WALK_ALL,
        Walk::Run(_) => sql::WALK_RUN,
        Walk::Session(_) => sql::WALK_SESSION,
        Walk::Open(_) => sql::WALK_OPEN,
        Walk::Contradicted => sql::WALK_CONTRADICTED,
    };
    let query = sqlx::query(statement)
        .bind(tenant.as_str())
        // What was pruned was created before all times.
        .bind(after.map_or(i64::MIN, |position| position.created_at.micros()))
        .bind(after.map_or(Uuid::max(), |position| position.effect))
        .bind(i64::from(limit));
    let query = match walk {
        Walk::Run(name) | Walk::Session(name) => query.bind(name.as_str()),
        Walk::Open(state) => query.bind(state_code(*state)),
        Walk::All | Walk::Contradicted => query,
    };
    let rows = query.fetch_all(wall.scope(Tenants::One(tenant)).await?).await?;
    rows.iter()
        .map(|row| Ok(Position { created_at: Timestamp::from_micros(row.try_get(0)?), effect: row.try_get(1)? }))
        .collect()
}

fn state(code: i16, column: &'static str) -> StdResult<State, Corruption> {
    state_of(code).ok_or_else(|| Corruption { table: "entries", column, key: code.to_string() })
}

fn count(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

pub(super) async fn run_states(wall: &Wall, tenant: &Tenant, run: &Name) -> Result<Vec<(State, u64)>> {
    let rows = sqlx::query(sql::RUN_STATES)
        .bind(tenant.as_str())
        .bind(run.as_str())
        .fetch_all(wall.scope(Tenants::One(tenant)).await?)
        .await?;
    rows.iter().map(|row| Ok((state(row.try_get(0)?, "state")?, count(row.try_get(1)?)))).collect()
}

pub(super) async fn open_states(wall: &Wall) -> Result<Vec<(State, u64, Timestamp)>> {
    let rows = sqlx::query(sql::OPEN_STATES).fetch_all(wall.scope(Tenants::All(Purpose::Sweep)).await?).await?;
    rows.iter()
        .map(|row| {
            let oldest = Timestamp::from_micros(row.try_get(2)?);
            Ok((state(row.try_get(0)?, "state")?, count(row.try_get(1)?), oldest))
        })
        .collect()
}

pub(super) fn journal_row(row: &PgRow, at: usize, effect: Uuid) -> Result<JournalRow> {
    let revision: i64 = row.try_get(at)?;
    Ok(JournalRow {
        revision: u32::try_from(revision).map_err(|_| bad_entry("revision", effect))?,
        entry: row.try_get(at.saturating_add(1))?,
        prev_hash: row.try_get(at.saturating_add(2))?,
        hash: row.try_get(at.saturating_add(3))?,
    })
}

pub(super) async fn journal(wall: &Wall, key: &EffectKey, after: u32, limit: u32) -> Result<Vec<JournalRow>> {
    let rows = sqlx::query(sql::JOURNAL)
        .bind(key.tenant.as_str())
        .bind(key.effect)
        .bind(i32::try_from(after).unwrap_or(i32::MAX))
        .bind(i64::from(limit))
        .fetch_all(wall.scope(Tenants::One(&key.tenant)).await?)
        .await?;
    rows.iter().map(|row| journal_row(row, 0, key.effect)).collect()
}

pub(super) async fn open_marks(wall: &Wall, after: Option<EffectKey>, limit: u32) -> Result<Vec<OpenMark>> {
    let (tenant, effect) = after.as_ref().map_or(("", Uuid::nil()), |key| (key.tenant.as_str(), key.effect));
    let rows = sqlx::query(sql::OPEN_MARKS)
        .bind(tenant)
        .bind(effect)
        .bind(i64::from(limit))
        .fetch_all(wall.scope(Tenants::All(Purpose::Verification)).await?)
        .await?;
    rows.iter()
        .map(|row| {
            let key = key_of(row, "open_effects")?;
            let revision: i64 = row.try_get(2)?;
            Ok(OpenMark { key, revision: u32::try_from(revision).unwrap_or(0) })
        })
        .collect()
}
