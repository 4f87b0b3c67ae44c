//! Retained arguments and standing grants on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use super::sql::approvals as sql;
use super::wall::Tenants::One;
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::approvals::{ApprovalStore, GrantRow, GrantWritten};
use crate::store::{Corruption, Position, Result};

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn grant_row(row: &PgRow) -> Result<GrantRow> {
    let id: Uuid = row.try_get(0)?;
    let bad = |column| Corruption { table: "grants", column, key: id.to_string() };
    let name = |column, text: &str| Name::new(text).map_err(|_| bad(column));
    let (tool, uses, max_uses): (String, i32, i32) = (row.try_get(1)?, row.try_get(3)?, row.try_get(4)?);
    let revoked: (Option<i64>, Option<String>) = (row.try_get(7)?, row.try_get(8)?);
    Ok(GrantRow {
        id,
        tool: name("tool", &tool)?,
        terms: row.try_get(2)?,
        uses: u32::try_from(uses).map_err(|_| bad("uses"))?,
        max_uses: u32::try_from(max_uses).map_err(|_| bad("max_uses"))?,
        created_at: Timestamp::from_micros(row.try_get(5)?),
        expires_at: Timestamp::from_micros(row.try_get(6)?),
        revoked: match revoked {
            (Some(at), Some(by)) => Some((name("revoked_by", &by)?, Timestamp::from_micros(at))),
            _ => None,
        },
    })
}

#[async_trait]
impl ApprovalStore for PostgresStore {
    async fn retained(&self, key: &EffectKey) -> Result<Option<Vec<u8>>> {
        let query = sqlx::query_scalar(sql::RETAINED).bind(key.tenant.as_str()).bind(key.effect);
        Ok(query.fetch_optional(self.scope(One(&key.tenant)).await?).await?)
    }

    async fn add_grant(&self, tenant: &Tenant, grant: &GrantRow, limit: u32) -> Result<GrantWritten> {
        let added = sqlx::query(sql::GRANT_ADD)
            .bind(tenant.as_str())
            .bind(grant.id)
            .bind(grant.tool.as_str())
            .bind(&grant.terms)
            .bind(number(grant.max_uses))
            .bind(grant.created_at.micros())
            .bind(grant.expires_at.micros())
            .bind(i64::from(limit))
            .execute(self.scope(One(tenant)).await?)
            .await?;
        Ok(if added.rows_affected() == 1 { GrantWritten::Applied } else { GrantWritten::Refused })
    }

    async fn grant(&self, tenant: &Tenant, id: Uuid) -> Result<Option<GrantRow>> {
        let query = sqlx::query(sql::GRANT).bind(tenant.as_str()).bind(id);
        query.fetch_optional(self.scope(One(tenant)).await?).await?.as_ref().map(grant_row).transpose()
    }

    async fn grants(&self, tenant: &Tenant, after: Option<Position>, limit: u32) -> Result<Vec<GrantRow>> {
        let (micros, id) = after.map_or((i64::MIN, Uuid::nil()), |after| (after.created_at.micros(), after.effect));
        let query = sqlx::query(sql::GRANTS).bind(tenant.as_str()).bind(micros).bind(id).bind(i64::from(limit));
        query.fetch_all(self.scope(One(tenant)).await?).await?.iter().map(grant_row).collect()
    }

    async fn live_grants(&self, tenant: &Tenant, tool: &Name, limit: u32) -> Result<Vec<GrantRow>> {
        let query = sqlx::query(sql::GRANTS_LIVE).bind(tenant.as_str()).bind(tool.as_str()).bind(i64::from(limit));
        query.fetch_all(self.scope(One(tenant)).await?).await?.iter().map(grant_row).collect()
    }

    async fn revoke_grant(&self, tenant: &Tenant, id: Uuid, by: &Name, at: Timestamp) -> Result<bool> {
        let query = sqlx::query(sql::GRANT_REVOKE).bind(tenant.as_str()).bind(id).bind(at.micros()).bind(by.as_str());
        Ok(query.execute(self.scope(One(tenant)).await?).await?.rows_affected() == 1)
    }
}
