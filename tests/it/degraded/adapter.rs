//! The network to an adapter is gone: the doubt stays, the pauses grow, and when it is back the doubt is settled.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::reconciliation::{doubtful, open};
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(without_a_network_the_doubt_stays_and_is_settled_afterwards);

async fn without_a_network_the_doubt_stays_and_is_settled_afterwards(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let (address, secret) = (adapter.address, adapter.spec());
    let server = store.server(open());
    let api = Api::of(&server, "t");
    let spec = json!({ "effect": "external", "settle_window_seconds": 0, "verification": "waived",
        "reconciliation": "automatic", "adapter": bodies::with(secret, &json!({ "verify": false })) });
    api.put_tool(crate::http::TOOL, &spec).await.expect(201);
    drop(adapter);
    doubtful(&api, "op").await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(6) {
        api.get("op").await.expect(200).state("outcome_unknown").directive("reconcile");
        let other = api.dispatch("op", &bodies::claim()).await.expect(200);
        assert_eq!(other.json["directive"], "reconcile", "nobody acts: {other}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    // It asks again and again, more and more rarely; nothing else suffers.
    let metrics = api.read("/metrics").await.expect(200).text;
    let failed: f64 = metrics
        .lines()
        .filter(|line| line.starts_with("actonce_adapter_calls_total{") && !line.contains("result=\"answered\""))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
        .sum();
    assert!((2.0..=6.0).contains(&failed), "{failed} tries in six seconds");
    assert!(api.journal("op").await.len() <= 10, "a failed try is not a line each");
    api.read("/readyz").await.expect(200);

    let back = FakeAdapter::at(address, |_| Reply::Json(answers::settled(&bodies::receipt("op")))).await;
    let until = Instant::now() + Duration::from_secs(40);
    while api.get("op").await.expect(200).str("/state") != "completed" {
        assert!(Instant::now() < until, "it is not asked again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(back.calls(), 1);
}
