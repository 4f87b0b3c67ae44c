//! What was sent comes back in no refusal, and goes into no log line (law 11).

use serde_json::{Value, json};

use crate::http::{TOOL, external, granted};
use crate::support::api::Answer;
use crate::support::{StoreUnderTest, bodies, both_stores, unique};

both_stores!(
    refusals_do_not_repeat_what_was_sent,
    conflicts_and_misses_do_not_repeat_what_was_sent,
    content_of_accepted_requests_is_not_logged,
);

#[track_caller]
fn silent(answer: &Answer, marker: &str) {
    assert!(answer.status.is_client_error(), "{answer}");
    assert!(!answer.text.contains(marker), "echoed: {answer}");
    for (name, value) in &answer.headers {
        assert!(!value.to_str().unwrap_or_default().contains(marker), "echoed in {name}: {answer}");
    }
}

/// Ways to put a marker where it does not belong.
fn misplaced(marker: &str) -> Vec<Value> {
    vec![
        json!(marker),
        json!(format!(" {marker}")),
        json!(format!("{marker}\0")),
        json!(format!("{marker}\n")),
        json!(marker.repeat(30)),
        json!([marker]),
        json!({ "x": marker }),
    ]
}

async fn refusals_do_not_repeat_what_was_sent(store: StoreUnderTest) {
    let (api, marker) = (store.tenant(), unique("hunter2"));
    external(&api).await;
    let granted = granted(&api, "op").await;
    for value in misplaced(&marker) {
        for pointer in ["/effect", "/claim/lease_seconds", "/arguments_digest"] {
            let body = bodies::set(bodies::claiming("new", TOOL), pointer, value.clone());
            silent(&api.intent(&body).await, &marker);
        }
        for pointer in [
            "/dispatch_id",
            "/fence",
            "/outcome",
            "/receipt",
            "/receipt/schema_version",
            "/receipt/outcome",
            "/receipt/artifacts",
            "/receipt/observed_at",
            "/receipt/integrity",
            "/verification",
            "/verification/verified",
            "/verification/observed_at",
            "/failure_evidence",
        ] {
            let good = bodies::with(bodies::succeeded(&granted), &json!({ "result": marker }));
            // A map takes objects, and a list takes a list.
            if (pointer == "/receipt/integrity" && value.is_object())
                || (pointer == "/receipt/artifacts" && value.is_array())
            {
                continue;
            }
            silent(&api.outcome("op", &bodies::set(good, pointer, value.clone())).await, &marker);
        }
        for pointer in ["/effect", "/lease_seconds", "/receipt/schema_version", "/authorization/mode", "/adapter"] {
            let body = bodies::set(json!({ "effect": "external", "description": marker }), pointer, value.clone());
            silent(&api.put_tool("other", &body).await, &marker);
        }
    }
    // Names that do not fit, beside arguments that stay unseen.
    for (pointer, value) in [("/target", json!(format!("{marker} "))), ("/run_id", json!(marker.repeat(30)))] {
        let body = bodies::with(bodies::intent("new", TOOL), &json!({ "arguments": { "password": marker } }));
        silent(&api.intent(&bodies::set(body, pointer, value)).await, &marker);
    }
    let text = format!(r#"{{"operation_id":"new","tool":"{TOOL}","target":"t","arguments":{{"a":"{marker}\u0000"}}}}"#);
    silent(&api.call("POST", "/api/intents").text(&text).send().await, &marker);
    for text in [marker.clone(), format!("\"{marker}\""), format!("{{\"{marker}"), format!("[\"{marker}\"]")] {
        silent(&api.call("POST", "/api/intents").text(&text).send().await, &marker);
    }
    assert!(!store.shared().log().contains(&marker), "in the log");
}

async fn conflicts_and_misses_do_not_repeat_what_was_sent(store: StoreUnderTest) {
    let (api, marker) = (store.tenant(), unique("hunter2"));
    external(&api).await;
    let granted = granted(&api, "op").await;
    // Evidence that does not bind.
    for (pointer, value) in [
        ("/receipt/operation_id", json!(marker)),
        ("/receipt/target", json!(marker)),
        ("/receipt/schema", json!(marker)),
        ("/verification/target", json!(marker)),
    ] {
        silent(&api.outcome("op", &bodies::set(bodies::succeeded(&granted), pointer, value)).await, &marker);
    }
    let reused = bodies::with(bodies::intent("op", TOOL), &json!({ "target": marker, "arguments": marker }));
    silent(&api.intent(&reused).await, &marker);
    // Paths, queries, headers.
    for path in [format!("/api/{marker}"), format!("/api/effects/{marker}%00"), format!("/api/effects/{marker}")] {
        silent(&api.read(&path).await, &marker);
    }
    for query in ["state", "limit", "cursor", "updated_before", "contradicted"] {
        silent(&api.list(&format!("{query}={marker}")).await, &marker);
    }
    for header in ["prefer", "if-match", "idempotency-key"] {
        let value = if header == "prefer" { format!("wait={marker}") } else { format!("{marker} \u{e9}") };
        let call = api.call("POST", "/api/intents").json(&bodies::with(bodies::intent("op2", TOOL), &json!({})));
        let call = if header == "if-match" { api.call("POST", "/api/effects/op/cancel") } else { call };
        silent(&call.header(header, &value).send().await, &marker);
    }
    for token in [marker.clone(), format!("{marker}.{marker}.{marker}")] {
        silent(&api.with_token(Some(token)).get("op").await, &marker);
    }
    assert!(!store.shared().log().contains(&marker), "in the log");
}

async fn content_of_accepted_requests_is_not_logged(store: StoreUnderTest) {
    let (api, marker) = (store.tenant(), unique("hunter2"));
    external(&api).await;
    let body = bodies::with(bodies::claiming("op", TOOL), &json!({ "arguments": { "password": marker } }));
    let granted = api.intent(&body).await.expect(201);
    let mut failed = bodies::unknown(&granted);
    failed["failure_evidence"]["detail"] = json!(format!("it said {marker}"));
    api.outcome("op", &failed).await.expect(200).state("outcome_unknown");
    let mut report = bodies::with(bodies::succeeded(&granted), &json!({ "result": { "secret": marker } }));
    report["receipt"]["message"] = json!(marker);
    report["receipt"]["structured"] = json!({ "secret": marker });
    api.outcome("op", &report).await.expect(200).state("completed");
    let log = store.shared().log();
    assert!(log.contains("request"), "the log is on, or this test shows nothing");
    assert!(!log.contains(&marker), "in the log");
    // Nor into the journal's events, nor into the metrics.
    assert!(!json!(api.journal("op").await).to_string().contains(&marker), "in the journal");
    assert!(!api.read("/metrics").await.expect(200).text.contains(&marker), "in the metrics");
}
