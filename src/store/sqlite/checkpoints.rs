//! Signed checkpoints on SQLite.

use async_trait::async_trait;
use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use sqlx::{Connection as _, Row as _};
use uuid::Uuid;

use super::SqliteStore;
use super::record::{column, number_of};
use super::sql::{self as all, checkpoints as sql};
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::checkpoints::{CheckpointRow, CheckpointStore, Mark, Moved, MovedRow};
use crate::store::{Corruption, Result};

const TABLE: &str = "checkpoints";

#[derive(Serialize)]
struct Wanted<'a> {
    tenant: &'a Tenant,
    effect: Uuid,
    revision: u32,
}

fn checkpoint(row: &SqliteRow) -> std::result::Result<CheckpointRow, Corruption> {
    Ok(CheckpointRow {
        tenant: column(row, TABLE, "tenant", &"?")?,
        number: column(row, TABLE, "number", &"?")?,
        at: Timestamp::from_micros(column(row, TABLE, "at_us", &"?")?),
        jws: column(row, TABLE, "jws", &"?")?,
        leaves: column(row, TABLE, "leaves", &"?")?,
    })
}

#[async_trait]
impl CheckpointStore for SqliteStore {
    async fn checkpoint_mark(&self) -> Result<Mark> {
        let row = sqlx::query(sql::MARK).fetch_optional(&self.readers).await?;
        let Some(row) = row else {
            return Err(Corruption { table: "checkpoint_mark", column: "one", key: "1".to_owned() }.into());
        };
        Ok(Mark {
            moved: row.try_get("moved")?,
            tenant: row.try_get("tenant")?,
            effect: row.try_get("effect")?,
            revision: row.try_get("revision")?,
            low: None,
            again_to: None,
        })
    }

    async fn moved(&self, after: &Mark, limit: u32) -> Result<Moved> {
        let is_there: bool = sqlx::query_scalar(sql::ROW_AT)
            .bind(after.moved)
            .bind(after.tenant.as_str())
            .bind(after.effect)
            .bind(after.revision)
            .fetch_one(&self.readers)
            .await?;
        // A row id that stands for another row: they were given anew, and nobody knows what was seen.
        let from = if is_there { after.moved } else { 0 };
        let found = sqlx::query(sql::MOVED).bind(from).bind(limit).fetch_all(&self.readers).await?;
        let mut moved = Moved { rows: Vec::new(), next: after.clone(), is_last: found.len() < size(limit) };
        for row in &found {
            let row_id: i64 = row.try_get("moved")?;
            let row = MovedRow {
                tenant: column(row, "entries", "tenant", &row_id)?,
                effect: column(row, "entries", "effect", &row_id)?,
                revision: column(row, "entries", "revision", &row_id)?,
                hash: column(row, "entries", "hash", &row_id)?,
            };
            let (tenant, effect, revision) = (row.tenant.clone(), row.effect, row.revision);
            moved.next = Mark { moved: row_id, tenant, effect, revision, low: None, again_to: None };
            moved.rows.push(row);
        }
        Ok(moved)
    }

    async fn newest_checkpoints(&self, tenants: &[Tenant]) -> Result<Vec<Option<(u64, String)>>> {
        let mut newest = Vec::with_capacity(tenants.len());
        for tenant in tenants {
            let row = sqlx::query(sql::CHECKPOINT_NEWEST).bind(tenant.as_str()).fetch_optional(&self.readers).await?;
            newest.push(match row {
                Some(row) => Some((row.try_get("number")?, row.try_get("jws")?)),
                None => None,
            });
        }
        Ok(newest)
    }

    async fn write_checkpoints(&self, seen: &Mark, next: &Mark, rows: &[CheckpointRow]) -> Result<bool> {
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(all::BEGIN).await?;
        let set = sqlx::query(sql::MARK_SET)
            .bind(next.moved)
            .bind(next.tenant.as_str())
            .bind(next.effect)
            .bind(next.revision)
            .bind(seen.moved)
            .bind(seen.tenant.as_str())
            .bind(seen.effect)
            .bind(seen.revision);
        let is_first = set.execute(&mut *tx).await?.rows_affected() == 1;
        if !is_first {
            tx.rollback().await?;
            lent.give_back();
            return Ok(false);
        }
        for row in rows {
            sqlx::query(sql::CHECKPOINT_ADD)
                .bind(row.tenant.as_str())
                .bind(i64::try_from(row.number).unwrap_or(i64::MAX))
                .bind(row.at.micros())
                .bind(row.jws.as_str())
                .bind(row.leaves.as_slice())
                .execute(&mut *tx)
                .await?;
        }
        sqlx::query(all::TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(true)
    }

    async fn checkpoints(&self, after: Option<(&str, u64)>, limit: u32) -> Result<Vec<CheckpointRow>> {
        let (tenant, number) = after.unwrap_or(("", 0));
        let number = i64::try_from(number).unwrap_or(i64::MAX);
        let query = sqlx::query(sql::CHECKPOINTS).bind(tenant).bind(number).bind(limit);
        query.fetch_all(&self.readers).await?.iter().map(|row| Ok(checkpoint(row)?)).collect()
    }

    async fn checkpoint_of(&self, tenant: &Tenant, from: Timestamp, leaf: &[u8]) -> Result<Option<CheckpointRow>> {
        let query = sqlx::query(sql::CHECKPOINT_OF)
            .bind(tenant.as_str())
            .bind(from.micros())
            .bind(leaf)
            .bind(limits::CHECKPOINT_SCAN);
        Ok(query.fetch_optional(&self.readers).await?.as_ref().map(checkpoint).transpose()?)
    }

    async fn entry_hashes(&self, wanted: &[(EffectKey, u32)]) -> Result<Vec<Option<Vec<u8>>>> {
        let mut hashes = vec![None; wanted.len()];
        let wanted: Vec<Wanted<'_>> = wanted
            .iter()
            .map(|(key, revision)| Wanted { tenant: &key.tenant, effect: key.effect, revision: *revision })
            .collect();
        for row in &sqlx::query(sql::ENTRY_HASHES).bind(Json(wanted)).fetch_all(&self.readers).await? {
            if let Some(slot) = hashes.get_mut(number_of(row)?) {
                *slot = Some(column(row, "entries", "hash", &"?")?);
            }
        }
        Ok(hashes)
    }
}

fn size(limit: u32) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX)
}
