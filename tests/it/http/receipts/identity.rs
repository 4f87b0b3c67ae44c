//! Which effect a delivery speaks about, and what of it counts.

use serde_json::{Value, json};

use super::{Vendor, doubtful, event, put, reasons, spec, vendor, waiting};
use crate::http::{TOOL, granted};
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    what_does_not_bind_settles_nothing,
    values_are_mapped_and_events_filtered,
    the_private_key_and_the_marker_find_their_effect,
    bodies_that_readers_disagree_about_are_refused,
    large_deliveries_are_applied_or_refused,
);

async fn what_does_not_bind_settles_nothing(store: StoreUnderTest) {
    let (api, foreign) = (store.tenant(), store.tenant());
    let vendor = vendor(&api, &json!({})).await;
    let strict = json!({ "effect": "external", "receipt": { "structured_schema": { "required": ["amount"] } } });
    api.put_tool("strict", &strict).await.expect(201);
    api.put_tool("other", &json!({ "effect": "external" })).await.expect(201);
    put(&api, "vendor", &json!({ "tools": [TOOL, "strict"] })).await;
    super::vendor(&foreign, &json!({})).await;
    doubtful(&api, "op").await;
    doubtful(&foreign, "theirs").await;
    for (operation, tool) in [("strict-op", "strict"), ("other-op", "other")] {
        let granted = api.intent(&bodies::claiming(operation, tool)).await.expect(201);
        api.outcome(operation, &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown");
    }
    let target = bodies::set(event("op", "re_1", "succeeded"), "/data/order", json!("order-9"));
    let deliveries = [
        (target, "other_target"),
        (event("strict-op", "re_1", "succeeded"), "does_not_bind"),
        (event("other-op", "re_1", "succeeded"), "other_tool"),
        // Law 12: what another tenant has is not there.
        (event("theirs", "re_1", "succeeded"), "unmatched"),
        (event("absent", "re_1", "succeeded"), "unmatched"),
        (bodies::set(event("op", "re_1", "succeeded"), "/data/metadata", json!(null)), "no_operation"),
        (bodies::set(event("op", "re_1", "succeeded"), "/data/id", json!({})), "no_receipt_id"),
        (bodies::set(event("op", "re_1", "succeeded"), "/data/status", json!(null)), "no_outcome"),
    ];
    for (body, _) in &deliveries {
        vendor.told(body, "quarantined").await;
    }
    assert_eq!(reasons(&api).await, deliveries.map(|(_, reason)| reason));
    for operation in ["op", "strict-op", "other-op"] {
        let found = api.get(operation).await.state("outcome_unknown");
        assert_eq!(found.revision(), 2, "{found}");
    }
    assert_eq!(foreign.get("theirs").await.state("outcome_unknown").revision(), 2);
    assert!(waiting(&foreign).await.is_empty());
}

async fn values_are_mapped_and_events_filtered(store: StoreUnderTest) {
    let api = store.tenant();
    let filter = json!({ "filter": { "pointer": "/type", "values": ["refund.updated"] } });
    let vendor = vendor(&api, &filter).await;
    doubtful(&api, "op").await;
    let other = bodies::set(event("op", "re_1", "succeeded"), "/type", json!("refund.created"));
    vendor.told(&other, "ignored").await;
    vendor.told(&event("op", "re_1", "pending"), "ignored").await;
    assert!(waiting(&api).await.is_empty());
    vendor.told(&event("op", "re_1", "on_hold"), "quarantined").await;
    assert_eq!(reasons(&api).await, ["unmapped_outcome"]);
    api.get("op").await.state("outcome_unknown");
    // A registration that knows the word brings on what waits.
    let values = json!({ "on_hold": "failed", "succeeded": "completed" });
    put(&api, "vendor", &json!({ "outcome": { "pointer": "/data/status", "values": values } })).await;
    super::until_state(&api, "op", "failed").await;
    super::eventually("nothing waits", || async { waiting(&api).await.is_empty() }).await;
    let outcome = json!({ "pointer": "/data/status", "values": { "succeeded": "completed" }, "otherwise": "ignore" });
    put(&api, "vendor", &json!({ "outcome": outcome })).await;
    vendor.told(&event("op", "re_1", "whatever"), "ignored").await;
}

/// What a vendor sends that was given the downstream key, or text with the marker in it.
fn keyed(text: &str) -> Value {
    json!({ "data": { "id": "re_1", "status": "succeeded", "text": text } })
}

async fn by(api: &Api, locator: &str) -> Vendor {
    let changes = json!({ "operation_id": null, locator: "/data/text", "target": "from_effect" });
    Vendor::new(api, &put(api, locator, &changes).await)
}

async fn the_private_key_and_the_marker_find_their_effect(store: StoreUnderTest) {
    let (api, foreign) = (store.tenant(), store.tenant());
    vendor(&api, &json!({})).await;
    vendor(&foreign, &json!({})).await;
    let (key, marker) = (by(&api, "downstream_key").await, by(&api, "marker").await);
    let secret = |granted: &crate::support::Answer, what: &str| granted.str(&format!("/dispatch/{what}")).to_owned();
    let one = granted(&api, "one").await;
    let two = granted(&api, "two").await;
    let theirs = granted(&foreign, "one").await;
    for (api, id, granted) in [(&api, "one", &one), (&api, "two", &two), (&foreign, "one", &theirs)] {
        api.outcome(id, &bodies::unknown(granted)).await.expect(200);
    }
    let mut forged = secret(&one, "idempotency_key");
    let last = if forged.ends_with('A') { 'E' } else { 'A' };
    forged.pop();
    forged.push(last);
    let both = format!("{} {}", secret(&one, "marker"), secret(&two, "marker"));
    for (vendor, text) in [
        (&key, forged.as_str()),
        (&key, &secret(&theirs, "idempotency_key")),
        (&key, "one"),
        (&key, ""),
        (&marker, "no marker"),
        (&marker, &both),
        (&marker, &secret(&theirs, "marker")),
    ] {
        vendor.told(&keyed(text), "quarantined").await;
    }
    for (api, id) in [(&api, "one"), (&api, "two"), (&foreign, "one")] {
        api.get(id).await.state("outcome_unknown");
    }
    key.told(&keyed(&secret(&one, "idempotency_key")), "settled").await;
    let text = format!("Refunded.\n\n{}\n", secret(&two, "marker"));
    marker.told(&keyed(&text), "settled").await;
    for id in ["one", "two"] {
        let settled = api.get(id).await.state("completed");
        assert_eq!(settled.str("/receipt/target"), bodies::TARGET);
    }
    foreign.get("one").await.state("outcome_unknown");
    // An operation id is no secret: it can't stand for the target.
    let weak = spec(&json!({ "target": "from_effect" }));
    let refused = api.call("PUT", "/api/receipt-sources/weak").json(&weak).send().await;
    refused.problem(400, "invalid-request").faults_at(&["/target"]);
}

async fn bodies_that_readers_disagree_about_are_refused(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    doubtful(&api, "op").await;
    let good = event("op", "re_1", "succeeded").to_string();
    let deep = format!("{}1{}", "[".repeat(100_000), "]".repeat(100_000));
    for (body, pointer) in [
        (good.replacen("{\"data\":{", "{\"data\":{\"status\":\"failed\",", 1), "/data/status"),
        (good.replace("re_1", "\\u0000"), "/data/id"),
        (good.replace("re_1", "\\ud800"), "/data/id"),
        (format!("[{good}]"), ""),
        (format!("{good}{good}"), ""),
        (good[..good.len() - 1].to_owned(), ""),
        ("\"text\"".to_owned(), ""),
        (String::new(), ""),
    ] {
        vendor.send(&body).await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    let nested = good.replace("\"re_1\"", &deep);
    vendor.send(&nested).await.problem(400, "invalid-request");
    vendor.signed(&good).bytes(good.as_bytes()).send().await.problem(415, "unsupported-media-type");
    assert!(waiting(&api).await.is_empty());
    assert_eq!(api.get("op").await.state("outcome_unknown").revision(), 2);
}

async fn large_deliveries_are_applied_or_refused(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    doubtful(&api, "op").await;
    let padded = |operation: &str, kib: usize| {
        bodies::with(event(operation, "re_1", "succeeded"), &json!({ "padding": "x".repeat(kib * 1024) }))
    };
    vendor.told(&padded("absent", 60), "quarantined").await;
    let refused = vendor.deliver(&padded("absent", 70)).await.problem(413, "too-large");
    assert_eq!(refused.at("/limit_bytes"), &json!(64 * 1024));
    vendor.told(&padded("op", 200), "settled").await;
    let refused = vendor.deliver(&padded("op", 300)).await.problem(413, "too-large");
    assert_eq!(refused.at("/limit_bytes"), &json!(256 * 1024));
    let waits = waiting(&api).await;
    assert_eq!(waits.len(), 1);
    assert!(waits[0].get("body").is_none(), "lists have no bodies");
}
