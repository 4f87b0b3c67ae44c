//! Opening the file.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::ConnectOptions as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqlitePoolOptions, SqliteSynchronous};

use super::clock::Clock;
use super::writer::Writer;
use super::{SqliteStore, sql};
use crate::store::health::Writes;
use crate::store::{Result, StoreError, migrate};

/// How long a statement waits for another process.
const BUSY: Duration = Duration::from_secs(5);
/// How long a caller waits for a connection that reads.
const ACQUIRE: Duration = Duration::from_secs(10);
/// A page of a list, or the look at a whole batch.
const ROWS: usize = 256;
/// Connections that read.
const READERS: u32 = 4;
/// Pages (4 KiB) in the log after which a commit folds it into the file.
const CHECKPOINT_PAGES: &str = "4000";
/// What is kept of a log that once grew longer.
const LOG_BYTES: &str = "67108864";
/// Page cache of the writer, in KiB as SQLite writes it. Keys are hashes, so inserts land anywhere.
const WRITER_CACHE: &str = "-65536";
/// How often the change of journal mode is tried, and the pause between.
const MODE_TRIES: u32 = 50;
const MODE_PAUSE: Duration = Duration::from_millis(100);

impl SqliteStore {
    /// Opens the file, and with `migrate` creates it and its folder where missing and brings the
    /// schema up to date. Without `migrate` nothing is written before the schema was found good.
    ///
    /// # Errors
    /// [`StoreError::Open`] where the file can't be opened, [`StoreError::Schema`] where it is not
    /// a database of this program, [`StoreError::Unavailable`] where it is locked or full.
    pub async fn connect(path: &Path, migrate: bool) -> Result<Self> {
        // An absolute path can't be taken for one of SQLite's special names.
        let path = std::path::absolute(path).map_err(|error| cannot_open(path, &error))?;
        if migrate {
            create_folder(&path).await.map_err(|error| cannot_open(&path, &error))?;
        }
        let writing = options(&path).pragma("cache_size", WRITER_CACHE);
        let first = writing.clone().create_if_missing(migrate);
        let mut connection = first.connect().await.map_err(|error| opening(&path, error))?;
        let checked =
            if migrate { migrate::sqlite(&mut connection).await } else { migrate::check_sqlite(&mut connection).await };
        checked.map_err(|error| match error {
            StoreError::Unavailable(error) => opening(&path, error),
            other => other,
        })?;
        write_ahead(&mut connection, &path).await?;
        let latest_us: i64 = sqlx::query_scalar(sql::CLOCK).fetch_one(&mut connection).await?;
        let readers = readers().connect_with(options(&path).pragma("query_only", "ON")).await?;
        Ok(Self {
            writer: Writer::new(writing, connection),
            readers,
            clock: Clock::start(latest_us),
            writes: Writes::default(),
        })
    }
}

pub(super) fn options(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .foreign_keys(true)
        .busy_timeout(BUSY)
        .synchronous(SqliteSynchronous::Full)
        // Where a flush is not one unless asked twice (macOS).
        .pragma("fullfsync", "ON")
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES)
        .pragma("journal_size_limit", LOG_BYTES)
        .pragma("temp_store", "MEMORY")
        // The thread of a connection hands over this many rows before it waits for a reader.
        .row_buffer_size(ROWS)
}

fn readers() -> SqlitePoolOptions {
    SqlitePoolOptions::new()
        .max_connections(READERS)
        .acquire_timeout(ACQUIRE)
        .idle_timeout(None)
        .max_lifetime(None)
        // A file does not hang up.
        .test_before_acquire(false)
}

/// Turns the write-ahead log on. That needs the file for itself, and no timeout waits for it.
async fn write_ahead(connection: &mut SqliteConnection, path: &Path) -> Result<()> {
    let mut tries = 0;
    loop {
        tries += 1;
        match sqlx::query_scalar::<_, String>(sql::JOURNAL_MODE).fetch_one(&mut *connection).await {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => {
                return Err(StoreError::Open(format!(
                    "{} can't have a write-ahead log (journal mode {mode}): put it on a local file system",
                    path.display()
                )));
            }
            Err(sqlx::Error::Database(_)) if tries < MODE_TRIES => tokio::time::sleep(MODE_PAUSE).await,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Creates the folder of a file, and makes sure that new folders are still there after a power cut.
async fn create_folder(path: &Path) -> io::Result<()> {
    let missing: Vec<PathBuf> =
        path.ancestors().skip(1).take_while(|folder| !folder.exists()).map(Path::to_path_buf).collect();
    let Some(deepest) = missing.first() else { return Ok(()) };
    tokio::fs::create_dir_all(deepest).await?;
    if cfg!(unix) {
        for parent in missing.iter().filter_map(|folder| folder.parent()) {
            tokio::fs::File::open(parent).await?.sync_all().await?;
        }
    }
    Ok(())
}

fn cannot_open(path: &Path, error: &dyn std::error::Error) -> StoreError {
    StoreError::Open(format!("can't open the database {}: {error}", path.display()))
}

/// An error while opening: about the file itself, or one that passes.
pub(super) fn opening(path: &Path, error: sqlx::Error) -> StoreError {
    /// SQLite's `PERM`, `CANTOPEN` and `NOTADB`.
    const FILE: [u32; 3] = [3, 14, 26];
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    let primary = code.and_then(|code| code.parse::<u32>().ok()).map(|code| code & 0xff);
    match (&error, primary) {
        (sqlx::Error::Io(_), _) => cannot_open(path, &error),
        (_, Some(code)) if FILE.contains(&code) => cannot_open(path, &error),
        _ => StoreError::from(error),
    }
}
