//! Many effects at a glance, on SQLite.

use async_trait::async_trait;

use super::SqliteStore;
use super::record::{column, number_of, wanted};
use super::sql::bypass as sql;
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::time::Timestamp;
use crate::store::bypass::{BypassStore, Glance};
use crate::store::{Position, Result};

#[async_trait]
impl BypassStore for SqliteStore {
    async fn glances(&self, keys: &[EffectKey]) -> Result<Vec<Option<Glance>>> {
        let mut glances = vec![None; keys.len()];
        if keys.is_empty() {
            return Ok(glances);
        }
        for row in &sqlx::query(sql::GLANCES).bind(wanted(keys)).fetch_all(&self.readers).await? {
            let number = number_of(row)?;
            if let (Some(slot), Some(key)) = (glances.get_mut(number), keys.get(number)) {
                let state: Option<i16> = column(row, "entries", "state", &key.effect)?;
                // Entries without a first one are damaged, and not for this to tell: they have no intent to read.
                let intent: Option<String> = column(row, "entries", "intent", &key.effect)?;
                *slot = state.map(|state| Glance { intent: intent.unwrap_or_default(), state });
            }
        }
        Ok(glances)
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
            .bind(after.effect.as_bytes().as_slice())
            .bind(before.micros())
            .bind(limit)
            .fetch_all(&self.readers)
            .await?;
        rows.iter()
            .map(|row| {
                let effect = column(row, "entries", "effect", &"?")?;
                let created_at = Timestamp::from_micros(column(row, "entries", "created_us", &effect)?);
                let intent = column(row, "entries", "intent", &effect)?;
                let state = column(row, "entries", "state", &effect)?;
                Ok((Position { created_at, effect }, Glance { intent, state }))
            })
            .collect()
    }
}
