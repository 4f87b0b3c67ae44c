//! What is kept sealed, in a file.

use async_trait::async_trait;
use sqlx::{Connection as _, Row as _};

use super::SqliteStore;
use super::sql::{self as all, seals as sql};
use crate::store::Result;
use crate::store::seals::{Resealed, SealStore, SealedKey, SealedOwner, SealedRow, SealedTable};

/// The page of a table, and the write of one row.
const fn statements(table: SealedTable) -> (&'static str, &'static str) {
    match table {
        SealedTable::ToolSecrets => (sql::SEALED_TOOL_SECRETS, sql::RESEAL_TOOL_SECRET),
        SealedTable::RetainedArguments => (sql::SEALED_ARGUMENTS, sql::RESEAL_ARGUMENTS),
        SealedTable::ReceiptSources => (sql::SEALED_SOURCES, sql::RESEAL_SOURCE),
        SealedTable::Subscriptions => (sql::SEALED_SUBSCRIPTIONS, sql::RESEAL_SUBSCRIPTION),
    }
}

#[async_trait]
impl SealStore for SqliteStore {
    async fn sealed(
        &self,
        table: SealedTable,
        after: &SealedKey,
        but: Option<[u8; 2]>,
        limit: u32,
    ) -> Result<Vec<SealedRow>> {
        let query = sqlx::query(statements(table).0).bind(after.tenant.as_str());
        let query = match &after.owner {
            SealedOwner::Name(name) => query.bind(name.as_str()),
            SealedOwner::Id(id) => query.bind(*id),
        };
        let query = query.bind(limit).bind(but.map(|head| head.to_vec()));
        let query = if table == SealedTable::ToolSecrets { query.bind(after.number) } else { query };
        let rows = query.fetch_all(&self.readers).await?;
        rows.iter()
            .map(|row| {
                let owner = if table.has_ids() {
                    SealedOwner::Id(row.try_get("owner")?)
                } else {
                    SealedOwner::Name(row.try_get("owner")?)
                };
                Ok(SealedRow {
                    key: SealedKey { tenant: row.try_get("tenant")?, owner, number: row.try_get("number")? },
                    start: row.try_get("start")?,
                    content: row.try_get("content")?,
                    source: row.try_get("source")?,
                })
            })
            .collect()
    }

    async fn reseal(&self, table: SealedTable, rows: &[Resealed]) -> Result<u64> {
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(all::BEGIN).await?;
        let mut done: u64 = 0;
        for row in rows {
            let query = sqlx::query(statements(table).1).bind(row.key.tenant.as_str());
            let query = match &row.key.owner {
                SealedOwner::Name(name) => query.bind(name.as_str()),
                SealedOwner::Id(id) => query.bind(*id),
            };
            let query = query.bind(row.seen.as_slice()).bind(row.fresh.as_slice());
            let query = if table == SealedTable::ToolSecrets { query.bind(row.key.number) } else { query };
            done = done.saturating_add(query.execute(&mut *tx).await?.rows_affected());
        }
        sqlx::query(all::TICK).bind(self.clock.now().micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(done)
    }
}
