//! The feed of events on Postgres: entries in the order of the transactions that wrote them.

use async_trait::async_trait;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, PgExecutor, Row as _};
use uuid::Uuid;

use super::PostgresStore;
use super::sql::feed as sql;
use super::wall::{Purpose, Tenants, Wall};
use crate::domain::ids::Tenant;
use crate::store::Result;
use crate::store::feed::{FeedContent, FeedMark, FeedPage, FeedRow, FeedStore};
use crate::store::rows::bad_entry;

fn feed_row(row: &PgRow) -> Result<FeedRow> {
    let effect: Uuid = row.try_get(1)?;
    let revision: i64 = row.try_get(2)?;
    let revision = u32::try_from(revision).map_err(|_| bad_entry("revision", effect))?;
    Ok(FeedRow {
        mark: FeedMark { number: row.try_get(0)?, effect, revision },
        hash: row.try_get(4)?,
        content: Some(FeedContent {
            entry: row.try_get(3)?,
            intent: row.try_get::<Option<String>, _>(5)?.ok_or_else(|| bad_entry("intent", effect))?,
        }),
    })
}

#[async_trait]
impl FeedStore for PostgresStore {
    async fn feed(&self, tenant: &Tenant, from: &FeedMark, limit: u32) -> Result<FeedPage> {
        let found = sqlx::query(sql::FEED)
            .bind(tenant.as_str())
            .bind(from.number)
            .bind(from.effect)
            .bind(i32::try_from(from.revision).unwrap_or(i32::MAX))
            .bind(i64::from(limit))
            .fetch_all(self.scope(Tenants::One(tenant)).await?)
            .await?;
        let more = found.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
        Ok(FeedPage { rows: found.iter().map(feed_row).collect::<Result<_>>()?, more })
    }

    async fn feed_end(&self, tenant: &Tenant) -> Result<Option<FeedRow>> {
        let query = sqlx::query(sql::FEED_END).bind(tenant.as_str());
        query.fetch_optional(self.scope(Tenants::One(tenant)).await?).await?.as_ref().map(feed_row).transpose()
    }

    async fn feed_place_is_pruned(&self, tenant: &Tenant, place: &FeedMark) -> Result<bool> {
        let query = sqlx::query_scalar(sql::FEED_PRUNED).bind(tenant.as_str()).bind(place.effect);
        Ok(query.fetch_one(self.scope(Tenants::One(tenant)).await?).await?)
    }

    async fn feed_moved(&self, seen: &[(Tenant, i64)]) -> Result<Vec<bool>> {
        let (tenants, numbers): (Vec<&str>, Vec<i64>) =
            seen.iter().map(|(tenant, number)| (tenant.as_str(), *number)).unzip();
        let whose = Tenants::These(tenants.iter().copied().collect());
        let query = sqlx::query_scalar(sql::FEED_MOVED).bind(tenants).bind(numbers);
        Ok(query.fetch_all(self.scope(whose).await?).await?)
    }
}

async fn highest(connection: impl PgExecutor<'_>) -> Result<(i64, bool)> {
    let row = sqlx::query(sql::FEED_HIGHEST).fetch_one(connection).await?;
    Ok((row.try_get(0)?, row.try_get(1)?))
}

/// After a restore into a cluster that counts lower, what is written next would stand before what is
/// there, and readers would miss it without a sign. Then all further numbers get a base above them.
pub(super) async fn continue_numbers(wall: &Wall) -> Result<()> {
    if !highest(wall.scope(Tenants::All(Purpose::FeedOrigin)).await?).await?.1 {
        return Ok(());
    }
    let mut transaction = wall.begin(Tenants::All(Purpose::FeedOrigin)).await?;
    sqlx::query(sql::FEED_LOCK).execute(&mut *transaction).await?;
    // Again under the lock: another replica may have been first.
    let (highest, is_behind) = highest(&mut *transaction).await?;
    if is_behind {
        let base = highest.saturating_add(1);
        sqlx::query(sql::FEED_REBASE).bind(base).execute(&mut *transaction).await?;
        let default = format!(
            "ALTER TABLE entries ALTER COLUMN moved SET DEFAULT (pg_current_xact_id()::text::bigint + {base}::bigint)"
        );
        sqlx::query(AssertSqlSafe(default)).execute(&mut *transaction).await?;
        tracing::warn!(
            base,
            "the database counts its transactions lower than before: the feed of events goes on above"
        );
    }
    transaction.commit().await?;
    Ok(())
}
