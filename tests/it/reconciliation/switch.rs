//! A tool becomes automatic, or stops to be, while doubts are open.

use std::time::Duration;

use serde_json::json;

use super::{TOOL, doubtful, open, register, served, until};
use crate::scenarios::{count, sql};
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::api::Api;
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    open_doubts_are_asked_about_when_their_tool_becomes_automatic,
    a_tool_that_stops_being_automatic_stops_asking,
    the_note_to_wake_doubts_outlives_the_process,
    the_schema_before_knows_no_end_of_doubts_and_gets_it,
);

const AUTOMATIC: &str = "automatic";

fn settles(received: &crate::support::adapter::Received) -> Reply {
    let id = received.json()["operation_id"].as_str().unwrap().to_owned();
    Reply::Json(answers::settled(&bodies::receipt(&id)))
}

async fn open_doubts_are_asked_about_when_their_tool_becomes_automatic(store: StoreUnderTest) {
    let adapter = FakeAdapter::start(settles).await;
    let server = store.server(open());
    let other = server.replica();
    let api = Api::of(&server, "t");
    register(&api, &adapter, json!({})).await;
    api.put_tool("another", &json!({ "effect": "external" })).await.expect(201);
    for id in ["op-1", "op-2", "op-3"] {
        doubtful(&api, id).await;
    }
    let granted = api.intent(&bodies::claiming("op-4", "another")).await.expect(201);
    api.outcome("op-4", &bodies::unknown(&granted)).await.expect(200);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(adapter.calls(), 0, "nobody asked");
    // By another replica: the adapter is the same one, so the revision of the effects may settle them.
    register(&api.at(&other), &adapter, json!({ "reconciliation": AUTOMATIC })).await;
    for id in ["op-1", "op-2", "op-3"] {
        until(&api, id, "completed").await;
    }
    assert_eq!(adapter.calls(), 3, "once for each");
    api.get("op-4").await.state("outcome_unknown");
    assert_eq!(count(&server, "SELECT count(*) FROM doubt_wakes"), 0, "and it is done");
}

async fn a_tool_that_stops_being_automatic_stops_asking(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Json(answers::other("pending"))).await;
    let (server, api) = served(store, &adapter, json!({ "reconciliation": AUTOMATIC })).await;
    doubtful(&api, "op").await;
    while adapter.calls() < 2 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    register(&api, &adapter, json!({})).await;
    // A question that was under way, and the second for which the former registration may be known.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    let asked = adapter.calls();
    tokio::time::sleep(Duration::from_secs(4)).await;
    assert_eq!(adapter.calls(), asked, "it asks no more");
    api.get("op").await.state("outcome_unknown");
    let waits = "SELECT count(*) FROM open_effects WHERE due_us = deadline_us";
    assert_eq!(count(&server, waits), 1, "the deadline is what it waits for, and nothing spins");
    adapter.set(Reply::Json(answers::settled(&bodies::receipt("op"))));
    register(&api, &adapter, json!({ "reconciliation": AUTOMATIC })).await;
    until(&api, "op", "completed").await;
}

async fn the_note_to_wake_doubts_outlives_the_process(store: StoreUnderTest) {
    let adapter = FakeAdapter::start(settles).await;
    let (server, api) = served(store, &adapter, json!({})).await;
    doubtful(&api, "op").await;
    register(&api, &adapter, json!({ "reconciliation": AUTOMATIC })).await;
    server.kill9();
    assert_eq!(count(&server, "SELECT count(*) FROM doubt_wakes"), 1, "it died before anything was woken");
    assert_eq!(adapter.calls(), 0);
    server.restart();
    until(&api.at(&server), "op", "completed").await;
}

async fn the_schema_before_knows_no_end_of_doubts_and_gets_it(store: StoreUnderTest) {
    let adapter = FakeAdapter::start(settles).await;
    let (server, api) = served(store, &adapter, json!({})).await;
    doubtful(&api, "op").await;
    doubtful(&api, "spoilt").await;
    api.intent(&bodies::claiming("dispatched", TOOL)).await.expect(201);
    let of_op = |what: &str| {
        format!(
            "SELECT {what} FROM open_effects o JOIN entries e ON e.tenant = o.tenant AND e.effect = o.effect
            WHERE e.revision = 1 AND e.intent LIKE '%\"operation_id\":\"op\"%'"
        )
    };
    let end = count(&server, &of_op("deadline_us"));
    assert!(end > 1_700_000_000_000_000, "{end}");
    assert_eq!(count(&server, "SELECT count(*) FROM open_effects WHERE deadline_us IS NOT NULL"), 2, "doubts alone");
    register(&api, &adapter, json!({ "reconciliation": AUTOMATIC })).await;
    server.kill9();
    sql(
        &server,
        "UPDATE entries SET life = 'hunter2' WHERE revision > 1 AND effect = (SELECT effect FROM entries
            WHERE intent LIKE '%\"operation_id\":\"spoilt\"%');
         ALTER TABLE open_effects DROP COLUMN deadline_us; DROP TABLE doubt_wakes;
         DELETE FROM _sqlx_migrations WHERE version = 11",
    );
    adapter.set(Reply::Hang);
    server.restart();
    let api = api.at(&server);
    assert_eq!(count(&server, &of_op("deadline_us")), end, "to the microsecond");
    assert_eq!(count(&server, "SELECT count(*) FROM open_effects WHERE deadline_us IS NOT NULL"), 1, "none is made up");
    // What is automatic at the migration is noted there, whoever made it so.
    adapter.set(Reply::Json(answers::settled(&bodies::receipt("op"))));
    until(&api, "op", "completed").await;
}
