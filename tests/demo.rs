//! `actonce demo`, as somebody would run it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// The demo in a temporary directory of its own, and with settings around that must not reach it.
fn demo(directory: &TempDir) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_actonce"));
    command
        .arg("demo")
        .env("TMPDIR", directory.path())
        .env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/production")
        .env("ACTONCE_BASE_PATH", "/elsewhere")
        .env("ACTONCE_DATA_KEY", "not a key")
        .env("HTTP_PROXY", "http://127.0.0.1:1")
        .stdin(Stdio::null());
    command
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_empty(directory: &Path) -> bool {
    std::fs::read_dir(directory).is_ok_and(|mut entries| entries.next().is_none())
}

/// The lines of the story that answer one worker.
fn told<'a>(text: &'a str, what: &str) -> Vec<&'a str> {
    text.lines().filter(|line| line.contains("actonce  ") && line.contains(what)).collect()
}

fn assert_story(output: &Output) {
    let text = out(output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", err(output));
    assert_eq!(told(&text, "dispatch ").len(), 1, "one worker alone was told to act:\n{text}");
    let second = told(&text, "agent-2 must not act");
    assert_eq!(second.len(), 2, "{text}");
    assert!(second[1].contains("reconcile"), "{text}");
    assert_eq!(told(&text, "agent-1 must not act").len(), 1, "the restarted one was held back too:\n{text}");
    assert_eq!(told(&text, "replay    agent-3 must not act").len(), 1, "{text}");
    assert!(text.contains("drops the connection without an answer"), "{text}");
    assert!(text.contains("counted 1 commit of this operation (re_1), 1 in all"), "{text}");
    assert!(text.contains("\nVerdict: the downstream counted exactly 1 commit of run-42:refund:order-1001."), "{text}");
}

/// The row of a hostile downstream: dispatches, commits, lookups, absences, and how its act ended.
fn hostile<'a>(text: &'a str, label: &str) -> ([u64; 4], &'a str) {
    let table = text.split("how it ended\n").nth(1).unwrap_or_default();
    let row = table.lines().find_map(|line| line.strip_prefix(label)).unwrap_or_default().trim_start();
    let mut words = row.split_whitespace();
    // What is missing counts as a number that nothing is expected to be.
    let counts = [(); 4].map(|()| words.next().and_then(|word| word.parse().ok()).unwrap_or(u64::MAX));
    (counts, row.trim_start_matches(|c: char| c.is_ascii_digit() || c == ' '))
}

fn assert_hostile(output: &Output) {
    let text = out(output);
    for (label, dispatches, absences, end) in [
        ("drops the answer", 1, 0, "completed"),
        ("commits late", 1, 1, "completed"),
        ("answers twice", 1, 0, "completed, flagged contradicted"),
        ("visible late", 1, 3, "completed"),
        ("409 on the retry", 2, 0, "completed"),
        ("never commits", 2, 1, "safe_to_retry, then completed"),
    ] {
        let (counts, ended) = hostile(&text, label);
        assert_eq!((counts[0], counts[1], ended), (dispatches, 1, end), "{label}:\n{text}");
        assert!(counts[2] > 0 && counts[3] >= absences, "{label} was looked up:\n{text}");
    }
    assert!(text.ends_with("Verdict: 6 hostile downstreams, 1 commit in each. The contract held.\n"), "{text}");
}

#[test]
fn each_act_ends_with_one_commit_and_nothing_is_left_behind() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(&directory).output().unwrap();
    assert_story(&output);
    assert_hostile(&output);
    assert!(out(&output).contains("the real server on sqlite"));
    assert!(is_empty(directory.path()));
}

#[test]
fn recorded_calls_are_played_without_a_duplicate() {
    let directory = tempfile::tempdir().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/agent-calls.excerpt.jsonl");
    let output = demo(&directory).arg("--calls").arg(file).output().unwrap();
    let text = out(&output);
    assert_eq!(output.status.code(), Some(0), "{text}{}", err(&output));
    let row = |label: &str| -> Vec<u64> {
        let line = text.lines().find(|line| line.starts_with(label)).unwrap();
        line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
    };
    // 20 external calls, of which one repeats another one of its run. Of two workers the slower one
    // may come so late that it gets the result at once; the other columns are certain.
    assert_eq!(row("not external"), [54, 54, 0, 0, 0, 0, 0]);
    assert_eq!(row("external, normal"), [20, 19, 1, 0, 0, 19, 0]);
    assert_eq!(row("external, lost answer"), [20, 19, 20, 19, 19, 19, 0]);
    let two = row("external, two workers");
    assert_eq!([two[0], two[1], two[2], two[4], two[5], two[6]], [20, 19, 21, 0, 19, 0]);
    assert!(two[3] <= 19, "{text}");
    assert_eq!(row("all ").last(), Some(&0));
    assert!(text.contains("57 operations downstream, each committed exactly once"), "{text}");
    assert_eq!(err(&output), "", "no progress bar where there is no terminal");
    assert!(is_empty(directory.path()));
}

#[test]
fn a_bad_line_is_named_before_anything_is_played() {
    let directory = tempfile::tempdir().unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    writeln!(
        file,
        r#"{{"run_id":"r","seq":0,"call_id":"c","tool":"t","effect":"none","target":"x","arguments":{{}}}}"#
    )
    .unwrap();
    writeln!(
        file,
        r#"{{"run_id":"r","seq":1,"call_id":"d","tool":"t","effect":"never","target":"x","arguments":{{}}}}"#
    )
    .unwrap();
    let output = demo(&directory).arg("--calls").arg(file.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(out(&output), "");
    assert!(err(&output).contains("line 2: effect: unknown variant `never`"), "{}", err(&output));

    let output = demo(&directory).args(["--calls", "/no/such/file"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_server_that_does_not_start_is_explained() {
    let directory = tempfile::tempdir().unwrap();
    let output = demo(&directory).args(["--database-url", "postgres://nobody@127.0.0.1:1/nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("the server does not start: the database: "), "{}", err(&output));
    assert!(is_empty(directory.path()));
}

#[test]
fn a_signal_ends_the_server_too() {
    let directory = tempfile::tempdir().unwrap();
    let mut child = demo(&directory).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let server = lines.find_map(|line| {
        let line = line.unwrap();
        line.trim().strip_prefix("actonce     http://").and_then(|rest| rest.split(',').next()).map(str::to_owned)
    });
    // Now the lease of two seconds runs.
    assert!(lines.any(|line| line.unwrap().contains("asks again")));
    let pid = rustix::process::Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(2));
    assert!(std::net::TcpStream::connect(server.unwrap()).is_err(), "the server is gone");
    assert!(is_empty(directory.path()));
}

#[tokio::test]
async fn the_story_on_postgres() {
    let Ok(base) = std::env::var("TEST_DATABASE_URL") else {
        assert!(std::env::var_os("ACTONCE_TEST_REQUIRE_POSTGRES").is_none(), "TEST_DATABASE_URL is not set");
        return;
    };
    let pool = sqlx::PgPool::connect(&base).await.unwrap();
    let name = format!("actonce_demo_{}", actonce::support::random_id().simple());
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(&pool).await.unwrap();
    let (server, query) = base.split_once('?').map_or((base.as_str(), None), |(url, query)| (url, Some(query)));
    let start = server.find("://").map_or(0, |at| at + 3);
    let path = server[start..].find('/').map_or(server.len(), |at| start + at);
    let url = format!("{}/{name}{}", &server[..path], query.map(|query| format!("?{query}")).unwrap_or_default());

    // Twice: on a database that is kept, one demonstration must not meet another.
    for _ in 0..2 {
        let directory = tempfile::tempdir().unwrap();
        let output = demo(&directory).args(["--database-url", &url]).output().unwrap();
        assert_story(&output);
        assert_hostile(&output);
        assert!(out(&output).contains("the real server on postgres"));
    }
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!("DROP DATABASE {name} WITH (FORCE)"))).execute(&pool).await.unwrap();
}
