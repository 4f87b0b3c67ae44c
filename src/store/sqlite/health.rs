//! A write that is tried and taken back, on SQLite.

use sqlx::Connection as _;
use uuid::Uuid;

use super::sql::health as sql;
use super::{SqliteStore, sql as common};
use crate::store::Result;
use crate::store::health::WriteHealth;

/// More than a page has: no free room inside of pages makes a full file look as if it took changes.
const PROBE_BYTES: usize = 8_192;

impl WriteHealth for SqliteStore {
    fn refuses_writes(&self) -> bool {
        self.writes.have_failed()
    }
}

impl SqliteStore {
    /// Writes what a commit writes and takes it back: an entry of nobody. What is left is the clock's own row, so that
    /// something goes to the disk and is flushed there.
    pub(super) async fn try_write(&self) -> Result<()> {
        let mut lent = self.writer.lend().await?;
        let mut transaction = lent.connection.begin_with(common::BEGIN).await?;
        let mut probe = transaction.begin().await?;
        let filling = "x".repeat(PROBE_BYTES);
        sqlx::query(sql::PROBE_ENTRY).bind(Uuid::nil()).bind(filling).execute(&mut *probe).await?;
        sqlx::query(sql::PROBE_OPEN).bind(Uuid::nil()).execute(&mut *probe).await?;
        probe.rollback().await?;
        sqlx::query(common::TICK).bind(self.clock.now().micros()).execute(&mut *transaction).await?;
        transaction.commit().await?;
        lent.give_back();
        Ok(())
    }
}
