//! All journal rows in order, on SQLite. A text there may be anything: bytes that are none are told.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::record::{column, journal_row, key_of};
use super::{SqliteStore, sql};
use crate::store::audit::{AuditFound, AuditPlace, AuditStore};
use crate::store::{AuditRow, Corruption, Result};

#[async_trait]
impl AuditStore for SqliteStore {
    async fn audit_each(&self, after: Option<&AuditPlace>, limit: u32) -> Result<Vec<AuditFound>> {
        let effect = after.map(|place| place.effect.as_bytes().to_vec()).unwrap_or_default();
        let rows = sqlx::query(sql::AUDIT)
            .bind(after.map(|place| place.tenant.clone()).unwrap_or_default())
            .bind(effect)
            .bind(after.map_or(0, |place| place.revision))
            .bind(limit)
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(found).collect()
    }
}

fn found(row: &SqliteRow) -> Result<AuditFound> {
    let place = AuditPlace {
        tenant: row.try_get_unchecked("tenant")?,
        effect: row.try_get("effect")?,
        revision: row.try_get("revision")?,
    };
    Ok(AuditFound { place, row: read(row) })
}

fn read(row: &SqliteRow) -> std::result::Result<AuditRow, Corruption> {
    let key = key_of(row, "entries")?;
    Ok(AuditRow {
        journal: journal_row(row, &key)?,
        state: column(row, "entries", "state", &key.effect)?,
        intent: column(row, "entries", "intent", &key.effect)?,
        life: column(row, "entries", "life", &key.effect)?,
        receipt: column(row, "entries", "receipt", &key.effect)?,
        result: column(row, "entries", "result", &key.effect)?,
        key,
    })
}
