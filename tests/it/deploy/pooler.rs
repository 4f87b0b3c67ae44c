//! Two replicas through a real `PgBouncer` that gives every transaction another session, with fewer sessions than either
//! of them has connections (docs/scaling.md).

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::{Connection as _, PgConnection, Row as _};

use crate::http::{TOOL, external};
use crate::support::server::program;
use crate::support::{Api, Options, Server, blocking, bodies, postgres, reaper, unique};

/// Sessions at the server for all that comes through the pooler.
const SESSIONS: usize = 3;

/// A `PgBouncer` in transaction mode before the server of the tests.
struct Pooler {
    port: u16,
    settings: PathBuf,
    child: Mutex<Option<Child>>,
}

impl Pooler {
    /// `None`, and a word about it, where there is no `PgBouncer` or no server that it could stand before.
    fn new(url: &str) -> Option<Self> {
        let skipped = |why: &str| {
            // Not by a macro: what those print is shown for failing tests alone.
            let line = format!("SKIPPED: the service through PgBouncer: {why}\n");
            std::io::stderr().write_all(line.as_bytes()).unwrap();
        };
        if Command::new(pgbouncer()).arg("--version").stdout(Stdio::null()).status().is_err() {
            skipped("it is not installed");
            return None;
        }
        let place = url.strip_prefix("postgres://actonce@127.0.0.1:").and_then(|rest| rest.split('/').next());
        let Some(server) = place else {
            skipped("the tests have no private Postgres");
            return None;
        };
        let folder = reaper::root().join(unique("pooler"));
        std::fs::create_dir_all(&folder).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let settings = folder.join("pgbouncer.ini");
        let text = format!(
            "[databases]\n* = host=127.0.0.1 port={server} user=actonce\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n\
             default_pool_size = {SESSIONS}\nserver_login_retry = 1\n\
             ignore_startup_parameters = extra_float_digits,options\n"
        );
        std::fs::write(&settings, text).unwrap();
        // It reads them as another user than root.
        for path in [reaper::root(), &folder] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let pooler = Self { port, settings, child: Mutex::new(None) };
        pooler.start();
        Some(pooler)
    }

    fn start(&self) {
        let mut command = Command::new(pgbouncer());
        if std::fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0) {
            command.args(["-u", "nobody"]);
        }
        let child =
            command.arg(&self.settings).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
        let child = child.expect("PgBouncer starts");
        reaper::adopt(child.id());
        *self.child.lock().unwrap() = Some(child);
        let until = Instant::now() + Duration::from_secs(10);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(Instant::now() < until, "PgBouncer does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn kill(&self) {
        if let Some(mut child) = self.child.lock().unwrap().take() {
            child.kill().unwrap();
            child.wait().unwrap();
            reaper::release(child.id());
        }
    }

    /// The way through it to a database.
    fn url(&self, direct: &str) -> String {
        format!("postgres://actonce@127.0.0.1:{}/{}", self.port, direct.rsplit('/').next().unwrap())
    }
}

impl Drop for Pooler {
    fn drop(&mut self) {
        self.kill();
    }
}

fn pgbouncer() -> PathBuf {
    let usual = PathBuf::from("/usr/sbin/pgbouncer");
    std::env::var_os("PGBOUNCER").map_or(if usual.exists() { usual } else { "pgbouncer".into() }, Into::into)
}

/// What really happened: who acted for which operation, by the dispatches that they were told.
type Downstream = Arc<Mutex<BTreeMap<String, BTreeSet<String>>>>;

/// The same request until it is answered.
async fn answered(api: &Api, path: &str, body: &Value) -> Value {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let answer = api.call("POST", path).json(body).try_send().await;
        match answer {
            Ok(answer) if answer.status.is_success() => return answer.json,
            Ok(answer) => assert!(answer.status == 503, "{answer}"),
            Err(error) => panic!("{path}: {error}"),
        }
        assert!(Instant::now() < until, "{path}: not answered");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Claims operation after operation at its replica, acts where it is told to, and reports; what was acknowledged.
async fn client(api: Api, tenant: &'static str, until: Instant, downstream: Downstream) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for number in 0.. {
        if Instant::now() > until {
            break;
        }
        let operation = format!("{tenant}-{number}");
        let intent = bodies::claiming(&operation, TOOL);
        let answer = answered(&api, "/api/intents", &intent).await;
        if answer["directive"] != "dispatch" {
            continue;
        }
        let (dispatch, fence) = (answer["dispatch"]["dispatch_id"].clone(), answer["dispatch"]["fence"].clone());
        let acts = dispatch.as_str().unwrap().to_owned();
        downstream.lock().unwrap().entry(operation.clone()).or_default().insert(acts);
        let report = serde_json::json!({
            "dispatch_id": dispatch, "fence": fence, "outcome": "succeeded",
            "receipt": bodies::receipt(&operation), "verification": bodies::verification()
        });
        let settled = answered(&api, &format!("/api/effects/{operation}/outcome"), &report).await;
        assert_eq!(settled["state"], "completed", "{settled}");
        acknowledged.push(operation);
    }
    acknowledged
}

async fn numbers(url: &str, sql: &'static str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let row = sqlx::raw_sql(sql).fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    row.get(0)
}

/// A wait at one replica hears of a change at the other, by the sessions past the pooler.
async fn hears(here: &Api, there: &Api) {
    let granted = here.intent(&bodies::claiming("waited for", TOOL)).await.expect(201).directive("dispatch");
    let waiting = there.call("GET", "/api/effects/waited%20for").header("prefer", "wait=30").send();
    let owner = async {
        while !there.read("/metrics").await.expect(200).text.lines().any(|line| line == "actonce_waiters 1") {}
        here.outcome("waited for", &bodies::succeeded(&granted)).await.expect(200)
    };
    let (waited, _) = tokio::join!(waiting, owner);
    waited.expect(200).directive("replay");
}

/// What was acknowledged is there at both replicas, and of one tenant alone.
async fn everything_is_told(one: &Server, two: &Server, acknowledged: &[String]) {
    let apis = |server| ["a", "b"].map(|tenant| Api::of(server, tenant));
    let (here, there) = (apis(one), apis(two));
    for some in acknowledged.chunks(20) {
        let looks = some.iter().map(async |operation| {
            let (own, other) = if operation.starts_with('a') { (0, 1) } else { (1, 0) };
            here[own].get(operation).await.expect(200).state("completed");
            there[own].get(operation).await.expect(200).state("completed");
            here[other].get(operation).await.expect(404);
        });
        futures_util::future::join_all(looks).await;
    }
    for (api, tenant) in there.iter().zip(["a", "b"]) {
        let seen = api.pages("/api/effects?limit=200").await;
        let of: BTreeSet<&str> = seen.iter().map(|effect| &effect["operation_id"].as_str().unwrap()[..1]).collect();
        assert!(seen.len() > 5 && of == BTreeSet::from([tenant]), "{of:?}");
    }
}

/// The pooler kept to its few sessions, nothing of the service is left in them, and the journals hold.
async fn nothing_is_left(direct: &str, url: &str) {
    let through = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()
                   AND backend_type = 'client backend' AND pid <> pg_backend_pid()";
    // Each replica listens past the pooler with one session.
    let sessions = numbers(direct, through).await;
    assert!(sessions <= i64::try_from(SESSIONS).unwrap() + 2, "{sessions}");
    for _ in 0..4 * SESSIONS {
        assert_eq!(numbers(url, "SELECT count(*) FROM pg_prepared_statements").await, 0, "a statement was left");
        let set = "SELECT (coalesce(current_setting('actonce.tenants', true), '') <> '')::int::bigint";
        assert_eq!(numbers(url, set).await, 0, "tenants were left");
    }
    let mut verify = program();
    verify.args(["journal", "verify"]).env("DATABASE_URL", url).env("DATABASE_POOLING", "transaction");
    let verified = blocking(move || verify.output().unwrap()).await;
    let report: Value = serde_json::from_slice(&verified.stdout).unwrap();
    assert_eq!((verified.status.code(), &report["damaged"]), (Some(0), &Value::from(0)), "{report:#}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_share_few_sessions_and_still_act_at_most_once() {
    let Some(direct) = postgres::fresh_database() else { return };
    let Some(pooler) = Pooler::new(&direct) else { return };
    let pooler = Arc::new(pooler);
    let url = pooler.url(&direct);
    let plain = Options { database_url: Some(url.clone()), ..Options::default() };
    // Nothing is left to chance: the pooler is refused until the setting names it.
    let refused = {
        let plain = plain.clone();
        blocking(move || Server::try_start(plain)).await
    };
    let said = refused.expect_err("it does not start");
    assert!(said.contains("--database-pooling transaction"), "{said}");

    let options = plain.env("DATABASE_POOLING", "transaction").env("DATABASE_DIRECT_URL", &direct);
    let one = blocking(move || Server::start(options)).await;
    let (one, two) = blocking(move || {
        let two = one.replica();
        (one, two)
    })
    .await;
    let (downstream, until) = (Downstream::default(), Instant::now() + Duration::from_secs(5));
    let mut clients = tokio::task::JoinSet::new();
    for tenant in ["a", "b"] {
        external(&Api::of(&one, tenant)).await;
        // Each operation is wanted by four: two at each replica.
        for server in [&one, &one, &two, &two] {
            clients.spawn(client(Api::of(server, tenant), tenant, until, Arc::clone(&downstream)));
        }
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let broken = Arc::clone(&pooler);
    blocking(move || {
        broken.kill();
        std::thread::sleep(Duration::from_millis(500));
        broken.start();
    })
    .await;
    let acknowledged: Vec<String> = clients.join_all().await.into_iter().flatten().collect();
    assert!(acknowledged.len() > 20, "{}", acknowledged.len());

    let acts = downstream.lock().unwrap().clone();
    for (operation, dispatches) in &acts {
        assert_eq!(dispatches.len(), 1, "{operation}: {dispatches:?}");
    }
    everything_is_told(&one, &two, &acknowledged).await;
    hears(&Api::of(&one, "a"), &Api::of(&two, "a")).await;

    nothing_is_left(&direct, &url).await;
    blocking(move || {
        assert!(one.stop().success() && two.stop().success());
    })
    .await;
}
