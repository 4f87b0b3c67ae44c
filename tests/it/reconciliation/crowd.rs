//! One dead adapter slows nobody else, and wedged tools of one tenant leave room for others.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{open, until};
use crate::scenarios::count;
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::api::Api;
use crate::support::{Server, StoreUnderTest, bodies, both_stores};

both_stores!(
    one_dead_adapter_slows_nobody_else,
    a_crowd_is_told_to_come_back,
    wedged_tools_of_one_tenant_leave_room_for_others,
);

const TOOLS: usize = 50;
/// Effects per round; `ACTONCE_TEST_CROWD` sets another number, such as 10,000.
const EFFECTS: usize = 1_000;

fn effects() -> usize {
    std::env::var("ACTONCE_TEST_CROWD").ok().and_then(|text| text.parse().ok()).unwrap_or(EFFECTS)
}

fn tool(round: &str, n: usize) -> String {
    format!("{round}-{n}")
}

fn spec(adapter: &FakeAdapter, mode: &str) -> Value {
    json!({ "effect": "external", "verification": "waived", "reconciliation": mode, "on_suspected_duplicate": "allow",
        "adapter": bodies::with(adapter.spec(), &json!({ "verify": false, "timeout_seconds": 20 })) })
}

/// Doubts of all tools of a round, of which nobody asks about any yet.
async fn load(api: &Api, round: &str, number: usize) {
    let all: Vec<usize> = (0..number).collect();
    for some in all.chunks(200) {
        let intent = |n: &usize| bodies::claiming(&format!("{round}-op-{n}"), &tool(round, n % TOOLS));
        let items: Vec<Value> = some.iter().map(intent).collect();
        let granted = api.post("/api/intents/batch", &json!({ "items": items })).await.expect(200);
        let unknown = |item: &Value| {
            let effect = &item["effect"];
            json!({ "operation_id": effect["operation_id"], "dispatch_id": effect["dispatch"]["dispatch_id"],
                "fence": effect["dispatch"]["fence"],
                "outcome": "unknown", "failure_evidence": { "classification": "timeout", "phase": "in_flight" } })
        };
        let items: Vec<Value> = granted.at("/items").as_array().unwrap().iter().map(unknown).collect();
        let told = api.post("/api/outcomes/batch", &json!({ "items": items })).await.expect(200);
        let is_doubt = |item: &Value| item["effect"]["state"] == "outcome_unknown";
        assert!(told.at("/items").as_array().unwrap().iter().all(is_doubt), "{told}");
    }
}

/// How long the doubts of all tools but the first take, from when the service begins to ask.
async fn round(server: &Server, api: &Api, name: &str, adapters: [&FakeAdapter; 2], number: usize) -> Duration {
    let adapter = |n: usize| adapters[usize::from(n > 0)];
    for n in 0..TOOLS {
        api.put_tool(&tool(name, n), &spec(adapter(n), "explicit")).await.expect(201);
    }
    load(api, name, number).await;
    let asked = adapters[1].calls();
    // The first one's first, so that they are asked about first.
    for n in 0..TOOLS {
        api.put_tool(&tool(name, n), &spec(adapter(n), "automatic")).await.expect(200);
    }
    while adapters[1].calls() == asked {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let since = Instant::now();
    let left = format!("SELECT count(*) FROM open_effects WHERE state = 5 AND tool <> '{}'", tool(name, 0));
    while count(server, &left) > 0 {
        assert!(since.elapsed() < Duration::from_mins(10), "{} are left", count(server, &left));
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    since.elapsed()
}

async fn one_dead_adapter_slows_nobody_else(store: StoreUnderTest) {
    let settles = |received: &crate::support::adapter::Received| {
        let id = received.json()["operation_id"].as_str().unwrap().to_owned();
        Reply::Json(answers::settled(&bodies::receipt(&id)))
    };
    let good = FakeAdapter::start(settles).await;
    let dead = FakeAdapter::always(Reply::Hang).await;
    let server = store.server(open());
    let api = Api::of(&server, "t");
    let number = effects();
    let without = round(&server, &api, "alive", [&good, &good], number).await;
    let begun = good.calls();
    let beside = round(&server, &api, "dead", [&dead, &good], number).await;
    eprintln!("{number} doubts of {TOOLS} tools: {without:?} without a dead adapter, {beside:?} beside one");
    assert!(beside < without * 2 + Duration::from_secs(3), "{beside:?} instead of {without:?}");
    assert_eq!(good.calls() - begun, number - number.div_ceil(TOOLS), "each is asked about once");
    assert!(dead.calls() >= 8, "and the dead one was asked: {}", dead.calls());
    let left = "SELECT count(*) FROM open_effects WHERE state = 5 AND tool = 'dead-0'";
    assert_eq!(count(&server, left), i64::try_from(number.div_ceil(TOOLS)).unwrap(), "its doubts stay");
}

async fn a_crowd_is_told_to_come_back(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Hang).await;
    let (_server, api) = super::served(store, &adapter, json!({})).await;
    let mut admitted = 0;
    for n in 0..12 {
        let id = format!("op-{n}");
        let found = super::doubtful(&api, &id).await;
        let answer = super::asking(&api, &id, &super::lookup(&found)).send().await;
        match answer.status.as_u16() {
            202 => admitted += 1,
            _ => {
                let answer = answer.problem(503, "capacity");
                assert!(answer.header("retry-after").is_some(), "{answer}");
                assert_eq!(api.get(&id).await.revision(), found.revision(), "nothing was admitted");
            }
        }
    }
    assert_eq!(admitted, 8, "calls of one tool at once");
}

async fn wedged_tools_of_one_tenant_leave_room_for_others(store: StoreUnderTest) {
    let wedged = FakeAdapter::always(Reply::Hang).await;
    let good = FakeAdapter::always(Reply::Json(answers::settled(&bodies::receipt("theirs")))).await;
    let server = store.server(open());
    let api = Api::of(&server, "t");
    let other = Api::of(&server, "u");
    let ask = async |api: &Api, id: &str, tool: &str| {
        let granted = api.intent(&bodies::claiming(id, tool)).await.expect(201);
        let found = api.outcome(id, &bodies::unknown(&granted)).await.expect(200);
        let body = json!({ "expected_revision": found.revision(), "lookup": true });
        super::asking(api, id, &body).send().await
    };
    for n in 0..4 {
        api.put_tool(&format!("wedged-{n}"), &spec(&wedged, "explicit")).await.expect(201);
    }
    other.put_tool("tool", &spec(&good, "explicit")).await.expect(201);
    let mut admitted = 0;
    for n in 0..28 {
        let answer = ask(&api, &format!("op-{n}"), &format!("wedged-{}", n % 4)).await;
        admitted += usize::from(answer.status == 202);
        assert!(matches!(answer.status.as_u16(), 202 | 503), "{answer}");
    }
    assert_eq!(admitted, 16, "calls of one tenant at once, of however many tools");
    // 200 where it was settled before it was answered.
    let answer = ask(&other, "theirs", "tool").await;
    assert!(matches!(answer.status.as_u16(), 200 | 202), "{answer}");
    until(&other, "theirs", "completed").await;
}
