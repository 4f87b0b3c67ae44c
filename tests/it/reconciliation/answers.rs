//! Every row of the table of answers (protocol §6), and every way to give none (§7).

use std::time::Duration;

use serde_json::{Value, json};

use super::{TOOL, asking, doubtful, lookup, reconciled, register, served, until};
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::api::Api;
use crate::support::downstream::{Downstream, Mode};
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    every_answer_comes_to_what_the_table_says,
    an_absence_is_earned_by_time_or_finality_and_by_declaration,
    whatever_breaks_the_contract_leaves_the_doubt_and_says_why,
    nobody_to_ask_is_an_observation,
    after_proven_absence_the_next_dispatch_is_the_only_other_act,
);

fn absence(consistency: &str, is_final: Option<bool>) -> Value {
    let answer = if consistency == "authoritative" { answers::absent() } else { answers::not_seen() };
    match is_final {
        Some(is_final) => bodies::with(answer, &json!({ "final": is_final })),
        None => answer,
    }
}

async fn every_answer_comes_to_what_the_table_says(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let (_server, api) = served(store, &adapter, json!({})).await;
    let failed = |id: &str| answers::settled(&bodies::with(bodies::receipt(id), &json!({ "outcome": "failed" })));
    let cases = vec![
        (
            "completed",
            answers::settled(&bodies::receipt("completed")),
            "completed",
            "settled",
            Some("completed"),
            "completed",
        ),
        ("failed", failed("failed"), "failed", "settled", Some("failed"), "failed"),
        ("absent", answers::absent(), "safe_to_retry", "settled", Some("not_found"), "safe_to_retry"),
        ("not-sent", answers::other("not_sent"), "safe_to_retry", "settled", Some("not_sent"), "safe_to_retry"),
        ("eventual", answers::not_seen(), "outcome_unknown", "observed", Some("not_found"), "reconciliation.observed"),
        (
            "pending",
            answers::other("pending"),
            "outcome_unknown",
            "observed",
            Some("pending"),
            "reconciliation.observed",
        ),
        (
            "unsupported",
            answers::other("unsupported"),
            "outcome_unknown",
            "observed",
            Some("unsupported"),
            "reconciliation.observed",
        ),
        ("conflict", answers::other("conflict"), "manual_review", "rejected", Some("conflict"), "manual_review"),
        ("multiple", answers::other("multiple"), "manual_review", "rejected", Some("multiple"), "manual_review"),
        ("partial", answers::other("partial"), "manual_review", "rejected", Some("partial"), "manual_review"),
        (
            "identity",
            answers::other("identity_mismatch"),
            "manual_review",
            "rejected",
            Some("identity_mismatch"),
            "manual_review",
        ),
    ];
    for (id, answer, state, status, observation, last) in cases {
        let found = doubtful(&api, id).await;
        adapter.set(Reply::Json(answer));
        let answer = reconciled(&api, id, &lookup(&found)).await.expect(200);
        assert_eq!((answer.str("/status"), answer.str("/effect/state")), (status, state), "{id}: {answer}");
        assert_eq!(answer.json["observation"].as_str(), observation, "{id}");
        assert_eq!(api.get(id).await.str("/state"), state, "{id}");
        let events = api.events(id).await;
        assert!(events.contains(&"effect.reconciliation.started".to_owned()), "{id}: {events:?}");
        assert_eq!(*events.last().unwrap(), format!("effect.{last}"), "{id}");
        // The question: never arguments, always what an answer needs to be bound.
        let asked = adapter.last().json();
        assert_eq!((asked["type"].as_str(), asked["operation_id"].as_str()), (Some("effect.lookup"), Some(id)));
        assert!(asked.get("arguments").is_none() && asked["arguments_digest"].is_string(), "{asked}");
    }
}

async fn an_absence_is_earned_by_time_or_finality_and_by_declaration(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let (_server, api) = served(store, &adapter, json!({ "settle_window_seconds": 3600 })).await;
    for (id, consistency, is_final, state) in [
        ("early", "authoritative", None, "outcome_unknown"),
        ("not-final", "authoritative", Some(false), "outcome_unknown"),
        ("final", "authoritative", Some(true), "safe_to_retry"),
        ("eventual", "eventual", None, "outcome_unknown"),
    ] {
        let found = doubtful(&api, id).await;
        adapter.set(Reply::Json(absence(consistency, is_final)));
        let answer = reconciled(&api, id, &lookup(&found)).await.expect(200);
        assert_eq!(answer.str("/effect/state"), state, "{id}");
        // An observation lets nobody act.
        let directive = if state == "safe_to_retry" { "claim" } else { "reconcile" };
        api.get(id).await.directive(directive);
    }
    // A tool that does not declare authoritative lookups earns nothing by them.
    let undeclared = bodies::with(adapter.spec(), &json!({ "verify": false, "authoritative": false }));
    register(&api, &adapter, json!({ "adapter": undeclared })).await;
    adapter.set(Reply::Json(absence("authoritative", Some(true))));
    let found = doubtful(&api, "undeclared").await;
    let answer = reconciled(&api, "undeclared", &lookup(&found)).await.expect(200);
    assert_eq!(answer.str("/effect/state"), "outcome_unknown");
}

async fn whatever_breaks_the_contract_leaves_the_doubt_and_says_why(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let short = bodies::with(adapter.spec(), &json!({ "verify": false, "timeout_seconds": 2 }));
    let receipt_schema = json!({ "schema": "refund", "schema_version": 1, "integrity_fields": ["digest"],
        "resource_version_fields": ["order"],
        "structured_schema": { "type": "object", "required": ["amount"] } });
    let (_server, api) = served(store, &adapter, json!({ "adapter": short, "receipt": receipt_schema })).await;
    let good =
        |id: &str| bodies::with(bodies::receipt(id), &json!({ "schema": "refund", "structured": { "amount": 1 } }));
    let settled = |id: &str, changes: &Value| Reply::Json(answers::settled(&bodies::with(good(id), changes)));
    let redirect =
        "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
    let cases: Vec<(&str, Reply, &str)> = vec![
        ("foreign-id", settled("another", &json!({})), "contract_break"),
        ("foreign-target", settled("foreign-target", &json!({ "target": "order-2" })), "contract_break"),
        ("schema", settled("schema", &json!({ "structured": {} })), "contract_break"),
        ("schema-name", settled("schema-name", &json!({ "schema": "generic" })), "contract_break"),
        ("version", settled("version", &json!({ "schema_version": 2 })), "contract_break"),
        ("integrity", settled("integrity", &json!({ "integrity": { "other": "x" } })), "contract_break"),
        ("resources", settled("resources", &json!({ "resource_versions": { "other": "1" } })), "contract_break"),
        ("no-json", Reply::Text("{\"outcome\":".to_owned()), "contract_break"),
        ("not-told", Reply::Json(json!({ "outcome": "certainly" })), "contract_break"),
        ("no-receipt", Reply::Json(answers::other("completed")), "contract_break"),
        ("huge", Reply::Text(format!("\"{}\"", "x".repeat(300_000))), "contract_break"),
        ("html", Reply::with_header("content-type: text/html", "<p>"), "contract_break"),
        ("broken", Reply::status("500 Internal Server Error"), "bad_status"),
        ("gone", Reply::status("404 Not Found"), "bad_status"),
        ("redirect", Reply::Raw(redirect.as_bytes().to_vec()), "forbidden_address"),
        ("closed", Reply::Close, "unreachable"),
    ];
    for (n, (id, reply, reason)) in cases.into_iter().enumerate() {
        // Each under a tool of its own, so that no circuit opens.
        let tool = format!("{TOOL}.{n}");
        let spec = json!({ "effect": "external", "settle_window_seconds": 0, "verification": "waived",
            "receipt": receipt_schema, "adapter": bodies::with(short.clone(), &json!({})) });
        api.put_tool(&tool, &spec).await.expect(201);
        let granted = api.intent(&bodies::claiming(id, &tool)).await.expect(201).directive("dispatch");
        let found = api.outcome(id, &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown");
        adapter.set(reply);
        let body = json!({ "expected_revision": found.at("/revision"), "lookup": true });
        let answer = reconciled(&api, id, &body).await.expect(202);
        assert_eq!((answer.str("/status"), answer.str("/effect/state")), ("open", "outcome_unknown"), "{id}: {answer}");
        let entry = api.journal(id).await.pop().unwrap();
        let observed = &entry["events"][0];
        assert_eq!(
            (observed["type"].as_str(), observed["reason"].as_str()),
            (Some("effect.reconciliation.observed"), Some(reason)),
            "{id}: {entry}"
        );
        api.get(id).await.directive("reconcile");
        // The attempt is there to be continued by the same request.
        adapter.set(settled(id, &json!({})));
        let again = reconciled(&api, id, &body).await.expect(200);
        assert_eq!((again.str("/status"), again.at("/id")), ("settled", answer.at("/id")), "{id}: {again}");
    }
    // Silence and dripping end at the deadline.
    for (id, reply) in [("hangs", Reply::Hang), ("drips", Reply::Drip(Duration::from_millis(200)))] {
        let tool = format!("{TOOL}.{id}");
        let spec = json!({ "effect": "external", "verification": "waived", "adapter": short });
        api.put_tool(&tool, &spec).await.expect(201);
        let granted = api.intent(&bodies::claiming(id, &tool)).await.expect(201);
        let found = api.outcome(id, &bodies::unknown(&granted)).await.expect(200);
        adapter.set(reply);
        let body = json!({ "expected_revision": found.at("/revision"), "lookup": true });
        let answer = reconciled(&api, id, &body).await;
        assert_eq!(answer.str("/effect/state"), "outcome_unknown", "{answer}");
        let entry = api.journal(id).await.pop().unwrap();
        assert_eq!(entry["events"][0]["reason"], "timeout", "{id}: {entry}");
    }
}

async fn nobody_to_ask_is_an_observation(store: StoreUnderTest) {
    let api = store.tenant();
    api.put_tool(TOOL, &json!({ "effect": "external" })).await.expect(201);
    let found = doubtful(&api, "op").await;
    let answer = asking(&api, "op", &lookup(&found)).send().await.expect(200);
    assert_eq!((answer.str("/status"), answer.str("/observation")), ("observed", "unsupported"));
    assert_eq!(answer.str("/effect/state"), "outcome_unknown");
    let location = answer.header("location").unwrap().to_owned();
    assert_eq!(api.read(&location).await.expect(200).json, answer.json);
}

/// The oracle: the downstream's own counter.
async fn after_proven_absence_the_next_dispatch_is_the_only_other_act(store: StoreUnderTest) {
    let downstream = Downstream::start(Mode::Refuse).await;
    let adapter = FakeAdapter::always(Reply::Close).await;
    let (_server, api) = served(store, &adapter, json!({})).await;
    let act = |api: &Api, granted: &crate::support::Answer| {
        let (api, key) = (api.clone(), granted.str("/dispatch/idempotency_key").to_owned());
        let downstream = &downstream;
        async move { (api, downstream.act(&key).await) }
    };
    let granted = api.intent(&bodies::claiming("op", TOOL)).await.expect(201).directive("dispatch");
    drop(act(&api, &granted).await);
    let key = granted.str("/dispatch/idempotency_key").to_owned();
    assert_eq!(downstream.commits(&key), 0);
    let found = api.outcome("op", &bodies::unknown(&granted)).await.expect(200);
    // What the downstream counts is what the adapter says.
    adapter.set(Reply::Json(answers::absent()));
    reconciled(&api, "op", &lookup(&found)).await.expect(200);
    until(&api, "op", "safe_to_retry").await;
    downstream.set(Mode::CommitThenDrop);
    let second = api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
    assert_eq!(second.str("/dispatch/idempotency_key"), key, "the same key on every attempt");
    drop(act(&api, &second).await);
    let found = api.outcome("op", &bodies::unknown(&second)).await.expect(200).state("outcome_unknown");
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("reconcile");
    adapter.set(Reply::Json(answers::settled(&bodies::receipt("op"))));
    reconciled(&api, "op", &lookup(&found)).await.expect(200);
    until(&api, "op", "completed").await;
    api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("replay");
    assert_eq!(downstream.commits(&key), 1);
}
