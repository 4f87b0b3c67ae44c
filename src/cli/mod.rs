//! The command line (protocol §14).

mod backup;
mod config;
mod demo;
mod doctor;
mod evidence;
mod health;
mod journal;
mod migrate;
mod profile;
mod prune;
mod recovery;
mod rotate;
mod serve;

use std::io::Write as _;
use std::num::NonZeroUsize;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};

use crate::config::{Environment, Flags, LogFormat, ServeArgs, TokenArgs, token};
use crate::telemetry::log::{JsonLine, PrettyLine};
use crate::telemetry::stderr::{FlushedAtEnd, LogSink};

/// Act once, or stop.
#[derive(Debug, Parser)]
#[command(name = "actonce", version, about = "Act once, or stop: durable intents and outcomes for programs that act.")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve the API.
    Serve(Box<ServeArgs>),
    /// Look at the configuration.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Check configuration, database, keys and adapters; exit 0 all well, 1 warnings, 2 failures.
    Doctor(Box<doctor::DoctorArgs>),
    /// Bring the database to this version's schema, and stop.
    Migrate(migrate::MigrateArgs),
    /// Copy the embedded database into a file while a service works on it.
    Backup(backup::BackupArgs),
    /// After a restore from a backup, before anything is served: fence off everybody from before.
    RestoreEpoch(backup::RestoreArgs),
    /// Prune settled effects after their window: one row of each stays for ever.
    Prune(prune::PruneArgs),
    /// Seal everything under the active data key, beside running services; says which keys are not needed any more.
    RotateDataKey(rotate::RotateArgs),
    /// Print one token, signed with a local key.
    Token(Box<TokenArgs>),
    /// Print the OpenAPI document.
    Openapi,
    /// Show the contract at work against a downstream that commits and drops the connection.
    Demo(demo::DemoArgs),
    /// Check journals.
    #[command(subcommand)]
    Journal(journal::JournalCommand),
    /// Check signed evidence of an effect, offline.
    #[command(subcommand)]
    Evidence(evidence::EvidenceCommand),
    /// Plan and execute the recovery of incomplete work.
    #[command(subcommand)]
    Recovery(recovery::RecoveryCommand),
    /// Compare profiles.
    #[command(subcommand)]
    Profile(profile::ProfileCommand),
    /// Ask a running service whether it is ready; exit 0 if so.
    Health(health::HealthArgs),
}

/// Runs the command line.
#[must_use]
pub fn main() -> ExitCode {
    let matches = Cli::command().get_matches();
    let cli = Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Config(command) => config::run(&command, &Flags::of(&matches)),
        Command::Doctor(args) => block_on(doctor::run(&args, &Flags::of(&matches))),
        Command::Migrate(args) => block_on(migrate::run(&args)),
        Command::Backup(args) => block_on(backup::backup(&args)),
        Command::RestoreEpoch(args) => block_on(backup::restore(&args)),
        Command::Prune(args) => block_on(prune::run(&args)),
        Command::RotateDataKey(args) => block_on(rotate::run(&args)),
        Command::Token(args) => match token::run(&args, &Environment::from_process()) {
            Ok(token) => print(&token),
            Err(error) => fail(&error.to_string()),
        },
        Command::Openapi => match crate::http::openapi::json() {
            Ok(text) => print(text.trim_end()),
            Err(error) => fail(&error.to_string()),
        },
        Command::Demo(args) => block_on(demo::run(&args)),
        Command::Journal(command) => block_on(journal::run(&command)),
        Command::Evidence(command) => evidence::run(&command),
        Command::Recovery(command) => block_on(recovery::run(&command)),
        Command::Profile(command) => block_on(profile::run(&command)),
        Command::Health(args) => block_on(health::run(&args)),
    }
}

/// The variable that says how many threads serve requests. It is the runtime's own, which would panic at what it can't
/// read.
const THREADS: &str = "TOKIO_WORKER_THREADS";

/// How many threads serve requests. One processor is left to the commits that everybody waits for: to the thread that
/// writes a SQLite file, or to a Postgres beside the service. On few processors that is faster than to share them all,
/// on many nobody notices (docs/performance.md).
fn threads(asked: Option<&str>, processors: usize) -> Result<usize, String> {
    let Some(asked) = asked.filter(|asked| !asked.is_empty()) else { return Ok(processors.saturating_sub(1).max(1)) };
    let number = asked.parse().ok().filter(|number| (1..=1024).contains(number));
    number.ok_or_else(|| format!("{THREADS} is no number from 1 to 1024"))
}

/// Runs one command on a runtime of its own.
fn block_on(command: impl Future<Output = ExitCode>) -> ExitCode {
    let asked = std::env::var_os(THREADS).map(|asked| asked.to_string_lossy().into_owned());
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let threads = match threads(asked.as_deref(), processors) {
        Ok(threads) => threads,
        Err(fault) => return fail(&fault),
    };
    match tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build() {
        Ok(runtime) => runtime.block_on(command),
        Err(error) => fail(&format!("no runtime: {error}")),
    }
}

/// Prints a line on standard output.
fn print(text: &str) -> ExitCode {
    match writeln!(std::io::stdout().lock(), "{text}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(2),
    }
}

/// Prints a message on standard error; exit 2.
fn fail(message: &str) -> ExitCode {
    drop(writeln!(std::io::stderr().lock(), "actonce: {message}"));
    ExitCode::from(2)
}

/// Logs go to standard error. What is answered is to be kept until the end.
fn start_log(format: LogFormat, filter: &str) -> std::io::Result<FlushedAtEnd> {
    let sink = LogSink::to_stderr()?;
    let filter = tracing_subscriber::EnvFilter::try_new(filter).unwrap_or_else(|_| "info".into());
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(sink.clone());
    let line = tracing_subscriber::fmt::format();
    let started = match format {
        LogFormat::Json => {
            let fields = tracing_subscriber::fmt::format::JsonFields::new();
            builder.fmt_fields(fields).event_format(JsonLine(line.json().flatten_event(true))).try_init()
        }
        LogFormat::Pretty => builder.event_format(PrettyLine(line.with_ansi(false))).try_init(),
    };
    drop(started);
    Ok(sink.flushed_at_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_processor_is_left_to_commits_unless_somebody_says_otherwise() {
        assert_eq!([0, 1, 2, 8].map(|processors| threads(None, processors).unwrap()), [1, 1, 1, 7]);
        assert_eq!((threads(Some("1"), 8), threads(Some("1024"), 2)), (Ok(1), Ok(1024)));
        assert_eq!(threads(Some(""), 4), Ok(3), "an empty text counts as not given");
        for bad in ["0", "1025", "-1", "two", " 2"] {
            assert!(threads(Some(bad), 8).unwrap_err().contains("TOKIO_WORKER_THREADS"), "{bad}");
        }
    }
}
