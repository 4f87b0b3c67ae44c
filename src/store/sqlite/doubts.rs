//! Waking doubts that are already open, on SQLite.

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection as _, Row as _};
use uuid::Uuid;

use super::sql::doubts as sql;
use super::{SqliteStore, sql as common};
use crate::domain::ids::{Name, Tenant};
use crate::store::doubts::{DoubtStore, DoubtWake};
use crate::store::{Corruption, Result};

#[async_trait]
impl DoubtStore for SqliteStore {
    async fn doubt_wakes(&self, limit: u32) -> Result<Vec<DoubtWake>> {
        let rows = sqlx::query(sql::DOUBT_WAKES).bind(limit).fetch_all(&self.readers).await?;
        rows.iter().map(wake_of).collect()
    }

    async fn wake_doubts(&self, wake: &DoubtWake, limit: u32) -> Result<Option<usize>> {
        let (tenant, tool) = (wake.tenant.as_str(), wake.tool.as_str());
        let after_effect = wake.after_effect.map(|effect| effect.as_bytes().to_vec()).unwrap_or_default();
        let mut lent = self.writer.lend().await?;
        let mut transaction = lent.connection.begin_with(common::BEGIN).await?;
        let page = sqlx::query(sql::DOUBT_PAGE)
            .bind(tenant)
            .bind(tool)
            .bind(wake.after_us)
            .bind(&after_effect)
            .bind(limit)
            .fetch_all(&mut *transaction)
            .await?;
        let last = page.last().map(|row| Ok::<_, sqlx::Error>((row.try_get(0)?, row.try_get(1)?))).transpose()?;
        let last = last.unwrap_or((wake.after_us, after_effect.clone()));
        let is_end = page.len() < usize::try_from(limit).unwrap_or(usize::MAX);
        let statement = if is_end { sql::DOUBT_WAKE_END } else { sql::DOUBT_WAKE_ADVANCE };
        let note =
            sqlx::query(statement).bind(tenant).bind(tool).bind(wake.stamp).bind(wake.after_us).bind(&after_effect);
        let note = if is_end { note } else { note.bind(last.0).bind(&last.1) };
        if note.execute(&mut *transaction).await?.rows_affected() != 1 {
            transaction.rollback().await?;
            lent.give_back();
            return Ok(None);
        }
        let now = self.clock.now().micros();
        sqlx::query(sql::DOUBTS_WAKE)
            .bind(tenant)
            .bind(tool)
            .bind(wake.after_us)
            .bind(&after_effect)
            .bind(last.0)
            .bind(&last.1)
            .bind(now)
            .execute(&mut *transaction)
            .await?;
        sqlx::query(common::TICK).bind(now).execute(&mut *transaction).await?;
        transaction.commit().await?;
        lent.give_back();
        Ok(Some(page.len()))
    }
}

fn wake_of(row: &SqliteRow) -> Result<DoubtWake> {
    let (tenant, tool): (String, String) = (row.try_get(0)?, row.try_get(1)?);
    let after: Vec<u8> = row.try_get(4)?;
    let bad = |column| Corruption { table: "doubt_wakes", column, key: format!("{tenant} {tool}") };
    Ok(DoubtWake {
        stamp: row.try_get(2)?,
        after_us: row.try_get(3)?,
        after_effect: if after.is_empty() {
            None
        } else {
            Some(Uuid::from_slice(&after).map_err(|_| bad("after_effect"))?)
        },
        tenant: Tenant::new(&tenant).map_err(|_| bad("tenant"))?,
        tool: Name::new(&tool).map_err(|_| bad("tool"))?,
    })
}
