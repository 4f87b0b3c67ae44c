//! The load program: drives any base URL (`load drive`), or starts everything itself and prints one
//! table of medians and ratios (`load run`, which `scripts/bench` calls).

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod ceiling;
mod client;
mod drive;
mod flat;
mod many;
mod procs;
#[path = "../plain/rows.rs"]
mod rows;
mod run;
mod streams;
mod timing;
mod workload;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use drive::{Kind, Plan, drive};
use workload::{Workload, salt};

/// What the generator takes of the machine is missing to what it measures.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Debug, Parser)]
#[command(about = "Load for Actonce, or for anything that answers like it")]
struct Cli {
    #[command(subcommand)]
    command: Commands,
    /// Given by `cargo bench`; without meaning.
    #[arg(long, hide = true, global = true)]
    bench: bool,
}

#[derive(Debug, Subcommand)]
enum Commands {
    /// Drive a base URL.
    Drive(DriveArgs),
    /// Start everything, measure everything, print one table.
    Run(run::RunArgs),
    /// What measuring the phases of requests costs.
    Timing(timing::TimingArgs),
    /// What many streams of events cost those who write.
    Streams(streams::StreamsArgs),
    /// An empty database beside a full one.
    Flat(flat::FlatArgs),
    /// Many connections, replicas, overload.
    Many(many::ManyArgs),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KindArg {
    Pair,
    Replay,
    Read,
    Echo,
}

#[derive(Debug, clap::Args)]
struct DriveArgs {
    /// Host and port, such as 127.0.0.1:8080.
    #[arg(long)]
    address: String,
    /// A token with `effects:write`, `effects:read` and `tools:write`; may be given several times.
    #[arg(long, required = true)]
    token: Vec<String>,
    /// The calls to draw from.
    #[arg(long, default_value = "examples/agent-calls.excerpt.jsonl")]
    calls: PathBuf,
    /// What to send.
    #[arg(long, value_enum, default_value = "pair")]
    kind: KindArg,
    /// Connections.
    #[arg(long, default_value_t = 16)]
    connections: usize,
    /// Seconds to measure.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Rounds per second in all; a closed loop where absent.
    #[arg(long)]
    rate: Option<f64>,
}

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    // `cargo test` runs bench targets without arguments: nothing is measured then.
    if std::env::args().len() <= 1 {
        return Ok(());
    }
    let cli = Cli::parse();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build()?;
    match cli.command {
        Commands::Drive(args) => runtime.block_on(drive_one(args)),
        Commands::Run(args) => runtime.block_on(run::run(args)),
        Commands::Timing(args) => runtime.block_on(timing::run(args)),
        Commands::Streams(args) => runtime.block_on(streams::run(args)),
        Commands::Flat(args) => runtime.block_on(flat::run(args)),
        Commands::Many(args) => runtime.block_on(many::run(args)),
    }
}

async fn drive_one(args: DriveArgs) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let salt = salt();
    let workload = Arc::new(Workload::read(&args.calls, args.token, salt)?);
    run::register(&args.address, &workload).await?;
    let kind = match args.kind {
        KindArg::Pair => Kind::Pair,
        KindArg::Replay => Kind::Replay,
        KindArg::Read => Kind::Read,
        KindArg::Echo => Kind::Echo,
    };
    let mut settled = 0;
    if matches!(kind, Kind::Replay | Kind::Read) {
        settled = run::settle(&args.address, &workload).await?;
    }
    let outcome = drive(
        Plan {
            address: args.address,
            kind,
            connections: args.connections,
            time: Duration::from_secs(args.seconds),
            warm_up: Duration::from_secs(1),
            rate: args.rate,
            settled,
        },
        workload,
    )
    .await;
    println!(
        "{}",
        serde_json::json!({
            "per_second": outcome.rate(), "refused": outcome.refused, "errors": outcome.errors,
            "first_p50_us": outcome.first.value_at_quantile(0.5), "first_p99_us": outcome.first.value_at_quantile(0.99),
            "second_p50_us": outcome.second.value_at_quantile(0.5), "second_p99_us": outcome.second.value_at_quantile(0.99),
        })
    );
    Ok(())
}
