//! All journal rows in order, on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::query::journal_row;
use super::wall::{Purpose, Tenants};
use super::{PostgresStore, sql};
use crate::domain::ids::{EffectKey, Tenant};
use crate::store::audit::{AuditFound, AuditPlace, AuditStore};
use crate::store::rows::bad_entry;
use crate::store::{AuditRow, Result, StoreError};

#[async_trait]
impl AuditStore for PostgresStore {
    async fn audit_each(&self, after: Option<&AuditPlace>, limit: u32) -> Result<Vec<AuditFound>> {
        let tenant = after.map(|place| String::from_utf8_lossy(&place.tenant)).unwrap_or_default();
        let (effect, revision) = after.map_or((Uuid::nil(), 0), |place| (place.effect, place.revision));
        let rows = sqlx::query(sql::AUDIT)
            .bind(tenant.as_ref())
            .bind(effect)
            .bind(i32::try_from(revision).unwrap_or(i32::MAX))
            .bind(i64::from(limit))
            .fetch_all(self.scope(Tenants::All(Purpose::Verification)).await?)
            .await?;
        rows.iter().map(found).collect()
    }
}

fn found(row: &PgRow) -> Result<AuditFound> {
    let tenant: String = row.try_get(0)?;
    let place = AuditPlace { tenant: tenant.into_bytes(), effect: row.try_get(1)?, revision: row.try_get(2)? };
    let row = match read(row, place.effect) {
        Ok(row) => Ok(row),
        Err(StoreError::Corrupt(corruption)) => Err(corruption),
        Err(other) => return Err(other),
    };
    Ok(AuditFound { place, row })
}

fn read(row: &PgRow, effect: Uuid) -> Result<AuditRow> {
    let tenant = Tenant::new(row.try_get(0)?).map_err(|_| bad_entry("tenant", effect))?;
    Ok(AuditRow {
        key: EffectKey { tenant, effect },
        journal: journal_row(row, 2, effect)?,
        state: row.try_get(6)?,
        intent: row.try_get(7)?,
        life: row.try_get(8)?,
        receipt: row.try_get(9)?,
        result: row.try_get(10)?,
    })
}
