//! `actonce journal verify`: re-checks every journal from the database alone.

use std::process::ExitCode;

use clap::{Args, Subcommand};

use super::migrate::Database;
use super::{fail, print};
use crate::service::journal::verify;

/// What to do with journals.
#[derive(Debug, Subcommand)]
pub(super) enum JournalCommand {
    /// Re-check every journal: exit 0 when all holds, 1 with a report when not, 2 when it can't be checked.
    Verify(VerifyArgs),
}

/// `actonce journal verify`.
#[derive(Debug, Args)]
pub(super) struct VerifyArgs {
    #[command(flatten)]
    database: Database,
}

pub(super) async fn run(command: &JournalCommand) -> ExitCode {
    let JournalCommand::Verify(args) = command;
    let store = match args.database.open(false).await {
        Ok(store) => store,
        Err(error) => return fail(&error),
    };
    let result = verify(store.as_ref()).await;
    store.close().await;
    match result {
        Ok(report) => {
            let printed = print(&serde_json::to_string_pretty(&report).unwrap_or_default());
            if report.damaged > 0 { ExitCode::FAILURE } else { printed }
        }
        Err(error) => fail(&error.to_string()),
    }
}
