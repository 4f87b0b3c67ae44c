//! Bulk resolution: a preview first, and each effect by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::join;
use serde_json::{Value, json};

use crate::http::{TOOL, external, granted, in_review};
use crate::scenarios::intact;
use crate::support::{Answer, Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_preview_names_what_would_be_decided,
    each_effect_is_decided_at_the_revision_that_was_seen,
    a_preview_is_given_back_as_it_was,
    two_at_once_decide_each_effect_once,
    a_crash_in_the_middle_is_finished_by_a_repeat,
    four_eyes_hold_in_bulk_too,
);

async fn preview(api: &Api, filter: &Value) -> Answer {
    api.post("/api/queue/resolutions/preview", filter).await
}

fn execution(preview: &Answer, decision_id: &str, outcome: &str) -> Value {
    let of = json!({ "preview": preview.at("/preview"), "preview_id": preview.at("/preview_id") });
    bodies::with(bodies::resolution(decision_id, outcome), &of)
}

async fn execute(api: &Api, body: &Value) -> Answer {
    api.post("/api/queue/resolutions", body).await
}

fn ids(preview: &Answer) -> Vec<&str> {
    let items = preview.at("/preview/items").as_array().unwrap();
    items.iter().map(|item| item["operation_id"].as_str().unwrap()).collect()
}

/// Result by operation.
fn results(answer: &Answer) -> BTreeMap<String, String> {
    let items = answer.at("/items").as_array().unwrap();
    let text = |item: &Value, name: &str| item[name].as_str().unwrap().to_owned();
    items.iter().map(|item| (text(item, "operation_id"), text(item, "result"))).collect()
}

async fn a_preview_names_what_would_be_decided(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.put_tool("other", &json!({ "effect": "external" })).await.expect(201);
    for id in ["a", "b", "c"] {
        in_review(&api, id).await;
    }
    let body = bodies::with(bodies::claiming("in run", "other"), &json!({ "run_id": "run 1" }));
    let in_run = api.intent(&body).await.expect(201);
    api.outcome("in run", &bodies::not_sent(&in_run)).await.expect(200);
    api.outcome("in run", &bodies::succeeded(&in_run)).await.problem(409, "state-conflict");
    let flagged = granted(&api, "flagged").await;
    api.outcome("flagged", &bodies::succeeded(&flagged)).await.expect(200);
    api.outcome("flagged", &bodies::failed(&flagged)).await.problem(409, "state-conflict");
    let done = granted(&api, "done").await;
    api.outcome("done", &bodies::succeeded(&done)).await.expect(200);
    granted(&api, "live").await;
    for (filter, expected) in [
        (json!({}), vec!["a", "b", "c", "in run", "flagged"]),
        (json!({ "tool": TOOL }), vec!["a", "b", "c", "flagged"]),
        (json!({ "tool": TOOL, "reason": "manual_review" }), vec!["a", "b", "c"]),
        (json!({ "reason": "contradicted" }), vec!["flagged"]),
        (json!({ "run_id": "run 1" }), vec!["in run"]),
        (json!({ "older_than_seconds": 0 }), vec!["a", "b", "c", "in run", "flagged"]),
        (json!({ "older_than_seconds": 3600 }), vec![]),
        (json!({ "operation_ids": ["c", "a"] }), vec!["c", "a"]),
    ] {
        let found = preview(&api, &filter).await.expect(200);
        assert_eq!(ids(&found), expected, "{filter}");
        assert_eq!(found.at("/preview/count"), expected.len());
        assert_eq!(found.at("/preview/truncated"), false);
        assert_eq!(preview(&api, &filter).await.at("/preview_id"), found.at("/preview_id"), "it writes nothing");
    }
    let named = json!({ "operation_ids": ["a", "done", "live", "absent", "in run"], "tool": TOOL });
    let found = preview(&api, &named).await.expect(200);
    assert_eq!(ids(&found), ["a"]);
    let skipped = json!({ "not_found": 1, "not_resolvable": 2, "not_matching": 1, "invalid_durable_state": 0 });
    assert_eq!(found.at("/skipped"), &skipped);
    assert_eq!(found.at("/preview/items/0/revision"), 3);
    for (filter, pointer) in [
        (json!({ "tool": "" }), "/tool"),
        (json!({ "run_id": " x" }), "/run_id"),
        (json!({ "operation_ids": ["a", "a"] }), "/operation_ids/1"),
        (json!({ "operation_ids": ["a", ""] }), "/operation_ids/1"),
    ] {
        preview(&api, &filter).await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    preview(&api, &json!({ "reason": "outcome_unknown" })).await.problem(400, "invalid-request");
    let many: Vec<String> = (0..1001).map(|number| number.to_string()).collect();
    let answer = preview(&api, &json!({ "operation_ids": many })).await.problem(413, "too-large");
    assert_eq!(answer.at("/limit_items"), 1000);
}

async fn each_effect_is_decided_at_the_revision_that_was_seen(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for id in ["a", "b", "moved", "settled"] {
        in_review(&api, id).await;
    }
    let seen = preview(&api, &json!({})).await.expect(200);
    api.resolve("moved", 3, &bodies::resolution("d-0", "outcome_unknown")).await.expect(200);
    api.resolve("settled", 3, &bodies::resolution("d-0", "failed")).await.expect(200);
    let body = execution(&seen, "bulk-1", "completed");
    let expected = |resolved: &str| {
        [("a", resolved), ("b", resolved), ("moved", "stale_revision"), ("settled", "stale_revision")]
            .map(|(id, result)| (id.to_owned(), result.to_owned()))
            .into()
    };
    let first = execute(&api, &body).await.expect(200);
    assert_eq!(results(&first), expected("resolved"));
    assert_eq!(first.at("/counts"), &json!({ "resolved": 2, "stale_revision": 2 }));
    assert_eq!((first.at("/items/2/revision"), first.at("/items/2/state")), (&json!(4), &json!("outcome_unknown")));
    assert_eq!((first.at("/items/3/revision"), first.at("/items/3/state")), (&json!(4), &json!("failed")));
    for _ in 0..2 {
        let again = execute(&api, &body).await.expect(200);
        assert_eq!(results(&again), expected("replayed"));
        assert_eq!((again.at("/items/2"), again.at("/items/3")), (first.at("/items/2"), first.at("/items/3")));
    }
    for id in ["a", "b"] {
        let found = api.get(id).await.state("completed");
        assert_eq!(found.revision(), 4);
        let made = api.read(&format!("/api/effects/{id}/resolutions")).await;
        assert_eq!(made.at("/items/0/bulk_decision_id"), "bulk-1");
        assert_eq!(api.events(id).await.iter().filter(|event| *event == "effect.resolved").count(), 1);
    }
    api.get("moved").await.state("outcome_unknown");
    api.get("settled").await.state("failed");
    // The same id for something else, and something else for the same effects.
    let other = execute(&api, &execution(&seen, "bulk-1", "failed")).await.expect(200);
    assert_eq!(
        (results(&other)["a"].as_str(), results(&other)["moved"].as_str()),
        ("state_conflict", "stale_revision")
    );
    let later = execute(&api, &execution(&seen, "bulk-2", "failed")).await.expect(200);
    assert!(results(&later).values().all(|result| result == "stale_revision"), "{later}");
}

async fn a_preview_is_given_back_as_it_was(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for id in ["a", "b"] {
        in_review(&api, id).await;
    }
    let seen = preview(&api, &json!({ "operation_ids": ["a"] })).await.expect(200);
    let body = execution(&seen, "bulk-1", "completed");
    for (pointer, value) in [
        ("/preview/items/0/revision", json!(4)),
        ("/preview/items/0/operation_id", json!("b")),
        ("/preview/items/0/contradicted", json!(false)),
        ("/preview/count", json!(2)),
        ("/preview/truncated", json!(true)),
        ("/preview_id", json!("sha256:00")),
    ] {
        let changed = bodies::set(body.clone(), pointer, value);
        execute(&api, &changed).await.problem(400, "invalid-request").faults_at(&["/preview_id"]);
    }
    let empty = preview(&api, &json!({ "tool": "absent" })).await.expect(200);
    let nothing = execute(&api, &execution(&empty, "bulk-1", "completed")).await.problem(400, "invalid-request");
    nothing.faults_at(&["/preview/items"]);
    for (name, value) in [("decision_id", json!("")), ("reason", json!("")), ("evidence", json!({}))] {
        let pointer = format!("/{name}");
        let faulty = bodies::with(body.clone(), &json!({ name: value }));
        execute(&api, &faulty).await.problem(400, "invalid-request").faults_at(&[&pointer]);
    }
    for id in ["a", "b"] {
        assert_eq!(api.get(id).await.state("manual_review").revision(), 3);
    }
    let foreign = store.tenant();
    let there = execute(&foreign, &body).await.expect(200);
    assert_eq!(results(&there)["a"], "not_found", "another tenant's effects are not there");
    api.get("a").await.state("manual_review");
}

/// Many effects in review, by the batch routes.
async fn many(api: &Api, count: usize) {
    let items: Vec<Value> = (0..count).map(|number| bodies::claiming(&format!("op-{number}"), TOOL)).collect();
    for some in items.chunks(100) {
        let granted = api.post("/api/intents/batch", &json!({ "items": some })).await.expect(200);
        let grants: Vec<Answer> = granted
            .at("/items")
            .as_array()
            .unwrap()
            .iter()
            .map(|item| Answer { json: item["effect"].clone(), ..granted.clone() })
            .collect();
        for make in [crate::http::report(bodies::not_sent), bodies::succeeded] {
            let with_id =
                |grant: &Answer| bodies::with(make(grant), &json!({ "operation_id": grant.str("/operation_id") }));
            let reports: Vec<Value> = grants.iter().map(with_id).collect();
            api.post("/api/outcomes/batch", &json!({ "items": reports })).await.expect(200);
        }
    }
}

fn assert_each_once(journals: &[Vec<String>]) {
    for events in journals {
        assert_eq!(events.iter().filter(|event| *event == "effect.resolved").count(), 1, "{events:?}");
    }
}

async fn two_at_once_decide_each_effect_once(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    many(&api, 60).await;
    let seen = preview(&api, &json!({})).await.expect(200);
    assert_eq!(seen.at("/preview/count"), 60);
    let body = execution(&seen, "bulk-1", "completed");
    let (one, two) = join(execute(&api, &body), execute(&api, &body)).await;
    let (one, two) = (results(&one.expect(200)), results(&two.expect(200)));
    for (id, result) in &one {
        let mut both = [result.as_str(), two[id].as_str()];
        both.sort_unstable();
        assert_eq!(both, ["replayed", "resolved"], "{id}");
    }
    let mut journals = Vec::new();
    for id in one.keys() {
        journals.push(api.events(id).await);
    }
    assert_each_once(&journals);
}

async fn a_crash_in_the_middle_is_finished_by_a_repeat(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    many(&api, 400).await;
    let seen = preview(&api, &json!({})).await.expect(200);
    assert_eq!(seen.at("/preview/count"), 400);
    let body = execution(&seen, "bulk-1", "failed");
    let sending = api.call("POST", "/api/queue/resolutions").json(&body).try_send();
    let killing = async {
        // As soon as some are decided.
        while api.read("/api/effects?state=failed&limit=1").await.at("/items").as_array().unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        server.kill9();
    };
    let (_, ()) = join(sending, killing).await;
    server.restart();
    let api = api.at(&server);
    let again = execute(&api, &body).await.expect(200);
    let found = results(&again);
    assert_eq!(found.len(), 400);
    assert!(found.values().all(|result| result == "resolved" || result == "replayed"), "{:?}", again.at("/counts"));
    assert!(found.values().any(|result| result == "replayed"), "some were decided before the crash");
    let last = execute(&api, &body).await.expect(200);
    assert_eq!(last.at("/counts"), &json!({ "replayed": 400 }));
    // Four revisions each and no more, in a journal that holds.
    assert_eq!(intact(&server)["entries"], 4 * 400);
}

async fn four_eyes_hold_in_bulk_too(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    in_review(&api, "free").await;
    let authorization = json!({ "mode": "approval", "four_eyes": true });
    api.put_tool("guarded", &json!({ "effect": "external", "authorization": authorization })).await.expect(201);
    api.intent(&bodies::intent("guarded", "guarded")).await.expect(201).state("proposed");
    let stray = granted(&api, "stray").await;
    let stray = bodies::set(bodies::succeeded(&stray), "/receipt/operation_id", json!("guarded"));
    api.outcome("guarded", &stray).await.problem(409, "stale-fence");
    api.get("guarded").await.state("manual_review");
    let seen = preview(&api, &json!({})).await.expect(200);
    let done = execute(&api, &execution(&seen, "bulk-1", "completed")).await.expect(200);
    assert_eq!((results(&done)["free"].as_str(), results(&done)["guarded"].as_str()), ("resolved", "forbidden"));
    let token = store.shared().token(&api.tenant, "somebody else", "all");
    let other = execute(&api.with_token(Some(token)), &execution(&seen, "bulk-1", "completed")).await.expect(200);
    assert_eq!((results(&other)["free"].as_str(), results(&other)["guarded"].as_str()), ("replayed", "resolved"));
}
