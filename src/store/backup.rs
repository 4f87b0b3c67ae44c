//! A copy of the embedded file while a service works on it. Postgres has tools of its own.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteConnectOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, Connection as _};

use super::{Result, StoreError, migrate};
use crate::support::random_id;

/// One read transaction: what was committed before it began, and nothing of what came after.
const COPY: &str = "VACUUM INTO ?1";
const CHECK: &str = "PRAGMA quick_check(1)";

/// Copies a SQLite database into a file that is not there yet, and answers its size. The file appears under its name
/// once it is whole, was checked, and is flushed. Whoever works on the database goes on meanwhile.
///
/// # Errors
/// [`StoreError::Open`] where a file can't be read or made, [`StoreError::Schema`] where the database is not one of
/// this program's version, [`StoreError::Unavailable`] where the database can't answer. No file is left then.
pub async fn sqlite(database: &Path, target: &Path) -> Result<u64> {
    let fault = |error: io::Error| StoreError::Open(format!("can't write {}: {error}", target.display()));
    if target.try_exists().map_err(fault)? {
        return Err(StoreError::Open(format!("{} is there already, and is not overwritten", target.display())));
    }
    let database = std::path::absolute(database).map_err(fault)?;
    let target = std::path::absolute(target).map_err(fault)?;
    let part = part_of(&target);
    let copied = copy(&database, &part).await;
    let kept = match copied {
        Ok(()) => keep(&part, &target).map_err(fault),
        Err(error) => Err(error),
    };
    if kept.is_err() {
        drop(std::fs::remove_file(&part));
    }
    kept
}

/// Beside the target, so that giving it its name is one step.
fn part_of(target: &Path) -> PathBuf {
    let mut name = target.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", random_id().simple()));
    target.with_file_name(name)
}

async fn copy(database: &Path, part: &Path) -> Result<()> {
    let options = SqliteConnectOptions::new().filename(database).create_if_missing(false);
    let mut connection = options.connect().await?;
    migrate::check_sqlite(&mut connection).await?;
    private(part).map_err(|error| StoreError::Open(format!("can't write {}: {error}", part.display())))?;
    let path = part.to_str().ok_or_else(|| StoreError::Open("the file's name must be UTF-8".to_owned()))?;
    sqlx::query(COPY).bind(path).execute(&mut connection).await?;
    drop(connection.close().await);
    let copy = SqliteConnectOptions::new().filename(part).create_if_missing(false);
    let mut copy = copy.synchronous(SqliteSynchronous::Full).read_only(true).connect().await?;
    let found: String = sqlx::query_scalar(CHECK).fetch_one(&mut copy).await?;
    migrate::check_sqlite(&mut copy).await?;
    drop(copy.close().await);
    if found == "ok" { Ok(()) } else { Err(StoreError::Open("the copy is damaged".to_owned())) }
}

/// An empty file that nobody else can read: the copy holds receipts and results.
fn private(path: &Path) -> io::Result<()> {
    let mut options = File::options();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path).map(drop)
}

/// Flushes the copy, gives it its name without replacing anything, and flushes that.
fn keep(part: &Path, target: &Path) -> io::Result<u64> {
    let file = File::open(part)?;
    file.sync_all()?;
    let bytes = file.metadata()?.len();
    std::fs::hard_link(part, target)?;
    std::fs::remove_file(part)?;
    if let (true, Some(folder)) = (cfg!(unix), target.parent()) {
        File::open(folder)?.sync_all()?;
    }
    Ok(bytes)
}
