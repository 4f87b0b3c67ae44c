//! `actonce doctor`: for each thing that can be wrong a deployment in which it is, on both stores.

use std::process::Command;

use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::http::TOOL;
use crate::store::bed::Bed;
use crate::support::server::program;
use crate::support::{Api, Options, StoreUnderTest, blocking, both_stores};

both_stores!(
    a_good_deployment,
    an_older_and_a_newer_schema,
    a_database_that_takes_no_writes,
    a_clock_that_is_ahead,
    alias_keys_that_can_not_come_back,
    adapters_that_can_not_be_called,
    an_adapter_is_connected_to_and_asked_nothing,
);

const SECRET: &str = "hunter2hunter2hunter2hunter2hunter2hunter2";
const KEY: &str = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

/// What the doctor says, and its exit code.
struct Report {
    findings: Vec<Value>,
    code: i32,
    text: String,
}

impl Report {
    /// The one finding of a check at a level that says this.
    #[track_caller]
    fn has(&self, check: &str, level: &str, said: &str) -> &Self {
        let fits = |finding: &&Value| {
            finding["check"] == check
                && finding["level"] == level
                && finding["finding"].as_str().unwrap().contains(said)
        };
        let found =
            self.findings.iter().find(fits).unwrap_or_else(|| panic!("no {check} {level} {said}: {}", self.text));
        assert!(!found["meaning"].as_str().unwrap().is_empty(), "{found}");
        assert_eq!(found["action"].is_string(), level != "ok", "{found}");
        self
    }

    /// Nothing but what a test cluster lacks is wrong.
    #[track_caller]
    fn is_otherwise_well(&self, but: &[&str]) {
        for finding in &self.findings {
            let is_of_the_cluster = finding["finding"].as_str().unwrap().contains("is off");
            let check = finding["check"].as_str().unwrap();
            assert!(finding["level"] == "ok" || is_of_the_cluster || but.contains(&check), "{finding}");
        }
    }
}

/// A doctor for a production-like configuration of a database.
fn doctor(url: &str) -> Command {
    let mut command = program();
    command.args(["doctor", "--json", "--max-connections", "10"]);
    command.env("DATABASE_URL", url).env("ACTONCE_JWT_HS256_SECRET", SECRET).env("ACTONCE_DATA_KEY", KEY);
    command.env("ACTONCE_EVIDENCE_KEY", KEY).env("ACTONCE_ALIAS_KEYS", format!("a:{KEY}"));
    command
}

async fn report(mut command: Command) -> Report {
    let output = blocking(move || command.output().unwrap()).await;
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    let document: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("no report: {text}"));
    let findings = document["findings"].as_array().unwrap().clone();
    let code = output.status.code().unwrap();
    let worst = match document["level"].as_str().unwrap() {
        "ok" => 0,
        "warn" => 1,
        _ => 2,
    };
    assert_eq!(code, worst, "{text}");
    assert!(!text.contains(SECRET) && !text.contains(KEY), "{text}");
    Report { findings, code, text }
}

async fn a_good_deployment(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let report = report(doctor(&bed.url())).await;
    for (check, said) in [
        ("configuration", "no problems"),
        ("database", store.word()),
        ("schema", "migration"),
        ("write", "taken back"),
        ("clock", "s "),
        ("token_keys", "1 configured"),
        ("evidence_key", "there is one"),
        ("alias_keys", "1 in the keyring"),
        ("open_files", "enough"),
        ("adapters", "0 places"),
    ] {
        report.has(check, "ok", said);
    }
    report.is_otherwise_well(&["disk"]);
    if bed.is_sqlite() {
        report.has("durability", "ok", "wal").has("durability", "ok", "FULL");
    } else {
        // The cluster of the tests may run without.
        let has_fsync = bed.count("SELECT (current_setting('fsync') = 'on')::int").await == 1;
        report.has("wall", "ok", "holds this role");
        report.has("durability", if has_fsync { "ok" } else { "fail" }, "fsync is");
        assert_eq!(report.code, if has_fsync { 0 } else { 2 }, "{}", report.text);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_role_that_no_policy_holds() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let bed = Bed::new(StoreUnderTest::Postgres).await;
    let Some(admin) = crate::support::postgres::as_admin(&bed.url()) else { return };
    let found = report(doctor(&admin)).await;
    found.has("wall", "warn", "does not hold this role").is_otherwise_well(&["wall", "disk"]);
}

async fn an_older_and_a_newer_schema(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    bed.execute("DELETE FROM _sqlx_migrations WHERE version = (SELECT max(version) FROM _sqlx_migrations)").await;
    report(doctor(&bed.url())).await.has("schema", "warn", "migration");
    bed.execute("UPDATE _sqlx_migrations SET version = 9999 WHERE version = 1").await;
    let newer = report(doctor(&bed.url())).await;
    newer.has("schema", "fail", "schema 9999");
    assert_eq!(newer.code, 2);
}

async fn a_database_that_takes_no_writes(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let holds;
    if bed.is_sqlite() {
        // Another process that writes and does not end.
        use sqlx::Connection as _;
        let mut connection = sqlx::SqliteConnection::connect(&bed.url()).await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
        holds = Some(connection);
    } else {
        bed.alter_database("SET default_transaction_read_only = on").await;
        holds = None;
    }
    let found = report(doctor(&bed.url())).await;
    found.has("write", "fail", "refused");
    found.is_otherwise_well(&["write", "disk"]);
    drop(holds);
}

async fn a_clock_that_is_ahead(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    for (seconds, level) in [(3, "warn"), (3600, "fail")] {
        if bed.is_sqlite() {
            let ahead = format!("(CAST(strftime('%s', 'now') AS INTEGER) + {seconds}) * 1000000");
            bed.execute(&format!("UPDATE clock SET latest_us = {ahead} + 500000")).await;
        } else {
            bed.execute(&format!(
                "CREATE SCHEMA IF NOT EXISTS fake; CREATE OR REPLACE FUNCTION fake.clock_timestamp() RETURNS timestamptz \
                 LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '{seconds} seconds' $$"
            ))
            .await;
            bed.alter_database("SET search_path = fake, public, pg_catalog").await;
        }
        let found = report(doctor(&bed.url())).await;
        found.has("clock", level, "ahead of");
        found.is_otherwise_well(&["clock", "disk"]);
    }
}

async fn alias_keys_that_can_not_come_back(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let zeros = if bed.is_sqlite() { "zeroblob(32)" } else { "'\\x00'::bytea" };
    bed.execute(&format!("INSERT INTO alias_keys (id, fingerprint) VALUES ('a', {zeros})")).await;
    report(doctor(&bed.url())).await.has("alias_keys", "fail", "stands for another key");
    bed.execute("UPDATE alias_keys SET retired_us = 1").await;
    report(doctor(&bed.url())).await.has("alias_keys", "fail", "was retired");
}

/// A tool whose adapter is at a place, past the checks of a registration.
async fn tool(bed: &Bed, name: &str, url: &str) {
    let spec = json!({ "effect": "external", "adapter": { "url": url, "lookup": true } });
    let no = if bed.is_sqlite() { "0" } else { "false" };
    bed.execute(&format!(
        "INSERT INTO tools (tenant, name, revision, stamp, paused, deleted) VALUES ('t', '{name}', 1, 1, {no}, {no});
         INSERT INTO tool_revisions (tenant, name, revision, spec, registered_us, registered_by)
         VALUES ('t', '{name}', 1, '{spec}', 1, 'x')"
    ))
    .await;
}

async fn adapters_that_can_not_be_called(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (silent_at, closed_at) = (silent.local_addr().unwrap(), closed.local_addr().unwrap());
    drop(closed);
    tool(&bed, "plain", "http://adapter.example/secret-path").await;
    tool(&bed, "private", "https://10.9.8.7/secret-path").await;
    tool(&bed, "closed", &format!("https://{closed_at}/secret-path")).await;
    tool(&bed, "silent", &format!("https://{silent_at}/secret-path")).await;
    tool(&bed, "nameless", "https://nobody.invalid/secret-path").await;
    let mut command = doctor(&bed.url());
    command.env("ACTONCE_ADAPTER_ALLOW_NETWORKS", "127.0.0.0/8");
    let begun = std::time::Instant::now();
    let found = report(command).await;
    assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{:?}", begun.elapsed());
    found
        .has("adapters", "warn", "(tool plain of t): the URL must be https")
        .has("adapters", "warn", "(tool private of t): the URL must not have an address that is private")
        .has("adapters", "warn", "(tool closed of t): no connection")
        .has("adapters", "warn", "(tool silent of t): no answer in time");
    found.has("adapters", "warn", "https://nobody.invalid/ (tool nameless of t): ");
    assert!(!found.text.contains("secret-path"), "{}", found.text);
    // Something that answers, but not with TLS.
    let liar = crate::support::adapter::FakeAdapter::always(crate::support::adapter::Reply::status("200 OK")).await;
    tool(&bed, "liar", &liar.url().replace("http://", "https://")).await;
    let mut command = doctor(&bed.url());
    command.env("ACTONCE_ADAPTER_ALLOW_NETWORKS", "127.0.0.0/8");
    report(command).await.has("adapters", "warn", "(tool liar of t): no TLS");
}

async fn an_adapter_is_connected_to_and_asked_nothing(store: StoreUnderTest) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut options = Options::default();
    for (name, value) in crate::support::adapter::OPEN {
        options = options.env(name, value);
    }
    let server = store.server(options);
    let api = Api::of(&server, "t");
    let adapter =
        json!({ "url": format!("http://{address}/"), "secret": crate::support::adapter::secret(1), "lookup": true });
    api.put_tool(TOOL, &json!({ "effect": "external", "adapter": adapter })).await.expect(201);
    let url = match server.database_url() {
        Some(url) => url.to_owned(),
        None => format!("sqlite:{}", server.data_dir().join("actonce.db").display()),
    };
    let mut command = doctor(&url);
    command.env_remove("ACTONCE_ALIAS_KEYS").envs(crate::support::adapter::OPEN);
    let (found, sent) = tokio::join!(report(command), async {
        use tokio::io::AsyncReadExt as _;
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut sent = Vec::new();
        stream.read_to_end(&mut sent).await.unwrap();
        sent
    });
    found.has("adapters", "ok", "1 places").has("alias_keys", "warn", "no keyring");
    assert!(sent.is_empty(), "{sent:?}");
    // The service that runs beside it takes no harm.
    api.tool(TOOL).await.expect(200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn databases_that_are_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/actonce.db");
    report(doctor(&format!("sqlite:{}", path.display()))).await.has("database", "warn", "no file");
    assert!(!path.exists() && !path.parent().unwrap().exists(), "nothing was made");
    let spoiled = folder.path().join("spoiled.db");
    std::fs::write(&spoiled, "no database at all, but long enough to be looked at as one".repeat(100)).unwrap();
    report(doctor(&format!("sqlite:{}", spoiled.display()))).await.has("database", "fail", "can't open");
    let found = report(doctor("postgres://me:hunter2@127.0.0.1:1/x")).await;
    found.has("database", "fail", "unavailable");
    assert!(!found.text.contains("hunter2"), "{}", found.text);
    // One that takes the connection and says nothing.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://me@{}/x", silent.local_addr().unwrap());
    report(doctor(&url)).await.has("database", "fail", "in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_empty_postgres_and_one_without_flushes() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let url = crate::support::postgres::fresh_database().unwrap();
    report(doctor(&url)).await.has("schema", "warn", "empty");
    let bed = Bed::new(StoreUnderTest::Postgres).await;
    bed.alter_database("SET synchronous_commit = off").await;
    report(doctor(&bed.url())).await.has("durability", "warn", "synchronous_commit is off");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sqlite_file_whose_journal_mode_was_changed() {
    let bed = Bed::new(StoreUnderTest::Sqlite).await;
    bed.store.close().await;
    bed.execute("PRAGMA journal_mode = DELETE").await;
    report(doctor(&bed.url())).await.has("durability", "warn", "journal mode is delete");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_missing() {
    let bed = Bed::new(StoreUnderTest::Sqlite).await;
    let mut bare = doctor(&bed.url());
    bare.env_remove("ACTONCE_EVIDENCE_KEY").env_remove("ACTONCE_ALIAS_KEYS");
    let found = report(bare).await;
    found.has("evidence_key", "warn", "none").has("alias_keys", "warn", "no keyring");
    assert!(found.code >= 1);
    let mut broken = doctor(&bed.url());
    broken.env_remove("ACTONCE_JWT_HS256_SECRET").env("ACTONCE_DATA_KEY", "short").env("ACTONCE_LISTEN", "x");
    let found = report(broken).await;
    found.has("configuration", "fail", "ACTONCE_DATA_KEY").has("configuration", "fail", "no key for tokens");
    found.has("configuration", "fail", "ACTONCE_LISTEN");
    // An issuer that is down: with another key some tokens hold, without one none.
    let mut alone = doctor(&bed.url());
    alone.env_remove("ACTONCE_JWT_HS256_SECRET").env("ACTONCE_JWKS_URL", "http://127.0.0.1:1/jwks?token=hunter2");
    let found = report(alone).await;
    found.has("key_set", "fail", "can't be read");
    assert!(!found.text.contains("hunter2"), "{}", found.text);
    let mut beside = doctor(&bed.url());
    beside.env("ACTONCE_JWKS_URL", "http://127.0.0.1:1/jwks").env("ACTONCE_JWT_KID", "a");
    report(beside).await.has("key_set", "warn", "can't be read");
    // One that answers.
    let keys = tempfile::NamedTempFile::new().unwrap();
    let key = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "a", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo" });
    std::fs::write(keys.path(), json!({ "keys": [key] }).to_string()).unwrap();
    let mut good = doctor(&bed.url());
    good.env_remove("ACTONCE_JWT_HS256_SECRET").env("ACTONCE_JWKS_FILE", keys.path());
    report(good).await.has("key_set", "ok", "1 keys");
}

/// For people: every finding that is not well says what it means and what to do.
#[test]
fn the_text_says_the_same() {
    let output = program().args(["doctor", "--listen", "x"]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(2));
    assert!(text.contains("fail configuration: --listen (ACTONCE_LISTEN)"), "{text}");
    assert!(text.contains("means: ") && text.contains("to do: ") && text.ends_with("in all: fail\n"), "{text}");
}
