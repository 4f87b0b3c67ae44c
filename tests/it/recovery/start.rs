//! The sweep at start, as operators see it after a crash.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection};
use tokio::task::JoinSet;

use super::{NEVER_US, doubtful, effect, live, prepared, take};
use crate::http::{TOOL, external};
use crate::scenarios::{crowd, entries, sql};
use crate::support::api::segment;
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_start_says_what_is_blocked_and_adds_nothing_to_any_journal,
    a_start_says_nothing_of_other_tenants,
    the_report_stands_under_the_base_path_too,
    bad_rows_block_their_own_roots_alone,
    a_tool_that_this_instance_does_not_know_is_left_alone,
    what_an_executor_held_at_the_start_is_said,
    a_store_that_fails_fails_the_start,
    five_hundred_leases_after_a_kill,
    what_stays_unresolved_and_sweeps_that_run_are_measured,
);

fn killed(server: &Server, api: &Api) -> Api {
    server.kill9();
    server.restart();
    api.at(server)
}

async fn report(api: &Api) -> Answer {
    api.read("/api/recovery/startup").await.expect(200)
}

fn blocked(report: &Answer) -> Vec<(String, Value)> {
    let sessions = report.json["blocked_sessions"].as_array().unwrap();
    sessions.iter().map(|one| (one["session_id"].as_str().unwrap().to_owned(), one["blocker_codes"].clone())).collect()
}

async fn a_start_says_what_is_blocked_and_adds_nothing_to_any_journal(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let fresh = report(&api).await;
    let expected = json!({
        "schema_version": 1, "completed": true, "status": "completed", "sweep_count": 1, "scheduled_roots": 0,
        "deferred_session_count": 0, "skipped_session_count": 0, "blocked_session_count": 0, "blocked_sessions": [],
        "blocked_sessions_truncated": false,
    });
    assert_eq!(fresh.json, expected);
    let guarded = json!({ "effect": "external", "authorization": { "mode": "approval" } });
    api.put_tool("guarded", &guarded).await.expect(201);
    prepared(&api, "prepared", "s-1").await;
    doubtful(&api, "doubtful", "s-7").await;
    live(&api, "live", "s-7").await;
    live(&api, "live-2", "s-8").await;
    let granted = live(&api, "verifying", "s-9").await;
    api.outcome("verifying", &bodies::receipted(&granted)).await.expect(200);
    api.intent(&bodies::with(bodies::intent("proposed", "guarded"), &json!({ "run_id": "r-1" }))).await.expect(201);
    let granted = live(&api, "done", "s-10").await;
    api.outcome("done", &bodies::succeeded(&granted)).await.expect(200);
    // Settled, and contradicted: nothing of it is incomplete.
    let granted = live(&api, "flagged", "s-11").await;
    api.outcome("flagged", &bodies::failed(&granted)).await.expect(200);
    api.outcome("flagged", &bodies::succeeded(&granted)).await.problem(409, "state-conflict");
    let (before, all) = (entries(&server), api.pages("/api/effects?limit=200").await);
    let mut reports = Vec::new();
    let mut api = api;
    for _ in 0..3 {
        api = killed(&server, &api);
        reports.push(report(&api).await);
    }
    let expected = [
        ("proposed-run", "r-1", json!(["tool_approval_required"])),
        ("both of its effects", "s-7", json!(["active_execution_owner", "tool_effect_outcome_unknown"])),
        ("live", "s-8", json!(["active_execution_owner"])),
        ("verifying", "s-9", json!(["tool_effect_continuation_required"])),
    ];
    for report in &reports {
        let mut found = blocked(report);
        found.sort_by(|one, other| one.0.cmp(&other.0));
        let expected: Vec<_> = expected.iter().map(|(_, root, codes)| ((*root).to_owned(), codes.clone())).collect();
        assert_eq!(found, expected, "{report}");
        for (count, value) in [
            ("scheduled_roots", 5),
            ("blocked_session_count", 4),
            ("deferred_session_count", 1),
            ("skipped_session_count", 1),
            ("sweep_count", 1),
        ] {
            assert_eq!(report.json[count], value, "{count}: {report}");
        }
        assert_eq!(report.json, reports[0].json, "repeated starts see the same");
    }
    assert_eq!(entries(&server), before, "and add no evidence");
    assert_eq!(api.pages("/api/effects?limit=200").await, all);
    // The live one is still its owner's.
    api.heartbeat("live", &bodies::heartbeat(&api.get("live").await)).await.expect(200);
    // Nothing of this is for everybody.
    api.with_token(None).read("/api/recovery/startup").await.problem(401, "unauthenticated");
}

async fn a_start_says_nothing_of_other_tenants(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let (own, foreign) = (Api::of(&server, "own"), Api::of(&server, "foreign"));
    for api in [&own, &foreign] {
        external(api).await;
    }
    doubtful(&own, "op", "s").await;
    for number in 0..3 {
        doubtful(&foreign, &format!("op-{number}"), &format!("secret-{number}")).await;
    }
    let own = killed(&server, &own);
    let found = report(&own).await;
    assert_eq!(blocked(&found), [("s".to_owned(), json!(["tool_effect_outcome_unknown"]))]);
    assert_eq!((found.at("/scheduled_roots"), found.at("/blocked_session_count")), (&json!(1), &json!(1)));
    let found = report(&foreign.at(&server)).await;
    assert_eq!((found.at("/scheduled_roots"), found.at("/blocked_session_count")), (&json!(3), &json!(3)));
    let nobody = report(&Api::of(&server, "nobody")).await;
    assert_eq!((nobody.at("/scheduled_roots"), nobody.at("/blocked_session_count")), (&json!(0), &json!(0)));
}

async fn the_report_stands_under_the_base_path_too(store: StoreUnderTest) {
    let server = store.server(Options::default().arg("--base-path").arg("/cayu"));
    assert!(server.url().ends_with("/cayu"), "{}", server.url());
    let mounted = Api::of(&server, "t");
    external(&mounted).await;
    doubtful(&mounted, "op", "s").await;
    let mounted = killed(&server, &mounted);
    let root = Api::new(server.url().strip_suffix("/cayu").unwrap(), "t", mounted.token.clone());
    let (under, above) = (report(&mounted).await, report(&root).await);
    assert_eq!(under.text, above.text);
    assert_eq!(blocked(&under), [("s".to_owned(), json!(["tool_effect_outcome_unknown"]))]);
    let plan = super::plan(&mounted, &json!({})).await;
    let mark = json!([{ "operation_id": "op", "action": "mark_failed", "message": "looked" }]);
    super::execute(&mounted, &super::execution(&plan, "e", mark)).await.expect(200);
    mounted.read("/api/recovery/executions/e").await.expect(200);
}

async fn bad_rows_block_their_own_roots_alone(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let bodies: Vec<Value> = (0..105)
        .map(|n| {
            bodies::with(bodies::intent(&format!("bad-{n:03}"), TOOL), &json!({ "session_id": format!("s-{n:03}") }))
        })
        .collect();
    api.post("/api/intents/batch", &json!({ "items": bodies })).await.expect(200);
    sql(&server, "UPDATE entries SET life = '{\"state\":\"hunter2\"}' WHERE tenant = 't'");
    doubtful(&api, "doubtful", "z-1").await;
    prepared(&api, "prepared", "z-2").await;
    live(&api, "expired", "z-3").await;
    let api = killed(&server, &api);
    let found = report(&api).await;
    assert_eq!((found.at("/status"), found.at("/scheduled_roots")), (&json!("completed"), &json!(107 + 1)));
    assert_eq!(found.at("/blocked_session_count"), 107);
    assert_eq!(found.at("/blocked_sessions_truncated"), true);
    let listed = blocked(&found);
    let expected: Vec<String> = (0..100).map(|n| format!("s-{n:03}")).collect();
    assert_eq!(listed.iter().map(|(root, _)| root.clone()).collect::<Vec<_>>(), expected);
    assert!(listed.iter().all(|(_, codes)| *codes == json!(["invalid_durable_state"])), "{found}");
    assert!(!found.text.contains("hunter2"));
    // The good ones are as good as ever, in plans too.
    let plan = super::plan(&api, &json!({ "session_ids": ["s-000", "z-2"] })).await;
    let items = plan.json["items"].as_array().unwrap();
    assert_eq!(items.len(), 2, "{plan}");
    let bad = items.iter().find(|item| item["operation_id"].is_null()).expect("the bad one");
    assert_eq!((&bad["blockers"], &bad["allowed_actions"]), (&json!(["invalid_durable_state"]), &json!([])));
    let done =
        super::execute(&api, &super::execution(&plan, "e", json!([super::repair("prepared")]))).await.expect(200);
    assert_eq!(done.at("/receipts/0/outcome"), "executed");
    api.intent(&bodies::claiming("new", TOOL)).await.expect(201).directive("dispatch");
}

/// The server again on the same data, with other options.
fn again(server: &Server, options: Options) -> Result<Server, String> {
    server.kill9();
    let database_url = server.database_url().map(str::to_owned);
    Server::try_start(Options { database_url, ..options }.data_dir(server.data_dir()))
}

/// An instance without a tenant's tools leaves their effects alone.
async fn a_tool_that_this_instance_does_not_know_is_left_alone(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_AD_HOC_TOOLS", "*"));
    let api = Api::of(&server, "t");
    prepared(&api, "prepared", "s-1").await;
    doubtful(&api, "doubtful", "s-2").await;
    let before = api.pages("/api/effects?limit=200").await;
    let strict = again(&server, Options::default().env("ACTONCE_AD_HOC_TOOLS", "")).unwrap();
    let api = api.at(&strict);
    let found = report(&api).await;
    let unknown = json!(["registration_unavailable", "tool_effect_outcome_unknown"]);
    let expected = [("s-1".to_owned(), json!(["registration_unavailable"])), ("s-2".to_owned(), unknown)];
    assert_eq!(blocked(&found), expected);
    let plan = super::plan(&api, &json!({})).await;
    assert_eq!(super::item(&plan, "prepared")["allowed_actions"], json!(["leave_intact"]));
    let states = |items: &[Value]| {
        items.iter().map(|item| (item["state"].clone(), item["revision"].clone())).collect::<Vec<_>>()
    };
    assert_eq!(
        states(&api.pages("/api/effects?limit=200").await),
        states(&before),
        "not settled, not sent to a person"
    );
}

async fn what_an_executor_held_at_the_start_is_said(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    prepared(&api, "op", "s").await;
    take(&server, &api, "op", NEVER_US);
    let api = killed(&server, &api);
    let found = report(&api).await;
    assert_eq!(blocked(&found), [("s".to_owned(), json!(["active_recovery_claim"]))]);
    assert_eq!(found.at("/deferred_session_count"), 1);
    take(&server, &api, "op", 1);
    let api = killed(&server, &api);
    assert_eq!(blocked(&report(&api).await), []);
    assert!(!effect(&server, &api, "op").is_empty());
}

async fn a_store_that_fails_fails_the_start(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    doubtful(&api, "op", "s").await;
    server.kill9();
    sql(&server, "ALTER TABLE recovery_claims RENAME TO elsewhere");
    let failure = again(&server, Options::default()).expect_err("the start fails");
    assert!(failure.contains("actonce: the recovery sweep at start: "), "{failure}");
    assert!(failure.contains("recovery_claims"), "{failure}");
    assert!(failure.contains("it ended; exit status: 2"), "{failure}");
    sql(&server, "ALTER TABLE elsewhere RENAME TO recovery_claims");
    server.restart();
    assert_eq!(report(&api.at(&server)).await.at("/blocked_session_count"), 1);
}

async fn five_hundred_leases_after_a_kill(store: StoreUnderTest) {
    const LEASES: usize = 500;
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let items: Vec<Value> = (0..LEASES)
        .map(|n| {
            let body = bodies::set(bodies::claiming(&format!("op-{n}"), TOOL), "/claim/lease_seconds", json!(3));
            bodies::with(body, &json!({ "session_id": format!("s-{}", n % 250) }))
        })
        .collect();
    for some in items.chunks(100) {
        let answer = api.post("/api/intents/batch", &json!({ "items": some })).await.expect(200);
        assert!(!answer.text.contains("/docs/errors/"), "{answer}");
    }
    server.kill9();
    tokio::time::sleep(Duration::from_millis(3_100)).await;
    let started = Instant::now();
    server.restart();
    let ready = started.elapsed();
    let api = api.at(&server);
    api.read("/readyz").await.expect(200);
    assert!(ready < Duration::from_secs(20), "{ready:?}");
    // New work is taken while the old is swept.
    let new = (0..50).map(|n| {
        let api = &api;
        async move { api.intent(&bodies::claiming(&format!("new-{n}"), TOOL)).await.expect(201).directive("dispatch") }
    });
    crowd(10, new).await;
    let found = report(&api).await;
    assert_eq!((found.at("/completed"), found.at("/blocked_session_count")), (&json!(true), &json!(250)));
    assert_eq!(found.at("/scheduled_roots"), 250, "what is new is not its business");
    assert_eq!(found.at("/blocked_sessions/0/blocker_codes"), &json!(["tool_effect_outcome_unknown"]));
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let left = api.pages("/api/effects?state=dispatched&limit=200").await;
        if left.iter().all(|item| item["operation_id"].as_str().unwrap().starts_with("new-")) {
            assert_eq!(left.len(), 50, "the sweep touches no live lease");
            break;
        }
        assert!(Instant::now() < until, "{} leases are left", left.len());
    }
    assert_eq!(api.pages("/api/effects?state=outcome_unknown&limit=200").await.len(), LEASES);
    let journal = api.read(&format!("/api/effects/{}/journal", segment("op-7"))).await.expect(200);
    assert_eq!(journal.json["items"].as_array().unwrap().len(), 2);
}

/// The metrics that the alert rules are about.
async fn what_stays_unresolved_and_sweeps_that_run_are_measured(store: StoreUnderTest) {
    let rules = include_str!("../../../deploy/prometheus/alerts.yml");
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    doubtful(&api, "secret-op", "s").await;
    live(&api, "live", "s").await;
    sql(&server, "UPDATE open_effects SET created_us = created_us - 90000000000 WHERE state = 5");
    let read = async |metric: &str| {
        assert!(rules.contains(metric.split('{').next().unwrap()), "{metric} has its rule");
        let text = api.read("/metrics").await.expect(200).text;
        assert!(!text.contains("secret-op"));
        let value = text.lines().find_map(|line| line.strip_prefix(metric).and_then(|rest| rest.strip_prefix(' ')));
        value.unwrap_or_else(|| panic!("no {metric}: {text}")).parse::<f64>().unwrap()
    };
    let doubt = read("effects_unresolved_age_seconds{state=\"outcome_unknown\"}").await;
    assert!((90_000.0..90_100.0).contains(&doubt), "{doubt}");
    let young = read("effects_unresolved_age_seconds{state=\"dispatched\"}").await;
    assert!(young < 100.0, "{young}");
    let before = read("actonce_sweeps_total").await;
    let until = Instant::now() + Duration::from_secs(20);
    while read("actonce_sweeps_total").await <= before {
        assert!(Instant::now() < until, "no sweep runs");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// A sweep that takes long: the process can be asked how far it is and takes nothing; after a while it
/// serves all the same, and the sweep goes on in the background.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_sweep_is_seen_and_goes_on_in_the_background() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let server = Arc::new(StoreUnderTest::Postgres.server(Options::default().arg("--base-path").arg("/cayu")));
    let api = Api::of(&server, "t");
    external(&api).await;
    doubtful(&api, "op", "s").await;
    server.kill9();
    // Whoever reads the claims waits for this one.
    let mut holder = PgConnection::connect(server.database_url().unwrap()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE recovery_claims IN ACCESS EXCLUSIVE MODE").execute(&mut holder).await.unwrap();
    let (started, before) = (Instant::now(), server.log().len());
    let starting = Arc::clone(&server);
    let mut restarting = JoinSet::new();
    restarting.spawn(crate::support::blocking(move || starting.restart()));
    let url = listening(&server, before).await;
    for root in [url.as_str(), url.strip_suffix("/cayu").unwrap()] {
        let early = Api::new(root, "t", api.token.clone());
        let early = early.with_token(Some(server.token("t", "early", "all")));
        asleep_but_alive(&early).await;
    }
    assert!(restarting.try_join_next().is_none(), "no ready line before requests are taken: {:?}", started.elapsed());
    restarting.join_next().await.unwrap().unwrap();
    let (ready, api) = (started.elapsed(), api.at(&server));
    assert!(ready > Duration::from_secs(9) && ready < Duration::from_secs(15), "{ready:?}");
    api.read("/readyz").await.expect(200);
    let running = report(&api).await;
    assert_eq!((running.at("/status"), running.at("/completed")), (&json!("running"), &json!(false)));
    api.intent(&bodies::claiming("new", TOOL)).await.expect(201).directive("dispatch");
    sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let now = report(&api).await;
        if now.json["status"] == "completed" {
            assert_eq!((now.at("/blocked_session_count"), now.at("/scheduled_roots")), (&json!(1), &json!(1)));
            break;
        }
        assert!(Instant::now() < until, "{now}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    drop(server);
}

/// The address of a server that does not say that it is ready.
async fn listening(server: &Server, before: usize) -> String {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        let log = server.log();
        let line = log[before..].lines().find(|line| line.contains("listening; looking at incomplete work"));
        if let Some((_, rest)) = line.and_then(|line| line.split_once("http://")) {
            let end = rest.find(|c: char| c == '"' || c.is_whitespace()).unwrap_or(rest.len());
            return format!("http://{}", &rest[..end]);
        }
        assert!(Instant::now() < until, "{log}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// What a server answers while it looks at incomplete work.
async fn asleep_but_alive(api: &Api) {
    api.read("/livez").await.expect(200);
    let red = api.read("/readyz").await.problem(503, "capacity");
    assert!(red.headers.contains_key("retry-after"), "{red}");
    let running = report(api).await;
    assert_eq!((running.at("/status"), running.at("/completed")), (&json!("running"), &json!(false)));
    api.get("op").await.state("outcome_unknown");
    api.read("/api/effects").await.expect(200);
    let granted = bodies::claiming("early", TOOL);
    for refused in [
        api.intent(&granted).await,
        api.put_tool("early", &json!({ "effect": "none" })).await,
        api.call("DELETE", "/api/tools/early").send().await,
        api.dispatch("op", &bodies::claim()).await,
        api.cancel("op").await,
        api.post("/api/recovery/plans", &json!({})).await,
    ] {
        let refused = refused.problem(503, "capacity");
        assert!(refused.headers.contains_key("retry-after"), "{refused}");
    }
    api.get("early").await.problem(404, "not-found");
    // Walls and tokens are where they always are.
    api.with_token(None).read("/api/recovery/startup").await.problem(401, "unauthenticated");
}
