//! `actonce rotate-data-key`: everything that is sealed, under the active data key.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};

use super::migrate::Database;
use super::{fail, print};
use crate::config::{self, Environment};
use crate::limits;
use crate::service::keys::DataKey;
use crate::service::rotation::{Ask, Progress, Rotated, rotate};
use crate::service::seal::Sealer;

/// How often it says how far it is.
const TOLD_EVERY: Duration = Duration::from_secs(2);

/// How the counts are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Text,
}

/// `actonce rotate-data-key`.
#[derive(Debug, Args)]
#[command(after_help = "The data keys are those of the service: ACTONCE_DATA_KEY, a file, or the configuration file; \
    the active one first. Exit code 0: everything sealed is under the active key (with --dry-run: can be brought there); \
    1: something is not, and was left as it was; 2: it could not be done.")]
pub(super) struct RotateArgs {
    #[command(flatten)]
    database: Database,
    /// The configuration file, for the data keys.
    #[arg(long, env = "ACTONCE_CONFIG", value_name = "FILE")]
    config: Option<String>,
    /// File with the data keys, one a line, the active one first. `ACTONCE_DATA_KEY` holds the keys themselves.
    #[arg(long, env = "ACTONCE_DATA_KEY_FILE", value_name = "FILE")]
    data_key_file: Option<String>,
    /// Count what is sealed under which key, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Rows in one transaction.
    #[arg(long, default_value_t = limits::ROTATE_BATCH, value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::ROTATE_BATCH_MAX)))]
    batch: u32,
    /// How the counts are printed.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
}

pub(super) async fn run(args: &RotateArgs) -> ExitCode {
    let done = match rotated(args).await {
        Ok(done) => done,
        Err(error) => return fail(&error),
    };
    let printed = match args.format {
        Format::Json => print(&serde_json::to_string_pretty(&done).unwrap_or_default()),
        Format::Text => print(&text(&done)),
    };
    if is_well(&done) { printed } else { ExitCode::FAILURE }
}

fn is_well(done: &Rotated) -> bool {
    done.complete || (done.dry_run && done.missing_keys.is_empty() && done.unreadable == 0)
}

async fn rotated(args: &RotateArgs) -> Result<Rotated, String> {
    let environment = Environment::from_process();
    let (file, data_dir) = (args.data_key_file.as_ref(), args.database.data_dir());
    let keys = config::data_keys_of(args.config.as_ref(), file, &environment, data_dir);
    let keys = keys.map_err(|error| error.to_string())?;
    let active = *keys.active.expose();
    let others = || keys.others.iter().map(|key| *key.expose());
    let ask = Ask {
        sealer: Sealer::of_ring(active, others()),
        data_key: DataKey::of_ring(active, others()),
        batch: args.batch,
        dry_run: args.dry_run,
    };
    let store = args.database.open().await?;
    let mut teller = Teller(Instant::now());
    let done = rotate(store.as_ref(), &ask, &mut |progress| teller.tell(progress)).await;
    store.close().await;
    done.map_err(|error| error.to_string())
}

/// Says on standard error how far it is, now and then.
struct Teller(Instant);

impl Teller {
    fn tell(&mut self, progress: Progress) {
        if self.0.elapsed() < TOLD_EVERY {
            return;
        }
        self.0 = Instant::now();
        let Progress { table, looked_at, resealed } = progress;
        let mut err = std::io::stderr().lock();
        drop(writeln!(err, "actonce: {}: {looked_at} rows looked at, {resealed} sealed anew", table.as_str()));
    }
}

fn text(done: &Rotated) -> String {
    let word = if done.dry_run { "would be sealed anew" } else { "sealed anew" };
    let mut lines = vec![format!("{} rows {word}", done.resealed)];
    for of in &done.tables {
        let rows: Vec<String> = of.rows.iter().map(|(key, count)| format!("{count} under {key}")).collect();
        let rows = if rows.is_empty() { "nothing".to_owned() } else { rows.join(", ") };
        lines.push(format!("{}: {rows}; {} {word}", of.table.as_str(), of.resealed));
    }
    for key in &done.keys {
        let role = if key.active { "active" } else { "in the ring" };
        lines.push(format!("key {}: {role}, {} rows, {} open effects", key.key_id, key.rows, key.open_effects));
    }
    for (key, count) in &done.missing_keys {
        lines.push(format!("key {key}: not in the ring, {count} rows were left alone"));
    }
    if done.unreadable > 0 {
        lines.push(format!("{} rows don't open with the key that they name, and were left alone", done.unreadable));
    }
    if !done.dry_run && !done.complete && done.missing_keys.is_empty() && done.unreadable == 0 {
        lines.push("rows under other keys go on coming: some replica still seals under one. Run it again".to_owned());
    }
    let removable = done.removable_keys.join(", ");
    if !removable.is_empty() {
        lines
            .push(format!("nothing here refers any more to {removable}: take it out of the ring, keep it for backups"));
    }
    lines.join("\n")
}
