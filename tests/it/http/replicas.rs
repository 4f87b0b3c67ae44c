//! Several processes on one database say the same: replicas on Postgres, and on SQLite an old and
//! a new process that overlap.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::{TOOL, external};
use crate::support::{Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(
    what_one_replica_answered_the_other_knows,
    one_owner_over_all_replicas,
    a_changed_tool_counts_on_all_replicas,
    a_wait_on_one_replica_hears_of_the_other,
    the_surviving_replica_goes_on,
);

/// Two replicas on one database, and a client of each.
fn two(store: StoreUnderTest) -> (Server, Server, Api, Api) {
    let one = store.server(Options::default());
    let two = one.replica();
    let (a, b) = (Api::of(&one, "t"), Api::of(&two, "t"));
    (one, two, a, b)
}

async fn what_one_replica_answered_the_other_knows(store: StoreUnderTest) {
    let (_one, _two, a, b) = two(store);
    b.intent(&bodies::intent("early", TOOL)).await.problem(400, "invalid-request").faults_at(&["/tool"]);
    external(&a).await;
    let body = bodies::claiming("op", TOOL);
    let granted = b.intent(&body).await.expect(201).directive("dispatch");
    let again = a.intent(&body).await.expect(200).directive("dispatch");
    assert_eq!(again.json["dispatch"], granted.json["dispatch"], "one key, one dispatch, one answer");
    a.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("wait");
    a.intent(&bodies::with(body.clone(), &json!({ "target": "x" }))).await.problem(422, "operation-reused");
    a.heartbeat("op", &bodies::heartbeat(&granted)).await.expect(200);
    b.heartbeat("op", &bodies::heartbeat(&granted)).await.expect(200);
    let report = bodies::with(bodies::succeeded(&granted), &json!({ "result": { "b": 1.0 } }));
    let done = a.outcome("op", &report).await.expect(200).state("completed");
    for api in [&a, &b] {
        let found = api.get("op").await.directive("replay");
        assert_eq!((found.revision(), &found.json["result"]), (done.revision(), &json!({ "b": 1.0 })));
        api.intent(&body).await.expect(200).directive("replay");
        assert_eq!(api.outcome("op", &report).await.expect(200).revision(), done.revision());
        assert_eq!(api.journal("op").await.len(), 2);
        assert_eq!(api.pages("/api/effects?limit=10").await.len(), 1);
    }
    // Each has seen the effect; a change of one is a change for the other.
    let next = b.intent(&bodies::claiming("next", TOOL)).await.expect(201);
    a.get("next").await.directive("wait");
    b.outcome("next", &bodies::not_sent(&next)).await.expect(200);
    let second = a.dispatch("next", &bodies::claim()).await.expect(200).directive("dispatch");
    b.outcome("next", &bodies::unknown(&next)).await.problem(409, "stale-fence");
    b.outcome("next", &bodies::succeeded(&second)).await.expect(200).state("completed");
    a.cancel("next").await.problem(409, "state-conflict");
    let page = a.list("limit=1").await.expect(200);
    b.list(&format!("limit=1&cursor={}", page.str("/next_cursor"))).await.expect(200);
}

async fn one_owner_over_all_replicas(store: StoreUnderTest) {
    let (_one, _two, a, b) = two(store);
    external(&a).await;
    for round in 0..10 {
        let id = format!("op-{round}");
        let posts = (0..8).map(|n| {
            let api = if n % 2 == 0 { a.clone() } else { b.clone() };
            let body = bodies::claiming(&id, TOOL);
            async move { api.intent(&body).await }
        });
        let answers = futures_util::future::join_all(posts).await;
        let count = |directive: &str| answers.iter().filter(|answer| answer.json["directive"] == directive).count();
        assert_eq!((count("dispatch"), count("wait")), (1, 7), "{answers:#?}");
        // Twins under different ids, half of them here and half of them there.
        let posts = (0..6).map(|n| {
            let api = if n % 2 == 0 { a.clone() } else { b.clone() };
            let body = bodies::claiming(&format!("twin-{round}-{n}"), TOOL);
            let body = bodies::with(body, &json!({ "arguments": { "round": round } }));
            async move { api.intent(&body).await }
        });
        let answers = futures_util::future::join_all(posts).await;
        let won = answers.iter().filter(|answer| answer.json["directive"] == "dispatch").count();
        let refused = answers.iter().filter(|answer| answer.status == 409).count();
        assert_eq!((won, refused), (1, 5), "{answers:#?}");
    }
}

async fn a_changed_tool_counts_on_all_replicas(store: StoreUnderTest) {
    let (_one, _two, a, b) = two(store);
    external(&a).await;
    b.intent(&bodies::claiming("before", TOOL)).await.expect(201).directive("dispatch");
    // The other one has the registration at hand; a grant is bound to the newest all the same.
    a.pause(TOOL).await.expect(200);
    b.intent(&bodies::claiming("paused", TOOL)).await.expect(201).directive("stop");
    a.resume(TOOL).await.expect(200);
    // What is not granted may be answered from what was known a moment ago.
    let until = Instant::now() + Duration::from_secs(15);
    while b.dispatch("paused", &bodies::claim()).await.expect(200).json["directive"] != "dispatch" {
        assert!(Instant::now() < until, "the resumed tool grants nothing");
    }
    a.put_tool(TOOL, &json!({ "effect": "external", "lease_seconds": 600 })).await.expect(200);
    let granted = b.intent(&bodies::claiming("after", TOOL)).await.expect(201).directive("dispatch");
    assert_eq!(granted.at("/tool_revision"), 2, "an effect is made under the newest registration");
    assert_eq!(b.tool(TOOL).await.revision(), 2);
    a.put_tool("unused", &json!({ "effect": "none" })).await.expect(201);
    b.tool("unused").await.expect(200);
    a.delete_tool("unused").await.expect(204);
    b.tool("unused").await.problem(404, "not-found");
}

async fn a_wait_on_one_replica_hears_of_the_other(store: StoreUnderTest) {
    let (_one, _two, a, b) = two(store);
    external(&a).await;
    let granted = a.intent(&bodies::claiming("op", TOOL)).await.expect(201).directive("dispatch");
    let waiting = b.call("GET", "/api/effects/op").header("prefer", "wait=30").send();
    let owner = async {
        loop {
            let metrics = b.read("/metrics").await.expect(200).text;
            if metrics.lines().any(|line| line == "actonce_waiters 1") {
                break;
            }
        }
        a.outcome("op", &bodies::succeeded(&granted)).await.expect(200)
    };
    let started = Instant::now();
    let (waited, _) = tokio::join!(waiting, owner);
    waited.expect(200).directive("replay");
    assert!(started.elapsed() < Duration::from_secs(15), "{:?}", started.elapsed());
}

async fn the_surviving_replica_goes_on(store: StoreUnderTest) {
    let (one, _two, a, b) = two(store);
    external(&a).await;
    let brief = bodies::set(bodies::claiming("brief", TOOL), "/claim/lease_seconds", json!(1));
    a.intent(&brief).await.expect(201).directive("dispatch");
    let live = bodies::claiming("live", TOOL);
    let granted = a.intent(&live).await.expect(201).directive("dispatch");
    one.kill9();
    assert_eq!(b.intent(&live).await.expect(200).json["dispatch"], granted.json["dispatch"]);
    let waited = b.call("GET", "/api/effects/brief").header("prefer", "wait=30").send().await;
    waited.expect(200).state("outcome_unknown").directive("reconcile");
    b.outcome("live", &bodies::succeeded(&granted)).await.expect(200).state("completed");
}
