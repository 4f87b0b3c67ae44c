//! Counting what a tenant and its principals have open, on Postgres.

use async_trait::async_trait;

use super::PostgresStore;
use super::sql::quotas as sql;
use super::wall::Tenants;
use crate::domain::ids::{Name, Tenant};
use crate::store::Result;
use crate::store::quotas::QuotaStore;

#[async_trait]
impl QuotaStore for PostgresStore {
    async fn count_open(&self, tenant: &Tenant, most: u32) -> Result<u64> {
        let query = sqlx::query_scalar(sql::OPEN_UP_TO).bind(tenant.as_str()).bind(i64::from(most));
        let count: i64 = query.fetch_one(self.scope(Tenants::One(tenant)).await?).await?;
        Ok(u64::try_from(count).unwrap_or(0))
    }

    async fn count_open_by_principal(&self, tenant: &Tenant, rows: u32, principals: u32) -> Result<Vec<(Name, u64)>> {
        let query = sqlx::query_as(sql::OPEN_BY_PRINCIPAL).bind(tenant.as_str());
        let query = query.bind(i64::from(rows)).bind(i64::from(principals));
        let found: Vec<(String, i64)> = query.fetch_all(self.scope(Tenants::One(tenant)).await?).await?;
        // What is no name is nobody's.
        let read = |(name, count): (String, i64)| Some((Name::new(&name).ok()?, u64::try_from(count).ok()?));
        Ok(found.into_iter().filter_map(read).collect())
    }
}
