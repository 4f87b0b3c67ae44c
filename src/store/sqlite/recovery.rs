//! Recovery on SQLite.

use async_trait::async_trait;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{Connection as _, Row as _, Sqlite};
use uuid::Uuid;

use super::SqliteStore;
use super::record::{column, key_of, number_of, wanted};
use super::sql::{self as all, recovery as sql};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::recovery::{ExecutionRow, ItemClaim, OpenWork, RecoveryStore};
use crate::store::{Corruption, Result, StoreError};

const EXECUTIONS: &str = "recovery_executions";

fn work(row: &SqliteRow) -> std::result::Result<OpenWork, Corruption> {
    let key = key_of(row, "open_effects")?;
    Ok(OpenWork {
        session_id: column(row, "open_effects", "session_id", &key.effect)?,
        run_id: column(row, "open_effects", "run_id", &key.effect)?,
        key,
    })
}

impl SqliteStore {
    /// Runs statements in a transaction of their own, and keeps the time that it gave out. Answers how
    /// many rows the last one touched.
    pub(super) async fn write<const N: usize>(
        &self,
        queries: [sqlx::query::Query<'_, Sqlite, SqliteArguments>; N],
    ) -> Result<u64> {
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(all::BEGIN).await?;
        let mut touched = 0;
        for query in queries {
            touched = query.execute(&mut *tx).await?.rows_affected();
        }
        sqlx::query(all::TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(touched)
    }
}

#[async_trait]
impl RecoveryStore for SqliteStore {
    async fn open_work(
        &self,
        until: Timestamp,
        after: Option<&EffectKey>,
        limit: u32,
    ) -> Result<Vec<std::result::Result<OpenWork, Corruption>>> {
        let (tenant, effect) = match after {
            Some(key) => (key.tenant.as_str(), key.effect.as_bytes().as_slice()),
            None => ("", [].as_slice()),
        };
        let query = sqlx::query(sql::OPEN_WORK).bind(tenant).bind(effect).bind(until.micros()).bind(limit);
        Ok(query.fetch_all(&self.readers).await?.iter().map(work).collect())
    }

    async fn recovery_claimed(&self, keys: &[EffectKey]) -> Result<Vec<bool>> {
        let mut claimed = vec![false; keys.len()];
        if keys.is_empty() {
            return Ok(claimed);
        }
        let query = sqlx::query(sql::CLAIMED).bind(wanted(keys)).bind(self.clock.now().micros());
        for row in &query.fetch_all(&self.readers).await? {
            if let Some(slot) = claimed.get_mut(number_of(row)?) {
                *slot = true;
            }
        }
        Ok(claimed)
    }

    async fn begin_execution(&self, tenant: &Tenant, row: &ExecutionRow) -> Result<ExecutionRow> {
        let query = sqlx::query(sql::EXECUTION_ADD)
            .bind(tenant.as_str())
            .bind(row.execution_id.as_str())
            .bind(row.digest.as_str())
            .bind(row.plan_id.as_str())
            .bind(row.decisions.as_str())
            .bind(row.items)
            .bind(row.begun_by.as_str())
            .bind(row.begun_at.micros());
        self.write([query]).await?;
        self.execution(tenant, &row.execution_id).await?.ok_or_else(|| {
            let key = row.execution_id.to_string();
            StoreError::from(Corruption { table: EXECUTIONS, column: "execution_id", key })
        })
    }

    async fn execution(&self, tenant: &Tenant, execution_id: &Name) -> Result<Option<ExecutionRow>> {
        let query = sqlx::query(sql::EXECUTION).bind(tenant.as_str()).bind(execution_id.as_str());
        let Some(row) = query.fetch_optional(&self.readers).await? else { return Ok(None) };
        Ok(Some(ExecutionRow {
            execution_id: execution_id.clone(),
            digest: column(&row, EXECUTIONS, "digest", execution_id)?,
            plan_id: column(&row, EXECUTIONS, "plan_id", execution_id)?,
            decisions: column(&row, EXECUTIONS, "decisions", execution_id)?,
            items: column(&row, EXECUTIONS, "items", execution_id)?,
            begun_by: column(&row, EXECUTIONS, "begun_by", execution_id)?,
            begun_at: Timestamp::from_micros(column(&row, EXECUTIONS, "begun_us", execution_id)?),
        }))
    }

    async fn execution_receipts(&self, tenant: &Tenant, execution_id: &Name) -> Result<Vec<(u32, String)>> {
        let query = sqlx::query(sql::RECEIPTS).bind(tenant.as_str()).bind(execution_id.as_str());
        query
            .fetch_all(&self.readers)
            .await?
            .iter()
            .map(|row| Ok((row.try_get("item")?, row.try_get("receipt")?)))
            .collect()
    }

    async fn claim_item(&self, claim: &ItemClaim) -> Result<bool> {
        let (tenant, executor): (&str, Uuid) = (claim.key.tenant.as_str(), claim.executor);
        // Under the write lock the clock is only later, so a claim is dead for everybody or for nobody.
        let now = self.clock.now();
        let query = sqlx::query(sql::CLAIM)
            .bind(tenant)
            .bind(claim.key.effect)
            .bind(executor)
            .bind(now.plus_seconds(claim.lease_seconds).micros())
            .bind(now.micros());
        Ok(self.write([query]).await? == 1)
    }

    async fn release_item(&self, claim: &ItemClaim) -> Result<()> {
        let (tenant, effect) = (claim.key.tenant.as_str(), claim.key.effect);
        self.write([sqlx::query(sql::RELEASE).bind(tenant).bind(effect).bind(claim.executor)]).await?;
        Ok(())
    }

    async fn item_receipt(&self, tenant: &Tenant, execution_id: &Name, item: u32) -> Result<Option<String>> {
        let query = sqlx::query_scalar(sql::RECEIPT).bind(tenant.as_str()).bind(execution_id.as_str());
        Ok(query.bind(item).fetch_optional(&self.readers).await?)
    }

    async fn close_item(&self, claim: &ItemClaim, execution_id: &Name, item: u32, receipt: &str) -> Result<()> {
        let (tenant, effect) = (claim.key.tenant.as_str(), claim.key.effect);
        let written = sqlx::query(sql::RECEIPT_ADD).bind(tenant).bind(execution_id.as_str()).bind(item).bind(receipt);
        let given_back = sqlx::query(sql::RELEASE).bind(tenant).bind(effect).bind(claim.executor);
        self.write([written, given_back]).await?;
        Ok(())
    }
}
