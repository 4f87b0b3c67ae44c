//! Signed checkpoints on Postgres. Never by the connection that commits changes: that one is the hot path's.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use super::sql::checkpoints as sql;
use super::wall::{Purpose, Tenants};
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

/// Where a look at everything begins: below every number.
const EVERYTHING: i64 = -1;

fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// Rows of one look.
struct Look<'a> {
    store: &'a PostgresStore,
    before: i64,
    limit: usize,
    rows: Vec<MovedRow>,
    /// The number of the last one.
    at: i64,
}

impl Look<'_> {
    fn is_full(&self) -> bool {
        self.rows.len() >= self.limit
    }

    /// Rows of a tenant after a place, as many as there is room for.
    async fn read(&mut self, tenant: &str, moved: i64, effect: Uuid, revision: u32) -> Result<()> {
        let room = self.limit.saturating_sub(self.rows.len());
        let query = sqlx::query(sql::MOVED).bind(tenant).bind(moved).bind(effect).bind(int(revision));
        let query = query.bind(self.before).bind(i64::try_from(room).unwrap_or(i64::MAX));
        for row in &query.fetch_all(self.store.scope(Tenants::All(Purpose::Checkpoints)).await?).await? {
            self.at = row.try_get(0)?;
            self.rows.push(MovedRow {
                tenant: row.try_get(1)?,
                effect: row.try_get(2)?,
                revision: unsigned(row.try_get::<i32, _>(3)?, "entries", "revision")?,
                hash: row.try_get(4)?,
            });
        }
        Ok(())
    }
}

#[async_trait]
impl CheckpointStore for PostgresStore {
    async fn checkpoint_mark(&self) -> Result<Mark> {
        let Some(row) = sqlx::query(sql::MARK).fetch_optional(self.scope(Tenants::Nobody).await?).await? else {
            return Err(Corruption { table: "checkpoint_mark", column: "one", key: "1".to_owned() }.into());
        };
        Ok(Mark {
            moved: row.try_get(0)?,
            tenant: row.try_get(1)?,
            effect: row.try_get(2)?,
            revision: unsigned(row.try_get::<i32, _>(3)?, "checkpoint_mark", "revision")?,
            low: row.try_get(4)?,
            again_to: row.try_get(5)?,
        })
    }

    async fn moved(&self, after: &Mark, limit: u32) -> Result<Moved> {
        let (low, to) = if let (Some(low), Some(to)) = (after.low, after.again_to) {
            (low, to)
        } else {
            let horizon: i64 = sqlx::query_scalar(sql::HORIZON).fetch_one(self.scope(Tenants::Nobody).await?).await?;
            // A mark that is ahead of the server was made by another one: transactions are counted anew there, and
            // nobody knows what was seen.
            (if after.moved > horizon { EVERYTHING } else { after.moved }, horizon)
        };
        let before = if low == EVERYTHING { i64::MAX } else { to };
        let mut look = Look { store: self, before, limit: size(limit), rows: Vec::new(), at: 0 };
        if after.low.is_some() {
            look.read(&after.tenant, after.moved, after.effect, after.revision).await?;
        }
        let from = if after.low.is_some() { after.tenant.as_str() } else { "" };
        let tenants = sqlx::query_scalar(sql::MOVED_TENANTS).bind(from).bind(low).bind(before).bind(i64::from(limit));
        let tenants: Vec<String> = if look.is_full() {
            Vec::new()
        } else {
            tenants.fetch_all(self.scope(Tenants::All(Purpose::Checkpoints)).await?).await?
        };
        let has_all_tenants = !look.is_full() && tenants.len() < size(limit);
        for tenant in &tenants {
            if look.is_full() {
                break;
            }
            look.read(tenant, low, Uuid::nil(), 0).await?;
        }
        let is_last = has_all_tenants && !look.is_full();
        let next = match look.rows.last() {
            // Nothing was written, and nothing has to be noted.
            None if after.low.is_none() && low != EVERYTHING => after.clone(),
            Some(last) if !is_last => Mark {
                moved: look.at,
                tenant: last.tenant.clone(),
                effect: last.effect,
                revision: last.revision,
                low: Some(low),
                again_to: Some(to),
            },
            _ => Mark { moved: to, ..Mark::start() },
        };
        Ok(Moved { rows: look.rows, next, is_last })
    }

    async fn newest_checkpoints(&self, tenants: &[Tenant]) -> Result<Vec<Option<(u64, String)>>> {
        let mut newest = Vec::with_capacity(tenants.len());
        for tenant in tenants {
            let row = sqlx::query(sql::CHECKPOINT_NEWEST)
                .bind(tenant.as_str())
                .fetch_optional(self.scope(Tenants::One(tenant)).await?)
                .await?;
            newest.push(match row {
                Some(row) => Some((unsigned(row.try_get::<i64, _>(0)?, "checkpoints", "number")?, row.try_get(1)?)),
                None => None,
            });
        }
        Ok(newest)
    }

    async fn write_checkpoints(&self, seen: &Mark, next: &Mark, rows: &[CheckpointRow]) -> Result<bool> {
        let whose = Tenants::These(rows.iter().map(|row| row.tenant.as_str()).collect());
        let mut tx = self.begin(whose).await?;
        let set = sqlx::query(sql::MARK_SET)
            .bind(next.moved)
            .bind(next.tenant.as_str())
            .bind(next.effect)
            .bind(int(next.revision))
            .bind(next.low)
            .bind(next.again_to)
            .bind(seen.moved)
            .bind(seen.tenant.as_str())
            .bind(seen.effect)
            .bind(int(seen.revision))
            .bind(seen.low)
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
        query.fetch_all(self.scope(Tenants::All(Purpose::Verification)).await?).await?.iter().map(checkpoint).collect()
    }

    async fn checkpoint_of(&self, tenant: &Tenant, from: Timestamp, leaf: &[u8]) -> Result<Option<CheckpointRow>> {
        let query = sqlx::query(sql::CHECKPOINT_OF)
            .bind(tenant.as_str())
            .bind(from.micros())
            .bind(leaf)
            .bind(i64::from(limits::CHECKPOINT_SCAN));
        query.fetch_optional(self.scope(Tenants::One(tenant)).await?).await?.as_ref().map(checkpoint).transpose()
    }

    async fn entry_hashes(&self, wanted: &[(EffectKey, u32)]) -> Result<Vec<Option<Vec<u8>>>> {
        let tenants: Vec<&str> = wanted.iter().map(|(key, _)| key.tenant.as_str()).collect();
        let effects: Vec<Uuid> = wanted.iter().map(|(key, _)| key.effect).collect();
        let revisions: Vec<i32> = wanted.iter().map(|(_, revision)| int(*revision)).collect();
        let query = sqlx::query_scalar(sql::ENTRY_HASHES).bind(tenants).bind(effects).bind(revisions);
        let whose = Tenants::of(wanted.iter().map(|(key, _)| key));
        Ok(query.fetch_all(self.scope(whose).await?).await?)
    }
}
