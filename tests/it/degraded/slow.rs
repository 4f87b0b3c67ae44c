//! A database that takes its time: requests are answered within theirs, and a commit that lands later is not applied
//! twice by who repeats it.

use std::time::{Duration, Instant};

use actonce::app::SQLITE_FILE;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};
use tokio::sync::oneshot;

use super::{readiness, unavailable};
use crate::http::{TOOL, external};
use crate::scenarios::intact;
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(a_commit_that_lands_late_is_not_applied_twice);

/// Keeps everybody from writing until it is told to end.
pub(super) async fn hold(server: &Server) -> impl Future<Output = ()> + use<> {
    let (release, released) = oneshot::channel::<()>();
    let (holds, held) = oneshot::channel::<()>();
    let (url, file) = (server.database_url().map(str::to_owned), server.data_dir().join(SQLITE_FILE));
    let mut task = tokio::task::JoinSet::from_iter([async move {
        if let Some(url) = url {
            let mut connection = PgConnection::connect(&url).await.unwrap();
            // Reads go on.
            sqlx::raw_sql("BEGIN; LOCK TABLE entries IN SHARE MODE").execute(&mut connection).await.unwrap();
            holds.send(()).unwrap();
            released.await.unwrap();
            sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.unwrap();
        } else {
            let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
            sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
            holds.send(()).unwrap();
            released.await.unwrap();
            sqlx::raw_sql("ROLLBACK").execute(&mut connection).await.unwrap();
        }
    }]);
    held.await.unwrap();
    async move {
        release.send(()).unwrap();
        task.join_next().await.unwrap().unwrap();
    }
}

/// The answer, if it came within the time that requests have.
async fn in_time(ask: impl Future<Output = Answer>) -> Answer {
    let began = Instant::now();
    let answer = ask.await;
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}: {answer}", began.elapsed());
    answer
}

async fn a_commit_that_lands_late_is_not_applied_twice(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_REQUEST_TIMEOUT_SECONDS", "1"));
    let api = Api::of(&server, "t");
    external(&api).await;
    let granted = api.intent(&bodies::claiming("before", TOOL)).await.expect(201).directive("dispatch");
    let (intent, report) = (bodies::claiming("during", TOOL), bodies::succeeded(&granted));

    let release = hold(&server).await;
    let began = Instant::now();
    let (one, other) = tokio::join!(in_time(api.intent(&intent)), in_time(api.outcome("before", &report)));
    unavailable(one);
    unavailable(other);
    // Once more while the first may still land; and whoever routes traffic learns that nothing is written.
    unavailable(in_time(api.intent(&intent)).await);
    readiness(&api, 503).await;
    assert!(began.elapsed() < Duration::from_millis(4_800), "SQLite waits for five seconds: {:?}", began.elapsed());
    release.await;

    readiness(&api, 200).await;
    let granted = api.intent(&intent).await.directive("dispatch");
    assert_eq!((granted.dispatch().1, granted.revision()), (1, 1), "the first dispatch, granted once");
    let done = api.outcome("before", &report).await.expect(200).state("completed");
    assert_eq!(done.revision(), 2);
    assert_eq!(intact(&server)["entries"], 3, "each was written once");
}
