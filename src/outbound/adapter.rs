//! Adapter webhooks (protocol §7): what is sent, and how it is signed.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use serde::Serialize;
use serde_json::value::RawValue;
use sha2::Sha256;
use uuid::Uuid;

use super::client::OutboundRequest;
use crate::domain::adapter::NoAnswer;
use crate::domain::canonical::Sha256Digest;
use crate::domain::time::Timestamp;
use crate::limits;
use crate::service::keys::marker;
use crate::service::ports::{AdapterCall, SigningSecret};

/// What an adapter is told. Never arguments: it could dispatch from them.
#[derive(Serialize)]
struct Body<'a> {
    r#type: &'static str,
    tenant: &'a str,
    operation_id: &'a str,
    tool: &'a str,
    tool_revision: u32,
    target: &'a str,
    idempotency_key: &'a str,
    intent_digest: Sha256Digest,
    arguments_digest: &'a Sha256Digest,
    revision: u32,
    dispatches: Vec<DispatchView>,
    marker: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    receipt: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct DispatchView {
    dispatch_id: Uuid,
    attempt: u32,
    dispatched_at: Timestamp,
}

/// The body of a webhook.
fn body(call: &AdapterCall) -> Result<Vec<u8>, serde_json::Error> {
    let (record, intent) = (&call.record, &call.record.intent);
    let sent = call.receipt.as_ref().map(|receipt| &receipt.text).or(record.receipt.as_ref());
    let receipt = sent.map(|text| serde_json::from_str(text)).transpose()?;
    let dispatches = record.life.dispatch.iter().map(|dispatch| DispatchView {
        dispatch_id: dispatch.dispatch_id,
        attempt: dispatch.attempt,
        dispatched_at: dispatch.dispatched_at,
    });
    serde_json::to_vec(&Body {
        r#type: call.question.as_str(),
        tenant: call.tenant.as_str(),
        operation_id: intent.operation_id.as_str(),
        tool: intent.tool.as_str(),
        tool_revision: call.tool.revision,
        target: intent.target.as_str(),
        idempotency_key: &intent.idempotency_key,
        intent_digest: Sha256Digest::of(serde_json::to_string(intent.as_ref())?.as_bytes()),
        arguments_digest: &intent.arguments_digest,
        revision: record.life.revision,
        dispatches: dispatches.collect(),
        marker: marker(&intent.idempotency_key),
        receipt,
    })
}

/// The webhook for a call, signed with each secret, under the time `now` of the database.
///
/// # Errors
/// `NoSecret` without a secret to sign with.
pub(super) fn webhook(
    call: &AdapterCall,
    url: &str,
    secrets: &[SigningSecret],
    now: Timestamp,
    timeout: Duration,
) -> Result<OutboundRequest, NoAnswer> {
    if secrets.is_empty() {
        return Err(NoAnswer::NoSecret);
    }
    let body = body(call).map_err(|error| {
        tracing::error!(%error, "a webhook can't be written");
        NoAnswer::Forbidden
    })?;
    let timestamp = now.micros().div_euclid(1_000_000);
    let signatures: Vec<String> =
        secrets.iter().filter_map(|secret| sign(secret, &call.call_id, timestamp, &body)).collect();
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("accept", "application/json".to_owned()),
        ("webhook-id", call.call_id.clone()),
        ("webhook-timestamp", timestamp.to_string()),
        ("webhook-signature", signatures.join(" ")),
    ];
    Ok(OutboundRequest {
        method: Method::POST,
        url: url.to_owned(),
        headers: headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        body,
        timeout,
        max_bytes: limits::ADAPTER_ANSWER_BYTES,
    })
}

/// One signature of the Standard Webhooks specification: version, comma, and the HMAC over id, time
/// and body.
pub(super) fn sign(secret: &SigningSecret, id: &str, timestamp: i64, body: &[u8]) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.bytes()).ok()?;
    mac.update(format!("{id}.{timestamp}.").as_bytes());
    mac.update(body);
    Some(format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes())))
}
