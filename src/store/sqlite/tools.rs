//! Tools: current rows, revisions, and changes of them.

use sqlx::Connection as _;
use sqlx::sqlite::{SqlitePool, SqliteRow};

use super::record::{column, revision_of};
use super::{SqliteStore, secrets, sql};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::{Corruption, Result, ToolRow, ToolWrite, ToolWritten};

pub(super) async fn tool(readers: &SqlitePool, tenant: &Tenant, name: &Name) -> Result<Option<ToolRow>> {
    let row = sqlx::query(sql::TOOL).bind(tenant.as_str()).bind(name.as_str()).fetch_optional(readers).await?;
    Ok(row.as_ref().map(tool_row).transpose()?)
}

pub(super) async fn tool_revision(
    readers: &SqlitePool,
    tenant: &Tenant,
    name: &Name,
    revision: u32,
) -> Result<Option<ToolRow>> {
    let row = sqlx::query(sql::TOOL_REVISION)
        .bind(tenant.as_str())
        .bind(name.as_str())
        .bind(revision)
        .fetch_optional(readers)
        .await?;
    Ok(row.as_ref().map(tool_row).transpose()?)
}

pub(super) async fn tools(
    readers: &SqlitePool,
    tenant: &Tenant,
    after: Option<&Name>,
    limit: u32,
) -> Result<Vec<ToolRow>> {
    let after = after.map_or("", Name::as_str);
    let rows = sqlx::query(sql::TOOLS).bind(tenant.as_str()).bind(after).bind(limit).fetch_all(readers).await?;
    rows.iter().map(|row| Ok(tool_row(row)?)).collect()
}

fn tool_row(row: &SqliteRow) -> std::result::Result<ToolRow, Corruption> {
    let name: &str = column(row, "tools", "name", &"?")?;
    let registered_us = column(row, "tool_revisions", "registered_us", &name)?;
    Ok(ToolRow {
        name: Name::new(name).map_err(|_| Corruption { table: "tools", column: "name", key: name.to_owned() })?,
        revision: revision_of(row, "tool_revisions", &name)?,
        stamp: column(row, "tools", "stamp", &name)?,
        paused: column(row, "tools", "paused", &name)?,
        deleted: column(row, "tools", "deleted", &name)?,
        spec: column(row, "tool_revisions", "spec", &name)?,
        registered_at: Timestamp::from_micros(registered_us),
    })
}

pub(super) async fn write_tool(store: &SqliteStore, write: &ToolWrite) -> Result<ToolWritten> {
    let (tenant, name) = (write.tenant.as_str(), write.name.as_str());
    let mut lent = store.writer.lend().await?;
    let mut tx = lent.connection.begin_with(sql::BEGIN).await?;
    let stamp: Option<i64> =
        sqlx::query_scalar(sql::TOOL_STAMP).bind(tenant).bind(name).fetch_optional(&mut *tx).await?;
    if stamp != write.expected_stamp {
        tx.rollback().await?;
        lent.give_back();
        return Ok(ToolWritten::Lost);
    }
    if write.deleted && sqlx::query_scalar(sql::TOOL_IN_USE).bind(tenant).bind(name).fetch_one(&mut *tx).await? {
        tx.rollback().await?;
        lent.give_back();
        return Ok(ToolWritten::InUse);
    }
    sqlx::query(sql::TOOL_PUT)
        .bind(tenant)
        .bind(name)
        .bind(write.revision)
        .bind(stamp.unwrap_or(0).saturating_add(1))
        .bind(write.paused)
        .bind(write.deleted)
        .execute(&mut *tx)
        .await?;
    if let Some(spec) = &write.spec {
        sqlx::query(sql::TOOL_REVISION_ADD)
            .bind(tenant)
            .bind(name)
            .bind(write.revision)
            .bind(spec.as_str())
            .bind(write.at.micros())
            .bind(write.by.as_str())
            .execute(&mut *tx)
            .await?;
    }
    if write.wakes_doubts {
        let stamp = stamp.unwrap_or(0).saturating_add(1);
        sqlx::query(sql::doubts::DOUBT_WAKE_PUT).bind(tenant).bind(name).bind(stamp).execute(&mut *tx).await?;
    }
    let now = store.clock.now();
    secrets::write(&mut tx, write, now).await?;
    sqlx::query(sql::TICK).bind(now.micros()).execute(&mut *tx).await?;
    tx.commit().await?;
    lent.give_back();
    Ok(ToolWritten::Applied)
}
