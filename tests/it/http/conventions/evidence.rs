//! Reports, verifications, decisions and registrations with faults.

use serde_json::{Value, json};

use super::{nested_arrays, nested_objects};
use crate::http::{TOOL, external, granted};
use crate::support::api::Answer;
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    reports_are_pointed_at,
    documents_in_reports_are_json_that_all_readers_agree_on,
    receipts_are_bounded,
    what_goes_with_which_outcome,
    verifications_are_pointed_at,
    decisions_are_pointed_at,
    registrations_are_pointed_at,
    schemas_are_json_that_all_readers_agree_on,
    keys_of_receipt_maps_stand_once,
);

async fn refused(api: &Api, body: &str, pointers: &[&str]) -> Answer {
    let answer = api.call("POST", "/api/effects/op/outcome").text(body).send().await;
    answer.problem(400, "invalid-request").faults_at(pointers)
}

/// Nothing happened to the effect since its dispatch, and a good report still settles it.
async fn assert_untouched(api: &Api, granted: &Answer) {
    let operation_id = granted.str("/operation_id");
    assert_eq!(api.get(operation_id).await.state("dispatched").revision(), granted.revision());
    assert_eq!(api.journal(operation_id).await.len(), 1);
    api.outcome(operation_id, &bodies::succeeded(granted)).await.expect(200).state("completed");
}

async fn reports_are_pointed_at(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let body = bodies::succeeded(&granted);
    for pointer in ["/receipt/receipt_id", "/receipt/schema", "/receipt/operation_id", "/receipt/target"]
        .into_iter()
        .chain(["/receipt/source", "/verification/source", "/verification/target"])
    {
        for value in [json!(""), json!(" x"), json!("a\0b"), json!("x".repeat(257)), json!(1), Value::Null] {
            refused(&api, &bodies::set(body.clone(), pointer, value).to_string(), &[pointer]).await;
        }
        let text = bodies::set(body.clone(), pointer, json!("SURROGATE")).to_string();
        refused(&api, &text.replace("SURROGATE", r"\ud800"), &[pointer]).await;
    }
    for (pointer, value) in [
        ("/dispatch_id", json!("x")),
        ("/dispatch_id", json!(1)),
        ("/fence", json!(-1)),
        ("/fence", json!("1")),
        ("/outcome", json!("done")),
        ("/outcome", Value::Null),
        ("/bogus", json!(1)),
        ("/receipt/bogus", json!(1)),
        ("/receipt", json!("re_77")),
        ("/receipt/schema_version", json!("1")),
        ("/receipt/outcome", json!("succeeded")),
        ("/receipt/message", json!(1)),
        ("/receipt/message", json!("a\0b")),
        ("/receipt/artifacts", json!({})),
        ("/receipt/structured", json!([])),
        ("/receipt/structured", json!("x")),
        ("/receipt/integrity", json!([])),
        ("/receipt/integrity/a", json!(1)),
        ("/receipt/observed_at", json!("2026-01-01T12:00:00")),
        ("/receipt/observed_at", json!("2026-01-01")),
        ("/receipt/observed_at", json!("2026-02-30T12:00:00Z")),
        ("/receipt/observed_at", json!(1_767_225_600)),
        ("/verification/verified", json!("true")),
        ("/verification/observed_at", json!("2026-01-01T12:00:00")),
        ("/verification/bogus", json!(1)),
        ("/failure_evidence/classification", json!("bad_luck")),
    ] {
        let changed = bodies::set(body.clone(), pointer, value);
        refused(&api, &changed.to_string(), &[pointer]).await;
    }
    for member in ["dispatch_id", "fence", "outcome"] {
        let answer = refused(&api, &bodies::without(body.clone(), member).to_string(), &[""]).await;
        assert!(answer.str("/faults/0/reason").contains(&format!("`{member}`")), "{answer}");
    }
    assert_untouched(&api, &granted).await;
}

async fn documents_in_reports_are_json_that_all_readers_agree_on(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    for (place, wrapped) in [("/result", false), ("/receipt/structured", true), ("/receipt/artifacts/0", false)] {
        let mut body = bodies::set(bodies::succeeded(&granted), "/receipt/artifacts", json!([1]));
        body = bodies::set(body, place, json!("PLACE"));
        let text = |document: &str| body.to_string().replace("\"PLACE\"", document);
        for (document, below) in [
            (r#"{"a":1,"a":2}"#, "/a"),
            (r#"{"a":{"b":[{"c":1,"c":1}]}}"#, "/a/b/0/c"),
            (r#"{"a":"\u0000"}"#, "/a"),
            (r#"{"a\u0000":1}"#, ""),
            (r#"{"a":["\ud800"]}"#, "/a/0"),
            (r#"{"a":1e400}"#, "/a"),
        ] {
            refused(&api, &text(document), &[&format!("{place}{below}")]).await;
        }
        for document in [nested_objects(65), if wrapped { nested_objects(5_000) } else { nested_arrays(65) }] {
            let answer = api.call("POST", "/api/effects/op/outcome").text(&text(&document)).send().await;
            let answer = answer.problem(400, "invalid-request");
            assert!(answer.str("/faults/0/pointer").starts_with(place), "{answer}");
        }
    }
    let body = bodies::set(bodies::receipted(&granted), "/receipt/artifacts", json!(["PLACE", "PLACE"]));
    let body = bodies::set(bodies::set(body, "/result", json!("PLACE")), "/receipt/structured", json!("PLACE"));
    let text = body.to_string().replace("\"PLACE\"", &nested_objects(64));
    let answer = api.call("POST", "/api/effects/op/outcome").text(&text).send().await.expect(200).state("verifying");
    assert!(answer.text.contains(&nested_objects(64)));
}

async fn receipts_are_bounded(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let body = bodies::receipted(&granted);
    let with = |pointer: &str, value: Value| bodies::set(body.clone(), pointer, value).to_string();
    let entries = |count: usize| -> Value { (0..count).map(|n| (format!("key-{n}"), json!("v"))).collect() };
    refused(&api, &with("/receipt/message", json!("m".repeat(4097))), &["/receipt/message"]).await;
    refused(&api, &with("/receipt/message", json!("é".repeat(2049))), &["/receipt/message"]).await;
    let artifacts = json!(["a".repeat(32 * 1024 - 2), "b".repeat(32 * 1024 - 1)]);
    refused(&api, &with("/receipt/artifacts", artifacts), &["/receipt/artifacts"]).await;
    refused(&api, &with("/receipt/resource_versions", entries(33)), &["/receipt/resource_versions"]).await;
    refused(&api, &with("/receipt/integrity", entries(17)), &["/receipt/integrity"]).await;
    for (map, long) in [("/receipt/integrity", "v".repeat(257)), ("/receipt/resource_versions", "a\0b".to_owned())] {
        refused(&api, &with(map, json!({ "key": long })), &[map]).await;
        refused(&api, &with(map, json!({ long: "v" })), &[map]).await;
    }
    refused(&api, &with("/receipt/structured", json!({ "a": "s".repeat(512 * 1024) })), &["/receipt"]).await;
    // At the bounds it is taken, and every byte comes back.
    let full = bodies::set(body.clone(), "/receipt/message", json!("é".repeat(2048)));
    let artifacts = json!(["a".repeat(32 * 1024 - 2), "b".repeat(32 * 1024 - 2)]);
    let full = bodies::set(full, "/receipt/artifacts", artifacts);
    let full = bodies::set(full, "/receipt/resource_versions", entries(32));
    let full = bodies::set(full, "/receipt/integrity", entries(16));
    let full = bodies::set(full, "/receipt/structured", json!({ "a": "s".repeat(256 * 1024 - 8) }));
    api.outcome("op", &full).await.expect(200).state("verifying");
    let found = api.get("op").await.expect(200);
    for member in ["message", "artifacts", "resource_versions", "integrity", "structured"] {
        assert_eq!(found.json["receipt"][member], full["receipt"][member], "{member}");
    }
}

async fn what_goes_with_which_outcome(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let receipt = bodies::receipt("op");
    let evidence = json!({ "classification": "timeout", "phase": "in_flight", "detail": "" });
    for (outcome, more, pointer) in [
        ("succeeded", json!({}), "/receipt"),
        ("succeeded", json!({ "receipt": receipt, "failure_evidence": evidence }), "/failure_evidence"),
        (
            "failed",
            json!({ "receipt": bodies::with(receipt.clone(), &json!({ "outcome": "failed" })),
            "verification": bodies::verification() }),
            "/verification",
        ),
        ("not_sent", json!({ "receipt": receipt }), "/receipt"),
        ("not_sent", json!({ "result": {} }), "/result"),
        ("not_sent", json!({ "failure_evidence": evidence }), "/failure_evidence/phase"),
        ("unknown", json!({}), "/failure_evidence"),
        ("unknown", json!({ "failure_evidence": evidence, "receipt": receipt }), "/receipt"),
        ("unknown", json!({ "failure_evidence": evidence, "result": 1 }), "/result"),
        ("unknown", json!({ "failure_evidence": evidence, "verification": bodies::verification() }), "/verification"),
    ] {
        let body = bodies::with(bodies::report(&granted, outcome), &more);
        refused(&api, &body.to_string(), &[pointer]).await;
    }
    for (detail, is_taken) in [("d".repeat(2049), false), ("a\0b".to_owned(), false), ("d".repeat(2048), true)] {
        let body = bodies::set(bodies::unknown(&granted), "/failure_evidence/detail", json!(detail));
        if is_taken {
            api.outcome("op", &body).await.expect(200).state("outcome_unknown");
        } else {
            refused(&api, &body.to_string(), &["/failure_evidence/detail"]).await;
        }
    }
}

async fn verifications_are_pointed_at(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    api.outcome("op", &bodies::receipted(&granted)).await.expect(200).state("verifying");
    for (pointer, value) in [
        ("/source", json!("")),
        ("/source", json!("a\0b")),
        ("/target", json!(" x")),
        ("/target", Value::Null),
        ("/verified", json!(1)),
        ("/observed_at", json!("2026-01-01T12:00:00")),
        ("/bogus", json!(1)),
    ] {
        let body = bodies::set(bodies::verification(), pointer, value);
        api.verify("op", &body).await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    for member in ["verified", "observed_at", "source", "target"] {
        let body = bodies::without(bodies::verification(), member);
        api.verify("op", &body).await.problem(400, "invalid-request").faults_at(&[""]);
    }
    assert_eq!(api.get("op").await.state("verifying").revision(), 2);
    let (dispatch_id, fence) = granted.dispatch();
    for (body, pointer) in [
        (json!({ "dispatch_id": dispatch_id, "fence": fence, "bogus": 1 }), "/bogus"),
        (json!({ "dispatch_id": "x", "fence": fence }), "/dispatch_id"),
        (json!({ "dispatch_id": dispatch_id, "fence": 1.5 }), "/fence"),
        (json!({ "dispatch_id": dispatch_id }), ""),
    ] {
        api.heartbeat("op", &body).await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
}

async fn decisions_are_pointed_at(store: StoreUnderTest) {
    let api = store.tenant();
    api.put_tool(TOOL, &json!({ "effect": "external", "authorization": { "mode": "approval" } })).await.expect(201);
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201).directive("authorize");
    let body = bodies::decision(&proposed, "approve");
    for (pointer, value) in [
        ("/decision", json!("maybe")),
        ("/decision", json!(true)),
        ("/proposal_digest", json!("sha256:00")),
        ("/proposal_digest", json!(1)),
        ("/reason", json!("")),
        ("/reason", json!("  ")),
        ("/reason", json!("a\0b")),
        ("/reason", json!("r".repeat(2049))),
        ("/bogus", json!(1)),
    ] {
        let answer = api.authorize("op", 1, &bodies::set(body.clone(), pointer, value)).await;
        answer.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    let path = "/api/effects/op/authorization";
    api.call("POST", path).json(&body).send().await.problem(428, "precondition-required");
    let answer = api.authorize("op", 2, &body).await.problem(412, "stale-revision");
    assert_eq!(answer.at("/found"), &json!({ "revision": 1, "state": "proposed" }));
    assert_eq!(api.get("op").await.state("proposed").revision(), 1);
    assert_eq!(api.journal("op").await.len(), 1);
}

async fn registrations_are_pointed_at(store: StoreUnderTest) {
    let api = store.tenant();
    let long = "d".repeat(2049);
    for (body, pointers) in [
        (json!({ "effect": "idempotent" }), vec!["/replay_contract", "/downstream_key_ttl_seconds"]),
        (
            json!({ "effect": "idempotent", "replay_contract": " ", "downstream_key_ttl_seconds": 1 }),
            vec!["/replay_contract"],
        ),
        (json!({ "effect": "none", "lease_seconds": 0 }), vec!["/lease_seconds"]),
        (json!({ "effect": "none", "lease_seconds": 3601 }), vec!["/lease_seconds"]),
        (json!({ "effect": "none", "verify_deadline_seconds": 0 }), vec!["/verify_deadline_seconds"]),
        (json!({ "effect": "none", "reconcile_deadline_seconds": 31_536_001 }), vec!["/reconcile_deadline_seconds"]),
        (
            json!({ "effect": "none", "description": long, "replay_contract": "a\0b" }),
            vec!["/description", "/replay_contract"],
        ),
        (json!({ "effect": "none", "authorization": { "approvals": 0 } }), vec!["/authorization/approvals"]),
        (json!({ "effect": "none", "authorization": { "approvals": 17 } }), vec!["/authorization/approvals"]),
        (
            json!({ "effect": "none", "authorization": { "expires_after_seconds": 0 } }),
            vec!["/authorization/expires_after_seconds"],
        ),
        (json!({ "effect": "none", "authorization": { "bogus": 1 } }), vec!["/authorization/bogus"]),
        (json!({ "effect": "none", "receipt": { "schema": "" } }), vec!["/receipt/schema"]),
        (
            json!({ "effect": "none", "receipt": { "structured_schema": { "type": 5 } } }),
            vec!["/receipt/structured_schema"],
        ),
        (
            json!({ "effect": "none", "receipt": { "structured_schema": { "$ref": "https://example.org/s" } } }),
            vec!["/receipt/structured_schema"],
        ),
        (json!({ "effect": "none", "receipt": { "structured_schema": true } }), vec!["/receipt/structured_schema"]),
        (
            json!({ "effect": "none", "identity_fields": ["a", "", "a"] }),
            vec!["/identity_fields/1", "/identity_fields/2"],
        ),
        (json!({ "effect": "none", "component": { "name": " x" } }), vec!["/component/name"]),
        (json!({ "effect": "none", "bogus": 1 }), vec!["/bogus"]),
        (json!({ "effect": "weird" }), vec!["/effect"]),
        (json!({}), vec![""]),
    ] {
        let answer = api.put_tool(TOOL, &body).await.problem(400, "invalid-request");
        answer.faults_at(&pointers);
    }
    super::assert_nothing_stored(&api, &[]).await;
}

async fn schemas_are_json_that_all_readers_agree_on(store: StoreUnderTest) {
    let api = store.tenant();
    for (schema, pointer) in [
        (r#"{"title":"a","title":"b"}"#.to_owned(), "/receipt/structured_schema"),
        (r#"{"title":"a\u0000b"}"#.to_owned(), "/receipt/structured_schema"),
        (r#"{"title":"\ud800"}"#.to_owned(), "/receipt/structured_schema"),
        (nested_objects(65).replace("\"a\"", "\"default\""), "/receipt/structured_schema"),
        (nested_objects(5_000).replace("\"a\"", "\"default\""), "/receipt/structured_schema"),
    ] {
        let body = format!(r#"{{"effect":"none","receipt":{{"structured_schema":{schema}}}}}"#);
        let answer = api.call("PUT", "/api/tools/t").text(&body).send().await.problem(400, "invalid-request");
        assert!(answer.str("/faults/0/pointer").starts_with(pointer), "{answer}");
    }
    super::assert_nothing_stored(&api, &[]).await;
}

/// A member that stands twice is refused wherever it stands: readers of JSON do not agree on it.
async fn keys_of_receipt_maps_stand_once(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    for map in ["integrity", "resource_versions"] {
        let report = bodies::set(bodies::receipted(&granted), &format!("/receipt/{map}"), json!("PLACE"));
        for twice in [r#"{"sha256":"one","sha256":"two"}"#, r#"{"sha256":"one","\u0073ha256":"one"}"#] {
            let text = report.to_string().replace("\"PLACE\"", twice);
            let answer = api.call("POST", "/api/effects/op/outcome").text(&text).send().await;
            let answer = answer.problem(400, "invalid-request");
            assert!(answer.str("/faults/0/pointer").starts_with(&format!("/receipt/{map}")), "{answer}");
        }
    }
    assert_untouched(&api, &granted).await;
}
