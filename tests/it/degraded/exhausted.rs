//! Postgres has no connection left for the service (53300): it says so within a bound, piles nothing up, and comes back.

use std::time::{Duration, Instant};

use super::{readiness, unavailable};
use crate::http::{TOOL, external};
use crate::scenarios::intact;
use crate::support::{Api, Options, Server, blocking, bodies, postgres, unique};

/// The longest that anybody waits: 5 s behind a batch that waits for a connection, and as long for the next one. Below
/// 15 s, as who waited for its turn at the connections must not wait as long again for the connection itself.
const BOUND: Duration = Duration::from_secs(14);
/// The longest that somebody alone waits: 5 s, and not once more for another question to the same store.
const ALONE: Duration = Duration::from_secs(9);

/// As a superuser.
async fn on_server(sql: String) {
    blocking(move || postgres::run(&postgres::as_admin(postgres::server().unwrap()).unwrap(), &sql)).await;
}

/// Memory of a process in kB.
fn resident(server: &Server) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_connection_it_says_so_in_time_and_comes_back() {
    let Some(url) = postgres::fresh_database() else { return };
    let role = unique("actonce_few").replace('-', "_");
    let mut named = reqwest::Url::parse(&url).unwrap();
    if named.password().is_some() || postgres::as_admin(&url).is_none() {
        eprintln!("SKIPPED: no connection left, as no role without password can be made here");
        return;
    }
    named.set_username(&role).unwrap();
    let database = named.path().trim_start_matches('/').to_owned();
    on_server(format!("CREATE ROLE {role} LOGIN")).await;
    on_server(format!("ALTER DATABASE {database} OWNER TO {role}")).await;
    let server = Server::start(Options { database_url: Some(named.to_string()), ..Options::default() });
    let api = &Api::of(&server, "t");
    external(api).await;
    let granted = api.intent(&bodies::claiming("before", TOOL)).await.expect(201).directive("dispatch");
    let before = resident(&server);

    on_server(format!("ALTER ROLE {role} CONNECTION LIMIT 0")).await;
    on_server(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = '{role}'")).await;
    let many = (0..300).map(|n| async move {
        let began = Instant::now();
        let answer = match n % 3 {
            0 => api.intent(&bodies::claiming(&format!("during-{n}"), TOOL)).await,
            1 => api.get(&format!("unknown-{n}")).await,
            _ => api.list("limit=1").await,
        };
        unavailable(answer);
        assert!(began.elapsed() < BOUND, "{:?}", began.elapsed());
    });
    futures_util::future::join_all(many).await;
    readiness(api, 503).await;
    let began = Instant::now();
    unavailable(api.intent(&bodies::claiming("alone", TOOL)).await);
    assert!(began.elapsed() < ALONE, "{:?}", began.elapsed());
    unavailable(api.outcome("before", &bodies::succeeded(&granted)).await);
    let more = resident(&server).saturating_sub(before);
    assert!(more < 64 * 1024, "{more} kB more");

    on_server(format!("ALTER ROLE {role} CONNECTION LIMIT -1")).await;
    readiness(api, 200).await;
    api.outcome("before", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    api.intent(&bodies::claiming("during-0", TOOL)).await.expect(201).directive("dispatch");
    api.get("during-3").await.problem(404, "not-found");
    assert_eq!(intact(&server)["entries"], 3, "nothing of what was refused came later");
}
