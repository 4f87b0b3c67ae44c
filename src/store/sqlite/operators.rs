//! What operators read, on SQLite.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use uuid::Uuid;

use super::SqliteStore;
use super::record::{column, revision_of};
use super::sql::operators as sql;
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::rows::{state_code, state_of};
use crate::store::{Corruption, EvidenceRow, OperatorStore, Position, QueueRow, QueueWalk, Result};

#[async_trait]
impl OperatorStore for SqliteStore {
    async fn queue(
        &self,
        tenant: &Tenant,
        walk: &QueueWalk,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Vec<QueueRow>> {
        let statement = match walk {
            QueueWalk::State { .. } => sql::QUEUE_STATE,
            QueueWalk::Contradicted => sql::QUEUE_CONTRADICTED,
            QueueWalk::Doubt(_) => sql::QUEUE_DOUBT,
            QueueWalk::Overdue { .. } => sql::QUEUE_OVERDUE,
        };
        let (created_us, effect) = match &after {
            Some(position) => (position.created_at.micros(), position.effect.as_bytes().as_slice()),
            None => (i64::MIN, [].as_slice()),
        };
        let query = sqlx::query(statement).bind(tenant.as_str()).bind(created_us).bind(effect).bind(limit);
        let query = match walk {
            QueueWalk::State { state, created_until } => query.bind(state_code(*state)).bind(created_until.micros()),
            QueueWalk::Contradicted => query,
            QueueWalk::Doubt(bounds) => query.bind(Json(bounds)),
            QueueWalk::Overdue { due_until } => query.bind(due_until.micros()).bind(limits::OVERDUE_SCAN_ROWS),
        };
        let rows = query.fetch_all(&self.readers).await?;
        // A key that can't be read has no place; `actonce journal verify` names it.
        let readable = |row: &SqliteRow| {
            queue_row(row).inspect_err(|corruption| tracing::error!(%corruption, "an open effect can't be listed")).ok()
        };
        Ok(rows.iter().filter_map(readable).collect())
    }

    async fn doubtful_tools(&self, tenant: &Tenant, limit: u32) -> Result<Vec<Name>> {
        let names: Vec<String> =
            sqlx::query_scalar(sql::DOUBTFUL_TOOLS).bind(tenant.as_str()).bind(limit).fetch_all(&self.readers).await?;
        Ok(names.iter().filter_map(|name| Name::new(name).ok()).collect())
    }

    async fn evidence(&self, key: &EffectKey, revisions: &[u32]) -> Result<Vec<EvidenceRow>> {
        let rows = sqlx::query(sql::EVIDENCE)
            .bind(key.tenant.as_str())
            .bind(key.effect)
            .bind(Json(revisions))
            .fetch_all(&self.readers)
            .await?;
        let mut found = rows.iter().map(|row| evidence_row(row, key)).collect::<std::result::Result<Vec<_>, _>>()?;
        found.sort_unstable_by_key(|row| row.revision);
        Ok(found)
    }
}

fn queue_row(row: &SqliteRow) -> std::result::Result<QueueRow, Corruption> {
    let effect: Uuid = column(row, "open_effects", "effect", &"?")?;
    let created_us = column(row, "open_effects", "created_us", &effect)?;
    Ok(QueueRow {
        position: Position { created_at: Timestamp::from_micros(created_us), effect },
        state: row.try_get("state").ok().and_then(state_of),
        due_at: row.try_get::<Option<i64>, _>("due_us").ok().flatten().map(Timestamp::from_micros),
        doubt_until: row.try_get::<Option<i64>, _>("deadline_us").ok().flatten().map(Timestamp::from_micros),
        contradicted: row.try_get("contradicted").unwrap_or(false),
        tool: row.try_get("tool").ok().and_then(|tool: &str| Name::new(tool).ok()),
    })
}

fn evidence_row(row: &SqliteRow, key: &EffectKey) -> std::result::Result<EvidenceRow, Corruption> {
    Ok(EvidenceRow {
        revision: revision_of(row, "entries", &key.effect)?,
        entry: column(row, "entries", "entry", &key.effect)?,
        life: column(row, "entries", "life", &key.effect)?,
        receipt: column(row, "entries", "receipt", &key.effect)?,
    })
}
