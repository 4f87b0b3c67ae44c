//! `load streams`: what many streams of the event feed cost those who write, with and without them in alternation.
//!
//! All streams are of the tenant that writes, unfiltered: the dearest there is. What they are told is thrown away
//! in the kernel, so that the readers take as little as they can of the machine that they share with the service.

use std::mem::MaybeUninit;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use socket2::SockRef;
use sqlx::PgPool;
use tokio::io::{AsyncWriteExt as _, Interest};
use tokio::net::TcpStream;

use crate::drive::{Plan, drive};
use crate::procs::{Server, make_database, median, serve};
use crate::run::{Error, register, tokens};
use crate::workload::{Workload, salt};

/// `load streams`.
#[derive(Debug, clap::Args)]
pub(crate) struct StreamsArgs {
    /// The program to measure.
    #[arg(long)]
    actonce: PathBuf,
    /// A Postgres server with fsync on; `SQLite` where absent.
    #[arg(long)]
    database_url: Option<String>,
    /// A directory for the servers' own files.
    #[arg(long)]
    directory: PathBuf,
    /// The calls to draw from.
    #[arg(long, default_value = "examples/agent-calls.excerpt.jsonl")]
    calls: PathBuf,
    /// Streams.
    #[arg(long, default_value_t = 500)]
    streams: usize,
    /// Pairs of measurements.
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 4.0)]
    seconds: f64,
    /// Connections that write.
    #[arg(long, default_value_t = 16)]
    connections: usize,
}

/// Runs the alternation and prints its table.
pub(crate) async fn run(args: StreamsArgs) -> Result<(), Error> {
    let database = match &args.database_url {
        Some(url) => Some(make_database(&PgPool::connect(url).await?, url, "streams").await?),
        None => None,
    };
    let directory = args.directory.join(if database.is_some() { "streams-postgres" } else { "streams-sqlite" });
    let server = Server::start(serve(&args.actonce, &directory, database.as_deref()))?;
    let salt = salt();
    let workload = Arc::new(Workload::read(&args.calls, tokens()?, salt)?);
    register(&server.address, &workload).await?;
    let (mut without, mut with, mut told) = (Vec::new(), Vec::new(), Vec::new());
    write(&args, &server, &workload).await;
    for round in 0..args.rounds {
        without.push(write(&args, &server, &workload).await);
        let bytes = Arc::new(AtomicU64::new(0));
        let mut streams = tokio::task::JoinSet::new();
        for _ in 0..args.streams {
            streams.spawn(listen(server.address.clone(), workload.stream(), Arc::clone(&bytes)));
        }
        // They begin with what comes from now on.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let before = bytes.load(Ordering::Relaxed);
        with.push(write(&args, &server, &workload).await);
        told.push(megabytes(bytes.load(Ordering::Relaxed) - before) / (args.seconds + WARM_UP.as_secs_f64()));
        let left = streams.len();
        drop(streams);
        eprintln!("round {}: {:.0} and {:.0} effects/s; {left} streams", round + 1, without[round], with[round]);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let ratios = with.iter().zip(&without).map(|(with, without)| with / without).collect();
    println!(
        "| store | effects/s without | with {} streams | ratio, median | MB/s told |\n|---|---|---|---|---|",
        args.streams
    );
    println!(
        "| {} | {:.0} | {:.0} | {:.3} | {:.0} |",
        if args.database_url.is_some() { "Postgres" } else { "SQLite" },
        median(without),
        median(with),
        median(ratios),
        median(told)
    );
    Ok(())
}

const WARM_UP: Duration = Duration::from_millis(500);

/// Effects a second.
async fn write(args: &StreamsArgs, server: &Server, workload: &Arc<Workload>) -> f64 {
    let time = Duration::from_secs_f64(args.seconds);
    let plan = Plan::pairs(&server.address, args.connections, time, WARM_UP);
    drive(plan, Arc::clone(workload)).await.rate()
}

/// One stream; what comes is counted and thrown away.
async fn listen(address: String, request: Vec<u8>, bytes: Arc<AtomicU64>) -> std::io::Result<()> {
    const MSG_TRUNC: i32 = 0x20;
    let mut stream = TcpStream::connect(&address).await?;
    stream.write_all(&request).await?;
    // Never written to: with this flag the kernel of Linux forgets the bytes where they are.
    let mut nothing = vec![MaybeUninit::uninit(); 256 * 1024];
    loop {
        let length = stream
            .async_io(Interest::READABLE, || SockRef::from(&stream).recv_with_flags(&mut nothing, MSG_TRUNC))
            .await?;
        if length == 0 {
            return Ok(());
        }
        bytes.fetch_add(u64::try_from(length).unwrap_or(0), Ordering::Relaxed);
    }
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a count as a rate")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}
