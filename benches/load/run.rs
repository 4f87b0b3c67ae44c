//! One interleaved session: everything is measured in turn, several times, so that what the machine
//! does meanwhile falls on all alike; medians and ratios of one session are what counts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use actonce::auth::{Algorithm, ClaimRules, Grant, Key, Scopes, mint};
use actonce::domain::ids::{Name, Tenant};
use actonce::store::open::{DatabaseUrl, OpenOptions, open};
use sqlx::PgPool;

use crate::ceiling::{self, Ceiling};
use crate::client::Connection;
use crate::drive::{Kind, Outcome, Plan, drive};
use crate::procs::{SECRET, Server, cpu_with_children, database_url, make_database, median, serve};
use crate::workload::{Workload, salt};

pub(crate) type Error = Box<dyn std::error::Error + Send + Sync>;

/// `load run`.
#[derive(Debug, clap::Args)]
pub(crate) struct RunArgs {
    /// The program to measure.
    #[arg(long)]
    actonce: PathBuf,
    /// The baseline.
    #[arg(long)]
    plain: PathBuf,
    /// A Postgres server with fsync on.
    #[arg(long)]
    database_url: String,
    /// Its process id, for its share of the CPU.
    #[arg(long)]
    postgres_pid: u32,
    /// A directory for SQLite files.
    #[arg(long)]
    directory: PathBuf,
    /// The calls to draw from.
    #[arg(long, default_value = "examples/agent-calls.excerpt.jsonl")]
    calls: PathBuf,
    /// Rounds; medians are taken over them.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Seconds for each measurement.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Connection counts.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    connections: Vec<usize>,
}

/// Tokens as an issuer would sign them: verified by the servers like any other.
pub(crate) fn tokens() -> Result<Vec<String>, Error> {
    let key = Key::from_secret(None, Algorithm::HS256, SECRET.as_bytes())?;
    let signing = key.signing().ok_or("the key can't sign")?;
    let rules = ClaimRules::new("actonce", "actonce");
    (0..16)
        .map(|number| {
            let grant = Grant {
                tenant: Tenant::new("bench").map_err(|_| "a tenant")?,
                subject: Name::new(&format!("agent-{number}")).map_err(|_| "a subject")?,
                scopes: Scopes::all(),
                expires_in_seconds: 24 * 3600,
            };
            Ok(mint(signing, &rules, &grant)?)
        })
        .collect()
}

/// Registers the tools of a workload.
pub(crate) async fn register(address: &str, workload: &Workload) -> Result<(), Error> {
    let mut connection = Connection::open(address).await?;
    for tool in workload.tools() {
        let status = connection.call(&workload.register(tool)).await?.status;
        if !(200..300).contains(&status) {
            return Err(format!("a tool was refused: {status}").into());
        }
    }
    Ok(())
}

/// Makes some settled effects, and says how many.
pub(crate) async fn settle(address: &str, workload: &Arc<Workload>) -> Result<u64, Error> {
    let plan = Plan::pairs(address, 16, Duration::from_secs(1), Duration::ZERO);
    let outcome = drive(plan, Arc::clone(workload)).await;
    // What began was finished, and what was finished too late to be counted is among the last.
    let settled = outcome.rounds.min(2_000);
    if settled == 0 { Err("nothing was settled".into()) } else { Ok(settled) }
}

/// A figure of one measurement.
#[derive(Debug, Clone, Copy, Default)]
struct Figures {
    rate: f64,
    p50_ms: f64,
    p99_ms: f64,
    second_p50_ms: f64,
    service_us: f64,
    database_us: f64,
    commits_per_second: f64,
    wal_bytes: f64,
    errors: u64,
}

#[derive(Debug)]
struct Target {
    name: &'static str,
    server: Server,
    postgres: bool,
}

struct Session {
    args: RunArgs,
    pool: PgPool,
    results: BTreeMap<(String, usize), Vec<Figures>>,
    ceilings: BTreeMap<&'static str, Vec<Ceiling>>,
}

/// Runs the session and prints its table.
pub(crate) async fn run(args: RunArgs) -> Result<(), Error> {
    let pool = PgPool::connect(&args.database_url).await?;
    for name in ["bench_service", "bench_plain", "bench_raw"] {
        make_database(&pool, &args.database_url, name).await?;
    }
    let server = args.database_url.clone();
    let url = |name: &str| database_url(&server, name);
    // The schema of the baseline and of the raw ceilings is this service's own.
    for name in ["bench_plain", "bench_raw"] {
        open(&DatabaseUrl::parse(&url(name))?, OpenOptions { migrate: true, connections: 2 }).await?.close().await;
    }
    let service = |database: Option<&str>, directory: &str| {
        Server::start(serve(&args.actonce, &args.directory.join(directory), database.map(&url).as_deref()))
    };
    let mut plain = Command::new(&args.plain);
    plain.env("DATABASE_URL", url("bench_plain")).env("ACTONCE_JWT_HS256_SECRET", SECRET);
    let targets = [
        Target { name: "plain", server: Server::start(plain)?, postgres: true },
        Target { name: "service on Postgres", server: service(Some("bench_service"), "pg")?, postgres: true },
        Target { name: "service on SQLite", server: service(None, "sqlite")?, postgres: false },
    ];
    let raw = sqlx::postgres::PgPoolOptions::new()
        .max_connections(1)
        .test_before_acquire(false)
        .connect(&url("bench_raw"))
        .await?;
    let raw_store = open(&DatabaseUrl::parse(&url("bench_raw"))?, OpenOptions::default()).await?;
    let lite = DatabaseUrl::Sqlite(args.directory.join("raw.db"));
    let lite_store = open(&lite, OpenOptions::default()).await?;
    let mut session = Session { args, pool, results: BTreeMap::new(), ceilings: BTreeMap::new() };
    let salt = salt();
    let workload = Arc::new(Workload::read(&session.args.calls, tokens()?, salt.clone())?);
    for target in &targets {
        register(&target.server.address, &workload).await?;
    }
    let time = Duration::from_secs_f64(session.args.seconds);
    for round in 0..session.args.rounds {
        eprintln!("round {} of {}", round + 1, session.args.rounds);
        for connections in session.args.connections.clone() {
            for target in &targets {
                session.measure(target, Kind::Pair, connections, &workload).await?;
            }
            session.measure(&targets[0], Kind::Echo, connections, &workload).await?;
        }
        for target in &targets[1..] {
            session.known(target, &salt).await?;
        }
        let salt = format!("{salt}{round}");
        session.keep("one commit at a time, same rows", ceiling::one_by_one(&raw, time, &format!("{salt}s")).await?);
        session.keep(
            "batches of 128, append-only",
            ceiling::append_only(raw_store.as_ref(), time, &format!("{salt}b")).await?,
        );
        session.keep("batches of 128, with update", ceiling::with_update(&raw, time, &format!("{salt}u")).await?);
        session.keep(
            "SQLite, one commit at a time",
            ceiling::store(lite_store.as_ref(), 1, time, &format!("{salt}s")).await?,
        );
        session.keep(
            "SQLite, batches of 128",
            ceiling::append_only(lite_store.as_ref(), time, &format!("{salt}b")).await?,
        );
    }
    session.print();
    Ok(())
}

impl Session {
    fn keep(&mut self, name: &'static str, ceiling: Ceiling) {
        self.ceilings.entry(name).or_default().push(ceiling);
    }

    async fn counters(&self) -> Result<(f64, f64), Error> {
        let commits: i64 =
            sqlx::query_scalar("SELECT sum(xact_commit)::int8 FROM pg_stat_database").fetch_one(&self.pool).await?;
        let wal: String =
            sqlx::query_scalar("SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::text").fetch_one(&self.pool).await?;
        #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a counter as a figure")]
        Ok((commits as f64, wal.parse()?))
    }

    fn plan(&self, target: &Target, kind: Kind, connections: usize, settled: u64) -> Plan {
        Plan {
            address: target.server.address.clone(),
            kind,
            connections,
            time: Duration::from_secs_f64(self.args.seconds),
            warm_up: Duration::from_millis(500),
            rate: None,
            settled,
        }
    }

    async fn measure(
        &mut self,
        target: &Target,
        kind: Kind,
        connections: usize,
        workload: &Arc<Workload>,
    ) -> Result<(), Error> {
        let plan = self.plan(target, kind, connections, 0);
        let name = if kind == Kind::Echo { "HTTP echo" } else { target.name };
        self.measure_plan(target, plan, name, workload).await
    }

    /// Replays and reads of settled effects.
    async fn known(&mut self, target: &Target, salt: &str) -> Result<(), Error> {
        let salt = format!("{salt}{}", actonce::support::random_id().simple());
        let workload = Arc::new(Workload::read(&self.args.calls, tokens()?, salt[..16].to_owned())?);
        let settled = settle(&target.server.address, &workload).await?;
        for (kind, word) in [(Kind::Replay, "replay"), (Kind::Read, "read")] {
            let plan = self.plan(target, kind, 64, settled);
            let name = format!("{word}, {}", target.name);
            self.measure_plan(target, plan, &name, &workload).await?;
        }
        Ok(())
    }

    async fn measure_plan(
        &mut self,
        target: &Target,
        plan: Plan,
        name: &str,
        workload: &Arc<Workload>,
    ) -> Result<(), Error> {
        let before = self.counters().await?;
        let (service, database) = (target.server.cpu(), cpu_with_children(self.args.postgres_pid));
        let connections = plan.connections;
        let whole = plan.time.as_secs_f64() + plan.warm_up.as_secs_f64();
        let outcome = drive(plan, Arc::clone(workload)).await;
        let after = self.counters().await?;
        let (service, database) = (target.server.cpu() - service, cpu_with_children(self.args.postgres_pid) - database);
        // The counters cover the warm-up too.
        let effects = (outcome.rate() * whole).max(1.0);
        let figures = Figures {
            rate: outcome.rate(),
            p50_ms: millis(&outcome, 0.5),
            p99_ms: millis(&outcome, 0.99),
            second_p50_ms: micros_ms(outcome.second.value_at_quantile(0.5)),
            service_us: service * 1e6 / effects,
            database_us: if target.postgres { database * 1e6 / effects } else { 0.0 },
            commits_per_second: if target.postgres { (after.0 - before.0) / whole } else { 0.0 },
            wal_bytes: if target.postgres { (after.1 - before.1) / effects } else { 0.0 },
            errors: outcome.errors + outcome.refused,
        };
        eprintln!(
            "  {name:24} {connections:4} connections: {:9.0}/s, p50 {:.2} ms, p99 {:.2} ms, errors {}",
            figures.rate, figures.p50_ms, figures.p99_ms, figures.errors
        );
        self.results.entry((name.to_owned(), connections)).or_default().push(figures);
        Ok(())
    }

    fn median(&self, name: &str, connections: usize) -> Figures {
        let Some(all) = self.results.get(&(name.to_owned(), connections)) else { return Figures::default() };
        let mid = |pick: fn(&Figures) -> f64| median(all.iter().map(pick).collect());
        Figures {
            rate: mid(|f| f.rate),
            p50_ms: mid(|f| f.p50_ms),
            p99_ms: mid(|f| f.p99_ms),
            second_p50_ms: mid(|f| f.second_p50_ms),
            service_us: mid(|f| f.service_us),
            database_us: mid(|f| f.database_us),
            commits_per_second: mid(|f| f.commits_per_second),
            wal_bytes: mid(|f| f.wal_bytes),
            errors: all.iter().map(|f| f.errors).sum(),
        }
    }

    fn ceiling(&self, name: &'static str) -> Ceiling {
        let mut all = self.ceilings.get(name).cloned().unwrap_or_default();
        all.sort_by(|a, b| a.rate.total_cmp(&b.rate));
        all.get(all.len() / 2).copied().unwrap_or(Ceiling { rate: 0.0, p50_us: 0 })
    }

    fn print(&self) {
        println!(
            "| effects/s | connections | rate | intent p50 ms | p99 ms | outcome p50 ms | service CPU µs | database CPU µs | commits/s | WAL bytes | errors | × plain |"
        );
        println!("|---|---|---|---|---|---|---|---|---|---|---|---|");
        for connections in &self.args.connections {
            let plain = self.median("plain", *connections);
            for name in ["plain", "service on Postgres", "service on SQLite", "HTTP echo"] {
                let f = self.median(name, *connections);
                let ratio = if name == "HTTP echo" { String::new() } else { format!("{:.2}", f.rate / plain.rate) };
                println!(
                    "| {name} | {connections} | {:.0} | {:.2} | {:.2} | {:.2} | {:.0} | {:.0} | {:.0} | {:.0} | {} | {ratio} |",
                    f.rate,
                    f.p50_ms,
                    f.p99_ms,
                    f.second_p50_ms,
                    f.service_us,
                    f.database_us,
                    f.commits_per_second,
                    f.wal_bytes,
                    f.errors
                );
            }
        }
        println!("\n| known effects, 64 connections | requests/s | p50 ms | p99 ms | × echo |");
        println!("|---|---|---|---|---|");
        let echo = self.median("HTTP echo", 64).rate.max(1.0);
        for target in ["service on Postgres", "service on SQLite"] {
            for word in ["replay", "read"] {
                let f = self.median(&format!("{word}, {target}"), 64);
                println!(
                    "| {word}, {target} | {:.0} | {:.2} | {:.2} | {:.2} |",
                    f.rate,
                    f.p50_ms,
                    f.p99_ms,
                    f.rate / echo
                );
            }
        }
        println!("\n| the database alone, same rows | effects/s | p50 of the first commit, µs |");
        println!("|---|---|---|");
        for name in self.ceilings.keys() {
            let c = self.ceiling(name);
            println!("| {name} | {:.0} | {} |", c.rate, c.p50_us);
        }
        self.print_ratios();
    }

    /// What each round found of a target.
    fn rounds(&self, name: &str, connections: usize, pick: fn(&Figures) -> f64) -> Vec<f64> {
        self.results.get(&(name.to_owned(), connections)).into_iter().flatten().map(pick).collect()
    }

    /// What each round found of a ceiling.
    fn ceiling_rounds(&self, name: &str, pick: fn(&Ceiling) -> f64) -> Vec<f64> {
        self.ceilings.get(name).into_iter().flatten().map(pick).collect()
    }

    /// Each ratio of medians, and beside it that of each round alone: a machine that slows down between two rounds moves
    /// the first one, and one that does so within a round moves that one only.
    fn print_ratios(&self) {
        println!("\n| ratio | of medians | each round alone | wanted |");
        println!("|---|---|---|---|");
        let rate = |name: &str, connections| self.rounds(name, connections, |found| found.rate);
        for (connections, wanted) in [(1, "1"), (16, "2.5"), (64, "4"), (256, "5")] {
            let (service, plain) = (rate("service on Postgres", connections), rate("plain", connections));
            ratio(&format!("service / plain at {connections}"), service, plain, &format!("≥ {wanted}"));
        }
        let widest = self.args.connections.iter().copied().max().unwrap_or(1);
        let update = self.ceiling_rounds("batches of 128, with update", |found| found.rate);
        let wide = rate("service on Postgres", widest);
        ratio(&format!("service at {widest} / raw batches with update"), wide, update, "> 1");
        let tail = |pick| self.rounds("service on Postgres", widest, pick);
        let (p99, p50) = (tail(|found| found.p99_ms), tail(|found| found.p50_ms));
        ratio(&format!("p99 / p50 of an intent at {widest}"), p99, p50, "≤ 3");
        let lone = self.rounds("service on Postgres", 1, |found| found.p50_ms);
        let commit = self.ceiling_rounds("one commit at a time, same rows", |found| micros_ms(found.p50_us));
        ratio("intent p50 at 1 / one raw commit", lone, commit, "≤ 1.3");
        let single = self.ceiling_rounds("SQLite, one commit at a time", |found| found.rate);
        for (connections, wanted) in [(64, "≥ 3"), (256, "≥ 4")] {
            let many = rate("service on SQLite", connections);
            ratio(&format!("SQLite at {connections} / its one-by-one rate"), many, single.clone(), wanted);
        }
        for word in ["replay", "read"] {
            let known = rate(&format!("{word}, service on Postgres"), 64);
            ratio(&format!("{word} / echo at 64"), known, rate("HTTP echo", 64), "≥ 0.5");
        }
    }
}

/// One line: nothing where either was not measured.
fn ratio(what: &str, of: Vec<f64>, by: Vec<f64>, wanted: &str) {
    if of.is_empty() || by.is_empty() {
        return;
    }
    let each: Vec<String> = of.iter().zip(&by).map(|(of, by)| format!("{:.2}", of / by)).collect();
    println!("| {what} | {:.2} | {} | {wanted} |", median(of) / median(by), each.join(", "));
}

fn micros_ms(micros: u64) -> f64 {
    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "microseconds as a figure")]
    let micros = micros as f64;
    micros / 1000.0
}

fn millis(outcome: &Outcome, quantile: f64) -> f64 {
    micros_ms(outcome.first.value_at_quantile(quantile))
}
