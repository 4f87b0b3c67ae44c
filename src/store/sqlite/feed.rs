//! The feed of events on SQLite: entries in the order in which they were written.

use async_trait::async_trait;
use serde::Serialize;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::SqliteStore;
use super::record::{column, number_of, revision_of};
use super::sql::feed as sql;
use crate::domain::ids::Tenant;
use crate::store::Result;
use crate::store::feed::{FeedMark, FeedRow, FeedStore};

fn feed_row(row: &SqliteRow) -> Result<FeedRow> {
    const TABLE: &str = "entries";
    let effect: Uuid = column(row, TABLE, "effect", &"?")?;
    Ok(FeedRow {
        mark: FeedMark {
            number: column(row, TABLE, "number", &effect)?,
            effect,
            revision: revision_of(row, TABLE, &effect)?,
        },
        entry: column(row, TABLE, "entry", &effect)?,
        hash: column(row, TABLE, "hash", &effect)?,
        intent: column(row, TABLE, "intent", &effect)?,
    })
}

#[async_trait]
impl FeedStore for SqliteStore {
    async fn feed(&self, tenant: &Tenant, from: &FeedMark, limit: u32) -> Result<Vec<FeedRow>> {
        let query = sqlx::query(sql::FEED).bind(tenant.as_str()).bind(from.number).bind(limit);
        query.fetch_all(&self.readers).await?.iter().map(feed_row).collect()
    }

    async fn feed_end(&self, tenant: &Tenant) -> Result<Option<FeedRow>> {
        let query = sqlx::query(sql::FEED_END).bind(tenant.as_str());
        query.fetch_optional(&self.readers).await?.as_ref().map(feed_row).transpose()
    }

    async fn feed_moved(&self, seen: &[(Tenant, i64)]) -> Result<Vec<bool>> {
        #[derive(Serialize)]
        struct Seen<'a> {
            tenant: &'a Tenant,
            seen: i64,
        }
        let mut moved = vec![false; seen.len()];
        let seen: Vec<Seen<'_>> = seen.iter().map(|(tenant, seen)| Seen { tenant, seen: *seen }).collect();
        for row in &sqlx::query(sql::FEED_MOVED).bind(Json(seen)).fetch_all(&self.readers).await? {
            if let Some(moved) = moved.get_mut(number_of(row)?) {
                *moved = true;
            }
        }
        Ok(moved)
    }
}
