//! What was acknowledged holds after the process was killed, and another process says the same
//! (laws 9 and 14).

use serde_json::json;

use crate::http::{TOOL, external};
use crate::support::{Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(
    everything_acknowledged_is_there_after_a_kill,
    leases_go_on_while_nothing_runs,
    a_stop_finishes_what_is_in_flight,
);

fn killed(server: &Server, api: &Api) -> Api {
    server.kill9();
    server.restart();
    api.at(server)
}

async fn everything_acknowledged_is_there_after_a_kill(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let live = bodies::claiming("live", TOOL);
    let granted = api.intent(&live).await.expect(201).directive("dispatch");
    let done = api.intent(&bodies::claiming("done", TOOL)).await.expect(201);
    let report = bodies::with(bodies::succeeded(&done), &json!({ "result": { "b": 1.0, "a": "é" } }));
    let settled = api.outcome("done", &report).await.expect(200).state("completed");
    let retry = api.intent(&bodies::claiming("retry", TOOL)).await.expect(201);
    api.outcome("retry", &bodies::not_sent(&retry)).await.expect(200);
    let before = (api.pages("/api/effects?limit=200").await, api.journal("done").await, api.tool(TOOL).await.json);
    let page = api.list("limit=1").await;
    let api = killed(&server, &api);
    let after = (api.pages("/api/effects?limit=200").await, api.journal("done").await, api.tool(TOOL).await.json);
    assert_eq!(after, before);
    api.list(&format!("limit=1&cursor={}", page.str("/next_cursor"))).await.expect(200);
    // The lost answer, from the process that still holds the claim id.
    let again = api.intent(&live).await.expect(200).directive("dispatch");
    assert_eq!(again.json["dispatch"], granted.json["dispatch"]);
    api.intent(&bodies::claiming("live", TOOL)).await.expect(200).directive("wait");
    api.heartbeat("live", &bodies::heartbeat(&granted)).await.expect(200);
    // The recorded answer, byte for byte; the report again is a repeat.
    let replay = api.intent(&bodies::claiming("done", TOOL)).await.expect(200).directive("replay");
    let result = |text: &str| text[text.find("\"receipt\":").unwrap()..].to_owned();
    assert_eq!(result(&replay.text), result(&settled.text));
    assert_eq!(api.outcome("done", &report).await.expect(200).revision(), settled.revision());
    // The same key on the next attempt.
    let second = api.dispatch("retry", &bodies::claim()).await.expect(200).directive("dispatch");
    assert_eq!(second.json["dispatch"]["idempotency_key"], retry.json["dispatch"]["idempotency_key"]);
    assert_eq!(second.at("/dispatch/fence"), 2);
}

async fn leases_go_on_while_nothing_runs(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let brief = bodies::set(bodies::claiming("op", TOOL), "/claim/lease_seconds", json!(1));
    api.intent(&brief).await.expect(201).directive("dispatch");
    server.kill9();
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    server.restart();
    let api = api.at(&server);
    // Its time is over, whoever asks first: the sweep, or the owner itself.
    api.intent(&brief).await.expect(200).state("outcome_unknown").directive("reconcile");
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("reconcile");
}

async fn a_stop_finishes_what_is_in_flight(store: StoreUnderTest) {
    let server = std::sync::Arc::new(store.server(Options::default()));
    let api = Api::of(&server, "t");
    external(&api).await;
    api.intent(&bodies::claiming("op", TOOL)).await.expect(201);
    let waiting = api.call("GET", "/api/effects/op").header("prefer", "wait=30").send();
    let stopping = async {
        // The waiter is in the service before it is told to stop.
        loop {
            let metrics = api.read("/metrics").await.expect(200).text;
            if metrics.lines().any(|line| line == "actonce_waiters 1") {
                break;
            }
        }
        let server = std::sync::Arc::clone(&server);
        crate::support::blocking(move || server.stop()).await
    };
    let started = std::time::Instant::now();
    let (waited, status) = tokio::join!(waiting, stopping);
    waited.expect(200).directive("wait");
    assert!(status.success(), "{status}: {}", server.log());
    assert!(started.elapsed() < std::time::Duration::from_secs(20), "a wait does not hold up a stop");
}
