//! Receipt sources and the quarantine on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::wall::Purpose;
use super::wall::Tenants::{All, One};
use super::{PostgresStore, receipts_sql as sql};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::receipts::{
    QuarantineRow, QuarantineStatus, QuarantineTry, Quarantined, ReceiptStore, SourceDeleted, SourceRow, SourceWrite,
};
use crate::store::{Corruption, Result};

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn source_row(row: &PgRow) -> Result<SourceRow> {
    let source_id: Uuid = row.try_get(2)?;
    let bad = |column| Corruption { table: "receipt_sources", column, key: source_id.to_string() };
    Ok(SourceRow {
        tenant: Tenant::new(row.try_get(0)?).map_err(|_| bad("tenant"))?,
        name: Name::new(row.try_get(1)?).map_err(|_| bad("name"))?,
        source_id,
        revision: u32::try_from(row.try_get::<i32, _>(3)?).map_err(|_| bad("revision"))?,
        spec: row.try_get(4)?,
        secrets: row.try_get(5)?,
        changed_at: Timestamp::from_micros(row.try_get(6)?),
    })
}

fn quarantine_row(row: &PgRow) -> Result<QuarantineRow> {
    let id: Uuid = row.try_get(1)?;
    let bad = |column| Corruption { table: "quarantine", column, key: id.to_string() };
    let operation_id: Option<String> = row.try_get(8)?;
    Ok(QuarantineRow {
        tenant: Tenant::new(row.try_get(0)?).map_err(|_| bad("tenant"))?,
        id,
        source: Name::new(row.try_get(2)?).map_err(|_| bad("source"))?,
        status: QuarantineStatus::of(row.try_get(3)?).ok_or_else(|| bad("status"))?,
        reason: row.try_get(4)?,
        body: row.try_get(5)?,
        body_digest: row.try_get(6)?,
        facts: row.try_get(7)?,
        operation_id: operation_id.map(|id| Name::new(&id)).transpose().map_err(|_| bad("operation_id"))?,
        attempts: u32::try_from(row.try_get::<i32, _>(9)?).map_err(|_| bad("attempts"))?,
        next_try_at: row.try_get::<Option<i64>, _>(10)?.map(Timestamp::from_micros),
        received_at: Timestamp::from_micros(row.try_get(11)?),
        expires_at: Timestamp::from_micros(row.try_get(12)?),
        decision: row.try_get(13)?,
    })
}

#[async_trait]
impl ReceiptStore for PostgresStore {
    async fn receipt_source(&self, tenant: &Tenant, name: &Name) -> Result<Option<SourceRow>> {
        let query = sqlx::query(sql::SOURCE).bind(tenant.as_str()).bind(name.as_str());
        query.fetch_optional(self.scope(One(tenant)).await?).await?.as_ref().map(source_row).transpose()
    }

    async fn receipt_source_at(&self, source_id: Uuid) -> Result<Option<SourceRow>> {
        let rows =
            sqlx::query(sql::SOURCE_AT).bind(source_id).fetch_all(self.scope(All(Purpose::Address)).await?).await?;
        match rows.as_slice() {
            [row] => Ok(Some(source_row(row)?)),
            _ => Ok(None),
        }
    }

    async fn receipt_sources(&self, tenant: &Tenant, after: Option<&Name>, limit: u32) -> Result<Vec<SourceRow>> {
        let query =
            sqlx::query(sql::SOURCES).bind(tenant.as_str()).bind(after.map_or("", Name::as_str)).bind(i64::from(limit));
        query.fetch_all(self.scope(One(tenant)).await?).await?.iter().map(source_row).collect()
    }

    async fn write_receipt_source(&self, write: &SourceWrite) -> Result<bool> {
        let row = &write.row;
        let mut tx = self.begin(One(&row.tenant)).await?;
        let query = if row.revision == 1 {
            sqlx::query(sql::SOURCE_INSERT).bind(row.tenant.as_str()).bind(row.name.as_str()).bind(row.source_id)
        } else {
            sqlx::query(sql::SOURCE_UPDATE).bind(row.tenant.as_str()).bind(row.name.as_str())
        };
        let done = query
            .bind(number(row.revision))
            .bind(&row.spec)
            .bind(row.secrets.as_deref())
            .bind(row.changed_at.micros())
            .bind(write.by.as_str())
            .execute(&mut *tx)
            .await?;
        if done.rows_affected() != 1 {
            tx.rollback().await?;
            return Ok(false);
        }
        sqlx::query(sql::SOURCE_RETRY).bind(row.tenant.as_str()).bind(row.name.as_str()).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn delete_receipt_source(&self, tenant: &Tenant, name: &Name, revision: u32) -> Result<SourceDeleted> {
        let mut tx = self.begin(One(tenant)).await?;
        let (tenant, name) = (tenant.as_str(), name.as_str());
        let found: Option<i32> =
            sqlx::query_scalar(sql::SOURCE_LOCK).bind(tenant).bind(name).fetch_optional(&mut *tx).await?;
        if found != Some(number(revision)) {
            tx.rollback().await?;
            return Ok(SourceDeleted::Lost);
        }
        if sqlx::query_scalar(sql::SOURCE_IN_USE).bind(tenant).bind(name).fetch_one(&mut *tx).await? {
            tx.rollback().await?;
            return Ok(SourceDeleted::InUse);
        }
        for statement in [sql::SOURCE_FORGET, sql::SOURCE_DELETE] {
            sqlx::query(statement).bind(tenant).bind(name).execute(&mut *tx).await?;
        }
        tx.commit().await?;
        Ok(SourceDeleted::Applied)
    }

    async fn quarantine(&self, row: &QuarantineRow, most: u32) -> Result<Quarantined> {
        let mut tx = self.begin(One(&row.tenant)).await?;
        let tenant = row.tenant.as_str();
        sqlx::query(sql::QUARANTINE_LOCK).bind(tenant).execute(&mut *tx).await?;
        let known: Option<i16> =
            sqlx::query_scalar(sql::QUARANTINE_STATUS).bind(tenant).bind(row.id).fetch_optional(&mut *tx).await?;
        if let Some(status) = known {
            tx.rollback().await?;
            let bad = || Corruption { table: "quarantine", column: "status", key: row.id.to_string() };
            return Ok(Quarantined::Known(QuarantineStatus::of(status).ok_or_else(bad)?));
        }
        let waiting: i64 = sqlx::query_scalar(sql::QUARANTINE_COUNT).bind(tenant).fetch_one(&mut *tx).await?;
        if waiting >= i64::from(most) {
            tx.rollback().await?;
            return Ok(Quarantined::Full);
        }
        let done = sqlx::query(sql::QUARANTINE_INSERT)
            .bind(tenant)
            .bind(row.id)
            .bind(row.source.as_str())
            .bind(&row.reason)
            .bind(row.body.as_deref())
            .bind(&row.body_digest)
            .bind(&row.facts)
            .bind(row.operation_id.as_ref().map(Name::as_str))
            .bind(row.next_try_at.map(Timestamp::micros))
            .bind(row.received_at.micros())
            .bind(row.expires_at.micros())
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(if done.rows_affected() == 1 { Quarantined::Stored } else { Quarantined::NoSource })
    }

    async fn quarantined(&self, tenant: &Tenant, id: Uuid) -> Result<Option<QuarantineRow>> {
        let row = sqlx::query(sql::QUARANTINED)
            .bind(tenant.as_str())
            .bind(id)
            .fetch_optional(self.scope(One(tenant)).await?)
            .await?;
        row.as_ref().map(quarantine_row).transpose()
    }

    async fn quarantine_list(
        &self,
        tenant: &Tenant,
        status: QuarantineStatus,
        after: Option<(Timestamp, Uuid)>,
        limit: u32,
    ) -> Result<Vec<QuarantineRow>> {
        let rows = sqlx::query(sql::QUARANTINE_LIST)
            .bind(tenant.as_str())
            .bind(status.code())
            .bind(after.map_or(i64::MIN, |(at, _)| at.micros()))
            .bind(after.map_or(Uuid::nil(), |(_, id)| id))
            .bind(i64::from(limit))
            .fetch_all(self.scope(One(tenant)).await?)
            .await?;
        rows.iter().map(quarantine_row).collect()
    }

    async fn quarantine_due(&self, limit: u32) -> Result<Vec<QuarantineRow>> {
        let rows = sqlx::query(sql::QUARANTINE_DUE)
            .bind(i64::from(limit))
            .fetch_all(self.scope(All(Purpose::Sweep)).await?)
            .await?;
        Ok(readable(rows.iter().map(quarantine_row)))
    }

    async fn quarantine_next(&self) -> Result<(Option<Timestamp>, Timestamp)> {
        let row = sqlx::query(sql::QUARANTINE_NEXT).fetch_one(self.scope(All(Purpose::Sweep)).await?).await?;
        let next: Option<i64> = row.try_get(0)?;
        Ok((next.map(Timestamp::from_micros), Timestamp::from_micros(row.try_get(1)?)))
    }

    async fn quarantine_try(&self, look: &QuarantineTry) -> Result<bool> {
        let done = sqlx::query(sql::QUARANTINE_TRY)
            .bind(look.tenant.as_str())
            .bind(look.id)
            .bind(number(look.attempts))
            .bind(look.reason)
            .bind(look.operation_id.as_ref().map(Name::as_str))
            .bind(look.next_try_at.map(Timestamp::micros))
            .execute(self.scope(One(&look.tenant)).await?)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    async fn quarantine_decide(
        &self,
        row: &QuarantineRow,
        status: QuarantineStatus,
        decision: &str,
        most: u32,
    ) -> Result<bool> {
        let mut tx = self.begin(One(&row.tenant)).await?;
        let tenant = row.tenant.as_str();
        let done = sqlx::query(sql::QUARANTINE_DECIDE)
            .bind(tenant)
            .bind(row.id)
            .bind(status.code())
            .bind(decision)
            .execute(&mut *tx)
            .await?;
        if done.rows_affected() != 1 {
            tx.rollback().await?;
            return Ok(false);
        }
        let forget = sqlx::query(sql::QUARANTINE_FORGET).bind(tenant).bind(status.code()).bind(i64::from(most));
        forget.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(true)
    }

    async fn quarantine_applied(&self, tenant: &Tenant, id: Uuid) -> Result<bool> {
        let done = sqlx::query(sql::QUARANTINE_APPLIED)
            .bind(tenant.as_str())
            .bind(id)
            .execute(self.scope(One(tenant)).await?)
            .await?;
        Ok(done.rows_affected() == 1)
    }

    async fn quarantine_expire(&self, limit: u32) -> Result<u64> {
        let gone: Vec<i16> = sqlx::query_scalar(sql::QUARANTINE_EXPIRE)
            .bind(i64::from(limit))
            .fetch_all(self.scope(All(Purpose::Sweep)).await?)
            .await?;
        let waited = gone.into_iter().filter(|status| *status == QuarantineStatus::Waiting.code()).count();
        Ok(u64::try_from(waited).unwrap_or(u64::MAX))
    }
}

/// One bad row must not keep the others from their turn.
fn readable(rows: impl Iterator<Item = Result<QuarantineRow>>) -> Vec<QuarantineRow> {
    rows.filter_map(|row| row.map_err(|error| tracing::error!(%error, "a delivery can't be read back")).ok()).collect()
}
