//! What operators read, on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use super::sql::operators as sql;
use super::wall::{Purpose, Tenants};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::rows::{bad_entry, state_code, state_of};
use crate::store::{EvidenceRow, OperatorStore, Position, QueueRow, QueueWalk, Result};

#[async_trait]
impl OperatorStore for PostgresStore {
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
        let query = sqlx::query(statement)
            .bind(tenant.as_str())
            .bind(after.map_or(i64::MIN, |position| position.created_at.micros()))
            .bind(after.map_or(Uuid::nil(), |position| position.effect))
            .bind(i64::from(limit));
        let query = match walk {
            QueueWalk::State { state, created_until } => query.bind(state_code(*state)).bind(created_until.micros()),
            QueueWalk::Contradicted => query,
            QueueWalk::Doubt(bounds) => query
                .bind(bounds.iter().map(|bound| bound.tool.as_str()).collect::<Vec<_>>())
                .bind(bounds.iter().map(|bound| bound.created_until_us).collect::<Vec<_>>())
                .bind(bounds.iter().map(|bound| bound.doubt_until_us).collect::<Vec<_>>()),
            QueueWalk::Overdue { due_until } => {
                query.bind(due_until.micros()).bind(i64::from(limits::OVERDUE_SCAN_ROWS))
            }
        };
        let whose = match walk {
            QueueWalk::Overdue { .. } => Tenants::All(Purpose::Overdue),
            _ => Tenants::One(tenant),
        };
        query.fetch_all(self.scope(whose).await?).await?.iter().map(queue_row).collect()
    }

    async fn doubtful_tools(&self, tenant: &Tenant, limit: u32) -> Result<Vec<Name>> {
        let names: Vec<String> = sqlx::query_scalar(sql::DOUBTFUL_TOOLS)
            .bind(tenant.as_str())
            .bind(i64::from(limit))
            .fetch_all(self.scope(Tenants::One(tenant)).await?)
            .await?;
        Ok(names.iter().filter_map(|name| Name::new(name).ok()).collect())
    }

    async fn evidence(&self, key: &EffectKey, revisions: &[u32]) -> Result<Vec<EvidenceRow>> {
        let wanted: Vec<i32> = revisions.iter().map(|number| i32::try_from(*number).unwrap_or(i32::MAX)).collect();
        let rows = sqlx::query(sql::EVIDENCE)
            .bind(key.tenant.as_str())
            .bind(key.effect)
            .bind(wanted)
            .fetch_all(self.scope(Tenants::One(&key.tenant)).await?)
            .await?;
        rows.iter()
            .map(|row| {
                let revision: i64 = row.try_get(0)?;
                Ok(EvidenceRow {
                    revision: u32::try_from(revision).map_err(|_| bad_entry("revision", key.effect))?,
                    entry: row.try_get(1)?,
                    life: row.try_get(2)?,
                    receipt: row.try_get(3)?,
                })
            })
            .collect()
    }
}

fn queue_row(row: &PgRow) -> Result<QueueRow> {
    let tool: String = row.try_get(6)?;
    Ok(QueueRow {
        position: Position { created_at: Timestamp::from_micros(row.try_get(0)?), effect: row.try_get(1)? },
        state: state_of(row.try_get(2)?),
        due_at: row.try_get::<Option<i64>, _>(3)?.map(Timestamp::from_micros),
        doubt_until: row.try_get::<Option<i64>, _>(4)?.map(Timestamp::from_micros),
        contradicted: row.try_get(5)?,
        tool: Name::new(&tool).ok(),
    })
}
