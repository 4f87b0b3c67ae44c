//! Retained arguments and standing grants in a file.

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::{Connection as _, Row as _};
use uuid::Uuid;

use super::record::column;
use super::sql::approvals as sql;
use super::{SqliteStore, sql as statements};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::approvals::{ApprovalStore, GrantRow, GrantWritten};
use crate::store::{Corruption, Position, Result};

fn grant_row(row: &SqliteRow) -> Result<GrantRow> {
    let id: Uuid = row.try_get("grant_id")?;
    let bad = |column| Corruption { table: "grants", column, key: id.to_string() };
    let name = |column, text: &str| Name::new(text).map_err(|_| bad(column));
    let revoked: (Option<i64>, Option<&str>) =
        (column(row, "grants", "revoked_us", &id)?, column(row, "grants", "revoked_by", &id)?);
    Ok(GrantRow {
        id,
        tool: name("tool", column(row, "grants", "tool", &id)?)?,
        terms: column(row, "grants", "terms", &id)?,
        uses: column(row, "grants", "uses", &id)?,
        max_uses: column(row, "grants", "max_uses", &id)?,
        created_at: Timestamp::from_micros(column(row, "grants", "created_us", &id)?),
        expires_at: Timestamp::from_micros(column(row, "grants", "expires_us", &id)?),
        revoked: match revoked {
            (Some(at), Some(by)) => Some((name("revoked_by", by)?, Timestamp::from_micros(at))),
            _ => None,
        },
    })
}

#[async_trait]
impl ApprovalStore for SqliteStore {
    async fn retained(&self, key: &EffectKey) -> Result<Option<Vec<u8>>> {
        let query = sqlx::query_scalar(sql::RETAINED).bind(key.tenant.as_str()).bind(key.effect);
        Ok(query.fetch_optional(&self.readers).await?)
    }

    async fn add_grant(&self, tenant: &Tenant, grant: &GrantRow, limit: u32) -> Result<GrantWritten> {
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(statements::BEGIN).await?;
        let added = sqlx::query(sql::GRANT_ADD)
            .bind(tenant.as_str())
            .bind(grant.id)
            .bind(grant.tool.as_str())
            .bind(grant.terms.as_str())
            .bind(grant.max_uses)
            .bind(grant.created_at.micros())
            .bind(grant.expires_at.micros())
            .bind(limit)
            .execute(&mut *tx)
            .await?;
        sqlx::query(statements::TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(if added.rows_affected() == 1 { GrantWritten::Applied } else { GrantWritten::Refused })
    }

    async fn grant(&self, tenant: &Tenant, id: Uuid) -> Result<Option<GrantRow>> {
        let query = sqlx::query(sql::GRANT).bind(tenant.as_str()).bind(id);
        query.fetch_optional(&self.readers).await?.as_ref().map(grant_row).transpose()
    }

    async fn grants(&self, tenant: &Tenant, after: Option<Position>, limit: u32) -> Result<Vec<GrantRow>> {
        let (micros, id) = after.map_or((i64::MIN, Uuid::nil()), |after| (after.created_at.micros(), after.effect));
        let query = sqlx::query(sql::GRANTS).bind(tenant.as_str()).bind(micros).bind(id).bind(limit);
        query.fetch_all(&self.readers).await?.iter().map(grant_row).collect()
    }

    async fn live_grants(&self, tenant: &Tenant, tool: &Name, limit: u32) -> Result<Vec<GrantRow>> {
        let now = self.clock.now().micros();
        let query = sqlx::query(sql::GRANTS_LIVE).bind(tenant.as_str()).bind(tool.as_str()).bind(now).bind(limit);
        query.fetch_all(&self.readers).await?.iter().map(grant_row).collect()
    }

    async fn revoke_grant(&self, tenant: &Tenant, id: Uuid, by: &Name, at: Timestamp) -> Result<bool> {
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(statements::BEGIN).await?;
        let query = sqlx::query(sql::GRANT_REVOKE).bind(tenant.as_str()).bind(id).bind(at.micros()).bind(by.as_str());
        let revoked = query.execute(&mut *tx).await?;
        sqlx::query(statements::TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(revoked.rows_affected() == 1)
    }
}
