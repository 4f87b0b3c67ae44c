//! `actonce prune`: settled effects after their window.

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::migrate::Database;
use super::{fail, print};
use crate::config;
use crate::domain::ids::Tenant;
use crate::domain::retention::DAYS_MAX;
use crate::limits;
use crate::service::retention::{Ask, Pruned, prune};

/// How the counts are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    Json,
    Text,
}

/// `actonce prune`.
#[derive(Debug, Args)]
pub(super) struct PruneArgs {
    #[command(flatten)]
    database: Database,
    /// The configuration file, for its table `[retention]`.
    #[arg(long, env = "ACTONCE_CONFIG", value_name = "FILE")]
    config: Option<String>,
    /// Keep so many days at least, such as `90d`. Never shortens what the configuration promises; needed where that
    /// says nothing.
    #[arg(long, value_name = "DAYS", value_parser = days)]
    older_than: Option<u32>,
    /// One tenant alone.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Count what would be pruned, and write nothing.
    #[arg(long)]
    dry_run: bool,
    /// Effects in one transaction.
    #[arg(long, default_value_t = limits::PRUNE_BATCH, value_parser = clap::value_parser!(u32).range(1..=i64::from(limits::PRUNE_BATCH_MAX)))]
    batch: u32,
    /// Effects pruned by this run at most.
    #[arg(long, default_value_t = limits::PRUNE_RUN, value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
    /// How the counts are printed.
    #[arg(long, value_enum, default_value_t = Format::Json)]
    format: Format,
}

fn days(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('d').ok_or("give whole days, such as 90d")?;
    let number: u32 = number.parse().map_err(|_| "give whole days, such as 90d")?;
    if (1..=DAYS_MAX).contains(&number) { Ok(number) } else { Err(format!("1d to {DAYS_MAX}d")) }
}

pub(super) async fn run(args: &PruneArgs) -> ExitCode {
    match pruned(args).await {
        Ok(pruned) => match args.format {
            Format::Json => print(&serde_json::to_string_pretty(&pruned).unwrap_or_default()),
            Format::Text => print(&text(&pruned)),
        },
        Err(error) => fail(&error),
    }
}

async fn pruned(args: &PruneArgs) -> Result<Pruned, String> {
    let path = args.config.as_deref().filter(|path| !path.is_empty());
    let promised = config::retention(path).map_err(|error| error.to_string())?;
    let says_nothing = promised.default_days.is_none() && promised.tenants.values().all(Option::is_none);
    if says_nothing && args.older_than.is_none() {
        return Err("nothing says how long effects are kept: give --older-than, or [retention] in --config".to_owned());
    }
    let tenant = args.tenant.as_deref().map(Tenant::new).transpose().map_err(|fault| format!("--tenant {fault}"))?;
    let ask = Ask {
        tenant,
        older_than_days: args.older_than,
        promised,
        batch: args.batch,
        limit: args.limit,
        dry_run: args.dry_run,
    };
    let store = args.database.open().await?;
    let done = prune(store.as_ref(), &ask).await;
    store.close().await;
    done.map_err(|error| error.to_string())
}

fn text(pruned: &Pruned) -> String {
    let word = if pruned.dry_run { "would be pruned" } else { "pruned" };
    let all = format!("{} {word}, {} kept of {} that are old", pruned.pruned, pruned.kept, pruned.examined);
    let tenants = pruned
        .tenants
        .iter()
        .map(|of| format!("{}: {} {word}, {} kept, after {} days", of.tenant, of.pruned, of.kept, of.days));
    let more = pruned.more.then(|| "there is more: run it again".to_owned());
    std::iter::once(all).chain(tenants).chain(more).collect::<Vec<_>>().join("\n")
}
