//! What is kept sealed, on Postgres. Never by the connection that commits changes: that one is the hot path's.

use async_trait::async_trait;
use sqlx::Row as _;
use uuid::Uuid;

use super::PostgresStore;
use super::sql::seals as sql;
use super::wall::{Purpose, Tenants};
use crate::store::Result;
use crate::store::seals::{Resealed, SealStore, SealedKey, SealedOwner, SealedRow, SealedTable};

/// The page of a table, and the write of many rows.
const fn statements(table: SealedTable) -> (&'static str, &'static str) {
    match table {
        SealedTable::ToolSecrets => (sql::SEALED_TOOL_SECRETS, sql::RESEAL_TOOL_SECRETS),
        SealedTable::RetainedArguments => (sql::SEALED_ARGUMENTS, sql::RESEAL_ARGUMENTS),
        SealedTable::ReceiptSources => (sql::SEALED_SOURCES, sql::RESEAL_SOURCES),
        SealedTable::Subscriptions => (sql::SEALED_SUBSCRIPTIONS, sql::RESEAL_SUBSCRIPTIONS),
    }
}

#[async_trait]
impl SealStore for PostgresStore {
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
        let query = query.bind(i64::from(limit)).bind(but.map(|head| head.to_vec()));
        let query = if table == SealedTable::ToolSecrets { query.bind(after.number) } else { query };
        let rows = query.fetch_all(self.scope(Tenants::All(Purpose::Rotation)).await?).await?;
        rows.iter()
            .map(|row| {
                let owner =
                    if table.has_ids() { SealedOwner::Id(row.try_get(1)?) } else { SealedOwner::Name(row.try_get(1)?) };
                Ok(SealedRow {
                    key: SealedKey { tenant: row.try_get(0)?, owner, number: row.try_get(2)? },
                    start: row.try_get(3)?,
                    content: row.try_get(4)?,
                    source: row.try_get(5)?,
                })
            })
            .collect()
    }

    async fn reseal(&self, table: SealedTable, rows: &[Resealed]) -> Result<u64> {
        let (mut names, mut ids): (Vec<&str>, Vec<Uuid>) = (Vec::new(), Vec::new());
        for row in rows {
            match &row.key.owner {
                SealedOwner::Name(name) => names.push(name),
                SealedOwner::Id(id) => ids.push(*id),
            }
        }
        let query = sqlx::query(statements(table).1);
        let query = query.bind(rows.iter().map(|row| row.key.tenant.as_str()).collect::<Vec<_>>());
        let query = if table.has_ids() { query.bind(ids) } else { query.bind(names) };
        let query = query.bind(rows.iter().map(|row| row.seen.as_slice()).collect::<Vec<_>>());
        let query = query.bind(rows.iter().map(|row| row.fresh.as_slice()).collect::<Vec<_>>());
        let numbers = || rows.iter().map(|row| row.key.number).collect::<Vec<_>>();
        let query = if table == SealedTable::ToolSecrets { query.bind(numbers()) } else { query };
        let whose = Tenants::These(rows.iter().map(|row| row.key.tenant.as_str()).collect());
        Ok(query.execute(self.scope(whose).await?).await?.rows_affected())
    }
}
