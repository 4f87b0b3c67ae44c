//! The harness itself: a server starts, serves, stops, starts again; nothing of it is left behind.

use crate::support::downstream::{Downstream, Mode};
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores, unique};

both_stores!(serves_stops_and_starts_again, shared_server_keeps_tenants_apart);

async fn serves_stops_and_starts_again(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    api.put_tool("refund", &serde_json::json!({ "effect": "external" })).await.expect(201);
    let granted = api.intent(&bodies::claiming("op-1", "refund")).await.expect(201).directive("dispatch");
    api.outcome("op-1", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    let status = server.stop();
    assert!(status.success(), "{status}: {}", server.log());
    server.restart();
    let api = api.at(&server);
    api.get("op-1").await.expect(200).state("completed");
    server.kill9();
    server.restart();
    api.at(&server).get("op-1").await.expect(200).directive("replay");
}

async fn shared_server_keeps_tenants_apart(store: StoreUnderTest) {
    let (one, other) = (store.tenant(), store.tenant());
    let tool = unique("tool");
    one.put_tool(&tool, &serde_json::json!({ "effect": "none" })).await.expect(201);
    other.tool(&tool).await.problem(404, "not-found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_downstream_counts_what_it_commits() {
    let downstream = Downstream::start(Mode::Normal).await;
    assert_eq!(downstream.act("a").await.unwrap(), "re_1");
    downstream.set(Mode::CommitThenDrop);
    downstream.act("a").await.unwrap_err();
    downstream.set(Mode::Refuse);
    downstream.act("a").await.unwrap_err();
    assert_eq!((downstream.commits("a"), downstream.total()), (2, 2));
    let downstream = Downstream::idempotent(Mode::Normal).await;
    for _ in 0..2 {
        assert_eq!(downstream.act("a").await.unwrap(), "re_1");
    }
    assert_eq!(downstream.commits("a"), 1);
}
