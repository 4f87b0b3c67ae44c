//! Claims: one owner, and a lost answer is had again by its owner alone (law 3, protocol §4).

use serde_json::json;

use crate::http::{TOOL, external, granted, report, tool};
use crate::support::api::Answer;
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    a_lost_answer_is_had_again_by_its_claim_id,
    without_a_claim_id_a_lost_answer_stays_lost,
    claims_come_later_too,
    one_of_many_claims_wins,
    a_claim_names_its_revision,
    secrets_of_a_dispatch_are_its_owners,
    a_paused_tool_grants_nothing,
    a_claim_id_is_granted_once,
);

#[track_caller]
fn same_dispatch(again: &Answer, first: &Answer) {
    assert_eq!(again.json["dispatch"], first.json["dispatch"], "{again}");
    assert_eq!(again.revision(), first.revision());
}

async fn a_lost_answer_is_had_again_by_its_claim_id(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let body = bodies::claiming("op", TOOL);
    let first = api.intent(&body).await.expect(201).directive("dispatch").state("dispatched");
    assert_eq!((first.at("/dispatch/attempt"), first.at("/dispatch/fence")), (&json!(1), &json!(1)));
    assert_eq!(first.str("/dispatch/worker"), "worker-1");
    let key = first.str("/dispatch/idempotency_key");
    assert!(first.str("/dispatch/marker").contains(key), "{first}");
    for _ in 0..3 {
        same_dispatch(&api.intent(&body).await.expect(200).directive("dispatch"), &first);
        same_dispatch(&api.dispatch("op", &body["claim"]).await.expect(200).directive("dispatch"), &first);
    }
    for (pointer, value) in [("/claim/claim_id", "another"), ("/claim/worker", "worker-2")] {
        let other = bodies::set(body.clone(), pointer, json!(value));
        api.intent(&other).await.expect(200).directive("wait");
        api.dispatch("op", &other["claim"]).await.expect(200).directive("wait");
    }
    api.intent(&bodies::without(body, "claim")).await.expect(200).directive("wait");
    assert_eq!(api.journal("op").await.len(), 1, "none of this writes");
    let waiting = api.get("op").await.directive("wait");
    let after = waiting.at("/retry_after_seconds").as_u64().unwrap();
    assert!((1..=60).contains(&after), "{waiting}");
}

async fn without_a_claim_id_a_lost_answer_stays_lost(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let body = bodies::with(bodies::intent("op", TOOL), &json!({ "claim": { "worker": "worker-1" } }));
    api.intent(&body).await.expect(201).directive("dispatch");
    api.intent(&body).await.expect(200).directive("wait");
    api.dispatch("op", &body["claim"]).await.expect(200).directive("wait");
    assert_eq!(api.get("op").await.revision(), 1);
}

async fn claims_come_later_too(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201).directive("claim").state("intent_recorded");
    let claim = bodies::claim();
    let first = api.dispatch("op", &claim).await.expect(200).directive("dispatch");
    assert_eq!((first.revision(), first.at("/dispatch/fence"), first.at("/attempt")), (2, &json!(1), &json!(1)));
    same_dispatch(&api.dispatch("op", &claim).await.expect(200).directive("dispatch"), &first);
    let by_intent = bodies::with(bodies::intent("op", TOOL), &json!({ "claim": claim }));
    same_dispatch(&api.intent(&by_intent).await.expect(200).directive("dispatch"), &first);
    // The other way round: the intent's repeat claims what was only recorded.
    api.intent(&bodies::intent("op2", TOOL)).await.expect(201).directive("claim");
    let claimed = api.intent(&bodies::claiming("op2", TOOL)).await.expect(200).directive("dispatch");
    assert_eq!(claimed.revision(), 2);
    api.dispatch("absent", &claim).await.problem(404, "not-found");
}

async fn one_of_many_claims_wins(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for round in 0..5 {
        let id = format!("op-{round}");
        api.intent(&bodies::intent(&id, TOOL)).await.expect(201);
        let claims = (0..16).map(|n| {
            let (api, id) = (api.clone(), id.clone());
            async move {
                if n % 2 == 0 {
                    api.dispatch(&id, &bodies::claim()).await.expect(200)
                } else {
                    api.intent(&bodies::claiming(&id, TOOL)).await.expect(200)
                }
            }
        });
        let answers = futures_util::future::join_all(claims).await;
        let won = answers.iter().filter(|answer| answer.json["directive"] == "dispatch").count();
        let waiting = answers.iter().filter(|answer| answer.json["directive"] == "wait").count();
        assert_eq!((won, waiting), (1, 15), "{answers:#?}");
        assert_eq!(api.get(&id).await.revision(), 2);
        assert_eq!(api.journal(&id).await.len(), 2);
    }
}

async fn a_claim_names_its_revision(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let claim =
        |tag: &str| api.call("POST", "/api/effects/op/dispatch").header("if-match", tag).json(&bodies::claim()).send();
    let stale = claim("\"2\"").await.problem(412, "stale-revision");
    assert_eq!(stale.at("/found"), &json!({ "revision": 1, "state": "intent_recorded" }));
    assert_eq!(api.journal("op").await.len(), 1);
    claim("\"1\"").await.expect(200).directive("dispatch");
}

async fn secrets_of_a_dispatch_are_its_owners(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let key = granted.str("/dispatch/idempotency_key").to_owned();
    assert!(key.len() >= 20, "{key}");
    let elsewhere = [
        api.get("op").await,
        api.list("limit=10").await,
        api.intent(&bodies::intent("op", TOOL)).await,
        api.intent(&bodies::claiming("op", TOOL)).await,
        api.dispatch("op", &bodies::claim()).await,
        api.read("/api/effects/op/journal").await,
        api.read("/metrics").await,
        api.outcome("op", &bodies::succeeded(&granted)).await.state("completed"),
        api.get("op").await,
        api.list("limit=10").await,
        api.read("/api/effects/op/journal").await,
    ];
    for answer in elsewhere {
        assert!(!answer.text.contains(&key), "shown: {answer}");
        assert!(answer.json.pointer("/dispatch/marker").is_none(), "{answer}");
    }
    assert!(!store.shared().log().contains(&key), "logged");
    // The same operation id of another tenant has another key.
    let other = store.tenant();
    external(&other).await;
    assert_ne!(crate::http::granted(&other, "op").await.str("/dispatch/idempotency_key"), key);
}

async fn a_paused_tool_grants_nothing(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let live = granted(&api, "live").await;
    api.intent(&bodies::intent("prepared", TOOL)).await.expect(201);
    assert_eq!(api.pause(TOOL).await.expect(200).at("/paused"), &json!(true));
    let fresh = api.intent(&bodies::claiming("fresh", TOOL)).await.expect(201).directive("stop");
    assert_eq!((fresh.str("/state"), fresh.at("/paused")), ("intent_recorded", &json!(true)));
    for _ in 0..2 {
        api.intent(&bodies::claiming("fresh", TOOL)).await.expect(200).directive("stop").state("intent_recorded");
        api.dispatch("prepared", &bodies::claim()).await.expect(200).directive("stop").state("intent_recorded");
        assert_eq!(api.get("prepared").await.directive("stop").at("/paused"), &json!(true));
    }
    // What is in flight finishes, doubt included.
    api.heartbeat("live", &bodies::heartbeat(&live)).await.expect(200);
    api.outcome("live", &bodies::not_sent(&live)).await.expect(200).state("safe_to_retry").directive("stop");
    api.dispatch("live", &bodies::claim()).await.expect(200).directive("stop").state("safe_to_retry");
    assert_eq!(api.resume(TOOL).await.expect(200).at("/paused"), &json!(false));
    for id in ["fresh", "prepared", "live"] {
        api.get(id).await.directive("claim");
        let again = api.dispatch(id, &bodies::claim()).await.expect(200).directive("dispatch");
        assert!(again.json.get("paused").is_none(), "{again}");
    }
    // A registration pauses as well.
    api.put_tool(TOOL, &json!({ "effect": "external", "paused": true })).await.expect(200);
    api.intent(&bodies::claiming("late", TOOL)).await.expect(201).directive("stop");
    api.put_tool(TOOL, &json!({ "effect": "external" })).await.expect(200);
    api.dispatch("late", &bodies::claim()).await.expect(200).directive("dispatch");
}

/// Who still holds the claim id of an ended attempt is who already acted, or may have.
async fn a_claim_id_is_granted_once(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "none" })).await;
    for (id, ended, state) in [
        ("unknown", report(bodies::unknown), "outcome_unknown"),
        ("not-sent", report(bodies::not_sent), "safe_to_retry"),
    ] {
        let body = bodies::claiming(id, TOOL);
        let first = api.intent(&body).await.expect(201).directive("dispatch");
        api.outcome(id, &ended(&first)).await.expect(200).state(state);
        api.intent(&body).await.expect(200).state(state).directive("claim");
        api.dispatch(id, &body["claim"]).await.expect(200).state(state).directive("claim");
        let second = api.intent(&bodies::claiming(id, TOOL)).await.expect(200).directive("dispatch");
        assert_eq!((second.at("/dispatch/attempt"), second.at("/dispatch/fence")), (&json!(2), &json!(2)));
        assert_ne!(second.json["dispatch"]["dispatch_id"], first.json["dispatch"]["dispatch_id"]);
        for same in ["idempotency_key", "marker"] {
            assert_eq!(second.json["dispatch"][same], first.json["dispatch"][same], "{same}");
        }
        api.intent(&body).await.expect(200).directive("wait");
    }
}
