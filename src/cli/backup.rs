//! `actonce backup`, and `actonce restore-epoch` for what a backup can't know.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;

use super::migrate::Database;
use super::{fail, print};
use crate::domain::ids::Name;
use crate::domain::restore::Restore;
use crate::limits;
use crate::service::restore::{Moved, move_all, with_engine};
use crate::store::open::DatabaseUrl;
use crate::store::restore::{Begun, EpochRow, NewEpoch, begin};
use crate::store::{Store, backup};
use crate::support::service_principal;

/// Exit code of a refusal because others work on the database.
const NOT_ALONE: u8 = 3;

/// `actonce backup`.
#[derive(Debug, Args)]
pub(super) struct BackupArgs {
    #[command(flatten)]
    database: Database,
    /// Where to; must not be there yet.
    file: PathBuf,
}

/// `actonce restore-epoch`.
#[derive(Debug, Args)]
pub(super) struct RestoreArgs {
    #[command(flatten)]
    database: Database,
    /// Your name for this restore. The same name again goes on where the last run ended.
    #[arg(long, value_name = "NAME")]
    epoch_id: String,
    /// Why, for the record.
    #[arg(long, value_name = "TEXT", default_value = "")]
    reason: String,
    /// Leave tools as they are. Only where nothing was lost, or who lost it sends nothing again: an operation whose
    /// intent was lost is new to this database, and would be dispatched.
    #[arg(long)]
    keep_tools_running: bool,
}

pub(super) async fn backup(args: &BackupArgs) -> ExitCode {
    let result = async {
        match args.database.url()? {
            DatabaseUrl::Sqlite(path) if !path.exists() => Err(format!("there is no database {}", path.display())),
            DatabaseUrl::Sqlite(path) => backup::sqlite(&path, &args.file).await.map_err(|error| error.to_string()),
            DatabaseUrl::Postgres(_) => {
                Err("Postgres is backed up by its own tools, pg_dump or pg_basebackup: see docs/backup.md".to_owned())
            }
        }
    };
    match result.await {
        Ok(bytes) => print(&serde_json::json!({ "file": args.file, "size_bytes": bytes }).to_string()),
        Err(error) => fail(&error),
    }
}

pub(super) async fn restore(args: &RestoreArgs) -> ExitCode {
    match restored(args).await {
        Ok(code) => code,
        Err(error) => fail(&error),
    }
}

async fn restored(args: &RestoreArgs) -> Result<ExitCode, String> {
    let epoch_id = Name::new(&args.epoch_id).map_err(|fault| format!("--epoch-id {fault}"))?;
    if args.reason.len() > limits::RESTORE_REASON_BYTES || args.reason.contains('\0') {
        return Err(format!("--reason is at most {} bytes of text", limits::RESTORE_REASON_BYTES));
    }
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let url = args.database.url()?;
    let store = args.database.open_by_session().await?;
    let at = store.now().await.map_err(|error| text(&error))?;
    store.close().await;
    drop(store);
    let epoch = NewEpoch { epoch_id, reason: args.reason.clone(), at, pauses_tools: !args.keep_tools_running };
    let row = match begin(&url, &epoch).await.map_err(|error| text(&error))? {
        Begun::New(row) | Begun::Known(row) => row,
        Begun::NotAlone => {
            fail("somebody else works on this database: stop every service, replica and command on it, and repeat");
            return Ok(ExitCode::from(NOT_ALONE));
        }
        Begun::Other(row) => {
            return Err(format!("another restore has not ended: repeat `--epoch-id {}` first", row.epoch_id));
        }
        Begun::TooMany => return Err("there were as many restores as there can be".to_owned()),
    };
    if row.ended_at.is_some() {
        return told(&row, &Moved { effects: row.effects, ..Moved::default() }, true);
    }
    let store = args.database.open_by_session().await?;
    let done = finish(&store, &row).await;
    store.close().await;
    told(&row, &done?, false)
}

async fn finish(store: &Arc<dyn Store>, row: &EpochRow) -> Result<Moved, String> {
    let principal = service_principal().map_err(|error| error.to_string())?;
    let restore = Restore { epoch: row.number, epoch_id: row.epoch_id.clone() };
    let by = principal.clone();
    let work = async |engine: &crate::engine::Engine| move_all(engine, &by, &restore).await;
    let moved = with_engine(Arc::clone(store), principal, work).await.map_err(|error| error.to_string())?;
    store.end_restore(row.number, moved.effects).await.map_err(|error| error.to_string())?;
    Ok(moved)
}

fn told(row: &EpochRow, moved: &Moved, repeated: bool) -> Result<ExitCode, String> {
    let report = serde_json::json!({
        "epoch": row.number,
        "epoch_id": row.epoch_id,
        "begun_at": row.begun_at,
        "repeated": repeated,
        "effects": moved.effects,
        "paused_tools": row.paused,
        "unreadable": moved.unreadable,
        "unreadable_effects": moved.unreadable_effects,
    });
    let printed = print(&serde_json::to_string_pretty(&report).map_err(|error| error.to_string())?);
    warn();
    Ok(if moved.unreadable > 0 { ExitCode::FAILURE } else { printed })
}

/// What no command can mend, on standard error.
fn warn() {
    use std::io::Write as _;
    let text = "actonce: what was acknowledged after the backup is lost. An operation whose intent was lost is new to \
                this database: once its tool is resumed, a client that repeats it is told to act again. Before you \
                resume a tool, compare with the downstream's own list of what it did (docs/backup.md).";
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}
