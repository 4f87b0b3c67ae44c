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

use std::time::{Duration, Instant};

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool, Row as _};
use tokio::sync::mpsc;
use uuid::Uuid;

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

/// How long a caller waits for a connection before the store counts as unavailable.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);

/// Connections that commit. With two, the database works on one batch while another one is flushed; more would
/// only split the batches.
const COMMITS_AT_ONCE: usize = 2;
/// How often it is looked whether sessions are shared; others may use the pooler meanwhile.
const SESSION_TRIES: u32 = 4;

/// A Postgres database.
#[derive(Debug)]
pub struct PostgresStore {
    /// The connections that commit, and nothing else.
    writer: PgPool,
    /// Reads and everything that is not hot.
    readers: PgPool,
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
        let pool = |max: u32| {
            // The pool's ping before each use would cost an eighth of the throughput; a broken
            // connection shows itself in the statement.
            PgPoolOptions::new().max_connections(max).acquire_timeout(ACQUIRE_TIMEOUT).test_before_acquire(false)
        };
        let probe = pool(2).connect_with(options.clone()).await?;
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
        let readers = pool(connections.max(2)).connect_with(options.clone()).await?;
        // A pooler in between may drop what a connection asks for at its start.
        if !sqlx::query_scalar::<_, bool>(sql::HAS_SETTINGS).fetch_one(&readers).await? {
            return Err(StoreError::Open(
                "the settings of a connection did not arrive at the database, or were changed on the way \
                 (a connection pooler?): see docs/scaling.md"
                    .to_owned(),
            ));
        }
        if migrate {
            migrate::postgres(&readers).await?;
            feed::continue_numbers(&readers).await?;
        } else {
            migrate::check_postgres(&readers).await?;
        }
        let writer = pool(u32::try_from(COMMITS_AT_ONCE).unwrap_or(1)).connect_with(options).await?;
        Ok(Self { writer, readers, writes: Writes::default() })
    }

    /// The pool, for tests that look at the tables.
    #[must_use]
    pub const fn pool(&self) -> &PgPool {
        &self.readers
    }
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

/// Closes the connections of a pool that nobody uses. A connection that was made to a standby, or while
/// the database took no writes, would stay so; the next one may find the database that does.
fn forget(pool: &PgPool) {
    while let Some(connection) = pool.try_acquire() {
        drop(connection.detach());
    }
}

#[async_trait]
impl Store for PostgresStore {
    fn backend(&self) -> Backend {
        Backend::Postgres
    }

    async fn now(&self) -> Result<Timestamp> {
        let micros: i64 = sqlx::query_scalar(sql::NOW).fetch_one(&self.readers).await?;
        Ok(Timestamp::from_micros(micros))
    }

    async fn takes_writes(&self) -> Result<bool> {
        let takes_writes: bool = sqlx::query_scalar(sql::TAKES_WRITES).fetch_one(&self.readers).await?;
        if !takes_writes {
            forget(&self.readers);
            forget(&self.writer);
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
        let done = commit::commit(&self.writer, batch).await;
        drop(under_way);
        probe::committed(began);
        self.writes.note(&done);
        if done.as_ref().is_err_and(StoreError::is_read_only) {
            forget(&self.writer);
        }
        done
    }

    fn commits_at_once(&self) -> usize {
        COMMITS_AT_ONCE
    }

    async fn load(&self, keys: &[EffectKey]) -> Result<Vec<std::result::Result<Option<Record>, Unloadable>>> {
        query::load(&self.readers, keys).await
    }

    async fn revisions(&self, keys: &[EffectKey]) -> Result<Vec<u32>> {
        query::revisions(&self.readers, keys).await
    }

    async fn twin(&self, tenant: &Tenant, duplicate: Uuid) -> Result<Option<EffectKey>> {
        query::twin(&self.readers, tenant, duplicate).await
    }

    async fn due(&self, limit: u32) -> Result<Vec<EffectKey>> {
        query::due(&self.readers, limit).await
    }

    async fn postpone(&self, postponed: &[Postponed]) -> Result<Vec<Uuid>> {
        commit::postpone(&self.readers, postponed).await
    }

    async fn next_due(&self) -> Result<(Option<Timestamp>, Timestamp)> {
        query::next_due(&self.readers).await
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
        query::journal(&self.readers, key, after, limit).await
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
        tools::write_tool(&self.readers, write).await
    }

    async fn announce(&self, message: &str) -> Result<()> {
        listen::announce(&self.readers, message).await
    }

    async fn listen(&self, sink: mpsc::Sender<String>) -> Result<()> {
        listen::listen(&self.readers, sink).await
    }

    async fn close(&self) {
        self.writer.close().await;
        self.readers.close().await;
    }
}
