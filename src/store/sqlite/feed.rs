//! The feed of events on SQLite: entries in the order in which they were written.

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::SqliteStore;
use super::record::{column, revision_of};
use super::sql::feed as sql;
use crate::domain::ids::Tenant;
use crate::limits;
use crate::store::Result;
use crate::store::feed::{FeedContent, FeedMark, FeedPage, FeedRow, FeedStore};

const TABLE: &str = "entries";

fn feed_row(row: &SqliteRow) -> Result<FeedRow> {
    let effect: Uuid = column(row, TABLE, "effect", &"?")?;
    let is_own: bool = column(row, TABLE, "is_own", &effect)?;
    let content = if is_own {
        Some(FeedContent {
            entry: column(row, TABLE, "entry", &effect)?,
            intent: column(row, TABLE, "intent", &effect)?,
        })
    } else {
        None
    };
    Ok(FeedRow {
        mark: FeedMark {
            number: column(row, TABLE, "number", &effect)?,
            effect,
            revision: revision_of(row, TABLE, &effect)?,
        },
        hash: column(row, TABLE, "hash", &effect)?,
        content,
    })
}

#[async_trait]
impl FeedStore for SqliteStore {
    async fn feed(&self, tenant: &Tenant, from: &FeedMark, limit: u32) -> Result<FeedPage> {
        let found = sqlx::query(sql::FEED)
            .bind(tenant.as_str())
            // Before everything is no row; rows are numbered from 1.
            .bind(from.number.max(0))
            .bind(limit)
            .bind(limits::FEED_PASSED_ROWS)
            .fetch_all(&self.readers)
            .await?;
        let rows = found.iter().map(feed_row).collect::<Result<Vec<_>>>()?;
        let newest = found.first().map(|row| column::<i64>(row, TABLE, "newest", &"?")).transpose()?;
        let more = newest > rows.last().map(|row| row.mark.number);
        Ok(FeedPage { rows, more })
    }

    async fn feed_end(&self, tenant: &Tenant) -> Result<Option<FeedRow>> {
        let query = sqlx::query(sql::FEED_END).bind(tenant.as_str());
        query.fetch_optional(&self.readers).await?.as_ref().map(feed_row).transpose()
    }

    async fn feed_place_is_pruned(&self, _: &Tenant, place: &FeedMark) -> Result<bool> {
        Ok(sqlx::query_scalar(sql::FEED_PRUNED).bind(place.effect).fetch_one(&self.readers).await?)
    }

    async fn feed_moved(&self, seen: &[(Tenant, i64)]) -> Result<Vec<bool>> {
        let newest: Option<i64> = sqlx::query_scalar(sql::FEED_NEWEST).fetch_one(&self.readers).await?;
        Ok(seen.iter().map(|(_, seen)| newest > Some(*seen)).collect())
    }
}
