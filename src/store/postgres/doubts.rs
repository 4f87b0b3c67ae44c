//! Waking doubts that are already open, on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use super::sql::doubts as sql;
use super::wall::{Purpose, Tenants};
use crate::domain::ids::{Name, Tenant};
use crate::store::doubts::{DoubtStore, DoubtWake};
use crate::store::{Corruption, Result};

#[async_trait]
impl DoubtStore for PostgresStore {
    async fn doubt_wakes(&self, limit: u32) -> Result<Vec<DoubtWake>> {
        let rows = sqlx::query(sql::DOUBT_WAKES)
            .bind(i64::from(limit))
            .fetch_all(self.scope(Tenants::All(Purpose::Doubts)).await?)
            .await?;
        rows.iter().map(wake_of).collect()
    }

    async fn wake_doubts(&self, wake: &DoubtWake, limit: u32) -> Result<Option<usize>> {
        let (tenant, tool) = (wake.tenant.as_str(), wake.tool.as_str());
        let after_effect = wake.after_effect.unwrap_or(Uuid::nil());
        let mut transaction = self.begin(Tenants::One(&wake.tenant)).await?;
        let page = sqlx::query(sql::DOUBT_PAGE)
            .bind(tenant)
            .bind(tool)
            .bind(wake.after_us)
            .bind(after_effect)
            .bind(i64::from(limit))
            .fetch_all(&mut *transaction)
            .await?;
        let last = page.last().map(|row| Ok::<_, sqlx::Error>((row.try_get(0)?, row.try_get(1)?))).transpose()?;
        let (last_us, last_effect): (i64, Uuid) = last.unwrap_or((wake.after_us, after_effect));
        let is_end = page.len() < usize::try_from(limit).unwrap_or(usize::MAX);
        let statement = if is_end { sql::DOUBT_WAKE_END } else { sql::DOUBT_WAKE_ADVANCE };
        let note =
            sqlx::query(statement).bind(tenant).bind(tool).bind(wake.stamp).bind(wake.after_us).bind(after_effect);
        let note = if is_end { note } else { note.bind(last_us).bind(last_effect) };
        if note.execute(&mut *transaction).await?.rows_affected() != 1 {
            transaction.rollback().await?;
            return Ok(None);
        }
        sqlx::query(sql::DOUBTS_WAKE)
            .bind(tenant)
            .bind(tool)
            .bind(wake.after_us)
            .bind(after_effect)
            .bind(last_us)
            .bind(last_effect)
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        Ok(Some(page.len()))
    }
}

fn wake_of(row: &PgRow) -> Result<DoubtWake> {
    let (tenant, tool): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let after_effect: Uuid = row.try_get(4)?;
    let bad = |column| Corruption { table: "doubt_wakes", column, key: format!("{tenant} {tool}") };
    Ok(DoubtWake {
        stamp: row.try_get(2)?,
        after_us: row.try_get(3)?,
        after_effect: Some(after_effect).filter(|effect| !effect.is_nil()),
        tenant: Tenant::new(&tenant).map_err(|_| bad("tenant"))?,
        tool: Name::new(&tool).map_err(|_| bad("tool"))?,
    })
}
