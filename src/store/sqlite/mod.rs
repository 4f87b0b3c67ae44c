//! The SQLite backend: one file, one connection that writes, a few that read.
//!
//! WAL with `synchronous=FULL`: a commit is in the log and the log is flushed before it returns,
//! readers never wait for the writer. Every transaction that writes is `BEGIN IMMEDIATE`, so what
//! it reads can't change before it writes, whichever process does so.

mod aliases;
mod approvals;
mod audit;
mod beside;
mod bypass;
mod checkpoints;
mod clock;
mod commit;
mod connect;
mod doubts;
mod elapsed;
mod feed;
mod health;
pub(in crate::store) mod inspect;
mod operators;
mod plan;
mod pools;
mod profiles;
mod query;
mod quotas;
mod receipts;
pub mod receipts_sql;
mod record;
mod recovery;
mod restore;
mod retention;
mod seals;
mod secrets;
pub mod sql;
mod subscriptions;
#[cfg(test)]
mod tests;
mod tools;
mod writer;

use async_trait::async_trait;
use sqlx::sqlite::SqlitePool;
use tokio::sync::mpsc;
use uuid::Uuid;

use super::health::Writes;
use super::{
    Backend, ChangeSet, Committed, JournalRow, OpenMark, Position, Postponed, Result, Store, ToolRow, ToolWrite,
    ToolWritten, Unloadable, Walk,
};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::record::Record;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use clock::Clock;
use writer::Writer;

/// A store in one SQLite file.
#[derive(Debug)]
pub struct SqliteStore {
    writer: Writer,
    /// A few, which the database itself keeps from writing.
    readers: SqlitePool,
    clock: Clock,
    writes: Writes,
}

#[async_trait]
impl Store for SqliteStore {
    fn backend(&self) -> Backend {
        Backend::Sqlite
    }

    async fn now(&self) -> Result<Timestamp> {
        Ok(self.clock.now())
    }

    async fn takes_writes(&self) -> Result<bool> {
        // The writer is this process; what the disk says, the commits say.
        if !self.writes.have_failed() {
            return Ok(true);
        }
        if !self.writes.may_try() {
            return Ok(false);
        }
        let tried = self.try_write().await;
        self.writes.note(&tried);
        tried.map(|()| true)
    }

    async fn commit(&self, batch: &[ChangeSet]) -> Result<Vec<Committed>> {
        let under_way = self.writes.begin();
        let done = commit::commit(self, batch).await;
        drop(under_way);
        self.writes.note(&done);
        done
    }

    async fn load(&self, keys: &[EffectKey]) -> Result<Vec<std::result::Result<Option<Record>, Unloadable>>> {
        record::load(&self.readers, keys).await
    }

    async fn revisions(&self, keys: &[EffectKey]) -> Result<Vec<u32>> {
        record::revisions(&self.readers, keys).await
    }

    async fn twin(&self, tenant: &Tenant, duplicate: Uuid) -> Result<Option<EffectKey>> {
        query::twin(&self.readers, tenant, duplicate).await
    }

    async fn due(&self, limit: u32) -> Result<Vec<EffectKey>> {
        query::due(&self.readers, self.clock.now(), limit).await
    }

    async fn postpone(&self, postponed: &[Postponed]) -> Result<Vec<Uuid>> {
        commit::postpone(self, postponed).await
    }

    async fn next_due(&self) -> Result<(Option<Timestamp>, Timestamp)> {
        let next = query::next_due(&self.readers).await?;
        Ok((next, self.clock.now()))
    }

    async fn walk(&self, tenant: &Tenant, walk: &Walk, after: Option<Position>, limit: u32) -> Result<Vec<Position>> {
        query::walk(&self.readers, tenant, walk, after, limit).await
    }

    async fn run_states(&self, tenant: &Tenant, run: &Name) -> Result<Vec<(State, u64)>> {
        query::run_states(&self.readers, tenant, run).await
    }

    async fn open_states(&self) -> Result<Vec<(State, u64, Timestamp)>> {
        query::open_states(&self.readers).await
    }

    async fn journal(&self, key: &EffectKey, after: u32, limit: u32) -> Result<Vec<JournalRow>> {
        record::journal(&self.readers, key, after, limit).await
    }

    async fn open_marks(&self, after: Option<EffectKey>, limit: u32) -> Result<Vec<OpenMark>> {
        query::open_marks(&self.readers, after, limit).await
    }

    async fn tool(&self, tenant: &Tenant, name: &Name) -> Result<Option<ToolRow>> {
        tools::tool(&self.readers, tenant, name).await
    }

    async fn tool_revision(&self, tenant: &Tenant, name: &Name, revision: u32) -> Result<Option<ToolRow>> {
        tools::tool_revision(&self.readers, tenant, name, revision).await
    }

    async fn tools(&self, tenant: &Tenant, after: Option<&Name>, limit: u32) -> Result<Vec<ToolRow>> {
        tools::tools(&self.readers, tenant, after, limit).await
    }

    async fn write_tool(&self, write: &ToolWrite) -> Result<ToolWritten> {
        tools::write_tool(self, write).await
    }

    async fn announce(&self, _message: &str) -> Result<()> {
        Ok(())
    }

    async fn listen(&self, _sink: mpsc::Sender<String>) -> Result<()> {
        Ok(())
    }

    async fn close(&self) {
        // The writer last: the last connection folds the log into the file.
        self.readers.close().await;
        self.writer.close().await;
    }
}
