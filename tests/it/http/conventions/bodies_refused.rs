//! Bodies that are not the JSON object that an operation takes.

use serde_json::{Value, json};

use crate::http::{TOOL, external};
use crate::support::api::Call;
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    what_is_no_json_object_is_refused,
    arrays_are_no_objects,
    other_media_types_are_refused,
    json_media_types_are_taken,
    bodies_that_may_be_absent,
);

/// Every operation with a body, and a body that it takes.
fn operations() -> Vec<(&'static str, &'static str, Value)> {
    let receipt = bodies::receipt("op");
    let id = "00000000-0000-4000-8000-000000000000";
    vec![
        ("POST", "/api/intents", bodies::claiming("new", TOOL)),
        ("POST", "/api/effects/op/dispatch", bodies::claim()),
        ("POST", "/api/effects/op/heartbeat", json!({ "dispatch_id": id, "fence": 1 })),
        (
            "POST",
            "/api/effects/op/outcome",
            json!({ "dispatch_id": id, "fence": 1, "outcome": "succeeded", "receipt": receipt }),
        ),
        ("POST", "/api/effects/op/verification", bodies::verification()),
        (
            "POST",
            "/api/effects/op/authorization",
            json!({ "decision": "approve", "proposal_digest": format!("sha256:{}", "0".repeat(64)), "reason": "x" }),
        ),
        ("POST", "/api/intents/batch", json!({ "items": [bodies::claiming("new", TOOL)] })),
        ("POST", "/api/outcomes/batch", json!({ "items": [] })),
        ("PUT", "/api/tools/other", json!({ "effect": "none" })),
        ("POST", "/api/grants", json!({ "tool": TOOL, "max_uses": 1, "expires_after_seconds": 60, "reason": "x" })),
        (
            "PUT",
            "/api/profiles",
            json!({ "components": [{ "class": "tool", "name": "x", "behavior_version": "1",
            "implementation_version": "1" }] }),
        ),
        ("POST", "/api/sessions/s/profile", json!({ "profile_id": "x", "idempotency_key": "k", "reason": "x" })),
    ]
}

fn call(api: &Api, method: &str, path: &str) -> Call {
    let call = api.call(method, path);
    if path.ends_with("authorization") { call.header("if-match", "\"1\"") } else { call }
}

async fn prepared(store: StoreUnderTest) -> Api {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    api
}

/// The one effect is as it was, and nothing else is there.
async fn assert_untouched(api: &Api) {
    assert_eq!(api.list("limit=10").await.at("/items").as_array().unwrap().len(), 1);
    assert_eq!(api.get("op").await.directive("claim").revision(), 1);
    assert_eq!(api.journal("op").await.len(), 1);
    assert_eq!(api.pages("/api/tools?limit=200").await.len(), 1);
}

async fn what_is_no_json_object_is_refused(store: StoreUnderTest) {
    let api = prepared(store).await;
    for (method, path, body) in operations() {
        let good = body.to_string();
        for text in [
            String::new(),
            " ".to_owned(),
            "nope".to_owned(),
            "{".to_owned(),
            good[..good.len() - 1].to_owned(),
            good.clone() + "{}",
            good.clone() + ",",
            good.replace(':', "="),
            good.replacen('{', "{,", 1),
            format!("\u{feff}{good}"),
            good.replace('"', "'"),
            "null".to_owned(),
            "5".to_owned(),
            "true".to_owned(),
            json!(good).to_string(),
            "NaN".to_owned(),
        ] {
            let answer = call(&api, method, path).text(&text).send().await.problem(400, "invalid-request");
            assert!(!answer.json["faults"].as_array().expect("faults").is_empty(), "{text}: {answer}");
        }
        let mut bytes = good.clone().into_bytes();
        let place = good.find('"').unwrap() + 1;
        bytes[place] = 0xff;
        let call = call(&api, method, path).header("content-type", "application/json");
        call.bytes(&bytes).send().await.problem(400, "invalid-request");
    }
    assert_untouched(&api).await;
}

async fn arrays_are_no_objects(store: StoreUnderTest) {
    let api = prepared(store).await;
    for (method, path, body) in operations() {
        for array in [json!([]), json!([body])] {
            call(&api, method, path).json(&array).send().await.problem(400, "invalid-request");
        }
    }
    assert_untouched(&api).await;
}

async fn other_media_types_are_refused(store: StoreUnderTest) {
    let api = prepared(store).await;
    for (method, path, body) in operations() {
        let text = body.to_string();
        call(&api, method, path).bytes(text.as_bytes()).send().await.problem(415, "unsupported-media-type");
        for media in
            ["text/plain", "application/x-www-form-urlencoded", "text/json", "application/xml", "application/jsonx", ""]
        {
            let call = call(&api, method, path).header("content-type", media).bytes(text.as_bytes());
            call.send().await.problem(415, "unsupported-media-type");
        }
    }
    for path in ["/api/effects/op/cancel", "/api/tools/payments.refund/pause", "/api/tools/payments.refund/resume"] {
        let call = api.call("POST", path).header("content-type", "text/plain").bytes(b"{}");
        call.send().await.problem(415, "unsupported-media-type");
    }
    assert_untouched(&api).await;
}

async fn json_media_types_are_taken(store: StoreUnderTest) {
    let api = store.tenant();
    for media in ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/vnd.x+json"] {
        let call = api.call("PUT", "/api/tools/t").header("content-type", media).bytes(br#"{"effect":"none"}"#);
        assert!(call.send().await.status.is_success(), "{media}");
    }
}

async fn bodies_that_may_be_absent(store: StoreUnderTest) {
    let api = prepared(store).await;
    for path in ["/api/tools/payments.refund/pause", "/api/tools/payments.refund/resume", "/api/effects/op/cancel"] {
        for text in ["nope", "5", "null5", r#"{"bogus":1}"#, "{}{}"] {
            let answer = api.call("POST", path).text(text).send().await.problem(400, "invalid-request");
            assert!(!answer.text.contains("null5"), "{answer}");
        }
    }
    assert_untouched(&api).await;
    for path in ["/api/tools/payments.refund/pause", "/api/tools/payments.refund/resume", "/api/effects/op/cancel"] {
        api.call("POST", path).send().await.expect(200);
        api.call("POST", path).text("{}").send().await.expect(200);
        api.call("POST", path).text("").send().await.expect(200);
    }
}
