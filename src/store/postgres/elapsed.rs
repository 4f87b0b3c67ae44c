//! Elapsed limits on Postgres.

use async_trait::async_trait;

use super::PostgresStore;
use super::sql::elapsed as sql;
use super::wall::{Held, Tenants};
use crate::domain::elapsed::WaitSpan;
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::elapsed::{ElapsedStore, WaitChange, wait_span};
use crate::store::{Result, RevisionRow};

#[async_trait]
impl ElapsedStore for PostgresStore {
    async fn run_waits(&self, tenant: &Tenant, run: &Name, limit: u32) -> Result<Vec<WaitSpan>> {
        let query = sqlx::query_as(sql::RUN_WAITS).bind(tenant.as_str()).bind(run.as_str()).bind(i64::from(limit));
        let found: Vec<(i64, Option<i64>)> = query.fetch_all(self.scope(Tenants::One(tenant)).await?).await?;
        Ok(found.into_iter().map(wait_span).collect())
    }
}

/// Notes that a person is waited for, or no more, beside a revision that was applied.
pub(super) async fn note(connection: &mut Held, row: &RevisionRow, change: &WaitChange) -> Result<()> {
    let (tenant, run, effect, at) = (row.key.tenant.as_str(), change.run.as_str(), row.key.effect, row.at.micros());
    if change.ended {
        let query = sqlx::query(sql::WAIT_END).bind(tenant).bind(run).bind(effect).bind(at);
        query.execute(&mut *connection).await?;
    }
    if let Some(wait) = change.began {
        let revision = i32::try_from(row.revision).unwrap_or(i32::MAX);
        let query = sqlx::query(sql::WAIT_BEGIN).bind(tenant).bind(run).bind(effect).bind(revision);
        query.bind(at).bind(wait.until.map(Timestamp::micros)).execute(connection).await?;
    }
    Ok(())
}
