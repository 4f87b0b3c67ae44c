//! What the feed and subscriptions cost those who write, and the database.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::io::AsyncReadExt as _;

use super::streams::request;
use crate::http::{external, granted};
use crate::support::adapter::{FakeAdapter, Reply};
use crate::support::{Api, Options, Server, StoreUnderTest, bodies, raw, unique};

async fn number(url: &str, sql: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let found = sqlx::query_scalar(AssertSqlSafe(sql.to_owned())).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    found
}

/// Transactions of a server's database, asked for in another one so that the question is not counted.
async fn transactions(server: &Server) -> i64 {
    let url = server.database_url().unwrap();
    let (cluster, database) = url.rsplit_once('/').unwrap();
    let counted = format!("SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = '{database}'");
    number(&format!("{cluster}/postgres"), &counted).await
}

/// A replica with a subscription and a stream that have nothing to do asks the database hardly more than one
/// without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures: statistics of a cluster with other work come late; run it alone"]
async fn idle_listeners_ask_little() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let plain = StoreUnderTest::Postgres.server(Options::default());
    let (server, api) = super::subscriptions::start(StoreUnderTest::Postgres).await;
    let endpoint = FakeAdapter::always(Reply::status("200 OK")).await;
    super::subscriptions::subscribe(&api, &endpoint, &json!({ "events": ["effect.dispatched"] })).await;
    let mut stream = raw::connect(&api.url).await;
    request(&mut stream, &api, "", None).await;
    granted(&api, "op").await;
    super::subscriptions::until(&endpoint, 1).await;
    // Idle connections tell the statistics what they did within ten seconds.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let (before, plain_before, started) = (transactions(&server).await, transactions(&plain).await, Instant::now());
    tokio::time::sleep(Duration::from_secs(14)).await;
    let (asked, plain_asked) = (transactions(&server).await - before, transactions(&plain).await - plain_before);
    assert!(plain_asked > 0, "nothing is counted");
    let more = f64::from(i32::try_from(asked - plain_asked).unwrap());
    // Statistics come in strokes: some belong to the time before.
    assert!(more < started.elapsed().as_secs_f64() * 0.5 + 4.0, "{asked} and {plain_asked}");
}

/// With no subscription the change is all that is written.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_subscription_nothing_more_is_written() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let server = StoreUnderTest::Postgres.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    for n in 0..10 {
        let granted = granted(&api, &format!("op-{n}")).await;
        api.outcome(&format!("op-{n}"), &bodies::succeeded(&granted)).await.expect(200);
    }
    let url = server.database_url().unwrap();
    let written = |tables: &str| {
        format!(
            "SELECT coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::int8 FROM pg_stat_user_tables
             WHERE relname IN ({tables})"
        )
    };
    // Statistics come a little late.
    for _ in 0..200 {
        if number(url, &written("'entries'")).await >= 20 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(number(url, &written("'entries'")).await, 20);
    assert_eq!(number(url, &written("'subscriptions', 'deliveries'")).await, 0);
}

/// One stream that is read and thrown away; counts its bytes.
async fn consume(api: Api, bytes: Arc<AtomicU64>) {
    let mut stream = raw::connect(&api.url).await;
    request(&mut stream, &api, "?after=latest", None).await;
    let mut piece = vec![0; 65536];
    while let Ok(length) = stream.read(&mut piece).await {
        if length == 0 {
            return;
        }
        bytes.fetch_add(u64::try_from(length).unwrap(), Ordering::Relaxed);
    }
}

/// Effects a second that so many writers settle.
async fn rate(api: &Api, writers: usize, time: Duration) -> f64 {
    let over = Arc::new(AtomicBool::new(false));
    let mut working = tokio::task::JoinSet::new();
    let started = Instant::now();
    for _ in 0..writers {
        let (api, over) = (api.clone(), Arc::clone(&over));
        working.spawn(async move {
            let mut done = 0_u32;
            while !over.load(Ordering::Relaxed) {
                let operation = unique("op");
                let granted = granted(&api, &operation).await;
                api.outcome(&operation, &bodies::succeeded(&granted)).await.expect(200);
                done += 1;
            }
            done
        });
    }
    tokio::time::sleep(time).await;
    over.store(true, Ordering::Relaxed);
    let done: u32 = working.join_all().await.into_iter().sum();
    f64::from(done) / started.elapsed().as_secs_f64()
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// Measures; says nothing by itself. 500 streams of the tenant that writes, in rounds with and without.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, and wants the machine for itself"]
async fn what_500_streams_cost_the_writers() {
    for store in [StoreUnderTest::Sqlite, StoreUnderTest::Postgres] {
        let server = store.server(Options::default());
        let api = Api::of(&server, "t");
        external(&api).await;
        rate(&api, 16, Duration::from_secs(2)).await;
        let (mut without, mut with, bytes) = (Vec::new(), Vec::new(), Arc::new(AtomicU64::new(0)));
        for _ in 0..5 {
            without.push(rate(&api, 16, Duration::from_secs(3)).await);
            let mut streams = tokio::task::JoinSet::new();
            for _ in 0..500 {
                streams.spawn(consume(api.clone(), Arc::clone(&bytes)));
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
            with.push(rate(&api, 16, Duration::from_secs(3)).await);
            drop(streams);
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        let (without, with) = (median(without), median(with));
        #[expect(clippy::print_stdout, reason = "this is what it is for")]
        {
            println!(
                "{}: {without:.0} effects/s without, {with:.0} with 500 streams, ratio {:.3}; {} MB were told",
                store.word(),
                with / without,
                bytes.load(Ordering::Relaxed) / 1_000_000
            );
        }
    }
}
