//! A write that is tried and taken back, on Postgres.

use uuid::Uuid;

use super::PostgresStore;
use super::sql::health as sql;
use super::wall::{Purpose, Tenants};
use crate::store::Result;
use crate::store::health::WriteHealth;

/// As much as a change of an effect writes.
const PROBE_BYTES: usize = 2_000;

impl WriteHealth for PostgresStore {
    fn refuses_writes(&self) -> bool {
        self.writes.have_failed()
    }
}

impl PostgresStore {
    /// Writes what a commit writes, over a connection that commits, and takes it back: an entry of nobody. Nobody ever
    /// sees it.
    pub(super) async fn try_write(&self) -> Result<()> {
        let mut transaction = self.wall.begin_writer(Tenants::All(Purpose::Health)).await?;
        // It ends by itself, well before a commit would: tries must not take the connections of commits.
        sqlx::query(sql::PROBE_LIMITS).execute(&mut *transaction).await?;
        let filling = "x".repeat(PROBE_BYTES);
        sqlx::query(sql::PROBE_ENTRY).bind(Uuid::nil()).bind(filling).execute(&mut *transaction).await?;
        sqlx::query(sql::PROBE_OPEN).bind(Uuid::nil()).execute(&mut *transaction).await?;
        transaction.rollback().await?;
        Ok(())
    }
}
