//! Batches: each item as by its single route, with a status of its own.

use serde_json::{Value, json};

use crate::http::{TOOL, external, granted};
use crate::support::{Answer, Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    intents_are_answered_one_by_one,
    outcomes_are_answered_one_by_one,
    items_with_faults_leave_the_others_alone,
    batches_are_bounded,
    one_of_the_twins_in_a_batch_is_dispatched,
    a_repeated_batch_is_a_replay,
    an_outcome_names_one_operation,
    batches_have_walls,
);

async fn intents(api: &Api, items: &[Value]) -> Answer {
    api.post("/api/intents/batch", &json!({ "items": items })).await
}

async fn outcomes(api: &Api, items: &[Value]) -> Answer {
    api.post("/api/outcomes/batch", &json!({ "items": items })).await
}

fn statuses(answer: &Answer) -> Vec<u64> {
    let items = answer.at("/items").as_array().expect("items");
    for item in items {
        let is_good = item["status"].as_u64().unwrap() < 300;
        assert_eq!((item.get("effect").is_some(), item.get("problem").is_some()), (is_good, !is_good), "{item}");
        assert!(is_good || item["problem"]["status"] == item["status"], "{item}");
    }
    items.iter().map(|item| item["status"].as_u64().unwrap()).collect()
}

/// A report of success for a batch.
fn done(granted: &Answer) -> Value {
    bodies::with(bodies::succeeded(granted), &json!({ "operation_id": granted.str("/operation_id") }))
}

async fn intents_are_answered_one_by_one(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::intent("known", TOOL)).await.expect(201);
    let items = [
        bodies::claiming("new", TOOL),
        bodies::intent("known", TOOL),
        bodies::with(bodies::intent("known", TOOL), &json!({ "target": "other" })),
        bodies::intent("unknown-tool", "absent"),
        bodies::set(bodies::intent("faulty", TOOL), "/target", json!("")),
        bodies::without(bodies::intent("x", TOOL), "operation_id"),
        bodies::with(bodies::without(bodies::intent("x", TOOL), "operation_id"), &json!({ "run_id": "run" })),
        bodies::with(bodies::intent("twin", TOOL), &json!({ "arguments": { "operation": "known" } })),
    ];
    let answer = intents(&api, &items).await.expect(200);
    assert_eq!(statuses(&answer), [201, 200, 422, 400, 400, 400, 201, 409]);
    assert_eq!(answer.at("/items/0/effect/directive"), "dispatch");
    assert_eq!(answer.at("/items/2/problem/type"), "/docs/errors/operation-reused");
    assert_eq!(answer.at("/items/4/problem/faults/0/pointer"), "/target");
    assert_eq!(answer.at("/items/5/problem/type"), "/docs/errors/operation-id-required");
    assert_eq!(answer.at("/items/7/problem/type"), "/docs/errors/suspected-duplicate");
    for (place, item) in answer.at("/items").as_array().unwrap().iter().enumerate() {
        let Some(effect) = item.get("effect") else { continue };
        let id = effect["operation_id"].as_str().unwrap();
        let alone = api.get(id).await.expect(200);
        assert_eq!(effect["revision"], alone.json["revision"], "item {place}");
        assert_eq!(api.journal(id).await.len(), 1);
    }
    assert_eq!(api.pages("/api/effects?limit=200").await.len(), 3, "nothing of the refused ones is stored");
}

async fn outcomes_are_answered_one_by_one(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let one = granted(&api, "one").await;
    let two = granted(&api, "two").await;
    let three = granted(&api, "three").await;
    api.outcome("three", &bodies::not_sent(&three)).await.expect(200);
    let items = [
        bodies::with(done(&one), &json!({ "result": { "n": 1.0 } })),
        bodies::with(bodies::unknown(&two), &json!({ "operation_id": "two" })),
        bodies::with(bodies::unknown(&three), &json!({ "operation_id": "three" })),
        bodies::with(done(&one), &json!({ "operation_id": "absent" })),
        bodies::succeeded(&one),
        bodies::with(done(&one), &json!({ "operation_id": "two" })),
    ];
    let answer = outcomes(&api, &items).await.expect(200);
    assert_eq!(statuses(&answer), [200, 200, 409, 404, 400, 422]);
    assert_eq!(answer.at("/items/0/effect/state"), "completed");
    assert!(answer.text.contains(r#""result":{"n":1.0}"#), "{answer}");
    assert_eq!(answer.at("/items/2/problem/evidence_recorded"), &json!(true));
    assert_eq!(answer.at("/items/4/problem/faults/0/pointer"), "/operation_id");
    api.get("one").await.state("completed");
    api.get("two").await.state("outcome_unknown");
}

async fn items_with_faults_leave_the_others_alone(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let good = bodies::intent("good", TOOL).to_string();
    for (bad, pointer) in [
        (r#"{"operation_id":"x","operation_id":"y"}"#, Some("")),
        (
            r#"{"operation_id":"x","tool":"payments.refund","target":"t","arguments":{"a":1,"a":2}}"#,
            Some("/arguments/a"),
        ),
        (r#"{"operation_id":"a\u0000","tool":"payments.refund","target":"t","arguments":1}"#, Some("/operation_id")),
        (r#"{"operation_id":"\ud800","tool":"payments.refund","target":"t","arguments":1}"#, Some("/operation_id")),
        ("null", None),
        ("[]", None),
        ("5", None),
        ("\"x\"", None),
    ] {
        let text = format!(r#"{{"items":[{bad},{good}]}}"#);
        let answer = api.call("POST", "/api/intents/batch").text(&text).send().await.expect(200);
        assert_eq!(statuses(&answer)[0], 400, "{answer}");
        assert!(statuses(&answer)[1] < 300, "{answer}");
        if let Some(pointer) = pointer {
            assert_eq!(answer.at("/items/0/problem/faults/0/pointer"), pointer, "{answer}");
        }
    }
    for text in [r#"{"items":{}}"#, r#"{"items":null}"#, "{}", r#"{"items":[],"more":1}"#, r#"{"items":[],"items":[]}"#]
    {
        api.call("POST", "/api/intents/batch").text(text).send().await.problem(400, "invalid-request");
    }
    assert_eq!(api.pages("/api/effects?limit=200").await.len(), 1);
}

async fn batches_are_bounded(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let items: Vec<Value> = (0..201).map(|n| bodies::claiming(&format!("op-{n:03}"), TOOL)).collect();
    let answer = intents(&api, &items).await.problem(413, "too-large");
    assert_eq!(answer.at("/limit_items"), 200);
    super::conventions::assert_nothing_stored(&api, &[TOOL]).await;
    let answer = intents(&api, &items[..200]).await.expect(200);
    assert_eq!(statuses(&answer), [201; 200]);
    let ids: Vec<&str> = answer
        .at("/items")
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["effect"]["operation_id"].as_str().unwrap())
        .collect();
    let expected: Vec<&str> = items[..200].iter().map(|item| item["operation_id"].as_str().unwrap()).collect();
    assert_eq!(ids, expected, "in the order of the items");
    let reports: Vec<Value> = answer
        .at("/items")
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            let (id, dispatch) = (item["effect"]["operation_id"].as_str().unwrap(), &item["effect"]["dispatch"]);
            json!({
                "operation_id": id, "dispatch_id": dispatch["dispatch_id"], "fence": dispatch["fence"],
                "outcome": "succeeded", "receipt": bodies::receipt(id), "verification": bodies::verification(),
            })
        })
        .collect();
    assert_eq!(statuses(&outcomes(&api, &reports).await.expect(200)), [200; 200]);
    assert_eq!(api.pages("/api/effects?state=completed&limit=200").await.len(), 200);
    // The bounds of an item are those of the single route.
    let large = bodies::with(bodies::intent("large", TOOL), &json!({ "arguments": "a".repeat(256 * 1024) }));
    let answer = intents(&api, &[large, bodies::intent("small", TOOL)]).await.expect(200);
    assert_eq!(statuses(&answer), [413, 201]);
    assert_eq!(intents(&api, &[]).await.expect(200).json, json!({ "items": [] }));
}

async fn one_of_the_twins_in_a_batch_is_dispatched(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    // The same operation several times, each time by another claim.
    let same: Vec<Value> = (0..6).map(|_| bodies::claiming("op", TOOL)).collect();
    let answer = intents(&api, &same).await.expect(200);
    let directives: Vec<&str> = answer
        .at("/items")
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item["effect"]["directive"].as_str().unwrap())
        .collect();
    let won = directives.iter().filter(|directive| **directive == "dispatch").count();
    assert_eq!((won, directives.len()), (1, 6), "{answer}");
    assert_eq!(statuses(&answer).iter().filter(|status| **status == 201).count(), 1);
    assert_eq!(api.journal("op").await.len(), 1);
    // The same act under several ids.
    let twins: Vec<Value> = (0..6)
        .map(|n| bodies::with(bodies::claiming(&format!("twin-{n}"), TOOL), &json!({ "arguments": { "amount": 1 } })))
        .collect();
    let mut found = statuses(&intents(&api, &twins).await.expect(200));
    found.sort_unstable();
    assert_eq!(found, [201, 409, 409, 409, 409, 409]);
}

async fn a_repeated_batch_is_a_replay(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let items: Vec<Value> = (0..5).map(|n| bodies::claiming(&format!("op-{n}"), TOOL)).collect();
    let first = intents(&api, &items).await.expect(200);
    let again = intents(&api, &items).await.expect(200);
    assert_eq!(statuses(&again), [200; 5]);
    for n in 0..5 {
        let pointer = format!("/items/{n}/effect/dispatch");
        assert_eq!(again.at(&pointer), first.at(&pointer), "the lost answer is had again");
        assert_eq!(api.journal(&format!("op-{n}")).await.len(), 1);
    }
}

async fn an_outcome_names_one_operation(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let one = granted(&api, "one").await;
    let other = bodies::with(bodies::unknown(&one), &json!({ "operation_id": "two" }));
    api.outcome("one", &other).await.problem(400, "invalid-request").faults_at(&["/operation_id"]);
    assert_eq!(api.get("one").await.state("dispatched").revision(), 1);
    api.outcome("one", &done(&one)).await.expect(200).state("completed");
    // An equal report is the same by either route.
    let two = granted(&api, "two").await;
    let report_two = done(&two);
    api.outcome("two", &bodies::without(report_two.clone(), "operation_id")).await.expect(200);
    let answer = outcomes(&api, &[report_two]).await.expect(200);
    assert_eq!(statuses(&answer), [200]);
    assert_eq!(api.get("two").await.revision(), 2);
}

async fn batches_have_walls(store: StoreUnderTest) {
    let (api, foreign) = (store.tenant(), store.tenant());
    external(&api).await;
    external(&foreign).await;
    let one = granted(&api, "one").await;
    let answer = outcomes(&foreign, &[done(&one)]).await.expect(200);
    assert_eq!(statuses(&answer), [404]);
    let absent = foreign.outcome("absent", &bodies::succeeded(&one)).await.problem(404, "not-found");
    assert_eq!(answer.at("/items/0/problem"), &absent.json);
    assert_eq!(api.get("one").await.state("dispatched").revision(), 1);
    let answer = intents(&foreign, &[bodies::claiming("one", TOOL)]).await.expect(200);
    assert_eq!(answer.at("/items/0/effect/directive"), "dispatch", "its own");
}
