//! The service asks by itself, with growing pauses, until a person has to look.

use std::time::Duration;

use serde_json::json;

use super::{TOOL, doubtful, open, register, served, until};
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::api::Api;
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    an_unknown_outcome_is_looked_up_and_settled,
    silence_after_a_crash_of_the_client_is_looked_up,
    an_early_absence_waits_for_the_settle_window,
    nothing_spins_and_the_deadline_brings_a_person,
    a_broken_adapter_becomes_a_person_s_work,
    of_two_replicas_one_asks,
    an_abandoned_question_is_put_again,
);

const AUTOMATIC: &str = "automatic";

async fn an_unknown_outcome_is_looked_up_and_settled(store: StoreUnderTest) {
    let adapter = FakeAdapter::start(|received| {
        let id = received.json()["operation_id"].as_str().unwrap().to_owned();
        Reply::Json(match id.as_str() {
            "done" => answers::settled(&bodies::receipt(&id)),
            "absent" => answers::absent(),
            _ => answers::other("multiple"),
        })
    })
    .await;
    let (_server, api) = served(store, &adapter, json!({ "reconciliation": AUTOMATIC })).await;
    for (id, state) in [("done", "completed"), ("absent", "safe_to_retry"), ("double", "manual_review")] {
        doubtful(&api, id).await;
        until(&api, id, state).await;
        let entry = &api.journal(id).await[2];
        assert_eq!(
            (entry["by"].as_str(), entry["events"][0]["type"].as_str()),
            (Some("actonce"), Some("effect.reconciliation.started")),
            "{entry}"
        );
    }
    assert_eq!(adapter.calls(), 3, "each was asked about once");
}

async fn silence_after_a_crash_of_the_client_is_looked_up(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Json(answers::settled(&bodies::receipt("op")))).await;
    let (_server, api) = served(store, &adapter, json!({ "reconciliation": AUTOMATIC })).await;
    let body = bodies::set(bodies::claiming("op", TOOL), "/claim/lease_seconds", json!(1));
    api.intent(&body).await.expect(201).directive("dispatch");
    until(&api, "op", "completed").await;
    let events = api.events("op").await;
    assert!(events.contains(&"effect.lease_expired".to_owned()), "{events:?}");
}

async fn an_early_absence_waits_for_the_settle_window(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let (_server, api) =
        served(store, &adapter, json!({ "reconciliation": AUTOMATIC, "settle_window_seconds": 3 })).await;
    let since = std::time::Instant::now();
    doubtful(&api, "op").await;
    until(&api, "op", "safe_to_retry").await;
    assert!(since.elapsed() >= Duration::from_secs(3), "{:?}", since.elapsed());
    assert_eq!(adapter.calls(), 2, "asked early, and when it could count");
    let events = api.events("op").await;
    assert!(events.contains(&"effect.reconciliation.observed".to_owned()), "{events:?}");
}

async fn nothing_spins_and_the_deadline_brings_a_person(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Json(answers::other("pending"))).await;
    let changes = json!({ "reconciliation": AUTOMATIC, "reconcile_deadline_seconds": 6 });
    let (_server, api) = served(store, &adapter, changes).await;
    doubtful(&api, "op").await;
    let found = until(&api, "op", "manual_review").await;
    assert_eq!(found.str("/review_reason"), "reconcile_deadline");
    assert!((3..=7).contains(&adapter.calls()), "{} questions", adapter.calls());
    let asked = adapter.calls();
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(adapter.calls(), asked, "what is with a person is asked about no more");
}

async fn a_broken_adapter_becomes_a_person_s_work(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Json(json!({ "outcome": "certainly" }))).await;
    let (_server, api) = served(store, &adapter, json!({ "reconciliation": AUTOMATIC })).await;
    doubtful(&api, "op").await;
    let found = until(&api, "op", "manual_review").await;
    assert_eq!(found.str("/review_reason"), "adapter_broken");
    assert_eq!(adapter.calls(), 5);
}

async fn of_two_replicas_one_asks(store: StoreUnderTest) {
    let adapter = FakeAdapter::start(|received| {
        let id = received.json()["operation_id"].as_str().unwrap().to_owned();
        Reply::Json(answers::settled(&bodies::receipt(&id)))
    })
    .await;
    let one = store.server(open());
    let _two = one.replica();
    let api = Api::of(&one, "t");
    register(&api, &adapter, json!({ "reconciliation": AUTOMATIC })).await;
    for n in 0..20 {
        doubtful(&api, &format!("op-{n}")).await;
    }
    for n in 0..20 {
        until(&api, &format!("op-{n}"), "completed").await;
    }
    assert_eq!(adapter.calls(), 20, "one question for each");
}

async fn an_abandoned_question_is_put_again(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Hang).await;
    let short = bodies::with(adapter.spec(), &json!({ "verify": false, "timeout_seconds": 1 }));
    let (server, api) = served(store, &adapter, json!({ "reconciliation": AUTOMATIC, "adapter": short })).await;
    doubtful(&api, "op").await;
    while adapter.calls() == 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    server.kill9();
    adapter.set(Reply::Json(answers::settled(&bodies::receipt("op"))));
    server.restart();
    let api = api.at(&server);
    until(&api, "op", "completed").await;
    let entries = api.journal("op").await;
    let observed = entries.iter().find(|entry| entry["events"][0]["observation"] == "abandoned");
    assert!(observed.is_some(), "{entries:?}");
}
