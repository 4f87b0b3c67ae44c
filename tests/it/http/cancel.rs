//! Cancellation in each state (protocol §3), and giving up.

use serde_json::json;

use crate::http::{TOOL, external, granted, granted_briefly, tool, until_decided};
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    what_was_never_dispatched_settles,
    what_was_dispatched_becomes_doubt,
    what_is_safe_is_given_up,
    what_has_an_outcome_is_not_cancelled,
    a_cancellation_names_its_revision,
    one_of_claim_and_cancel_wins,
);

async fn what_was_never_dispatched_settles(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let cancelled = api.cancel("op").await.expect(200).state("failed").directive("stop");
    assert_eq!((cancelled.revision(), cancelled.at("/executed")), (2, &json!(false)));
    assert!(cancelled.json.get("dispatch").is_none() && cancelled.json.get("receipt").is_none(), "{cancelled}");
    for _ in 0..2 {
        assert_eq!(api.cancel("op").await.expect(200).state("failed").revision(), 2);
        api.dispatch("op", &bodies::claim()).await.expect(200).directive("stop");
        api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("stop");
    }
    assert_eq!(api.journal("op").await.len(), 2);
    api.cancel("absent").await.problem(404, "not-found");
    // Asked for approval, it was not authorized yet.
    api.put_tool("guarded", &json!({ "effect": "external", "authorization": { "mode": "approval" } }))
        .await
        .expect(201);
    api.intent(&bodies::intent("proposed", "guarded")).await.expect(201).directive("authorize");
    api.cancel("proposed").await.expect(200).state("refused").directive("stop");
    assert_eq!(api.cancel("proposed").await.expect(200).revision(), 2);
}

async fn what_was_dispatched_becomes_doubt(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let cancelled = api.cancel("op").await.expect(200).state("outcome_unknown").directive("reconcile");
    assert_eq!(cancelled.str("/failure_evidence/classification"), "cancelled");
    assert_eq!(api.cancel("op").await.expect(200).revision(), cancelled.revision());
    api.heartbeat("op", &bodies::heartbeat(&granted)).await.problem(409, "lease-lost");
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("reconcile");
    // The truth is still welcome.
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    api.cancel("op").await.problem(409, "state-conflict");
    // A harmless tool may be claimed again.
    api.put_tool("harmless", &json!({ "effect": "none" })).await.expect(201);
    api.intent(&bodies::claiming("harmless", "harmless")).await.expect(201);
    api.cancel("harmless").await.expect(200).state("outcome_unknown").directive("claim");
}

async fn what_is_safe_is_given_up(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    api.outcome("op", &bodies::not_sent(&granted)).await.expect(200).state("safe_to_retry");
    let given_up = api.cancel("op").await.expect(200).state("failed").directive("stop");
    assert_eq!(given_up.at("/executed"), &json!(false));
    assert_eq!(api.events("op").await.last().unwrap(), "effect.failed");
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("stop");
}

async fn what_has_an_outcome_is_not_cancelled(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "reconcile_deadline_seconds": 86400 })).await;
    let refused = async |id: &str, state: &str| {
        let before = api.get(id).await.state(state);
        let answer = api.cancel(id).await.problem(409, "state-conflict");
        assert_eq!(answer.at("/state"), state, "{answer}");
        assert_eq!(api.get(id).await.json, before.json);
    };
    let verifying = granted(&api, "verifying").await;
    api.outcome("verifying", &bodies::receipted(&verifying)).await.expect(200);
    refused("verifying", "verifying").await;
    let completed = granted(&api, "completed").await;
    api.outcome("completed", &bodies::succeeded(&completed)).await.expect(200);
    refused("completed", "completed").await;
    let failed = granted(&api, "failed").await;
    api.outcome("failed", &bodies::failed(&failed)).await.expect(200);
    refused("failed", "failed").await;
    granted_briefly(&api, "unknown").await;
    until_decided(&api, "unknown").await;
    refused("unknown", "outcome_unknown").await;
    let review = granted(&api, "review").await;
    let denied = bodies::set(bodies::succeeded(&review), "/verification/verified", json!(false));
    api.outcome("review", &denied).await.expect(200);
    refused("review", "manual_review").await;
}

async fn a_cancellation_names_its_revision(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let cancel = |tag: &str| api.call("POST", "/api/effects/op/cancel").header("if-match", tag).send();
    let stale = cancel("\"7\"").await.problem(412, "stale-revision");
    assert_eq!(stale.at("/found"), &json!({ "revision": 1, "state": "intent_recorded" }));
    api.get("op").await.state("intent_recorded");
    cancel("\"1\"").await.expect(200).state("failed");
    // The answer was lost: the same request again is a replay, its revision is of before.
    assert_eq!(cancel("\"1\"").await.expect(200).state("failed").revision(), 2);
}

async fn one_of_claim_and_cancel_wins(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for round in 0..8 {
        let id = format!("op-{round}");
        api.intent(&bodies::intent(&id, TOOL)).await.expect(201);
        let claim = bodies::claim();
        let (claimed, cancelled) = tokio::join!(api.dispatch(&id, &claim), api.cancel(&id));
        cancelled.expect(200);
        let found = api.get(&id).await.expect(200);
        match claimed.expect(200).str("/directive") {
            "dispatch" => {
                assert_eq!((found.str("/state"), found.at("/attempt")), ("outcome_unknown", &json!(1)), "{found}");
            }
            "stop" => assert_eq!((found.str("/state"), found.at("/executed")), ("failed", &json!(false)), "{found}"),
            other => panic!("{other}: {found}"),
        }
    }
}
