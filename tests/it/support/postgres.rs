//! Databases to test on: a private cluster for the life of this process, or the server that
//! `TEST_DATABASE_URL` names.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::unique;

/// The URL of a database in which others can be made; `None` where there is no Postgres.
pub(crate) fn server() -> Option<&'static str> {
    static SERVER: OnceLock<Option<String>> = OnceLock::new();
    SERVER.get_or_init(find).as_deref()
}

/// The same database as a superuser, for the few tests that need one: the one that `TEST_DATABASE_ADMIN_URL` names, or
/// that of a private cluster. `None` where a server was given and no superuser of it.
pub(crate) fn as_admin(url: &str) -> Option<String> {
    let (_, place) = url.split_once('@')?;
    match std::env::var("TEST_DATABASE_ADMIN_URL") {
        Ok(admin) if !admin.is_empty() => Some(format!("{}@{place}", admin.rsplit_once('@')?.0)),
        _ => url.starts_with("postgres://actonce@127.0.0.1:").then(|| format!("postgres://postgres@{place}")),
    }
}

fn find() -> Option<String> {
    if let Some(url) = std::env::var("TEST_DATABASE_URL").ok().filter(|url| !url.is_empty()) {
        return Some(url);
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/postgres");
    let has_binaries = Command::new(&script)
        .arg("bin")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !has_binaries {
        let set = |name: &str, value: &str| std::env::var(name).is_ok_and(|found| found == value);
        assert!(
            !set("CI", "true") && !set("ACTONCE_TEST_REQUIRE_POSTGRES", "1"),
            "no Postgres 14 or newer found: install it, or set PG_BIN or TEST_DATABASE_URL"
        );
        // Not by a macro: what those print is shown for failing tests alone.
        let line = "SKIPPED: all tests on Postgres, as there is none; install it, or set PG_BIN or TEST_DATABASE_URL\n";
        std::io::stderr().write_all(line.as_bytes()).unwrap();
        return None;
    }
    let mut start = Command::new(&script);
    start.args(["start", "--fast", "--owner", &std::process::id().to_string()]);
    let mut child = start.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("scripts/postgres starts");
    let mut url = String::new();
    BufReader::new(child.stdout.take().expect("its output is a pipe")).read_line(&mut url).unwrap();
    let status = child.wait().unwrap();
    assert!(status.success(), "scripts/postgres start: {status}");
    Some(url.trim().to_owned())
}

/// An empty database of a name that nobody has, or `None` where there is no Postgres.
pub(crate) fn fresh_database() -> Option<String> {
    let server = server()?;
    let name = unique("actonce-it").replace('-', "_");
    run(server, &format!("CREATE DATABASE {name}"));
    let (start, options) = server.split_once('?').map_or((server, None), |(start, options)| (start, Some(options)));
    let (host, _) = start.rsplit_once('/').expect("the URL names a database");
    Some(options.map_or_else(|| format!("{host}/{name}"), |options| format!("{host}/{name}?{options}")))
}

/// A copy of a database that nobody is connected to.
pub(crate) fn copy_of(url: &str) -> String {
    let name_of = |url: &str| {
        let start = url.split_once('?').map_or(url, |(start, _)| start);
        start.rsplit_once('/').expect("the URL names a database").1.to_owned()
    };
    let (from, copy) = (name_of(url), unique("actonce-it").replace('-', "_"));
    run(server().expect("there is a Postgres"), &format!("CREATE DATABASE {copy} TEMPLATE {from}"));
    url.replacen(&from, &copy, 1)
}

/// Runs a statement on a connection of its own. For tests that look, or that spoil what is there.
pub(crate) fn run(url: &str, sql: &str) {
    let (url, sql) = (url.to_owned(), sql.to_owned());
    // On a thread of its own: the caller may stand in a runtime already.
    let done = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let mut connection = PgConnection::connect(&url).await.expect("Postgres answers");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("the statement runs");
            connection.close().await.unwrap();
        });
    });
    done.join().expect("the statement ran");
}
