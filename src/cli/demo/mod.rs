//! `actonce demo`: the contract at work, over real HTTP between a client, the real server and a
//! fake downstream that counts its own commits.

mod api;
mod call;
mod calls;
mod downstream;
mod failure;
mod hostile;
mod ledger;
mod line;
mod play;
mod progress;
mod score;
mod server;
mod story;
mod table;
mod timeline;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;

use self::calls::Calls;
use self::failure::Failure;
use self::server::Server;
use super::fail;
use super::serve::signal;
use crate::config::Secret;

/// `actonce demo`.
#[derive(Debug, Args)]
pub(super) struct DemoArgs {
    /// Play the calls of this file instead of the story: one JSON object a line, with `run_id`, `seq`,
    /// `call_id`, `tool`, `effect`, `target` and `arguments`
    #[arg(long, value_name = "FILE")]
    calls: Option<PathBuf>,
    /// Play on this database instead of one that is thrown away. The schema is brought up to date, and what is
    /// played stays there under a tenant of its own. Never taken from the environment
    #[arg(long, value_name = "URL")]
    database_url: Option<Secret<String>>,
}

/// Exit 0 when the contract held, 1 when it did not, 2 when that could not be found out.
pub(super) async fn run(args: &DemoArgs) -> ExitCode {
    match demonstrate(args).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let code = fail(&failure.to_string());
            if failure.is_breach() { ExitCode::FAILURE } else { code }
        }
    }
}

async fn demonstrate(args: &DemoArgs) -> Result<(), Failure> {
    let calls = args.calls.as_ref().map(|path| Calls::read(path).map(|calls| (path, calls))).transpose()?;
    let server = tokio::select! {
        server = Server::start(args.database_url.as_ref().map(|url| url.expose().as_str())) => server?,
        () = signal() => return Err(Failure::Interrupted),
    };
    let played = tokio::select! {
        played = async {
            match &calls {
                Some((path, calls)) => play::play(&server, path, calls).await,
                None => match story::play(&server).await {
                    Ok(()) => hostile::play(&server).await,
                    failed => failed,
                },
            }
        } => played,
        () = signal() => Err(Failure::Interrupted),
    };
    let log = server.log_end();
    server.stop().await;
    played.map_err(|failure| failure.with_log(&log))
}
