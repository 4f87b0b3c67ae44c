//! A database that answers and takes no writes: a standby, a failover under way, or switched to reads.

use std::time::{Duration, Instant};

use crate::http::{TOOL, external};
use crate::support::{Api, Options, Server, blocking, bodies, postgres};

/// Changes a database from another one.
async fn set(database: &str, change: &str) {
    let sql = format!("ALTER DATABASE {database} {change}");
    blocking(move || postgres::run(postgres::server().unwrap(), &sql)).await;
}

/// Until readiness says this.
async fn readiness(api: &Api, status: u16) {
    let until = Instant::now() + Duration::from_secs(10);
    while api.read("/readyz").await.status != status {
        assert!(Instant::now() < until, "readiness is not {status}");
        api.read("/livez").await.expect(200);
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_takes_no_writes_is_not_ready_and_recovers() {
    let Some(url) = postgres::fresh_database() else { return };
    let name = url.rsplit('/').next().and_then(|name| name.split('?').next()).unwrap().to_owned();
    let server = Server::start(Options { database_url: Some(url), ..Options::default() });
    let api = Api::of(&server, "t");
    external(&api).await;
    let granted = api.intent(&bodies::claiming("before", TOOL)).await.expect(201).directive("dispatch");

    set(&name, "SET default_transaction_read_only = on").await;
    let sql = format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'");
    blocking(move || postgres::run(postgres::server().unwrap(), &sql)).await;
    readiness(&api, 503).await;
    api.read("/readyz").await.problem(503, "store-unavailable");
    api.read("/livez").await.expect(200);
    for _ in 0..3 {
        let refused = api.intent(&bodies::claiming("during", TOOL)).await.problem(503, "store-unavailable");
        assert!(refused.header("retry-after").is_some(), "{refused}");
        api.outcome("before", &bodies::succeeded(&granted)).await.problem(503, "store-unavailable");
    }
    api.get("before").await.expect(200).state("dispatched");

    // Connections from before the change stay as they are; the service makes new ones by itself.
    set(&name, "RESET default_transaction_read_only").await;
    readiness(&api, 200).await;
    let until = Instant::now() + Duration::from_secs(10);
    while api.intent(&bodies::claiming("during", TOOL)).await.status == 503 {
        assert!(Instant::now() < until, "ready, and takes nothing");
    }
    api.get("during").await.expect(200).state("dispatched");
    // There are several connections that commit, and each has to be given up.
    let settled = loop {
        let answer = api.outcome("before", &bodies::succeeded(&granted)).await;
        if answer.status != 503 {
            break answer;
        }
        assert!(Instant::now() < until, "ready, and takes nothing");
    };
    settled.expect(200).state("completed");
    crate::scenarios::intact(&server);
}
