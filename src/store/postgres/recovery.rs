//! Recovery on Postgres. What is acknowledged is written by the connection that is known to flush.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use super::query::columns;
use super::sql::recovery as sql;
use super::wall::{Purpose, Tenants};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::recovery::{ExecutionRow, ItemClaim, OpenWork, RecoveryStore};
use crate::store::{Corruption, Result, StoreError};

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn bad(column: &'static str, execution_id: &Name) -> Corruption {
    Corruption { table: "recovery_executions", column, key: execution_id.to_string() }
}

fn work(row: &PgRow) -> Result<std::result::Result<OpenWork, Corruption>> {
    let effect: Uuid = row.try_get(1)?;
    let Ok(tenant) = Tenant::new(row.try_get(0)?) else {
        return Ok(Err(Corruption { table: "open_effects", column: "tenant", key: effect.to_string() }));
    };
    let key = EffectKey { tenant, effect };
    Ok(Ok(OpenWork { key, session_id: row.try_get(2)?, run_id: row.try_get(3)? }))
}

#[async_trait]
impl RecoveryStore for PostgresStore {
    async fn open_work(
        &self,
        until: Timestamp,
        after: Option<&EffectKey>,
        limit: u32,
    ) -> Result<Vec<std::result::Result<OpenWork, Corruption>>> {
        let (tenant, effect) = after.map_or(("", Uuid::nil()), |key| (key.tenant.as_str(), key.effect));
        let query = sqlx::query(sql::OPEN_WORK).bind(tenant).bind(effect).bind(until.micros()).bind(i64::from(limit));
        query.fetch_all(self.scope(Tenants::All(Purpose::Recovery)).await?).await?.iter().map(work).collect()
    }

    async fn recovery_claimed(&self, keys: &[EffectKey]) -> Result<Vec<bool>> {
        let (tenants, effects) = columns(keys);
        Ok(sqlx::query_scalar(sql::CLAIMED)
            .bind(tenants)
            .bind(effects)
            .fetch_all(self.scope(Tenants::of(keys)).await?)
            .await?)
    }

    async fn begin_execution(&self, tenant: &Tenant, row: &ExecutionRow) -> Result<ExecutionRow> {
        sqlx::query(sql::EXECUTION_ADD)
            .bind(tenant.as_str())
            .bind(row.execution_id.as_str())
            .bind(&row.digest)
            .bind(&row.plan_id)
            .bind(&row.decisions)
            .bind(number(row.items))
            .bind(&row.begun_by)
            .bind(row.begun_at.micros())
            .execute(self.wall.scope_writer(Tenants::One(tenant)).await?)
            .await?;
        let found = self.execution(tenant, &row.execution_id).await?;
        found.ok_or_else(|| StoreError::from(bad("execution_id", &row.execution_id)))
    }

    async fn execution(&self, tenant: &Tenant, execution_id: &Name) -> Result<Option<ExecutionRow>> {
        let query = sqlx::query(sql::EXECUTION).bind(tenant.as_str()).bind(execution_id.as_str());
        let Some(row) = query.fetch_optional(self.scope(Tenants::One(tenant)).await?).await? else {
            return Ok(None);
        };
        let items: i32 = row.try_get(4)?;
        Ok(Some(ExecutionRow {
            execution_id: Name::new(row.try_get(0)?).map_err(|_| bad("execution_id", execution_id))?,
            digest: row.try_get(1)?,
            plan_id: row.try_get(2)?,
            decisions: row.try_get(3)?,
            items: u32::try_from(items).map_err(|_| bad("items", execution_id))?,
            begun_by: row.try_get(5)?,
            begun_at: Timestamp::from_micros(row.try_get(6)?),
        }))
    }

    async fn execution_receipts(&self, tenant: &Tenant, execution_id: &Name) -> Result<Vec<(u32, String)>> {
        let query = sqlx::query(sql::RECEIPTS).bind(tenant.as_str()).bind(execution_id.as_str());
        let rows = query.fetch_all(self.scope(Tenants::One(tenant)).await?).await?;
        rows.iter()
            .map(|row| {
                let item: i32 = row.try_get(0)?;
                Ok((u32::try_from(item).map_err(|_| bad("item", execution_id))?, row.try_get(1)?))
            })
            .collect()
    }

    async fn claim_item(&self, claim: &ItemClaim) -> Result<bool> {
        let done = sqlx::query(sql::CLAIM)
            .bind(claim.key.tenant.as_str())
            .bind(claim.key.effect)
            .bind(claim.executor)
            .bind(i64::from(claim.lease_seconds))
            .execute(self.scope(Tenants::One(&claim.key.tenant)).await?)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    async fn release_item(&self, claim: &ItemClaim) -> Result<()> {
        let (tenant, effect) = (claim.key.tenant.as_str(), claim.key.effect);
        let query = sqlx::query(sql::RELEASE).bind(tenant).bind(effect).bind(claim.executor);
        query.execute(self.scope(Tenants::One(&claim.key.tenant)).await?).await?;
        Ok(())
    }

    async fn item_receipt(&self, tenant: &Tenant, execution_id: &Name, item: u32) -> Result<Option<String>> {
        let query = sqlx::query_scalar(sql::RECEIPT).bind(tenant.as_str()).bind(execution_id.as_str());
        Ok(query.bind(number(item)).fetch_optional(self.scope(Tenants::One(tenant)).await?).await?)
    }

    async fn close_item(&self, claim: &ItemClaim, execution_id: &Name, item: u32, receipt: &str) -> Result<()> {
        sqlx::query(sql::CLOSE)
            .bind(claim.key.tenant.as_str())
            .bind(execution_id.as_str())
            .bind(number(item))
            .bind(receipt)
            .bind(claim.key.effect)
            .bind(claim.executor)
            .execute(self.wall.scope_writer(Tenants::One(&claim.key.tenant)).await?)
            .await?;
        Ok(())
    }
}
