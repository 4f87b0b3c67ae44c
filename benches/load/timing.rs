//! What measuring costs: the same load on two servers that differ in `--timing` alone, in alternation.
//!
//! A difference that is smaller than what one and the same server varies by from round to round is none.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::drive::{Plan, drive};
use super::procs::{Server, serve};
use super::run::{Error, register, tokens};
use super::workload::{Workload, salt};

#[derive(Debug, clap::Args)]
pub(crate) struct TimingArgs {
    /// The program to measure.
    #[arg(long)]
    actonce: PathBuf,
    /// A directory for `SQLite` files.
    #[arg(long)]
    directory: PathBuf,
    /// The calls to draw from.
    #[arg(long, default_value = "examples/agent-calls.excerpt.jsonl")]
    calls: PathBuf,
    /// Pairs of measurements.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Connections.
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

/// Runs the alternation and prints its table.
pub(crate) async fn run(args: TimingArgs) -> Result<(), Error> {
    let start = |timing: &str| {
        let mut command = serve(&args.actonce, &args.directory.join(timing), None);
        command.args(["--timing", timing]);
        Server::start(command)
    };
    let servers = [start("off")?, start("on")?];
    let salt = salt();
    let workload = Arc::new(Workload::read(&args.calls, tokens()?, salt)?);
    for server in &servers {
        register(&server.address, &workload).await?;
    }
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..args.rounds {
        // Who comes first alternates as well.
        let order = if round % 2 == 0 { [0, 1] } else { [1, 0] };
        for which in order {
            costs[which].push(measure(&args, &servers[which], &workload).await);
        }
        eprintln!("round {}: off {:.1} µs, on {:.1} µs", round + 1, costs[0][round], costs[1][round]);
    }
    println!("| timing | CPU µs per effect, median | least | most |\n|---|---|---|---|");
    for (name, cost) in ["off", "on"].into_iter().zip(&costs) {
        let (least, median, most) = spread(cost);
        println!("| {name} | {median:.1} | {least:.1} | {most:.1} |");
    }
    let differences: Vec<f64> = costs[1].iter().zip(&costs[0]).map(|(on, off)| on - off).collect();
    let (least, median, most) = spread(&differences);
    println!("| on − off, by round | {median:.1} | {least:.1} | {most:.1} |");
    Ok(())
}

/// CPU microseconds of the server for an effect: an intent and an outcome.
async fn measure(args: &TimingArgs, server: &Server, workload: &Arc<Workload>) -> f64 {
    let (time, warm_up) = (Duration::from_secs_f64(args.seconds), Duration::from_millis(300));
    let plan = Plan::pairs(&server.address, args.connections, time, warm_up);
    let whole = plan.time.as_secs_f64() + plan.warm_up.as_secs_f64();
    let before = server.cpu();
    let outcome = drive(plan, Arc::clone(workload)).await;
    (server.cpu() - before) * 1e6 / (outcome.rate() * whole).max(1.0)
}

fn spread(values: &[f64]) -> (f64, f64, f64) {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let at = |index: usize| sorted.get(index).copied().unwrap_or_default();
    (at(0), at(sorted.len() / 2), at(sorted.len().saturating_sub(1)))
}
