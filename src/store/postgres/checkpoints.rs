//! Signed checkpoints on Postgres. Never by the connection that commits changes: that one is the hot path's.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use super::sql::checkpoints as sql;
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::checkpoints::{CheckpointRow, CheckpointStore, Mark, Moved, MovedRow};
use crate::store::{Corruption, Result};

fn int(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn long(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn unsigned<S, T: TryFrom<S>>(number: S, table: &'static str, column: &'static str) -> Result<T> {
    T::try_from(number).map_err(|_| Corruption { table, column, key: "?".to_owned() }.into())
}

fn checkpoint(row: &PgRow) -> Result<CheckpointRow> {
    Ok(CheckpointRow {
        tenant: row.try_get(0)?,
        number: unsigned(row.try_get::<i64, _>(1)?, "checkpoints", "number")?,
        at: Timestamp::from_micros(row.try_get(2)?),
        jws: row.try_get(3)?,
        leaves: row.try_get(4)?,
    })
}

#[async_trait]
impl CheckpointStore for PostgresStore {
    async fn checkpoint_mark(&self) -> Result<Mark> {
        let Some(row) = sqlx::query(sql::MARK).fetch_optional(&self.readers).await? else {
            return Err(Corruption { table: "checkpoint_mark", column: "one", key: "1".to_owned() }.into());
        };
        Ok(Mark {
            moved: row.try_get(0)?,
            tenant: row.try_get(1)?,
            effect: row.try_get(2)?,
            revision: unsigned(row.try_get::<i32, _>(3)?, "checkpoint_mark", "revision")?,
            again_to: row.try_get(4)?,
        })
    }

    async fn moved(&self, after: &Mark, limit: u32) -> Result<Moved> {
        let horizon: i64 = sqlx::query_scalar(sql::HORIZON).fetch_one(&self.readers).await?;
        // A mark that is ahead of the server was made by another one: transactions are counted anew there, and
        // nobody knows what was seen.
        let begun_again = Mark { again_to: Some(horizon), ..Mark::start() };
        let after = if after.again_to.is_none() && after.moved > horizon { &begun_again } else { after };
        let before = after.again_to.map_or(horizon, |_| i64::MAX);
        let found = sqlx::query(sql::MOVED)
            .bind(after.moved)
            .bind(after.tenant.as_str())
            .bind(after.effect)
            .bind(int(after.revision))
            .bind(before)
            .bind(i64::from(limit))
            .fetch_all(&self.readers)
            .await?;
        let is_last = found.len() < usize::try_from(limit).unwrap_or(usize::MAX);
        let mut moved = Moved { rows: Vec::with_capacity(found.len()), next: after.clone(), is_last };
        for row in &found {
            let row_moved: i64 = row.try_get(0)?;
            let row = MovedRow {
                tenant: row.try_get(1)?,
                effect: row.try_get(2)?,
                revision: unsigned(row.try_get::<i32, _>(3)?, "entries", "revision")?,
                hash: row.try_get(4)?,
            };
            let (tenant, effect, revision) = (row.tenant.clone(), row.effect, row.revision);
            moved.next = Mark { moved: row_moved, tenant, effect, revision, again_to: after.again_to };
            moved.rows.push(row);
        }
        if let (true, Some(again_to)) = (is_last, after.again_to) {
            moved.next = Mark { moved: again_to, ..Mark::start() };
        }
        Ok(moved)
    }

    async fn newest_checkpoints(&self, tenants: &[Tenant]) -> Result<Vec<Option<(u64, String)>>> {
        let mut newest = Vec::with_capacity(tenants.len());
        for tenant in tenants {
            let row = sqlx::query(sql::CHECKPOINT_NEWEST).bind(tenant.as_str()).fetch_optional(&self.readers).await?;
            newest.push(match row {
                Some(row) => Some((unsigned(row.try_get::<i64, _>(0)?, "checkpoints", "number")?, row.try_get(1)?)),
                None => None,
            });
        }
        Ok(newest)
    }

    async fn write_checkpoints(&self, seen: &Mark, next: &Mark, rows: &[CheckpointRow]) -> Result<bool> {
        let mut tx = self.readers.begin_with("BEGIN").await?;
        let set = sqlx::query(sql::MARK_SET)
            .bind(next.moved)
            .bind(next.tenant.as_str())
            .bind(next.effect)
            .bind(int(next.revision))
            .bind(next.again_to)
            .bind(seen.moved)
            .bind(seen.tenant.as_str())
            .bind(seen.effect)
            .bind(int(seen.revision))
            .bind(seen.again_to);
        if set.execute(&mut *tx).await?.rows_affected() != 1 {
            tx.rollback().await?;
            return Ok(false);
        }
        if !rows.is_empty() {
            sqlx::query(sql::CHECKPOINT_ADD)
                .bind(rows.iter().map(|row| row.tenant.as_str()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| long(row.number)).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.at.micros()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.jws.as_str()).collect::<Vec<_>>())
                .bind(rows.iter().map(|row| row.leaves.as_slice()).collect::<Vec<_>>())
                .execute(&mut *tx)
                .await?;
        }
        tx.commit().await?;
        Ok(true)
    }

    async fn checkpoints(&self, after: Option<(&str, u64)>, limit: u32) -> Result<Vec<CheckpointRow>> {
        let (tenant, number) = after.unwrap_or(("", 0));
        let query = sqlx::query(sql::CHECKPOINTS).bind(tenant).bind(long(number)).bind(i64::from(limit));
        query.fetch_all(&self.readers).await?.iter().map(checkpoint).collect()
    }

    async fn checkpoint_of(&self, tenant: &Tenant, from: Timestamp, leaf: &[u8]) -> Result<Option<CheckpointRow>> {
        let query = sqlx::query(sql::CHECKPOINT_OF)
            .bind(tenant.as_str())
            .bind(from.micros())
            .bind(leaf)
            .bind(i64::from(limits::CHECKPOINT_SCAN));
        query.fetch_optional(&self.readers).await?.as_ref().map(checkpoint).transpose()
    }

    async fn entry_hashes(&self, wanted: &[(EffectKey, u32)]) -> Result<Vec<Option<Vec<u8>>>> {
        let tenants: Vec<&str> = wanted.iter().map(|(key, _)| key.tenant.as_str()).collect();
        let effects: Vec<Uuid> = wanted.iter().map(|(key, _)| key.effect).collect();
        let revisions: Vec<i32> = wanted.iter().map(|(_, revision)| int(*revision)).collect();
        let query = sqlx::query_scalar(sql::ENTRY_HASHES).bind(tenants).bind(effects).bind(revisions);
        Ok(query.fetch_all(&self.readers).await?)
    }
}
