//! Pruning on SQLite.

use async_trait::async_trait;
use sqlx::{Connection as _, Row as _};
use uuid::Uuid;

use super::SqliteStore;
use super::record::{column, number_of, wanted};
use super::sql::{self as all, retention as sql};
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::time::Timestamp;
use crate::store::retention::{Buried, Grave, Old, RetentionStore};
use crate::store::rows::state_code;
use crate::store::{Position, Result};

#[async_trait]
impl RetentionStore for SqliteStore {
    async fn next_tenant(&self, after: &str) -> Result<Option<String>> {
        Ok(sqlx::query_scalar(sql::NEXT_TENANT).bind(after).fetch_optional(&self.readers).await?)
    }

    async fn old_effects(&self, tenant: &Tenant, after: Position, before: Timestamp, limit: u32) -> Result<Vec<Old>> {
        let rows = sqlx::query(sql::OLD_EFFECTS)
            .bind(tenant.as_str())
            .bind(after.created_at.micros())
            .bind(after.effect.as_bytes().as_slice())
            .bind(before.micros())
            .bind(limit)
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                let effect = column(row, "entries", "effect", &"?")?;
                let created_at = Timestamp::from_micros(column(row, "entries", "created_us", &effect)?);
                Ok(Old { position: Position { created_at, effect }, stays: row.try_get("stays")? })
            })
            .collect()
    }

    async fn prune(&self, graves: &[Grave]) -> Result<Vec<Uuid>> {
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(all::BEGIN).await?;
        let mut pruned = Vec::new();
        for grave in graves {
            let bury = sqlx::query(sql::PRUNE_BURY)
                .bind(grave.key.tenant.as_str())
                .bind(grave.key.effect)
                .bind(grave.head.as_slice())
                .bind(state_code(grave.state))
                .bind(grave.text.as_str())
                .bind(grave.hash.as_slice());
            if bury.execute(&mut *tx).await?.rows_affected() == 1 {
                let rest = sqlx::query(sql::PRUNE_REST).bind(grave.key.tenant.as_str()).bind(grave.key.effect);
                rest.execute(&mut *tx).await?;
                pruned.push(grave.key.effect);
            }
        }
        sqlx::query(all::TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(pruned)
    }

    async fn buried(&self, keys: &[EffectKey]) -> Result<Vec<Option<Buried>>> {
        let mut buried = vec![None; keys.len()];
        for row in &sqlx::query(sql::BURIED).bind(wanted(keys)).fetch_all(&self.readers).await? {
            if let Some(slot) = buried.get_mut(number_of(row)?) {
                *slot = Some(Buried {
                    text: column(row, "entries", "life", &"?")?,
                    head: column(row, "entries", "prev_hash", &"?")?,
                    hash: column(row, "entries", "hash", &"?")?,
                });
            }
        }
        Ok(buried)
    }
}
