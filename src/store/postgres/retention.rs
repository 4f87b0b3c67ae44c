//! Pruning on Postgres. Never by the connection that commits changes: that one is the hot path's.

use async_trait::async_trait;
use sqlx::Row as _;
use uuid::Uuid;

use super::PostgresStore;
use super::query::columns;
use super::sql::retention as sql;
use super::wall::{Purpose, Tenants};
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::time::Timestamp;
use crate::store::retention::{Buried, Grave, Old, RetentionStore};
use crate::store::rows::state_code;
use crate::store::{Position, Result};

#[async_trait]
impl RetentionStore for PostgresStore {
    async fn next_tenant(&self, after: &str) -> Result<Option<String>> {
        Ok(sqlx::query_scalar(sql::NEXT_TENANT)
            .bind(after)
            .fetch_optional(self.scope(Tenants::All(Purpose::Retention)).await?)
            .await?)
    }

    async fn old_effects(&self, tenant: &Tenant, after: Position, before: Timestamp, limit: u32) -> Result<Vec<Old>> {
        let rows = sqlx::query(sql::OLD_EFFECTS)
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
                Ok(Old { position, stays: row.try_get(2)? })
            })
            .collect()
    }

    async fn prune(&self, graves: &[Grave]) -> Result<Vec<Uuid>> {
        let mut tx = self.begin(Tenants::of(graves.iter().map(|grave| &grave.key))).await?;
        sqlx::query(sql::PRUNE_PATIENCE).execute(&mut *tx).await?;
        sqlx::query(sql::PRUNE_LOCK).execute(&mut *tx).await?;
        let rows = sqlx::query(sql::PRUNE)
            .bind(graves.iter().map(|grave| grave.key.tenant.as_str()).collect::<Vec<_>>())
            .bind(graves.iter().map(|grave| grave.key.effect).collect::<Vec<_>>())
            .bind(graves.iter().map(|grave| grave.head.as_slice()).collect::<Vec<_>>())
            .bind(graves.iter().map(|grave| state_code(grave.state)).collect::<Vec<_>>())
            .bind(graves.iter().map(|grave| grave.text.as_str()).collect::<Vec<_>>())
            .bind(graves.iter().map(|grave| grave.hash.as_slice()).collect::<Vec<_>>())
            .fetch_all(&mut *tx)
            .await?;
        tx.commit().await?;
        rows.iter().map(|row| Ok(row.try_get(0)?)).collect()
    }

    async fn buried(&self, keys: &[EffectKey]) -> Result<Vec<Option<Buried>>> {
        let (tenants, effects) = columns(keys);
        let rows = sqlx::query(sql::BURIED)
            .bind(tenants)
            .bind(effects)
            .fetch_all(self.scope(Tenants::of(keys)).await?)
            .await?;
        rows.iter()
            .map(|row| {
                let Some(text) = row.try_get(0)? else { return Ok(None) };
                Ok(Some(Buried { text, head: row.try_get(1)?, hash: row.try_get(2)? }))
            })
            .collect()
    }
}
