//! Inbound receipts (protocol §6): vendors' webhooks over real HTTP.

mod attach;
mod identity;
mod order;
mod quarantine;
mod registration;
mod repair;
mod secrets;
mod signatures;

use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::digest::KeyInit as _;
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::http::TOOL;
use crate::support::api::{Answer, Api, segment};
use crate::support::{bodies, time, unique};

/// The secret of [`vendor`], as the vendor shows it.
pub(crate) const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A registration with Standard Webhooks and an operation id, some members replaced; `null` takes one away.
pub(crate) fn spec(changes: &Value) -> Value {
    let mut spec = json!({
        "tools": [TOOL], "scheme": { "kind": "standard_webhooks" }, "secrets": [SECRET],
        "operation_id": "/data/metadata/operation_id", "receipt_id": "/data/id", "target": "/data/order",
        "outcome": { "pointer": "/data/status",
            "values": { "succeeded": "completed", "failed": "failed", "pending": "ignore" } },
    });
    for (name, value) in changes.as_object().unwrap() {
        spec[name] = value.clone();
    }
    spec.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    spec
}

/// Registers a source and tells where its deliveries go.
pub(crate) async fn put(api: &Api, name: &str, changes: &Value) -> Answer {
    let path = format!("/api/receipt-sources/{}", segment(name));
    let answer = api.call("PUT", &path).json(&spec(changes)).send().await;
    assert!(answer.status.is_success(), "{answer}");
    answer
}

/// What a vendor sends about an operation.
pub(crate) fn event(operation_id: &str, receipt_id: &str, status: &str) -> Value {
    json!({
        "type": "refund.updated", "id": unique("evt"),
        "data": { "id": receipt_id, "status": status, "order": bodies::TARGET,
            "metadata": { "operation_id": operation_id } },
    })
}

/// A vendor that signs by Standard Webhooks.
#[derive(Debug, Clone)]
pub(crate) struct Vendor {
    /// Without a token.
    api: Api,
    pub(crate) path: String,
    secret: Vec<u8>,
}

impl Vendor {
    pub(crate) fn new(api: &Api, source: &Answer) -> Self {
        let secret = STANDARD.decode(SECRET.trim_start_matches("whsec_")).unwrap();
        Self { api: api.with_token(None), path: source.str("/url_path").to_owned(), secret }
    }

    /// The same vendor, after the service has moved.
    pub(crate) fn at(&self, api: &Api) -> Self {
        Self { api: api.with_token(None), ..self.clone() }
    }

    pub(crate) async fn deliver(&self, body: &Value) -> Answer {
        self.send(&body.to_string()).await
    }

    /// The bytes as given, signed well.
    pub(crate) async fn send(&self, body: &str) -> Answer {
        self.call(body).send().await
    }

    pub(crate) fn call(&self, body: &str) -> crate::support::api::Call {
        self.signed(body).text(body)
    }

    /// A call with the signature of a body, and no body yet.
    pub(crate) fn signed(&self, body: &str) -> crate::support::api::Call {
        let (id, at) = (unique("msg"), time::unix_seconds().to_string());
        let mac = Hmac::<Sha256>::new_from_slice(&self.secret).unwrap().chain_update(format!("{id}.{at}.{body}"));
        let signature = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
        self.api
            .call("POST", &self.path)
            .header("webhook-id", &id)
            .header("webhook-timestamp", &at)
            .header("webhook-signature", &signature)
    }

    pub(crate) async fn told(&self, body: &Value, disposition: &str) {
        let answer = self.deliver(body).await.expect(200);
        assert_eq!(answer.json, json!({ "disposition": disposition }), "{body}");
    }
}

/// Registers [`TOOL`] and a source `vendor` for it.
pub(crate) async fn vendor(api: &Api, changes: &Value) -> Vendor {
    crate::http::tool(api, json!({ "effect": "external", "verification": "waived" })).await;
    Vendor::new(api, &put(api, "vendor", changes).await)
}

/// A new effect of [`TOOL`] whose outcome nobody knows.
pub(crate) async fn doubtful(api: &Api, operation_id: &str) -> Answer {
    let granted = crate::http::granted(api, operation_id).await;
    api.outcome(operation_id, &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown")
}

/// What waits in quarantine.
pub(crate) async fn waiting(api: &Api) -> Vec<Value> {
    api.pages("/api/quarantine?limit=200").await
}

/// Why everything waits, oldest first.
pub(crate) async fn reasons(api: &Api) -> Vec<String> {
    waiting(api).await.iter().map(|item| item["reason"].as_str().unwrap().to_owned()).collect()
}

/// Looks again until it holds, as a background has to act.
pub(crate) async fn eventually<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let until = Instant::now() + Duration::from_mins(1);
    while !holds().await {
        assert!(Instant::now() < until, "not in time: {what}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits for a state that the background brings.
pub(crate) async fn until_state(api: &Api, operation_id: &str, state: &str) {
    eventually(state, || async { api.get(operation_id).await.json["state"] == state }).await;
}
