//! The downstream's adapter: whether a question is signed, and the answers that it gives.

use axum::http::HeaderMap;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::Sha256;

use crate::cli::demo::failure::Failure;
use crate::domain::time::Timestamp;
use crate::support::random_bytes;

/// What the service asks. Other members are left alone.
#[derive(Deserialize)]
pub(super) struct Question {
    pub(super) r#type: String,
    pub(super) operation_id: String,
    pub(super) target: String,
    pub(super) idempotency_key: String,
}

/// What the books say of an operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found {
    /// It is there, under this receipt.
    Once(String),
    /// It is there more than once.
    More,
    /// It is certainly not there now.
    Nothing,
    /// It is not there, but these books lag.
    NothingYet,
    /// It is not decided.
    Pending,
}

impl Found {
    /// The answer (protocol §7).
    pub(super) fn answer(&self, question: &Question, at: Timestamp) -> Value {
        match self {
            Self::Once(receipt_id) => completed(question, receipt_id, at),
            Self::More => json!({ "outcome": "multiple", "observation": "sent", "retryable": false }),
            Self::Nothing => json!({
                "outcome": "not_found", "observation": "not_sent", "consistency": "authoritative", "retryable": true,
            }),
            Self::NothingYet => json!({
                "outcome": "not_found", "observation": "outcome_unknown", "consistency": "eventual", "retryable": true,
            }),
            Self::Pending => json!({ "outcome": "pending", "observation": "outcome_unknown", "retryable": true }),
        }
    }
}

fn completed(question: &Question, receipt_id: &str, at: Timestamp) -> Value {
    json!({
        "outcome": "completed",
        "observation": "sent",
        "consistency": "authoritative",
        "retryable": false,
        "receipt": {
            "receipt_id": receipt_id,
            "schema": "generic",
            "schema_version": 1,
            "operation_id": question.operation_id,
            "target": question.target,
            "outcome": "completed",
            "observed_at": at,
            "source": "adapter",
        },
        "verification": { "verified": true, "observed_at": at, "source": "the books", "target": question.target },
    })
}

/// The secret that the service signs its questions with.
#[derive(Clone)]
pub(super) struct Secret([u8; 32]);

impl Secret {
    pub(super) fn random() -> Result<Self, Failure> {
        random_bytes().map(Self).map_err(Failure::Downstream)
    }

    /// As it is registered.
    pub(super) fn registered(&self) -> String {
        format!("whsec_{}", STANDARD.encode(self.0))
    }

    /// Whether a question is signed as Standard Webhooks say.
    pub(super) fn signed(&self, headers: &HeaderMap, body: &[u8]) -> bool {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return false };
        mac.update(format!("{}.{}.", text("webhook-id"), text("webhook-timestamp")).as_bytes());
        mac.update(body);
        let signatures = text("webhook-signature").split(' ').filter_map(|one| one.strip_prefix("v1,"));
        let mut decoded = signatures.filter_map(|one| STANDARD.decode(one).ok());
        decoded.any(|signature| mac.clone().verify_slice(&signature).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_signature_of_the_secret_counts() {
        let secret = Secret([7; 32]);
        let mut headers = HeaderMap::new();
        headers.insert("webhook-id", "msg_1".parse().unwrap());
        headers.insert("webhook-timestamp", "1614265330".parse().unwrap());
        let mut mac = Hmac::<Sha256>::new_from_slice(&[7; 32]).unwrap();
        mac.update(b"msg_1.1614265330.{}");
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        headers.insert("webhook-signature", format!("v1,AAAA v1,{signature}").parse().unwrap());
        assert!(secret.signed(&headers, b"{}"));
        assert!(!secret.signed(&headers, b"{ }"));
        headers.insert("webhook-id", "msg_2".parse().unwrap());
        assert!(!secret.signed(&headers, b"{}"));
    }
}
