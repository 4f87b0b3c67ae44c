//! `actonce migrate`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::{fail, print};
use crate::app::database_url;
use crate::config::{self, Secret};
use crate::store::Store;
use crate::store::open::{DatabaseUrl, OpenOptions, Pooling, open};

/// Which database.
#[derive(Debug, Clone, Args)]
pub(super) struct Database {
    /// `postgres://…` or `sqlite:PATH`; the embedded file of the data directory where absent.
    #[arg(long = "database-url", env = "DATABASE_URL", hide_env_values = true, value_name = "DATABASE_URL")]
    url: Option<Secret<String>>,
    /// What a connection to Postgres is: session, or transaction behind a pooler that gives every transaction another
    /// session [default: session]
    #[arg(long = "database-pooling", env = "DATABASE_POOLING", value_name = "MODE")]
    pooling: Option<String>,
    /// The same database past such a pooler.
    #[arg(long = "database-direct-url", env = "DATABASE_DIRECT_URL", hide_env_values = true, value_name = "URL")]
    direct_url: Option<Secret<String>>,
    /// The data directory.
    #[arg(long, env = "ACTONCE_DATA_DIR", default_value = "./actonce-data")]
    data_dir: PathBuf,
}

impl Database {
    /// The data directory.
    pub(super) fn data_dir(&self) -> &std::path::Path {
        &self.data_dir
    }

    /// Which it is.
    pub(super) fn url(&self) -> Result<DatabaseUrl, String> {
        let given =
            |url: &Option<Secret<String>>| url.as_ref().map(|url| url.expose().clone()).filter(|u| !u.is_empty());
        let mode = self.pooling.as_deref().filter(|mode| !mode.is_empty()).map(config::Pooling::parse);
        let mode = mode.transpose().map_err(|fault| format!("--database-pooling (DATABASE_POOLING): {fault}"))?;
        let direct = given(&self.direct_url);
        let pooling = Pooling::of(mode == Some(config::Pooling::Transaction), direct.as_deref());
        let url = given(&self.url);
        pooling
            .and_then(|pooling| database_url(url.as_deref(), &self.data_dir, pooling))
            .map_err(|error| error.to_string())
    }

    /// The same for what needs a session of its own.
    pub(super) fn session_url(&self) -> Result<DatabaseUrl, String> {
        self.url()?.past_the_pooler().map_err(|error| error.to_string())
    }

    /// Opens it.
    pub(super) async fn open(&self) -> Result<Arc<dyn Store>, String> {
        opened(&self.url()?, false).await
    }

    /// The same by sessions.
    pub(super) async fn open_by_session(&self) -> Result<Arc<dyn Store>, String> {
        opened(&self.session_url()?, false).await
    }
}

async fn opened(url: &DatabaseUrl, migrate: bool) -> Result<Arc<dyn Store>, String> {
    if let (false, DatabaseUrl::Sqlite(path)) = (migrate, url)
        && !path.exists()
    {
        return Err(format!("there is no database {}", path.display()));
    }
    open(url, OpenOptions { migrate, connections: 2 }).await.map_err(|error| error.to_string())
}

async fn migrated(database: &Database) -> Result<(), String> {
    // The lock of a migration is its session's.
    let store = opened(&database.session_url()?, true).await?;
    store.close().await;
    Ok(())
}

/// `actonce migrate`.
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    database: Database,
}

pub(super) async fn run(args: &MigrateArgs) -> ExitCode {
    match migrated(&args.database).await {
        Ok(()) => print("the schema is up to date"),
        Err(error) => fail(&error),
    }
}
