//! What the feed and subscriptions cost the database. What many streams cost those who write is measured by the
//! load program.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::streams::request;
use crate::http::{external, granted};
use crate::support::adapter::{FakeAdapter, Reply};
use crate::support::{Api, Options, Server, StoreUnderTest, bodies, raw};

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
