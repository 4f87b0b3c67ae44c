//! `actonce migrate`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use super::{fail, print};
use crate::app::database_url;
use crate::config::Secret;
use crate::store::Store;
use crate::store::open::{DatabaseUrl, OpenOptions, open};

/// Which database.
#[derive(Debug, Clone, Args)]
pub(super) struct Database {
    /// `postgres://…` or `sqlite:PATH`; the embedded file of the data directory where absent.
    #[arg(long, env = "DATABASE_URL", hide_env_values = true)]
    database_url: Option<Secret<String>>,
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
        let url = self.database_url.as_ref().map(|url| url.expose().as_str()).filter(|url| !url.is_empty());
        database_url(url, &self.data_dir).map_err(|error| error.to_string())
    }

    /// Opens it.
    pub(super) async fn open(&self, migrate: bool) -> Result<std::sync::Arc<dyn Store>, String> {
        let url = self.url()?;
        if let (false, DatabaseUrl::Sqlite(path)) = (migrate, &url)
            && !path.exists()
        {
            return Err(format!("there is no database {}", path.display()));
        }
        open(&url, OpenOptions { migrate, connections: 2 }).await.map_err(|error| error.to_string())
    }
}

/// `actonce migrate`.
#[derive(Debug, Args)]
pub(super) struct MigrateArgs {
    #[command(flatten)]
    database: Database,
}

pub(super) async fn run(args: &MigrateArgs) -> ExitCode {
    match args.database.open(true).await {
        Ok(store) => {
            store.close().await;
            print("the schema is up to date")
        }
        Err(error) => fail(&error),
    }
}
