//! Receipt sources and the quarantine on SQLite.

use async_trait::async_trait;
use sqlx::Connection as _;
use sqlx::sqlite::SqliteRow;
use uuid::Uuid;

use super::record::{column, revision_of};
use super::sql::{BEGIN, TICK};
use super::{SqliteStore, receipts_sql as sql};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::store::receipts::{
    QuarantineRow, QuarantineStatus, QuarantineTry, Quarantined, ReceiptStore, SourceDeleted, SourceRow, SourceWrite,
};
use crate::store::{Corruption, Result};

fn source_row(row: &SqliteRow) -> Result<SourceRow> {
    const TABLE: &str = "receipt_sources";
    let source_id: Uuid = column(row, TABLE, "source_id", &"?")?;
    let bad = |column| Corruption { table: TABLE, column, key: source_id.to_string() };
    Ok(SourceRow {
        tenant: Tenant::new(column(row, TABLE, "tenant", &source_id)?).map_err(|_| bad("tenant"))?,
        name: Name::new(column(row, TABLE, "name", &source_id)?).map_err(|_| bad("name"))?,
        source_id,
        revision: revision_of(row, TABLE, &source_id)?,
        spec: column(row, TABLE, "spec", &source_id)?,
        secrets: column(row, TABLE, "secrets", &source_id)?,
        changed_at: Timestamp::from_micros(column(row, TABLE, "changed_us", &source_id)?),
    })
}

fn quarantine_row(row: &SqliteRow) -> Result<QuarantineRow> {
    const TABLE: &str = "quarantine";
    let id: Uuid = column(row, TABLE, "id", &"?")?;
    let bad = |column| Corruption { table: TABLE, column, key: id.to_string() };
    let operation_id: Option<String> = column(row, TABLE, "operation_id", &id)?;
    Ok(QuarantineRow {
        tenant: Tenant::new(column(row, TABLE, "tenant", &id)?).map_err(|_| bad("tenant"))?,
        id,
        source: Name::new(column(row, TABLE, "source", &id)?).map_err(|_| bad("source"))?,
        status: QuarantineStatus::of(column(row, TABLE, "status", &id)?).ok_or_else(|| bad("status"))?,
        reason: column(row, TABLE, "reason", &id)?,
        body: column(row, TABLE, "body", &id)?,
        body_digest: column(row, TABLE, "body_digest", &id)?,
        facts: column(row, TABLE, "facts", &id)?,
        operation_id: operation_id.map(|id| Name::new(&id)).transpose().map_err(|_| bad("operation_id"))?,
        attempts: column(row, TABLE, "attempts", &id)?,
        next_try_at: column::<Option<i64>>(row, TABLE, "next_try_us", &id)?.map(Timestamp::from_micros),
        received_at: Timestamp::from_micros(column(row, TABLE, "received_us", &id)?),
        expires_at: Timestamp::from_micros(column(row, TABLE, "expires_us", &id)?),
        decision: column(row, TABLE, "decision", &id)?,
    })
}

#[async_trait]
impl ReceiptStore for SqliteStore {
    async fn receipt_source(&self, tenant: &Tenant, name: &Name) -> Result<Option<SourceRow>> {
        let query = sqlx::query(sql::SOURCE).bind(tenant.as_str()).bind(name.as_str());
        query.fetch_optional(&self.readers).await?.as_ref().map(source_row).transpose()
    }

    async fn receipt_source_at(&self, source_id: Uuid) -> Result<Option<SourceRow>> {
        let rows = sqlx::query(sql::SOURCE_AT).bind(source_id).fetch_all(&self.readers).await?;
        match rows.as_slice() {
            [row] => Ok(Some(source_row(row)?)),
            _ => Ok(None),
        }
    }

    async fn receipt_sources(&self, tenant: &Tenant, after: Option<&Name>, limit: u32) -> Result<Vec<SourceRow>> {
        let query = sqlx::query(sql::SOURCES).bind(tenant.as_str()).bind(after.map_or("", Name::as_str)).bind(limit);
        query.fetch_all(&self.readers).await?.iter().map(source_row).collect()
    }

    async fn write_receipt_source(&self, write: &SourceWrite) -> Result<bool> {
        let row = &write.row;
        let (tenant, name, now) = (row.tenant.as_str(), row.name.as_str(), self.clock.now());
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(BEGIN).await?;
        let query = if row.revision == 1 {
            sqlx::query(sql::SOURCE_INSERT).bind(tenant).bind(name).bind(row.source_id)
        } else {
            sqlx::query(sql::SOURCE_UPDATE).bind(tenant).bind(name)
        };
        let done = query
            .bind(row.revision)
            .bind(row.spec.as_str())
            .bind(row.secrets.as_deref())
            .bind(row.changed_at.micros())
            .bind(write.by.as_str())
            .execute(&mut *tx)
            .await?;
        let applied = done.rows_affected() == 1;
        if applied {
            sqlx::query(sql::SOURCE_RETRY).bind(tenant).bind(name).bind(now.micros()).execute(&mut *tx).await?;
            sqlx::query(TICK).bind(now.micros()).execute(&mut *tx).await?;
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        lent.give_back();
        Ok(applied)
    }

    async fn delete_receipt_source(&self, tenant: &Tenant, name: &Name, revision: u32) -> Result<SourceDeleted> {
        let (tenant, name) = (tenant.as_str(), name.as_str());
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(BEGIN).await?;
        let found: Option<u32> =
            sqlx::query_scalar(sql::SOURCE_REVISION).bind(tenant).bind(name).fetch_optional(&mut *tx).await?;
        let in_use = sqlx::query_scalar(sql::SOURCE_IN_USE).bind(tenant).bind(name).fetch_one(&mut *tx).await?;
        let deleted = match (found == Some(revision), in_use) {
            (false, _) => SourceDeleted::Lost,
            (true, true) => SourceDeleted::InUse,
            (true, false) => SourceDeleted::Applied,
        };
        if deleted == SourceDeleted::Applied {
            for statement in [sql::SOURCE_FORGET, sql::SOURCE_DELETE] {
                sqlx::query(statement).bind(tenant).bind(name).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        lent.give_back();
        Ok(deleted)
    }

    async fn quarantine(&self, row: &QuarantineRow, most: u32) -> Result<Quarantined> {
        let tenant = row.tenant.as_str();
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(BEGIN).await?;
        let known: Option<i16> =
            sqlx::query_scalar(sql::QUARANTINE_STATUS).bind(tenant).bind(row.id).fetch_optional(&mut *tx).await?;
        let waiting: u32 = sqlx::query_scalar(sql::QUARANTINE_COUNT).bind(tenant).fetch_one(&mut *tx).await?;
        if known.is_some() || waiting >= most {
            tx.rollback().await?;
            lent.give_back();
            let bad = || Corruption { table: "quarantine", column: "status", key: row.id.to_string() };
            return match known {
                Some(status) => Ok(Quarantined::Known(QuarantineStatus::of(status).ok_or_else(bad)?)),
                None => Ok(Quarantined::Full),
            };
        }
        let done = sqlx::query(sql::QUARANTINE_INSERT)
            .bind(tenant)
            .bind(row.id)
            .bind(row.source.as_str())
            .bind(row.reason.as_str())
            .bind(row.body.as_deref())
            .bind(row.body_digest.as_str())
            .bind(row.facts.as_str())
            .bind(row.operation_id.as_ref().map(Name::as_str))
            .bind(row.next_try_at.map(Timestamp::micros))
            .bind(row.received_at.micros())
            .bind(row.expires_at.micros())
            .execute(&mut *tx)
            .await?;
        sqlx::query(TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(if done.rows_affected() == 1 { Quarantined::Stored } else { Quarantined::NoSource })
    }

    async fn quarantined(&self, tenant: &Tenant, id: Uuid) -> Result<Option<QuarantineRow>> {
        let row = sqlx::query(sql::QUARANTINED).bind(tenant.as_str()).bind(id).fetch_optional(&self.readers).await?;
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
            .bind(limit)
            .fetch_all(&self.readers)
            .await?;
        rows.iter().map(quarantine_row).collect()
    }

    async fn quarantine_due(&self, limit: u32) -> Result<Vec<QuarantineRow>> {
        let now = self.clock.now().micros();
        let rows = sqlx::query(sql::QUARANTINE_DUE).bind(now).bind(limit).fetch_all(&self.readers).await?;
        // One bad row must not keep the others from their turn.
        let readable = |row: &SqliteRow| {
            quarantine_row(row).inspect_err(|error| tracing::error!(%error, "a delivery can't be read back")).ok()
        };
        Ok(rows.iter().filter_map(readable).collect())
    }

    async fn quarantine_next(&self) -> Result<(Option<Timestamp>, Timestamp)> {
        let next: Option<i64> = sqlx::query_scalar(sql::QUARANTINE_NEXT).fetch_optional(&self.readers).await?;
        Ok((next.map(Timestamp::from_micros), self.clock.now()))
    }

    async fn quarantine_try(&self, look: &QuarantineTry) -> Result<bool> {
        let mut lent = self.writer.lend().await?;
        let done = sqlx::query(sql::QUARANTINE_TRY)
            .bind(look.tenant.as_str())
            .bind(look.id)
            .bind(look.attempts)
            .bind(look.reason)
            .bind(look.operation_id.as_ref().map(Name::as_str))
            .bind(look.next_try_at.map(Timestamp::micros))
            .execute(&mut lent.connection)
            .await?;
        lent.give_back();
        Ok(done.rows_affected() == 1)
    }

    async fn quarantine_decide(
        &self,
        row: &QuarantineRow,
        status: QuarantineStatus,
        decision: &str,
        most: u32,
    ) -> Result<bool> {
        let tenant = row.tenant.as_str();
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(BEGIN).await?;
        let done = sqlx::query(sql::QUARANTINE_DECIDE)
            .bind(tenant)
            .bind(row.id)
            .bind(status.code())
            .bind(decision)
            .execute(&mut *tx)
            .await?;
        let applied = done.rows_affected() == 1;
        if applied {
            let forget = sqlx::query(sql::QUARANTINE_FORGET).bind(tenant).bind(status.code()).bind(most);
            forget.execute(&mut *tx).await?;
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        lent.give_back();
        Ok(applied)
    }

    async fn quarantine_applied(&self, tenant: &Tenant, id: Uuid) -> Result<bool> {
        let mut lent = self.writer.lend().await?;
        let done =
            sqlx::query(sql::QUARANTINE_APPLIED).bind(tenant.as_str()).bind(id).execute(&mut lent.connection).await?;
        lent.give_back();
        Ok(done.rows_affected() == 1)
    }

    async fn quarantine_expire(&self, limit: u32) -> Result<u64> {
        let now = self.clock.now().micros();
        let mut lent = self.writer.lend().await?;
        let gone: Vec<i16> =
            sqlx::query_scalar(sql::QUARANTINE_EXPIRE).bind(now).bind(limit).fetch_all(&mut lent.connection).await?;
        lent.give_back();
        let waited = gone.into_iter().filter(|status| *status == QuarantineStatus::Waiting.code()).count();
        Ok(u64::try_from(waited).unwrap_or(u64::MAX))
    }
}
