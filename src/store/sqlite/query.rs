//! Reading keys, lists and counts.

use sqlx::Row as _;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use uuid::Uuid;

use super::record::{column, key_of, revision_of};
use super::sql;
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::store::rows::{state_code, state_of};
use crate::store::{Corruption, OpenMark, Position, Result, Walk};

pub(super) async fn twin(readers: &SqlitePool, tenant: &Tenant, duplicate: Uuid) -> Result<Option<EffectKey>> {
    let row = sqlx::query(sql::TWIN).bind(tenant.as_str()).bind(duplicate).fetch_optional(readers).await?;
    let Some(row) = row else { return Ok(None) };
    let effect = column(&row, "open_effects", "effect", &duplicate)?;
    Ok(Some(EffectKey { tenant: tenant.clone(), effect }))
}

pub(super) async fn due(readers: &SqlitePool, now: Timestamp, limit: u32) -> Result<Vec<EffectKey>> {
    let rows = sqlx::query(sql::DUE).bind(now.micros()).bind(limit).fetch_all(readers).await?;
    // A key that can't be read must not keep a sweep from the others.
    let readable = |row: &SqliteRow| {
        key_of(row, "open_effects")
            .inspect_err(|corruption| tracing::error!(%corruption, "an open effect can't be swept"))
            .ok()
    };
    Ok(rows.iter().filter_map(readable).collect())
}

pub(super) async fn next_due(readers: &SqlitePool) -> Result<Option<Timestamp>> {
    let due: Option<i64> = sqlx::query_scalar(sql::NEXT_DUE).fetch_one(readers).await?;
    Ok(due.map(Timestamp::from_micros))
}

pub(super) async fn walk(
    readers: &SqlitePool,
    tenant: &Tenant,
    walk: &Walk,
    after: Option<Position>,
    limit: u32,
) -> Result<Vec<Position>> {
    let (table, statement) = match walk {
        Walk::All => ("entries", sql::WALK_ALL),
        Walk::Run(_) => ("entries", sql::WALK_RUN),
        Walk::Session(_) => ("entries", sql::WALK_SESSION),
        Walk::Open(_) => ("open_effects", sql::WALK_OPEN),
        Walk::Contradicted => ("open_effects", sql::WALK_CONTRADICTED),
    };
    let (created_us, effect) = match &after {
        Some(position) => (position.created_at.micros(), position.effect.as_bytes().as_slice()),
        // What was pruned was created before all times.
        None => (i64::MIN, [0xff; 16].as_slice()),
    };
    let query = sqlx::query(statement).bind(tenant.as_str()).bind(created_us).bind(effect).bind(limit);
    let query = match walk {
        Walk::All | Walk::Contradicted => query,
        Walk::Run(name) | Walk::Session(name) => query.bind(name.as_str()),
        Walk::Open(state) => query.bind(state_code(*state)),
    };
    let position = |row: &SqliteRow| -> Result<Position> {
        let effect = column(row, table, "effect", &"?")?;
        let created_us = column(row, table, "created_us", &effect)?;
        Ok(Position { created_at: Timestamp::from_micros(created_us), effect })
    };
    query.fetch_all(readers).await?.iter().map(position).collect()
}

pub(super) async fn run_states(readers: &SqlitePool, tenant: &Tenant, run: &Name) -> Result<Vec<(State, u64)>> {
    let rows = sqlx::query(sql::RUN_STATES).bind(tenant.as_str()).bind(run.as_str()).fetch_all(readers).await?;
    rows.iter().map(|row| Ok((state(row, "entries", run.as_str())?, row.try_get("effects")?))).collect()
}

pub(super) async fn open_states(readers: &SqlitePool) -> Result<Vec<(State, u64, Timestamp)>> {
    let count = |row: &SqliteRow| -> Result<(State, u64, Timestamp)> {
        let oldest = column(row, "open_effects", "created_us", &"?")?;
        Ok((state(row, "open_effects", "?")?, row.try_get("effects")?, Timestamp::from_micros(oldest)))
    };
    sqlx::query(sql::OPEN_STATES).fetch_all(readers).await?.iter().map(count).collect()
}

fn state(row: &SqliteRow, table: &'static str, key: &str) -> std::result::Result<State, Corruption> {
    let code = column(row, table, "state", &key)?;
    state_of(code).ok_or_else(|| Corruption { table, column: "state", key: key.to_owned() })
}

pub(super) async fn open_marks(readers: &SqlitePool, after: Option<EffectKey>, limit: u32) -> Result<Vec<OpenMark>> {
    let (tenant, effect) = match &after {
        Some(key) => (key.tenant.as_str(), key.effect.as_bytes().as_slice()),
        None => ("", [].as_slice()),
    };
    let mark = |row: &SqliteRow| -> Result<OpenMark> {
        let key = key_of(row, "open_effects")?;
        let revision = revision_of(row, "open_effects", &key.effect)?;
        Ok(OpenMark { key, revision })
    };
    let rows = sqlx::query(sql::OPEN_MARKS).bind(tenant).bind(effect).bind(limit).fetch_all(readers).await?;
    rows.iter().map(mark).collect()
}
