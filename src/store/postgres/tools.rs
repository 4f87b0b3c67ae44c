//! Tools on Postgres.

use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::wall::{Tenants, Wall};
use super::{secrets, sql};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::{Corruption, Result, ToolRow, ToolWrite, ToolWritten};

fn tool_row(row: &PgRow) -> Result<ToolRow> {
    let name: String = row.try_get(0)?;
    let revision: i32 = row.try_get(1)?;
    let bad = |column| Corruption { table: "tools", column, key: name.clone() };
    Ok(ToolRow {
        name: Name::new(&name).map_err(|_| bad("name"))?,
        revision: u32::try_from(revision).map_err(|_| bad("revision"))?,
        stamp: row.try_get(2)?,
        paused: row.try_get(3)?,
        deleted: row.try_get(4)?,
        spec: row.try_get(5)?,
        registered_at: Timestamp::from_micros(row.try_get(6)?),
    })
}

fn number(revision: u32) -> i32 {
    i32::try_from(revision).unwrap_or(i32::MAX)
}

pub(super) async fn tool(wall: &Wall, tenant: &Tenant, name: &Name) -> Result<Option<ToolRow>> {
    let row = sqlx::query(sql::TOOL)
        .bind(tenant.as_str())
        .bind(name.as_str())
        .fetch_optional(wall.scope(Tenants::One(tenant)).await?)
        .await?;
    row.as_ref().map(tool_row).transpose()
}

pub(super) async fn tool_revision(wall: &Wall, tenant: &Tenant, name: &Name, revision: u32) -> Result<Option<ToolRow>> {
    let row = sqlx::query(sql::TOOL_REVISION)
        .bind(tenant.as_str())
        .bind(name.as_str())
        .bind(number(revision))
        .fetch_optional(wall.scope(Tenants::One(tenant)).await?)
        .await?;
    row.as_ref().map(tool_row).transpose()
}

pub(super) async fn tools(wall: &Wall, tenant: &Tenant, after: Option<&Name>, limit: u32) -> Result<Vec<ToolRow>> {
    let rows = sqlx::query(sql::TOOLS)
        .bind(tenant.as_str())
        .bind(after.map_or("", Name::as_str))
        .bind(i64::from(limit))
        .fetch_all(wall.scope(Tenants::One(tenant)).await?)
        .await?;
    rows.iter().map(tool_row).collect()
}

pub(super) async fn write_tool(wall: &Wall, write: &ToolWrite) -> Result<ToolWritten> {
    let mut transaction = wall.begin(Tenants::One(&write.tenant)).await?;
    let (tenant, name) = (write.tenant.as_str(), write.name.as_str());
    let changed = match write.expected_stamp {
        None => {
            sqlx::query(sql::TOOL_INSERT)
                .bind(tenant)
                .bind(name)
                .bind(number(write.revision))
                .bind(write.paused)
                .bind(write.deleted)
                .execute(&mut *transaction)
                .await?
        }
        Some(stamp) => {
            sqlx::query(sql::TOOL_UPDATE)
                .bind(tenant)
                .bind(name)
                .bind(number(write.revision))
                .bind(write.paused)
                .bind(write.deleted)
                .bind(stamp)
                .execute(&mut *transaction)
                .await?
        }
    };
    if changed.rows_affected() != 1 {
        transaction.rollback().await?;
        return Ok(ToolWritten::Lost);
    }
    if write.deleted {
        // After the update: from here on no grant passes the stamp, and what was granted is seen.
        let in_use: bool =
            sqlx::query_scalar(sql::TOOL_IN_USE).bind(tenant).bind(name).fetch_one(&mut *transaction).await?;
        if in_use {
            transaction.rollback().await?;
            return Ok(ToolWritten::InUse);
        }
    }
    if let Some(spec) = &write.spec {
        sqlx::query(sql::TOOL_REVISION_INSERT)
            .bind(tenant)
            .bind(name)
            .bind(number(write.revision))
            .bind(spec)
            .bind(write.at.micros())
            .bind(write.by.as_str())
            .execute(&mut *transaction)
            .await?;
    }
    if write.wakes_doubts {
        sqlx::query(sql::doubts::DOUBT_WAKE_PUT).bind(tenant).bind(name).execute(&mut *transaction).await?;
    }
    secrets::write(&mut transaction, write).await?;
    transaction.commit().await?;
    Ok(ToolWritten::Applied)
}
