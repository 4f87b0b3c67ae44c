//! Reading journal rows, and records from them.

use serde::Serialize;
use sqlx::sqlite::{SqlitePool, SqliteRow};
use sqlx::types::Json;
use sqlx::{Decode, Row as _, Sqlite, Type};
use uuid::Uuid;

use super::sql;
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::record::Record;
use crate::domain::time::Timestamp;
use crate::store::rows::{EntryColumns, bad_entry, record_of};
use crate::store::{Corruption, JournalRow, Result, Unloadable};

/// One column of a row; what can't be read is a corruption of that table, column and key.
pub(super) fn column<'r, T>(
    row: &'r SqliteRow,
    table: &'static str,
    column: &'static str,
    key: &dyn std::fmt::Display,
) -> std::result::Result<T, Corruption>
where
    T: Decode<'r, Sqlite> + Type<Sqlite>,
{
    row.try_get(column).map_err(|_| Corruption { table, column, key: key.to_string() })
}

/// The columns `tenant` and `effect` as a key.
pub(super) fn key_of(row: &SqliteRow, table: &'static str) -> std::result::Result<EffectKey, Corruption> {
    let effect: Uuid = column(row, table, "effect", &"?")?;
    let tenant: &str = column(row, table, "tenant", &effect)?;
    let tenant = Tenant::new(tenant).map_err(|_| Corruption { table, column: "tenant", key: effect.to_string() })?;
    Ok(EffectKey { tenant, effect })
}

/// The column `revision`, which is never negative.
pub(super) fn revision_of(
    row: &SqliteRow,
    table: &'static str,
    key: &dyn std::fmt::Display,
) -> std::result::Result<u32, Corruption> {
    column(row, table, "revision", key)
}

/// A key as the statements take it.
#[derive(Serialize)]
pub(super) struct Wanted<'a> {
    tenant: &'a Tenant,
    effect: Uuid,
}

pub(super) fn wanted(keys: &[EffectKey]) -> Json<Vec<Wanted<'_>>> {
    Json(keys.iter().map(|key| Wanted { tenant: &key.tenant, effect: key.effect }).collect())
}

/// The place of the key that a row answers.
pub(super) fn number_of(row: &SqliteRow) -> Result<usize> {
    let number: u32 = row.try_get("number")?;
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

/// What was found for one key so far.
#[derive(Default)]
struct Gathered {
    rows: Vec<EntryColumns>,
    due: Option<Timestamp>,
}

pub(super) async fn load(
    readers: &SqlitePool,
    keys: &[EffectKey],
) -> Result<Vec<std::result::Result<Option<Record>, Unloadable>>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let rows = sqlx::query(sql::LOAD).bind(wanted(keys)).fetch_all(readers).await?;
    let mut all: Vec<std::result::Result<Gathered, Corruption>> =
        keys.iter().map(|_| Ok(Gathered::default())).collect();
    for row in &rows {
        let number = number_of(row)?;
        let (Some(slot), Some(key)) = (all.get_mut(number), keys.get(number)) else { continue };
        let Ok(gathered) = slot else { continue };
        if let Err(corruption) = gather(row, key, gathered) {
            *slot = Err(corruption);
        }
    }
    let build = |(key, gathered): (&EffectKey, std::result::Result<Gathered, Corruption>)| {
        let Gathered { mut rows, due } = gathered?;
        rows.sort_unstable_by_key(|row| row.revision);
        record_of(key, rows, due)
    };
    Ok(keys.iter().zip(all).map(build).collect())
}

fn gather(row: &SqliteRow, key: &EffectKey, gathered: &mut Gathered) -> std::result::Result<(), Corruption> {
    let bad = |column| bad_entry(column, key.effect);
    gathered.rows.push(EntryColumns {
        revision: row.try_get("revision").map_err(|_| bad("revision"))?,
        intent: row.try_get("intent").map_err(|_| bad("intent"))?,
        life: row.try_get("life").map_err(|_| bad("life"))?,
        receipt: row.try_get("receipt").map_err(|_| bad("receipt"))?,
        result: row.try_get("result").map_err(|_| bad("result"))?,
        hash: row.try_get("hash").map_err(|_| bad("hash"))?,
    });
    let due: Option<i64> = column(row, "open_effects", "due_us", &key.effect)?;
    gathered.due = due.map(Timestamp::from_micros);
    Ok(())
}

pub(super) async fn revisions(readers: &SqlitePool, keys: &[EffectKey]) -> Result<Vec<u32>> {
    let mut newest = vec![0; keys.len()];
    if keys.is_empty() {
        return Ok(newest);
    }
    for row in &sqlx::query(sql::REVISIONS).bind(wanted(keys)).fetch_all(readers).await? {
        let number = number_of(row)?;
        if let (Some(slot), Some(key)) = (newest.get_mut(number), keys.get(number)) {
            *slot = revision_of(row, "entries", &key.effect)?;
        }
    }
    Ok(newest)
}

pub(super) async fn journal(readers: &SqlitePool, key: &EffectKey, after: u32, limit: u32) -> Result<Vec<JournalRow>> {
    let rows = sqlx::query(sql::JOURNAL)
        .bind(key.tenant.as_str())
        .bind(key.effect)
        .bind(after)
        .bind(limit)
        .fetch_all(readers)
        .await?;
    rows.iter().map(|row| Ok(journal_row(row, key)?)).collect()
}

pub(super) fn journal_row(row: &SqliteRow, key: &EffectKey) -> std::result::Result<JournalRow, Corruption> {
    Ok(JournalRow {
        revision: revision_of(row, "entries", &key.effect)?,
        entry: column(row, "entries", "entry", &key.effect)?,
        prev_hash: column(row, "entries", "prev_hash", &key.effect)?,
        hash: column(row, "entries", "hash", &key.effect)?,
    })
}
