//! One open attempt; the same question, the same answer; a newer one makes the older stale.

use std::time::Duration;

use serde_json::json;

use super::{TOOL, asking, doubtful, lookup, open, reconciled, register, served, until};
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::api::Api;
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    the_same_request_gets_the_same_answer_without_a_call_or_an_entry,
    a_newer_request_supersedes_and_the_late_answer_has_no_authority,
    a_wrong_revision_tool_or_state_changes_nothing,
    a_crash_between_admission_and_settlement_is_continued,
    replicas_that_race_settle_once,
    the_owner_s_receipt_beats_a_lookup_under_way,
);

async fn the_same_request_gets_the_same_answer_without_a_call_or_an_entry(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Json(answers::not_seen())).await;
    let (server, api) = served(store, &adapter, json!({})).await;
    let found = doubtful(&api, "op").await;
    let body =
        bodies::with(lookup(&found), &json!({ "worker": "ann", "handoff_id": "h-1", "review_reference": "r-1" }));
    let first = reconciled(&api, "op", &body).await.expect(200);
    let entries = api.journal("op").await;
    let started = &entries[entries.len() - 2]["events"][0];
    assert_eq!(started["worker"], "ann");
    assert_eq!((&started["handoff_id"], &started["review_reference"]), (&json!("h-1"), &json!("r-1")));
    let replica = server.replica();
    for api in [&api, &api.at(&replica)] {
        assert_eq!(reconciled(api, "op", &body).await.expect(200).json, first.json);
    }
    drop(replica);
    server.kill9();
    server.restart();
    let api = api.at(&server);
    assert_eq!(reconciled(&api, "op", &body).await.expect(200).json, first.json);
    assert_eq!((api.journal("op").await.len(), adapter.calls()), (entries.len(), 1));
    // Another reference is another request, and the revision it names has gone.
    let other = bodies::with(body, &json!({ "review_reference": "r-2" }));
    reconciled(&api, "op", &other).await.problem(412, "stale-revision");
}

async fn a_newer_request_supersedes_and_the_late_answer_has_no_authority(store: StoreUnderTest) {
    let late = answers::settled(&bodies::receipt("op"));
    let adapter = FakeAdapter::always(Reply::Late(Duration::from_millis(1500), late)).await;
    let (_server, api) = served(store, &adapter, json!({})).await;
    let found = doubtful(&api, "op").await;
    let first = lookup(&found);
    let admitted = asking(&api, "op", &first).send().await.expect(202);
    assert_eq!(admitted.str("/status"), "open");
    assert_eq!(api.read(admitted.header("location").unwrap()).await.expect(200).str("/status"), "open");
    while adapter.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // A newer one takes its place while it is under way.
    adapter.set(Reply::Json(answers::other("pending")));
    let current = api.get("op").await;
    let newer = reconciled(&api, "op", &lookup(&current)).await.expect(200);
    assert_eq!(newer.str("/observation"), "pending");
    let entries = api.journal("op").await;
    let kinds: Vec<_> =
        entries[entries.len() - 2]["events"].as_array().unwrap().iter().map(|e| e["type"].clone()).collect();
    assert_eq!(kinds, ["effect.reconciliation.conflict", "effect.reconciliation.started"]);
    tokio::time::sleep(Duration::from_secs(2)).await;
    api.get("op").await.state("outcome_unknown");
    assert_eq!(api.journal("op").await.len(), entries.len(), "the late answer wrote nothing");
    reconciled(&api, "op", &first).await.problem(409, "stale-request");
    let told = api.read(admitted.header("location").unwrap()).await.expect(200);
    assert_eq!(told.str("/status"), "superseded");
}

async fn a_wrong_revision_tool_or_state_changes_nothing(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let (_server, api) = served(store, &adapter, json!({})).await;
    let found = doubtful(&api, "op").await;
    let body = lookup(&found);
    let revision = found.revision();
    for wrong in [revision - 1, revision + 1] {
        let body = bodies::with(body.clone(), &json!({ "expected_revision": wrong }));
        let answer = reconciled(&api, "op", &body).await.problem(412, "stale-revision");
        assert_eq!(answer.at("/found/revision"), revision);
    }
    for (member, value, pointer) in [
        ("tool", json!("another"), "/tool"),
        ("operation_id", json!("another"), "/operation_id"),
        ("lookup", json!(false), "/lookup"),
        ("handoff_id", json!("h"), "/worker"),
        ("idempotency_key", json!("nonsense"), "/idempotency_key"),
    ] {
        let body = bodies::with(body.clone(), &json!({ member: value }));
        reconciled(&api, "op", &body).await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    let both = bodies::with(body.clone(), &json!({ "journal": { "disposition": "unresolved" } }));
    reconciled(&api, "op", &both).await.problem(400, "invalid-request").faults_at(&[""]);
    let neither = bodies::without(body.clone(), "lookup");
    reconciled(&api, "op", &neither).await.problem(400, "invalid-request").faults_at(&[""]);
    let state = bodies::with(body.clone(), &json!({ "state": "manual_review" }));
    reconciled(&api, "op", &state).await.problem(412, "stale-revision");
    assert_eq!((api.get("op").await.revision(), adapter.calls()), (revision, 0));
    // What is not in doubt can't be reconciled.
    let granted = api.intent(&bodies::claiming("live", TOOL)).await.expect(201);
    reconciled(&api, "live", &lookup(&granted)).await.problem(409, "state-conflict");
    reconciled(&api, "absent", &bodies::with(body, &json!({ "operation_id": "absent" })))
        .await
        .problem(404, "not-found");
}

async fn a_crash_between_admission_and_settlement_is_continued(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Hang).await;
    let (server, api) = served(store, &adapter, json!({})).await;
    let found = doubtful(&api, "op").await;
    let body = lookup(&found);
    let admitted = asking(&api, "op", &body).send().await.expect(202);
    while adapter.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.kill9();
    server.restart();
    let api = api.at(&server);
    let open = api.read(admitted.header("location").unwrap()).await.expect(200);
    assert_eq!((open.str("/status"), open.at("/id")), ("open", admitted.at("/id")));
    adapter.set(Reply::Json(answers::settled(&bodies::receipt("op"))));
    let settled = reconciled(&api, "op", &body).await.expect(200);
    assert_eq!((settled.str("/status"), settled.at("/id")), ("settled", admitted.at("/id")));
    until(&api, "op", "completed").await;
}

async fn replicas_that_race_settle_once(store: StoreUnderTest) {
    let adapter = FakeAdapter::start(|received| {
        let id = received.json()["operation_id"].as_str().unwrap().to_owned();
        Reply::Late(Duration::from_millis(30), answers::settled(&bodies::receipt(&id)))
    })
    .await;
    let one = store.server(open());
    let two = one.replica();
    let (here, there) = (Api::of(&one, "t"), Api::of(&two, "t"));
    register(&here, &adapter, json!({})).await;
    for n in 0..10 {
        let id = format!("op-{n}");
        let found = doubtful(&here, &id).await;
        let body = lookup(&found);
        let (first, second, third) =
            tokio::join!(reconciled(&here, &id, &body), reconciled(&there, &id, &body), reconciled(&there, &id, &body));
        for answer in [first, second, third] {
            assert_eq!(answer.expect(200).str("/status"), "settled");
        }
        let events = here.events(&id).await;
        let count = |name: &str| events.iter().filter(|event| *event == name).count();
        assert_eq!((count("effect.reconciliation.started"), count("effect.completed")), (1, 1), "{events:?}");
    }
}

async fn the_owner_s_receipt_beats_a_lookup_under_way(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Late(Duration::from_millis(800), answers::absent())).await;
    let (_server, api) = served(store, &adapter, json!({})).await;
    let granted = api.intent(&bodies::claiming("op", TOOL)).await.expect(201).directive("dispatch");
    let found = api.outcome("op", &bodies::unknown(&granted)).await.expect(200);
    asking(&api, "op", &lookup(&found)).send().await.expect(202);
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    tokio::time::sleep(Duration::from_millis(1200)).await;
    let found = api.get("op").await.state("completed").directive("replay");
    assert!(found.json.get("contradicted").is_none(), "{found}");
}
