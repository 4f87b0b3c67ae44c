//! Counting what a tenant has open, on Postgres.

use async_trait::async_trait;

use super::PostgresStore;
use super::sql::quotas as sql;
use super::wall::Tenants;
use crate::domain::ids::Tenant;
use crate::store::Result;
use crate::store::quotas::QuotaStore;

#[async_trait]
impl QuotaStore for PostgresStore {
    async fn count_open(&self, tenant: &Tenant, most: u32) -> Result<u64> {
        let query = sqlx::query_scalar(sql::OPEN_UP_TO).bind(tenant.as_str()).bind(i64::from(most));
        let count: i64 = query.fetch_one(self.scope(Tenants::One(tenant)).await?).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }
}
