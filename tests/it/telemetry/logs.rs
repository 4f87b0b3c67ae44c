//! Log lines: JSON or text, with the request that they are about.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::server::program;
use crate::support::{Api, Options, StoreUnderTest, blocking, both_stores, reaper};

both_stores!(a_line_names_its_request, a_line_for_people_names_it_too);

const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A request, and the span of its answer.
async fn request(api: &Api) -> String {
    let answer = api.call("GET", "/api/effects/absent").header("traceparent", SENT).send().await;
    answer.header("traceparent").expect("a traceparent").split('-').nth(2).expect("a span").to_owned()
}

async fn a_line_names_its_request(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_LOG_FORMAT", "json"));
    let api = Api::of(&server, "a \"tenant\"");
    let (known, stranger) = (request(&api).await, request(&api.with_token(None)).await);
    let log = server.log();
    // Hints of `--dev` and the start stand before.
    let lines: Vec<Value> = log
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| {
            let parsed = serde_json::from_str(line);
            (!line.contains("curl")).then(|| parsed.unwrap_or_else(|error| panic!("{error}: {line}")))
        })
        .collect();
    let of = |span: &str| {
        let found = lines.iter().find(|line| line["request_id"] == span && line["message"] == "request");
        found.unwrap_or_else(|| panic!("no line of {span} in {log}")).clone()
    };
    let (known, stranger) = (of(&known), of(&stranger));
    assert_eq!((&known["trace_id"], &known["tenant"]), (&json!(TRACE), &json!("a \"tenant\"")));
    assert_eq!((&known["status"], &known["path"]), (&json!(404), &json!("/api/effects/{operation_id}")));
    assert_eq!((&stranger["trace_id"], &stranger["tenant"]), (&json!(TRACE), &Value::Null), "nobody knows whose");
}

async fn a_line_for_people_names_it_too(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_LOG_FORMAT", "pretty"));
    let api = Api::of(&server, "t");
    let span = request(&api).await;
    let log = server.log();
    let expected = format!("request_id={span} trace_id={TRACE} tenant=\"t\"");
    assert!(log.lines().any(|line| line.contains("request") && line.ends_with(&expected)), "{log}");
}

/// A server whose standard error is a pipe, as under most supervisors.
struct Piped {
    child: Child,
    api: Api,
    stderr: Option<ChildStderr>,
}

impl Drop for Piped {
    fn drop(&mut self) {
        // It may have ended already.
        drop(self.child.kill());
        drop(self.child.wait());
        reaper::release(self.child.id());
    }
}

fn piped(folder: &std::path::Path, log: &str) -> Piped {
    let mut command = program();
    command.args(["serve", "--dev", "--listen", "127.0.0.1:0", "--data-dir"]).arg(folder).env("ACTONCE_LOG", log);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    reaper::adopt(child.id());
    let stderr = child.stderr.take();
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).unwrap();
    let ready: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let api = Api::new(ready["url"].as_str().unwrap(), "dev", ready["token"].as_str().map(str::to_owned));
    Piped { child, api, stderr }
}

async fn ends(mut server: Piped) -> (bool, ChildStderr) {
    let pid = server.child.id().to_string();
    let status = blocking(move || {
        assert!(std::process::Command::new("kill").args(["-s", "TERM", &pid]).status().unwrap().success());
        let until = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = server.child.try_wait().unwrap() {
                return (status.success(), server.stderr.take().expect("a pipe"));
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    status.await
}

/// A collector of logs that stands still must not stop those who act.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_who_reads_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let server = piped(folder.path(), "trace");
    let until = Instant::now() + Duration::from_mins(1);
    // More than the pipe and the buffer hold.
    let dropped = loop {
        for _ in 0..50 {
            server.api.read("/api/effects").await.expect(200);
        }
        let metrics = server.api.read("/metrics").await.expect(200).text;
        let line = metrics.lines().find(|line| line.starts_with("actonce_log_lines_dropped_total{reason=\"full\"}"));
        let dropped: f64 = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("the counter is there");
        if dropped > 0.0 {
            break dropped;
        }
        assert!(Instant::now() < until, "the log did not fill up");
    };
    assert!(dropped >= 1.0);
    let began = Instant::now();
    let (succeeded, _stderr) = ends(server).await;
    assert!(succeeded && began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_reads_the_log_gets_all_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let server = piped(folder.path(), "info,actonce=debug");
    let span = request(&server.api).await;
    let (succeeded, stderr) = ends(server).await;
    assert!(succeeded);
    let lines: Vec<String> = BufReader::new(stderr).lines().map(|line| line.unwrap()).collect();
    for text in [format!("request_id={span}"), "stopping: nothing new is accepted".to_owned()] {
        assert!(lines.iter().any(|line| line.contains(&text)), "{text} is not in {lines:#?}");
    }
}
