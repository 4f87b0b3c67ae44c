//! Sealed secrets of tools on SQLite.

use async_trait::async_trait;
use sqlx::SqliteConnection;

use super::record::column;
use super::{SqliteStore, sql};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::secrets::{SecretStore, ToolSecretRow};
use crate::store::{Result, ToolWrite};

#[async_trait]
impl SecretStore for SqliteStore {
    async fn tool_secrets(&self, tenant: &Tenant, tool: &Name) -> Result<Vec<ToolSecretRow>> {
        let rows =
            sqlx::query(sql::TOOL_SECRETS).bind(tenant.as_str()).bind(tool.as_str()).fetch_all(&self.readers).await?;
        let mut secrets = Vec::with_capacity(rows.len());
        for row in &rows {
            let table = "tool_secrets";
            let retired: Option<i64> = column(row, table, "retired_us", &tool)?;
            secrets.push(ToolSecretRow {
                number: column(row, table, "number", &tool)?,
                sealed: column(row, table, "sealed", &tool)?,
                created_at: Timestamp::from_micros(column(row, table, "created_us", &tool)?),
                retired_at: retired.map(Timestamp::from_micros),
            });
        }
        Ok(secrets)
    }
}

/// What a change of a tool does to its secrets. Inside its transaction, after its compare-and-set.
pub(super) async fn write(connection: &mut SqliteConnection, write: &ToolWrite, now: Timestamp) -> Result<()> {
    let (tenant, tool) = (write.tenant.as_str(), write.name.as_str());
    if write.deleted {
        sqlx::query(sql::TOOL_SECRETS_DELETE).bind(tenant).bind(tool).execute(&mut *connection).await?;
        return Ok(());
    }
    if let Some(sealed) = &write.secret {
        sqlx::query(sql::TOOL_SECRETS_PRUNE).bind(tenant).bind(tool).execute(&mut *connection).await?;
        for statement in [sql::TOOL_SECRET_RETIRE, sql::TOOL_SECRET_ADD] {
            let query = sqlx::query(statement).bind(tenant).bind(tool).bind(now.micros());
            let query = if statement == sql::TOOL_SECRET_ADD { query.bind(sealed.as_slice()) } else { query };
            query.execute(&mut *connection).await?;
        }
    }
    Ok(())
}
