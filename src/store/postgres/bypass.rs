//! Many effects at a glance, on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;

use super::PostgresStore;
use super::query::columns;
use super::sql::bypass as sql;
use super::wall::Tenants;
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::time::Timestamp;
use crate::store::bypass::{BypassStore, Glance};
use crate::store::{Position, Result};

#[async_trait]
impl BypassStore for PostgresStore {
    async fn glances(&self, keys: &[EffectKey]) -> Result<Vec<Option<Glance>>> {
        let (tenants, effects) = columns(keys);
        let rows = sqlx::query(sql::GLANCES)
            .bind(tenants)
            .bind(effects)
            .fetch_all(self.scope(Tenants::of(keys)).await?)
            .await?;
        rows.iter()
            .map(|row| {
                let found: (Option<String>, Option<i16>) = (row.try_get(0)?, row.try_get(1)?);
                // Entries without a first one are damaged, and not for this to tell: they have no intent to read.
                Ok(found.1.map(|state| Glance { intent: found.0.unwrap_or_default(), state }))
            })
            .collect()
    }

    async fn created(
        &self,
        tenant: &Tenant,
        after: Position,
        before: Timestamp,
        limit: u32,
    ) -> Result<Vec<(Position, Glance)>> {
        let rows = sqlx::query(sql::CREATED)
            .bind(tenant.as_str())
            .bind(after.created_at.micros())
            .bind(after.effect)
            .bind(before.micros())
            .bind(i64::from(limit))
            .fetch_all(self.scope(Tenants::One(tenant)).await?)
            .await?;
        rows.iter()
            .map(|row| {
                let created_at = Timestamp::from_micros(row.try_get(0)?);
                let position = Position { created_at, effect: row.try_get(1)? };
                Ok((position, Glance { intent: row.try_get(2)?, state: row.try_get(3)? }))
            })
            .collect()
    }
}
