//! How a store comes to its database: the checks of a start, by sessions or through a pooler that gives them away.

use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgPool, Row as _};

use super::wall::{self, Manner, Purpose, Tenants, Wall, Ways};
use super::{COMMITS_AT_ONCE, PostgresStore, feed, sql};
use crate::store::health::Writes;
use crate::store::open::{Pooling, PostgresAddress};
use crate::store::{Result, StoreError, migrate};

/// How often it is looked whether sessions are shared; others may use the pooler meanwhile.
const SESSION_TRIES: u32 = 4;
/// What every statement of the service runs with.
const SETTINGS: [(&str, &str); 7] = [
    // See `sql`: plans that can't turn with the size of a table.
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("enable_seqscan", "off"),
    ("plan_cache_mode", "force_generic_plan"),
    ("jit", "off"),
    // A statement that hangs is a failure, not an eternal job.
    ("statement_timeout", "15s"),
    ("idle_in_transaction_session_timeout", "15s"),
];
const COMMITS: &str = "synchronous_commit";

impl PostgresStore {
    /// Connects, checks the server, and migrates or checks the schema.
    ///
    /// # Errors
    /// The server can't be reached, is older than 14, or has a schema that this program does not
    /// accept; a pooler is in between that is not configured.
    pub async fn connect(address: &PostgresAddress, migrate: bool, connections: u32) -> Result<Self> {
        let ways = match &address.pooling {
            Pooling::Session => by_sessions(&address.url, migrate).await?,
            Pooling::Transaction { direct } => by_transactions(&address.url, direct.as_deref(), migrate).await?,
        };
        let wall = Wall::new(&ways, connections.max(2), u32::from(COMMITS_AT_ONCE));
        if migrate {
            feed::continue_numbers(&wall).await?;
        }
        Ok(Self { wall, writes: Writes::default() })
    }
}

/// Reads a URL, which is never echoed.
pub(super) fn parsed(url: &str, variable: &str) -> Result<PgConnectOptions> {
    let options: PgConnectOptions =
        url.parse().map_err(|_| StoreError::Open(format!("{variable} is not a valid Postgres URL")))?;
    Ok(options.disable_statement_logging())
}

/// Options for a pooler that gives sessions away: it refuses what it can't hand on, and nothing is prepared to stay.
pub(super) fn for_a_pooler(options: PgConnectOptions) -> PgConnectOptions {
    options.extra_float_digits(None).statement_cache_capacity(0)
}

/// What is asked of a server first.
pub(super) struct Server {
    version: i32,
    /// What a session is given for `synchronous_commit`, whatever somebody has set it to.
    commits: String,
    fsync: String,
    /// Tells one database from another.
    database: String,
}

impl Server {
    /// Asks. Nothing is prepared for it.
    pub(super) async fn of(connection: &mut PgConnection) -> Result<Self> {
        let row = sqlx::raw_sql(sql::SERVER).fetch_one(connection).await?;
        let (version, commits) = (row.try_get(0)?, row.try_get(1)?);
        Ok(Self { version, commits, fsync: row.try_get(2)?, database: row.try_get(3)? })
    }

    fn judge(&self) -> Result<()> {
        if self.version < 140_000 {
            return Err(StoreError::Open("Postgres 14 or newer is needed".to_owned()));
        }
        if self.fsync != "on" {
            tracing::warn!("the database server runs with fsync off: acknowledged effects can be lost");
        }
        Ok(())
    }

    /// Laws 2 and 14: what is acknowledged is durable, grants and changes of tools alike. A server default that gives
    /// this up is overruled; the stricter `remote_…` settings are kept.
    fn gives_durability_up(&self) -> bool {
        self.commits == "off"
    }
}

/// Where every connection is a session, which keeps its settings.
async fn by_sessions(url: &str, migrate: bool) -> Result<Ways> {
    let options = parsed(url, "DATABASE_URL")?.application_name("actonce").options(SETTINGS);
    let (shared, server) = probed(&options).await?;
    if shared {
        return Err(StoreError::Open(
            "the database is reached through a pooler that gives every transaction another session (transaction \
             mode): what is prepared, locked and listened for would go astray. Set --database-pooling transaction \
             (DATABASE_POOLING), or give an address past it; see docs/scaling.md"
                .to_owned(),
        ));
    }
    server.judge()?;
    let options = if server.gives_durability_up() { options.options([(COMMITS, "on")]) } else { options };
    // A pooler in between may drop what a connection asks for at its start.
    let mut connection = wall::connect(options.clone(), Purpose::Migration).await?;
    if !sqlx::query_scalar::<_, bool>(sql::HAS_SETTINGS).fetch_one(&mut connection).await? {
        return Err(astray());
    }
    let prepared = prepare(&mut connection, migrate).await;
    // Whichever way it went: the advisory lock of a migration goes with the session.
    connection.close().await?;
    warn_of_wall(prepared?);
    let options = wall::declared(options);
    Ok(Ways { working: options.clone(), listening: Some(options), manner: Manner::Sessions })
}

fn astray() -> StoreError {
    StoreError::Open(
        "the settings of a connection did not arrive at the database, or were changed on the way \
         (a connection pooler?): see docs/scaling.md"
            .to_owned(),
    )
}

/// Where a pooler gives every transaction another session: each sets itself, and what needs a session goes past it.
async fn by_transactions(url: &str, direct: Option<&str>, migrate: bool) -> Result<Ways> {
    let working = for_a_pooler(parsed(url, "DATABASE_URL")?.application_name("actonce"));
    let mut first = working.connect().await?;
    let server = Server::of(&mut first).await;
    first.close().await?;
    let server = server?;
    server.judge()?;
    let listening = match direct {
        Some(direct) => {
            let options = past_the_pooler(direct, &server).await?;
            if migrate {
                migrate_by(&options).await?;
            }
            Some(options)
        }
        None => {
            tracing::warn!(
                "no address past the pooler (DATABASE_DIRECT_URL): the schema is checked and not migrated, and what \
                 other replicas announce is not heard"
            );
            None
        }
    };
    let commits = if server.gives_durability_up() { "on" } else { "DEFAULT" };
    let settings: Vec<_> = SETTINGS.into_iter().chain([(COMMITS, commits)]).collect();
    let ways = Ways { working, listening, manner: Manner::transactions(&settings) };
    // For a moment: nothing of it is kept.
    let wall = Wall::new(&ways, 1, 1);
    let checked = check(&wall).await;
    wall.close().await;
    warn_of_wall(checked?);
    Ok(ways)
}

/// Whether the schema is this program's, the settings arrive, and the policies hold this role.
async fn check(wall: &Wall) -> Result<bool> {
    let whose = Tenants::All(Purpose::Migration);
    let all = || wall.scope(whose.clone());
    migrate::check_found(recorded(wall, whose.clone()).await?)?;
    if !sqlx::query_scalar::<_, bool>(sql::HAS_SETTINGS).fetch_one(all().await?).await? {
        return Err(astray());
    }
    Ok(sqlx::query_scalar(sql::WALL_HOLDS).fetch_one(all().await?).await?)
}

/// What a database says it has applied; `None`: it has no list.
pub(super) async fn recorded(wall: &Wall, whose: Tenants<'_>) -> Result<Option<migrate::Found>> {
    if !migrate::has_postgres_table(wall.scope(whose.clone()).await?).await? {
        return Ok(None);
    }
    migrate::found_postgres(wall.scope(whose).await?).await.map(Some)
}

/// Looks whether an address leads past the pooler to the same database. What listens there reads no table.
pub(super) async fn past_the_pooler(url: &str, server: &Server) -> Result<PgConnectOptions> {
    let options = wall::declared(parsed(url, "DATABASE_DIRECT_URL")?.application_name("actonce").options(SETTINGS));
    let (shared, other) = probed(&options).await?;
    if shared {
        return Err(StoreError::Open(
            "DATABASE_DIRECT_URL leads to a pooler that gives sessions away, and not past it".to_owned(),
        ));
    }
    if other.database != server.database {
        return Err(StoreError::Open("DATABASE_DIRECT_URL leads to another database than DATABASE_URL".to_owned()));
    }
    Ok(options)
}

async fn migrate_by(options: &PgConnectOptions) -> Result<()> {
    let mut connection = wall::connect(options.clone(), Purpose::Migration).await?;
    let migrated = migrate::postgres(&mut connection).await;
    // The advisory lock goes with the session.
    connection.close().await?;
    migrated
}

/// Migrates or checks the schema, and looks whether the policies hold this role.
async fn prepare(connection: &mut PgConnection, migrate: bool) -> Result<bool> {
    if migrate {
        migrate::postgres(connection).await?;
    } else {
        migrate::check_postgres(connection).await?;
    }
    Ok(sqlx::query_scalar(sql::WALL_HOLDS).fetch_one(connection).await?)
}

fn warn_of_wall(holds: bool) {
    if !holds {
        tracing::warn!(
            "the database's role is a superuser or has BYPASSRLS: row-level security, the second wall between tenants, \
             does not hold it; see docs/security.md"
        );
    }
}

/// Whether these options lead to a pooler that shares sessions, and what the server says behind it.
async fn probed(options: &PgConnectOptions) -> Result<(bool, Server)> {
    let probe = PgPoolOptions::new().max_connections(2).connect_with(options.clone()).await?;
    let shared = shares_sessions(&probe).await?;
    let server = Server::of(&mut *probe.acquire().await?).await?;
    probe.close().await;
    Ok((shared, server))
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
