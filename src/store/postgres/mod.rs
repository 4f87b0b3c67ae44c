//! The Postgres backend: many stateless replicas on one database (14 or newer).

mod aliases;
mod approvals;
mod audit;
mod beside;
mod bypass;
mod checkpoints;
mod commit;
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
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool, Row as _};
use tokio::sync::mpsc;
use uuid::Uuid;

use self::wall::{Purpose, Scoped, ScopedTransaction, Tenants, Wall};
use super::health::Writes;
use super::{
    Backend, ChangeSet, Committed, JournalRow, OpenMark, Position, Postponed, Result, Store, StoreError, ToolRow,
    ToolWrite, ToolWritten, Unloadable, Walk, migrate,
};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::record::Record;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::telemetry::probe;

/// Connections that commit. With two, the database works on one batch while another one is flushed; more would
/// only split the batches.
const COMMITS_AT_ONCE: u8 = 2;
/// How often it is looked whether sessions are shared; others may use the pooler meanwhile.
const SESSION_TRIES: u32 = 4;

/// A Postgres database.
#[derive(Debug)]
pub struct PostgresStore {
    /// The connections, each with the tenants that it was set to.
    wall: Wall,
    writes: Writes,
}

impl PostgresStore {
    /// Connects, checks the server, and migrates or checks the schema.
    ///
    /// # Errors
    /// The server can't be reached, is older than 14, or has a schema that this program does not
    /// accept.
    pub async fn connect(url: &str, migrate: bool, connections: u32) -> Result<Self> {
        let options: PgConnectOptions =
            url.parse().map_err(|_| StoreError::Open("DATABASE_URL is not a valid Postgres URL".to_owned()))?;
        let options = options.application_name("actonce").disable_statement_logging().options([
            // See `sql`: plans that can't turn with the size of a table.
            ("enable_hashjoin", "off"),
            ("enable_mergejoin", "off"),
            ("enable_seqscan", "off"),
            ("plan_cache_mode", "force_generic_plan"),
            ("jit", "off"),
            // A statement that hangs is a failure, not an eternal job.
            ("statement_timeout", "15s"),
            ("idle_in_transaction_session_timeout", "15s"),
        ]);
        let probe = PgPoolOptions::new().max_connections(2).connect_with(options.clone()).await?;
        if shares_sessions(&probe).await? {
            return Err(StoreError::Open(
                "the database is reached through a pooler that gives every transaction another session (transaction \
                 mode): what is prepared, locked and listened for would go astray; see docs/scaling.md"
                    .to_owned(),
            ));
        }
        let version: i32 =
            sqlx::query_scalar("SELECT current_setting('server_version_num')::int4").fetch_one(&probe).await?;
        if version < 140_000 {
            return Err(StoreError::Open("Postgres 14 or newer is needed".to_owned()));
        }
        let commits: String = sqlx::query_scalar("SHOW synchronous_commit").fetch_one(&probe).await?;
        let fsync: String = sqlx::query_scalar("SHOW fsync").fetch_one(&probe).await?;
        probe.close().await;
        // Laws 2 and 14: what is acknowledged is durable, grants and changes of tools alike. A server default
        // that gives this up is overruled; the stricter `remote_…` settings are kept.
        let options = if commits == "off" { options.options([("synchronous_commit", "on")]) } else { options };
        if fsync != "on" {
            tracing::warn!("the database server runs with fsync off: acknowledged effects can be lost");
        }
        // A pooler in between may drop what a connection asks for at its start.
        let mut connection = wall::connect(options.clone(), Purpose::Migration).await?;
        if !sqlx::query_scalar::<_, bool>(sql::HAS_SETTINGS).fetch_one(&mut connection).await? {
            return Err(StoreError::Open(
                "the settings of a connection did not arrive at the database, or were changed on the way \
                 (a connection pooler?): see docs/scaling.md"
                    .to_owned(),
            ));
        }
        let prepared = prepare(&mut connection, migrate).await;
        // Whichever way it went: the advisory lock of a migration goes with the session.
        connection.close().await?;
        prepared?;
        let wall = Wall::new(&wall::declared(options), connections.max(2), u32::from(COMMITS_AT_ONCE));
        if migrate {
            feed::continue_numbers(&wall).await?;
        }
        Ok(Self { wall, writes: Writes::default() })
    }

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

/// Migrates or checks the schema, and looks whether the policies hold this role.
async fn prepare(connection: &mut PgConnection, migrate: bool) -> Result<()> {
    if migrate {
        migrate::postgres(connection).await?;
    } else {
        migrate::check_postgres(connection).await?;
    }
    if !sqlx::query_scalar::<_, bool>(sql::WALL_HOLDS).fetch_one(connection).await? {
        tracing::warn!(
            "the database's role is a superuser or has BYPASSRLS: row-level security, the second wall between tenants, \
             does not hold it; see docs/security.md"
        );
    }
    Ok(())
}

/// Whether a pooler hands one session of the database to several connections. Two connections of a database
/// never have the same session, and neither gets another one; a pooler gives the one that was free last.
async fn shares_sessions(pool: &PgPool) -> Result<bool> {
    let (mut one, mut two) = (pool.acquire().await?, pool.acquire().await?);
    for _ in 0..SESSION_TRIES {
        let before = session(&mut one).await?;
        let mut transaction = two.begin().await?;
        let other = session(&mut transaction).await?;
        let after = session(&mut one).await?;
        transaction.rollback().await?;
        if before != after || other == before || other == after {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Which session a connection has. Nothing is prepared for it.
async fn session(connection: &mut PgConnection) -> Result<i32> {
    let row = sqlx::raw_sql(sql::BACKEND).fetch_one(connection).await?;
    Ok(row.try_get(0)?)
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
