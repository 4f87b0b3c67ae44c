//! The database crashes under load and comes back.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use super::intact;
use crate::http::{TOOL, external};
use crate::support::downstream::{Downstream, Mode};
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, blocking, bodies, unique};

/// A cluster of its own that survives a crash as it would in production. Gone when dropped.
pub(crate) struct Cluster {
    pub(crate) dir: PathBuf,
}

impl Cluster {
    pub(crate) fn new() -> Self {
        Self { dir: std::env::temp_dir().join(unique("actonce-outage")) }
    }

    pub(crate) fn script() -> Command {
        Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/postgres"))
    }

    pub(crate) fn start(&self, owned: bool) -> String {
        let mut start = Self::script();
        start.arg("start").arg("--dir").arg(&self.dir);
        if owned {
            start.args(["--owner", &std::process::id().to_string()]);
        }
        let output = start.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    pub(crate) fn crash(&self) {
        let status = Self::script().args(["stop", "--immediate", "--keep"]).arg(&self.dir).output().unwrap().status;
        assert!(status.success(), "{status}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(Self::script().args(["stop", "--immediate"]).arg(&self.dir).output());
    }
}

/// Sends until there is an answer other than that the store is unavailable.
async fn ask(api: &Api, path: &str, body: &serde_json::Value, unavailable: &AtomicU32) -> Answer {
    loop {
        let answer = api.post(path, body).await;
        if answer.status != 503 {
            assert!(answer.status.is_success(), "{answer}");
            return answer;
        }
        let answer = answer.problem(503, "store-unavailable");
        assert!(answer.header("retry-after").is_some_and(|after| after.parse::<u32>().is_ok()), "{answer}");
        unavailable.fetch_add(1, Ordering::SeqCst);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// What the service says for some seconds while the database is away.
async fn is_away(api: &Api) {
    let until = Instant::now() + Duration::from_secs(3);
    while Instant::now() < until {
        api.read("/livez").await.expect(200);
        let ready = api.read("/readyz").await.problem(503, "store-unavailable");
        assert!(ready.header("retry-after").is_some(), "{ready}");
        api.get("op-0-0").await.problem(503, "store-unavailable");
        api.list("limit=1").await.problem(503, "store-unavailable");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_acknowledged_is_lost_when_the_database_crashes() {
    // Where the tests use a server that is given, there may be no binaries to make another.
    if !StoreUnderTest::has_postgres() || !Cluster::script().arg("bin").output().unwrap().status.success() {
        eprintln!("SKIPPED: a crash of the database, as there are no Postgres binaries");
        return;
    }
    let cluster = std::sync::Arc::new(Cluster::new());
    let url = cluster.start(true);
    let server = Server::start(Options { database_url: Some(url.clone()), ..Options::default() });
    let api = &Api::of(&server, "t");
    external(api).await;
    let downstream = &Downstream::start(Mode::Normal).await;
    let (over, unavailable, done) = (&AtomicBool::new(false), &AtomicU32::new(0), &AtomicU32::new(0));
    let clients = (0..16).map(|number| async move {
        let mut told = Vec::new();
        for n in 0.. {
            if over.load(Ordering::SeqCst) {
                break;
            }
            let id = format!("op-{number}-{n}");
            let granted = ask(api, "/api/intents", &bodies::claiming(&id, TOOL), unavailable).await;
            // The same claim id throughout: it owns the dispatch, whatever became of the answers.
            let granted = granted.directive("dispatch");
            downstream.act(granted.str("/dispatch/idempotency_key")).await.unwrap();
            let report = bodies::succeeded(&granted);
            let path = format!("/api/effects/{id}/outcome");
            told.push(ask(api, &path, &report, unavailable).await.state("completed"));
            done.fetch_add(1, Ordering::SeqCst);
        }
        told
    });
    let story = async {
        let reaches = async |count: u32| {
            let until = Instant::now() + Duration::from_mins(1);
            while done.load(Ordering::SeqCst) < count {
                assert!(Instant::now() < until, "the service does nothing any more");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        reaches(50).await;
        for _ in 0..2 {
            let gone = std::sync::Arc::clone(&cluster);
            blocking(move || gone.crash()).await;
            is_away(api).await;
            let again = std::sync::Arc::clone(&cluster);
            assert_eq!(blocking(move || again.start(false)).await, url, "on its old port");
            let back = Instant::now();
            while api.read("/readyz").await.status != 200 {
                assert!(back.elapsed() < Duration::from_secs(10), "not ready {:?} after the database", back.elapsed());
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            reaches(done.load(Ordering::SeqCst) + 50).await;
            assert!(back.elapsed() < Duration::from_secs(30), "{:?}", back.elapsed());
        }
        over.store(true, Ordering::SeqCst);
    };
    let (told, ()) = tokio::join!(futures_util::future::join_all(clients), story);
    assert!(unavailable.load(Ordering::SeqCst) > 0, "the outage was noticed");
    let told: Vec<Answer> = told.into_iter().flatten().collect();
    is_all_there(&server, api, &told).await;
    assert_eq!(downstream.total(), u32::try_from(told.len()).unwrap(), "each acted once");
}

/// What was answered as completed is there, and nothing else.
async fn is_all_there(server: &Server, api: &Api, told: &[Answer]) {
    for before in told {
        let now = api.get(before.str("/operation_id")).await.expect(200).state("completed");
        assert_eq!(now.revision(), before.revision());
        assert_eq!(now.json["receipt"], before.json["receipt"]);
    }
    let report = intact(server);
    assert_eq!(report["effects"].as_u64(), u64::try_from(told.len()).ok());
    assert_eq!(
        report["entries"].as_u64(),
        u64::try_from(2 * told.len()).ok(),
        "two revisions each: nothing was repeated"
    );
}
