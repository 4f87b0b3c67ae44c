//! Sealed secrets of tools on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;

use super::wall::Held;
use super::wall::Tenants::One;
use super::{PostgresStore, sql};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::secrets::{SecretStore, ToolSecretRow};
use crate::store::{Corruption, Result, ToolWrite};

#[async_trait]
impl SecretStore for PostgresStore {
    async fn tool_secrets(&self, tenant: &Tenant, tool: &Name) -> Result<Vec<ToolSecretRow>> {
        let rows = sqlx::query(sql::TOOL_SECRETS)
            .bind(tenant.as_str())
            .bind(tool.as_str())
            .fetch_all(self.scope(One(tenant)).await?)
            .await?;
        let mut secrets = Vec::with_capacity(rows.len());
        for row in rows {
            let number: i32 = row.try_get(0)?;
            let retired: Option<i64> = row.try_get(3)?;
            secrets.push(ToolSecretRow {
                number: u32::try_from(number).map_err(|_| Corruption {
                    table: "tool_secrets",
                    column: "number",
                    key: tool.as_str().to_owned(),
                })?,
                sealed: row.try_get(1)?,
                created_at: Timestamp::from_micros(row.try_get(2)?),
                retired_at: retired.map(Timestamp::from_micros),
            });
        }
        Ok(secrets)
    }
}

/// What a change of a tool does to its secrets. Inside its transaction, after its compare-and-set.
pub(super) async fn write(connection: &mut Held, write: &ToolWrite) -> Result<()> {
    let (tenant, tool) = (write.tenant.as_str(), write.name.as_str());
    if write.deleted {
        sqlx::query(sql::TOOL_SECRETS_DELETE).bind(tenant).bind(tool).execute(&mut *connection).await?;
        return Ok(());
    }
    if let Some(sealed) = &write.secret {
        for statement in [sql::TOOL_SECRETS_PRUNE, sql::TOOL_SECRET_RETIRE] {
            sqlx::query(statement).bind(tenant).bind(tool).execute(&mut *connection).await?;
        }
        sqlx::query(sql::TOOL_SECRET_ADD).bind(tenant).bind(tool).bind(sealed).execute(connection).await?;
    }
    Ok(())
}
