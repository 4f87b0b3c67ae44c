//! The database's clock jumps. It decides (law 13), so its leases end sooner or later than they should; nobody acts
//! twice for that, and no journal runs backwards. What the wall clocks of replicas say: `scenarios::replicas`.

use std::time::Duration;

use serde_json::json;

use crate::http::{TOOL, external};
use crate::scenarios::{count, intact, sql};
use crate::support::{Api, Options, Server, StoreUnderTest, bodies, both_stores, postgres};

both_stores!(a_jump_ahead_ends_leases_in_doubt_and_nobody_acts_twice);

const HOUR_US: i64 = 3_600_000_000;

/// A server whose database has a clock that can be set.
async fn server(store: StoreUnderTest) -> Server {
    if store == StoreUnderTest::Sqlite {
        return store.server(Options::default());
    }
    let url = postgres::fresh_database().unwrap();
    let made = url.clone();
    crate::support::blocking(move || {
        let database = made.rsplit('/').next().unwrap().split('?').next().unwrap().to_owned();
        // Found before the server's own function of that name by whoever connects from now on.
        postgres::run(
            &made,
            "CREATE SCHEMA fake; CREATE TABLE fake.clock (ahead interval NOT NULL); INSERT INTO fake.clock VALUES ('0');
             CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
               'SELECT pg_catalog.clock_timestamp() + (SELECT ahead FROM fake.clock)'",
        );
        postgres::run(&made, &format!("ALTER DATABASE {database} SET search_path = public, fake, pg_catalog"));
    })
    .await;
    Server::start(Options { database_url: Some(url), ..Options::default() })
}

/// Sets the clock of Postgres so many hours ahead.
fn set_ahead(server: &Server, hours: i32) {
    sql(server, &format!("UPDATE fake.clock SET ahead = interval '{hours} hours'"));
}

/// Times of an effect's journal never run backwards.
async fn runs_forward(api: &Api, operation: &str) {
    let times: Vec<String> = api.journal(operation).await.iter().map(|entry| entry["at"].to_string()).collect();
    assert!(times.is_sorted(), "{times:?}");
}

/// Until it is in this state.
async fn until(api: &Api, operation: &str, state: &str) {
    for _ in 0..300 {
        if api.get(operation).await.expect(200).str("/state") == state {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("{} is not {state}", api.get(operation).await);
}

async fn a_jump_ahead_ends_leases_in_doubt_and_nobody_acts_twice(store: StoreUnderTest) {
    let server = server(store).await;
    let api = Api::of(&server, "t");
    external(&api).await;
    let granted = api.intent(&bodies::claiming("live", TOOL)).await.expect(201).directive("dispatch");
    if store == StoreUnderTest::Sqlite {
        // What another process has given out is heard of at the next commit.
        sql(&server, &format!("UPDATE clock SET latest_us = latest_us + {HOUR_US}"));
        api.intent(&bodies::intent("next", TOOL)).await.expect(201);
    } else {
        set_ahead(&server, 1);
    }
    for _ in 0..5 {
        let other = api.dispatch("live", &bodies::claim()).await.expect(200);
        assert_ne!(other.json["directive"], "dispatch", "{other}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    until(&api, "live", "outcome_unknown").await;
    api.heartbeat("live", &bodies::heartbeat(&granted)).await.problem(409, "lease-lost");
    // A new lease has its whole length by the new time.
    let next = api.intent(&bodies::claiming("new", TOOL)).await.expect(201).directive("dispatch");
    api.heartbeat("new", &bodies::heartbeat(&next)).await.expect(200);
    let done = api.outcome("live", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    assert_eq!(done.json["dispatch"]["late"], true, "{done}");
    api.intent(&bodies::claiming("live", TOOL)).await.expect(200).directive("replay");
    runs_forward(&api, "live").await;
    intact(&server);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_the_clock_of_postgres_goes_back_leases_last_longer_and_nobody_acts_twice() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let server = server(StoreUnderTest::Postgres).await;
    let api = Api::of(&server, "t");
    set_ahead(&server, 1);
    external(&api).await;
    // The service hears of the time when it looks for what is due.
    tokio::time::sleep(Duration::from_secs(6)).await;
    let brief = |id: &str| bodies::set(bodies::claiming(id, TOOL), "/claim/lease_seconds", json!(2));
    let held = api.intent(&brief("held")).await.expect(201).directive("dispatch");
    api.intent(&brief("silent")).await.expect(201).directive("dispatch");
    let end = |name: &str| {
        count(
            &server,
            &format!(
                "SELECT due_us FROM open_effects o WHERE EXISTS (SELECT FROM entries e WHERE
            e.effect = o.effect AND e.intent LIKE '%\"{name}\"%')"
            ),
        )
    };
    let ends = end("silent");
    set_ahead(&server, 0);
    let began = std::time::Instant::now();
    while began.elapsed() < Duration::from_secs(8) {
        for operation in ["held", "silent"] {
            let other = api.dispatch(operation, &bodies::claim()).await.expect(200);
            assert_eq!(other.json["directive"], "wait", "the lease is not over by the time that decides: {other}");
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(end("silent"), ends);
    // Its owner goes on as ever, and what is new works by the time that is.
    api.heartbeat("held", &bodies::heartbeat(&held)).await.expect(200);
    api.outcome("held", &bodies::succeeded(&held)).await.expect(200).state("completed");
    let new = api.intent(&brief("new")).await.expect(201).directive("dispatch");
    assert!(end("new") < ends, "by the new time");
    api.outcome("new", &bodies::succeeded(&new)).await.expect(200).state("completed");
    runs_forward(&api, "held").await;
    // The hour comes again.
    set_ahead(&server, 1);
    until(&api, "silent", "outcome_unknown").await;
    runs_forward(&api, "silent").await;
    intact(&server);
}

/// The wall clock of the machine was set back while the service was down: the time that was given out last counts.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_begins_no_earlier_than_it_ended() {
    let server = StoreUnderTest::Sqlite.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let lost = api.intent(&bodies::claiming("lost", TOOL)).await.expect(201).directive("dispatch");
    server.stop();
    // As it is when the process ran for an hour and the wall clock was an hour ahead of what it is now.
    sql(&server, &format!("UPDATE clock SET latest_us = latest_us + {HOUR_US}"));
    server.restart();
    let api = api.at(&server);
    until(&api, "lost", "outcome_unknown").await;
    let before = count(&server, "SELECT latest_us FROM clock");
    server.stop();
    server.restart();
    let api = api.at(&server);
    let granted = api.intent(&bodies::claiming("new", TOOL)).await.expect(201).directive("dispatch");
    assert!(count(&server, "SELECT latest_us FROM clock") >= before);
    api.outcome("new", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    api.outcome("lost", &bodies::succeeded(&lost)).await.expect(200).state("completed");
    runs_forward(&api, "lost").await;
    intact(&server);
}
