//! `load flat`: the same load on an empty database and on one with many settled effects and some open ones,
//! side by side. What a step costs must not depend on how much is there.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use actonce::domain::time::Timestamp;
use actonce::store::Store;
use actonce::store::open::{DatabaseUrl, OpenOptions, open};
use futures_util::future::try_join_all;
use sqlx::PgPool;

use crate::ceiling;
use crate::drive::{Kind, Outcome, Plan, drive};
use crate::procs::{Server, database_url, make_database, median, serve};
use crate::run::{register, settle, tokens};
use crate::workload::{Workload, salt};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// `load flat`.
#[derive(Debug, clap::Args)]
pub(crate) struct FlatArgs {
    /// The program to measure.
    #[arg(long)]
    actonce: PathBuf,
    /// A Postgres server; SQLite files where absent.
    #[arg(long)]
    database_url: Option<String>,
    /// A directory for SQLite files.
    #[arg(long)]
    directory: PathBuf,
    /// The calls to draw from.
    #[arg(long, default_value = "examples/agent-calls.excerpt.jsonl")]
    calls: PathBuf,
    /// Effects that are settled.
    #[arg(long, default_value_t = 10_000_000)]
    settled: u64,
    /// Effects that are dispatched and open.
    #[arg(long, default_value_t = 10_000)]
    open: u64,
    /// The databases are those of an earlier run, with as many effects as they have.
    #[arg(long)]
    filled: bool,
    /// Rounds; medians are taken over them.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds for each measurement of writes: of a server that writes full pages after a checkpoint long enough to have
    /// such a time and the time after it.
    #[arg(long, default_value_t = 60.0)]
    seconds: f64,
    /// Connections.
    #[arg(long, default_value_t = 64)]
    connections: usize,
}

struct Side {
    server: Server,
    ready_ms: f64,
    workload: Arc<Workload>,
    settled: u64,
    figures: Vec<[f64; 5]>,
}

const ROWS: [&str; 5] = ["effects/s", "intent p50 ms", "outcome p50 ms", "read p50 ms", "list of open effects p50 ms"];

/// Fills one of two databases, and measures both in turn.
pub(crate) async fn run(args: FlatArgs) -> Result<(), Error> {
    let names = ["flat_empty", "flat_full"];
    if !args.filled {
        fill_both(&args, names).await?;
    }
    let bytes = size(&args, names[1]).await?;
    let mut sides = Vec::new();
    for name in names {
        let database = args.database_url.as_ref().map(|url| database_url(url, name));
        let begun = Instant::now();
        let server = Server::start(serve(&args.actonce, &args.directory.join(name), database.as_deref()))?;
        let ready_ms = begun.elapsed().as_secs_f64() * 1e3;
        let salt = salt();
        let workload = Arc::new(Workload::read(&args.calls, tokens()?, salt)?);
        register(&server.address, &workload).await?;
        let settled = settle(&server.address, &workload).await?;
        sides.push(Side { server, ready_ms, workload, settled, figures: Vec::new() });
    }
    for round in 0..args.rounds {
        eprintln!("round {} of {}", round + 1, args.rounds);
        for side in &mut sides {
            let pair = measure(&args, side, Kind::Pair).await;
            let read = measure(&args, side, Kind::Read).await;
            let list = measure(&args, side, Kind::List).await;
            if pair.errors + read.errors + list.errors > 0 {
                return Err("a request was not answered as expected".into());
            }
            let p50 = |outcome: &Outcome| ms(outcome.first.value_at_quantile(0.5));
            side.figures.push([
                pair.rate(),
                p50(&pair),
                ms(pair.second.value_at_quantile(0.5)),
                p50(&read),
                p50(&list),
            ]);
        }
    }
    println!("| {} settled, {} open | empty | full | full / empty |\n|---|---|---|---|", args.settled, args.open);
    for (row, name) in ROWS.iter().enumerate() {
        let [empty, full] = [0, 1].map(|side| median(sides[side].figures.iter().map(|figures| figures[row]).collect()));
        println!("| {name} | {empty:.2} | {full:.2} | {:.2} |", full / empty);
    }
    let [empty, full] = [sides[0].ready_ms, sides[1].ready_ms];
    println!("| start with its sweep, ms | {empty:.0} | {full:.0} | {:.2} |", full / empty);
    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a count as a figure")]
    let each = bytes as f64 / (args.settled + args.open) as f64;
    println!("\n{each:.0} bytes of disk for each effect, indexes included");
    Ok(())
}

/// An empty database and a full one.
async fn fill_both(args: &FlatArgs, names: [&str; 2]) -> Result<(), Error> {
    if let Some(url) = &args.database_url {
        let pool = PgPool::connect(url).await?;
        for name in names {
            make_database(&pool, url, name).await?;
        }
    }
    let url = |name: &str| match &args.database_url {
        Some(url) => DatabaseUrl::parse(&database_url(url, name)),
        None => Ok(DatabaseUrl::Sqlite(args.directory.join(name).join("actonce.db"))),
    };
    // The empty one has a page of open effects, so that both lists answer as much; it comes last, as their leases run.
    for (name, settled, open_too) in [(names[1], args.settled, args.open), (names[0], 0, args.open.min(20))] {
        std::fs::create_dir_all(args.directory.join(name))?;
        let store = open(&url(name)?, OpenOptions { migrate: true, connections: 2 }).await?;
        fill(store.as_ref(), settled, open_too).await?;
        store.close().await;
    }
    Ok(())
}

/// Writes effects as the service would, hashes and all, straight to the store. Those that settle come in the order of their
/// keys: filling at random would take hours, and ends in the same rows and in indexes that are a little fuller.
async fn fill(store: &dyn Store, settled: u64, open: u64) -> Result<(), Error> {
    let now = store.now().await?;
    let mut numbers = (0..settled)
        .map(|number| Ok((ceiling::key("fill", number)?.effect, number)))
        .collect::<Result<Vec<_>, Error>>()?;
    numbers.sort_unstable();
    let numbers: Vec<u64> = numbers.into_iter().map(|(_, number)| number).collect();
    let done = AtomicUsize::new(0);
    // Each connection has a stretch of its own.
    let stretch = numbers.len().div_ceil(store.commits_at_once()).max(1);
    let stretches = numbers.chunks(stretch).map(|numbers| write(store, numbers, now, true, &done));
    try_join_all(stretches).await?;
    // Those that stay open come last: their leases run while the others are written.
    let open: Vec<u64> = (settled..settled + open).collect();
    write(store, &open, now, false, &done).await
}

async fn write(
    store: &dyn Store,
    numbers: &[u64],
    now: Timestamp,
    settle: bool,
    done: &AtomicUsize,
) -> Result<(), Error> {
    let begun = Instant::now();
    for numbers in numbers.chunks(256) {
        let changes = numbers.iter().map(|number| ceiling::changes("fill", *number, now));
        let (intents, outcomes): (Vec<_>, Vec<_>) = changes.collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
        store.commit(&intents).await?;
        if settle {
            store.commit(&outcomes).await?;
        }
        let before = done.fetch_add(numbers.len(), Ordering::Relaxed);
        if before / 256_000 != (before + numbers.len()) / 256_000 {
            eprintln!("{before} effects after {:.0} s", begun.elapsed().as_secs_f64());
        }
    }
    Ok(())
}

async fn size(args: &FlatArgs, name: &str) -> Result<i64, Error> {
    let Some(url) = &args.database_url else {
        return Ok(i64::try_from(std::fs::metadata(args.directory.join(name).join("actonce.db"))?.len())?);
    };
    let pool = PgPool::connect(&database_url(url, name)).await?;
    // As the server does by itself some time after so many rows; but filling is faster than it can clear away what is
    // open no more, which no service is.
    sqlx::query("VACUUM (FULL) open_effects").execute(&pool).await?;
    sqlx::query("VACUUM (ANALYZE)").execute(&pool).await?;
    Ok(sqlx::query_scalar("SELECT pg_database_size(current_database())").fetch_one(&pool).await?)
}

async fn measure(args: &FlatArgs, side: &Side, kind: Kind) -> Outcome {
    let plan = Plan {
        address: side.server.address.clone(),
        kind,
        connections: args.connections,
        time: Duration::from_secs_f64(if kind == Kind::Pair { args.seconds } else { args.seconds.min(5.0) }),
        warm_up: Duration::from_millis(500),
        rate: None,
        settled: side.settled,
    };
    drive(plan, Arc::clone(&side.workload)).await
}

fn ms(micros: u64) -> f64 {
    Duration::from_micros(micros).as_secs_f64() * 1e3
}
