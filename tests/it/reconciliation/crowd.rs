//! One dead adapter slows nobody else.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{open, until};
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::api::Api;
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(one_dead_adapter_slows_nobody_else, a_crowd_is_told_to_come_back);

/// Tools, and effects of each.
const TOOLS: usize = 10;
const EFFECTS: usize = 40;

async fn one_dead_adapter_slows_nobody_else(store: StoreUnderTest) {
    let good = FakeAdapter::start(|received| {
        let id = received.json()["operation_id"].as_str().unwrap().to_owned();
        Reply::Json(answers::settled(&bodies::receipt(&id)))
    })
    .await;
    let dead = FakeAdapter::always(Reply::Hang).await;
    let server = store.server(open());
    let api = Api::of(&server, "t");
    let tool = |n: usize| format!("tool-{n}");
    let id = |n: usize, m: usize| format!("op-{n}-{m}");
    for n in 0..TOOLS {
        let adapter = if n == 0 { &dead } else { &good };
        let spec = json!({ "effect": "external", "verification": "waived", "reconciliation": "automatic",
            "on_suspected_duplicate": "allow",
            "adapter": bodies::with(adapter.spec(), &json!({ "verify": false, "timeout_seconds": 20 })) });
        api.put_tool(&tool(n), &spec).await.expect(201);
    }
    // The dead one's first, so that they are asked about first.
    for n in 0..TOOLS {
        for m in 0..EFFECTS {
            let granted = api.intent(&bodies::claiming(&id(n, m), &tool(n))).await.expect(201);
            api.outcome(&id(n, m), &bodies::unknown(&granted)).await.expect(200);
        }
    }
    let since = Instant::now();
    for n in 1..TOOLS {
        for m in 0..EFFECTS {
            until(&api, &id(n, m), "completed").await;
        }
    }
    // The dead adapter's own questions last 20 s each; the others did not wait for one of them.
    assert!(since.elapsed() < Duration::from_secs(15), "{:?}", since.elapsed());
    assert!(dead.calls() <= 8, "{} questions to the dead one at once", dead.calls());
    assert_eq!(good.calls(), (TOOLS - 1) * EFFECTS);
    api.get(&id(0, 0)).await.state("outcome_unknown");
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
