//! `load many`: many connections, many who wait, several replicas, more load than there is room for.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::client::Connection;
use crate::drive::{Outcome, Plan, drive};
use crate::procs::{Server, database_url, make_database, median, resident_mb, serve};
use crate::run::{register, tokens};
use crate::workload::{Workload, salt};

type Error = Box<dyn std::error::Error + Send + Sync>;

/// `load many`.
#[derive(Debug, clap::Args)]
pub(crate) struct ManyArgs {
    /// The program to measure.
    #[arg(long)]
    actonce: PathBuf,
    /// A Postgres server with fsync on.
    #[arg(long)]
    database_url: String,
    /// A directory for the servers' own files.
    #[arg(long)]
    directory: PathBuf,
    /// The calls to draw from.
    #[arg(long, default_value = "examples/agent-calls.excerpt.jsonl")]
    calls: PathBuf,
    /// Connections that stay open and ask nothing.
    #[arg(long, default_value_t = 10_000)]
    idle: usize,
    /// Requests that wait for an effect to move.
    #[arg(long, default_value_t = 5_000)]
    waiters: usize,
    /// Connections on which twice the peak is offered.
    #[arg(long, default_value_t = 9_000)]
    crowd: usize,
    /// Replicas on one database.
    #[arg(long, default_value_t = 3)]
    replicas: usize,
    /// Rounds of overload, and of replicas; medians are taken over them.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
}

struct Many {
    args: ManyArgs,
    workload: Arc<Workload>,
}

/// Runs all of it and prints what was found.
pub(crate) async fn run(args: ManyArgs) -> Result<(), Error> {
    let pool = PgPool::connect(&args.database_url).await?;
    for name in ["many_one", "many_several"] {
        make_database(&pool, &args.database_url, name).await?;
    }
    let salt = salt();
    let workload = Arc::new(Workload::read(&args.calls, tokens()?, salt)?);
    let many = Many { args, workload };
    let server = many.server("many_one", 0)?;
    register(&server.address, &many.workload).await?;
    many.idle(&pool, &server).await?;
    println!("| | found | each round | wanted |\n|---|---|---|---|");
    many.hold(&server).await?;
    many.overload(&server).await;
    drop(server);
    many.several().await
}

impl Many {
    fn server(&self, database: &str, replica: usize) -> Result<Server, Error> {
        let url = database_url(&self.args.database_url, database);
        let directory = self.args.directory.join(format!("{database}-{replica}"));
        Ok(Server::start(serve(&self.args.actonce, &directory, Some(&url)))?)
    }

    async fn drive(&self, address: &str, connections: usize, rate: Option<f64>) -> Outcome {
        let time = Duration::from_secs(self.args.seconds);
        let plan = Plan { rate, ..Plan::pairs(address, connections, time, Duration::from_secs(1)) };
        drive(plan, Arc::clone(&self.workload)).await
    }

    /// What a server costs that nobody asks anything.
    async fn idle(&self, pool: &PgPool, server: &Server) -> Result<(), Error> {
        const TRANSACTIONS: &str =
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'many_one'";
        // What the start did is reported with some delay.
        tokio::time::sleep(Duration::from_secs(15)).await;
        let (before, spent): (i64, _) = (sqlx::query_scalar(TRANSACTIONS).fetch_one(pool).await?, server.cpu());
        tokio::time::sleep(Duration::from_secs(30)).await;
        let (after, spent): (i64, _) = (sqlx::query_scalar(TRANSACTIONS).fetch_one(pool).await?, server.cpu() - spent);
        let transactions = f64::from(i32::try_from(after - before)?) / 30.0;
        eprintln!("idle: {transactions:.2} transactions/s (wanted < 1), {:.2} % of a core", spent / 30.0 * 100.0);
        Ok(())
    }

    /// Memory, and what writers notice, with many connections and many who wait.
    async fn hold(&self, server: &Server) -> Result<(), Error> {
        let alone = self.drive(&server.address, 16, None).await;
        let before = resident_mb(server.pid());
        let mut held = Vec::with_capacity(self.args.idle + self.args.waiters);
        for _ in 0..self.args.idle {
            let mut stream = TcpStream::connect(&server.address).await?;
            stream.write_all(b"GET /livez HTTP/1.1\r\nHost: load\r\n\r\n").await?;
            let mut answer = [0; 1024];
            if stream.read(&mut answer).await? == 0 {
                return Err("a connection was not kept".into());
            }
            held.push(stream);
        }
        let idle = resident_mb(server.pid());
        let mut pending = Vec::new();
        let mut connection = Connection::open(&server.address).await?;
        while pending.len() * 10 < self.args.waiters {
            let number = self.workload.draw();
            if connection.call(&self.workload.intent(number)).await?.status != 201 {
                return Err("an intent was refused".into());
            }
            pending.push(number);
        }
        for turn in 0..self.args.waiters {
            let mut stream = TcpStream::connect(&server.address).await?;
            stream.write_all(&self.workload.wait_for(pending[turn % pending.len()], 60)).await?;
            held.push(stream);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
        let waiting = resident_mb(server.pid());
        let among = self.drive(&server.address, 16, None).await;
        let answered = held.iter().skip(self.args.idle).filter(|stream| stream.try_read(&mut [0; 1]).is_ok()).count();
        println!("| memory after load, MB | {before:.0} | | |");
        println!("| with {} idle connections, MB | {idle:.0} | | |", self.args.idle);
        println!("| and {} who wait, MB | {waiting:.0} | | < 300 |", self.args.waiters);
        println!("| of those answered too early | {answered} | | 0 |");
        let p99 = |outcome: &Outcome| outcome.first.value_at_quantile(0.99);
        println!("| p99 of an intent at 16 among them / alone | {:.2} | | 1 |", ratio(p99(&among), p99(&alone)));
        println!("| errors | {} | | 0 |", alone.errors + among.errors);
        Ok(())
    }

    /// Twice the load that there is room for, and what is there when it is over.
    async fn overload(&self, server: &Server) {
        let (mut goodput, mut recovered, mut refused, mut errors) = (Vec::new(), Vec::new(), 0, 0);
        for _ in 0..self.args.rounds {
            let peak = self.drive(&server.address, 64, None).await;
            let over = self.drive(&server.address, self.args.crowd, Some(peak.rate() * 2.0)).await;
            // Its first second does not count.
            let after = self.drive(&server.address, 64, None).await;
            goodput.push(over.rate() / peak.rate());
            recovered.push(after.rate() / peak.rate());
            refused += over.refused;
            errors += peak.errors + over.errors + after.errors;
        }
        row("goodput at twice the peak / peak", goodput, "≥ 0.9");
        println!("| refused early there, of those offered | {refused} | | |");
        row("rate 1 s after it / peak", recovered, "1");
        println!("| errors | {errors} | | 0 |");
    }

    /// Several replicas on one database against one, at the same load in all.
    async fn several(&self) -> Result<(), Error> {
        let servers = (0..self.args.replicas).map(|n| self.server("many_several", n)).collect::<Result<Vec<_>, _>>()?;
        register(&servers[0].address, &self.workload).await?;
        let connections = 60;
        let each = connections / servers.len();
        let (mut ratios, mut fair, mut errors) = (Vec::new(), Vec::new(), 0);
        for _ in 0..self.args.rounds {
            let one = self.drive(&servers[0].address, connections, None).await;
            let all = futures_util::future::join_all(servers.iter().map(|s| self.drive(&s.address, each, None))).await;
            let rates = || all.iter().map(Outcome::rate);
            ratios.push(rates().sum::<f64>() / one.rate());
            fair.push(rates().fold(f64::MAX, f64::min) / rates().fold(0.0, f64::max));
            errors += one.errors + all.iter().map(|outcome| outcome.errors).sum::<u64>();
        }
        row(&format!("{} replicas / one, {connections} connections in all", servers.len()), ratios, "≥ 1");
        row("the slowest of them / the fastest", fair, "no starvation");
        println!("| errors | {errors} | | 0 |");
        Ok(())
    }
}

/// The median of what the rounds found, and each of them.
fn row(what: &str, found: Vec<f64>, wanted: &str) {
    let each: Vec<String> = found.iter().map(|found| format!("{found:.2}")).collect();
    println!("| {what} | {:.2} | {} | {wanted} |", median(found), each.join(", "));
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "microseconds as a figure")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b.max(1) as f64
}
