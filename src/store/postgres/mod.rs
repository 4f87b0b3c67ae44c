//! The Postgres backend: many stateless replicas on one database (14 or newer).

mod aliases;
mod approvals;
mod audit;
mod beside;
mod bypass;
mod checkpoints;
mod commit;
mod connect;
mod doubts;
mod elapsed;
mod feed;
mod health;
pub(in crate::store) mod inspect;
mod listen;
mod operators;
mod pools;
mod profiles;
mod query;
mod quotas;
mod receipts;
pub mod receipts_sql;
mod recovery;
mod restore;
mod retention;
mod seals;
mod secrets;
mod single;
pub mod sql;
mod subscriptions;
mod tools;
pub mod wall;

use std::time::Instant;

use async_trait::async_trait;
use tokio::sync::mpsc;
use uuid::Uuid;

use self::wall::{Scoped, ScopedTransaction, Tenants, Wall};
use super::health::Writes;
use super::{
    Backend, ChangeSet, Committed, JournalRow, OpenMark, Position, Postponed, Result, Store, StoreError, ToolRow,
    ToolWrite, ToolWritten, Unloadable, Walk,
};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::record::Record;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::telemetry::probe;

/// Connections that commit. With two, the database works on one batch while another one is flushed; more would
/// only split the batches.
const COMMITS_AT_ONCE: u8 = 2;

/// A Postgres database.
#[derive(Debug)]
pub struct PostgresStore {
    /// The connections, each with the tenants that it was set to.
    wall: Wall,
    writes: Writes,
}

impl PostgresStore {
    /// A connection for one statement, which sees these tenants' rows.
    ///
    /// # Errors
    /// There is none in time.
    pub async fn scope(&self, whose: Tenants<'_>) -> Result<Scoped> {
        self.wall.scope(whose).await
    }

    /// After a broken connection the others are likely no better, and who tries once more should not find that out
    /// with the next one.
    fn heard<T>(&self, answer: Result<T>) -> Result<T> {
        if answer.as_ref().is_err_and(StoreError::is_broken_connection) {
            self.wall.forget(false);
        }
        answer
    }

    /// A transaction that sees these tenants' rows.
    ///
    /// # Errors
    /// There is no connection in time, or it broke.
    pub async fn begin(&self, whose: Tenants<'_>) -> Result<ScopedTransaction> {
        self.wall.begin(whose).await
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn backend(&self) -> Backend {
        Backend::Postgres
    }

    async fn now(&self) -> Result<Timestamp> {
        let micros: i64 = sqlx::query_scalar(sql::NOW).fetch_one(self.scope(Tenants::Nobody).await?).await?;
        Ok(Timestamp::from_micros(micros))
    }

    async fn takes_writes(&self) -> Result<bool> {
        let takes_writes: bool =
            sqlx::query_scalar(sql::TAKES_WRITES).fetch_one(self.scope(Tenants::Nobody).await?).await?;
        if !takes_writes {
            self.wall.forget(false);
        } else if self.writes.have_failed() {
            if !self.writes.may_try() {
                return Ok(false);
            }
            let tried = self.try_write().await;
            self.writes.note(&tried);
            return tried.map(|()| true);
        }
        Ok(takes_writes)
    }

    async fn commit(&self, batch: &[ChangeSet]) -> Result<Vec<Committed>> {
        // One statement that commits itself: nothing tells its work and its flush apart.
        let began = Instant::now();
        let under_way = self.writes.begin();
        let done = commit::commit(&self.wall, batch).await;
        drop(under_way);
        probe::committed(began);
        self.writes.note(&done);
        if done.as_ref().is_err_and(StoreError::is_read_only) {
            self.wall.forget(true);
        }
        self.heard(done)
    }

    fn commits_at_once(&self) -> usize {
        usize::from(COMMITS_AT_ONCE)
    }

    async fn load(&self, keys: &[EffectKey]) -> Result<Vec<std::result::Result<Option<Record>, Unloadable>>> {
        self.heard(query::load(&self.wall, keys).await)
    }

    async fn revisions(&self, keys: &[EffectKey]) -> Result<Vec<u32>> {
        self.heard(query::revisions(&self.wall, keys).await)
    }

    async fn twin(&self, tenant: &Tenant, duplicate: Uuid) -> Result<Option<EffectKey>> {
        query::twin(&self.wall, tenant, duplicate).await
    }

    async fn due(&self, limit: u32) -> Result<Vec<EffectKey>> {
        query::due(&self.wall, limit).await
    }

    async fn postpone(&self, postponed: &[Postponed]) -> Result<Vec<Uuid>> {
        commit::postpone(&self.wall, postponed).await
    }

    async fn next_due(&self) -> Result<(Option<Timestamp>, Timestamp)> {
        query::next_due(&self.wall).await
    }

    async fn walk(&self, tenant: &Tenant, walk: &Walk, after: Option<Position>, limit: u32) -> Result<Vec<Position>> {
        query::walk(&self.wall, tenant, walk, after, limit).await
    }

    async fn run_states(&self, tenant: &Tenant, run: &Name) -> Result<Vec<(State, u64)>> {
        query::run_states(&self.wall, tenant, run).await
    }

    async fn open_states(&self) -> Result<Vec<(State, u64, Timestamp)>> {
        query::open_states(&self.wall).await
    }

    async fn journal(&self, key: &EffectKey, after: u32, limit: u32) -> Result<Vec<JournalRow>> {
        query::journal(&self.wall, key, after, limit).await
    }

    async fn open_marks(&self, after: Option<EffectKey>, limit: u32) -> Result<Vec<OpenMark>> {
        query::open_marks(&self.wall, after, limit).await
    }

    async fn tool(&self, tenant: &Tenant, name: &Name) -> Result<Option<ToolRow>> {
        tools::tool(&self.wall, tenant, name).await
    }

    async fn tool_revision(&self, tenant: &Tenant, name: &Name, revision: u32) -> Result<Option<ToolRow>> {
        tools::tool_revision(&self.wall, tenant, name, revision).await
    }

    async fn tools(&self, tenant: &Tenant, after: Option<&Name>, limit: u32) -> Result<Vec<ToolRow>> {
        tools::tools(&self.wall, tenant, after, limit).await
    }

    async fn write_tool(&self, write: &ToolWrite) -> Result<ToolWritten> {
        tools::write_tool(&self.wall, write).await
    }

    async fn announce(&self, message: &str) -> Result<()> {
        listen::announce(&self.wall, message).await
    }

    async fn listen(&self, sink: mpsc::Sender<String>) -> Result<()> {
        listen::listen(&self.wall, sink).await
    }

    async fn close(&self) {
        self.wall.close().await;
    }
}
