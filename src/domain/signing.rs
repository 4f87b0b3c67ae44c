//! How deliveries are signed: the schemes that vendors use, as data. The check itself stands in
//! `service::signature`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::fault::Fault;
use crate::limits;

/// A kind of scheme.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SchemeKind {
    /// The Standard Webhooks specification: `webhook-id`, `webhook-timestamp`, `webhook-signature`.
    StandardWebhooks,
    /// An HMAC over a template with the timestamp and the body.
    TimestampedHmac,
    /// An HMAC over the body alone. A repeat is harmless; an old delivery can't be told from a new one.
    Hmac,
}

/// The digest of an HMAC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HmacAlgorithm {
    /// SHA-256.
    #[default]
    Sha256,
    /// SHA-512.
    Sha512,
}

/// How bytes are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Hexadecimal.
    #[default]
    Hex,
    /// Base64 with the standard alphabet, padded or not.
    Base64,
}

/// How a secret is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SecretEncoding {
    /// The bytes of the text itself.
    #[default]
    Raw,
    /// Hexadecimal.
    Hex,
    /// Base64.
    Base64,
}

/// A signature scheme. Which members go with which kind stands with each; the others are refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SchemeSpec {
    /// The kind.
    pub kind: SchemeKind,
    /// The header with the signature. For both HMAC kinds; for `hmac` by default `x-hub-signature-256`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature_header: Option<String>,
    /// The header with the timestamp in seconds, where it has one of its own. For `timestamped_hmac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_header: Option<String>,
    /// Where one header holds `t=…,v1=…`: the name of the timestamp, such as `t`. For `timestamped_hmac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp_key: Option<String>,
    /// Likewise the name of the signatures, such as `v1`; there may be several. For `timestamped_hmac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signature_key: Option<String>,
    /// The digest; by default `sha256`. For both HMAC kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub algorithm: Option<HmacAlgorithm>,
    /// How the signature is written; by default `hex`. For both HMAC kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub encoding: Option<Encoding>,
    /// What stands before the signature; for `hmac` by default `sha256=`. For both HMAC kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// What is signed, by default `{timestamp}.{body}`; `{id}` is the delivery's id. For `timestamped_hmac`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signed_content: Option<String>,
    /// The header with the delivery's own id. For both HMAC kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery_header: Option<String>,
    /// How secrets are written; by default `raw`. For both HMAC kinds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_encoding: Option<SecretEncoding>,
    /// How far a timestamp may be from the database's time: 1 to 3600, by default 300. For both kinds with one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tolerance_seconds: Option<u32>,
}

/// What is signed where a timestamped scheme does not say.
pub const TIMESTAMPED_CONTENT: &str = "{timestamp}.{body}";
/// What Standard Webhooks sign.
pub const STANDARD_CONTENT: &str = "{id}.{timestamp}.{body}";
/// The header of a plain HMAC where the scheme does not say, and what stands before the signature.
pub const PLAIN_HEADER: (&str, &str) = ("x-hub-signature-256", "sha256=");

impl SchemeSpec {
    /// The template of what is signed.
    #[must_use]
    pub fn content(&self) -> &str {
        match self.kind {
            SchemeKind::StandardWebhooks => STANDARD_CONTENT,
            SchemeKind::TimestampedHmac => self.signed_content.as_deref().unwrap_or(TIMESTAMPED_CONTENT),
            SchemeKind::Hmac => "{body}",
        }
    }

    /// How far a timestamp may be away.
    #[must_use]
    pub fn tolerance(&self) -> u32 {
        self.tolerance_seconds.unwrap_or(limits::INBOUND_TOLERANCE_DEFAULT_SECONDS)
    }

    /// The bytes of a secret; `None` if it is not written as the scheme asks, or too short or too long.
    #[must_use]
    pub fn secret(&self, text: &str) -> Option<Vec<u8>> {
        let bytes = match (self.kind, self.secret_encoding.unwrap_or_default()) {
            (SchemeKind::StandardWebhooks, _) => STANDARD.decode(text.strip_prefix("whsec_").unwrap_or(text)).ok()?,
            (_, SecretEncoding::Raw) => text.as_bytes().to_vec(),
            (_, SecretEncoding::Hex) => hex::decode(text).ok()?,
            (_, SecretEncoding::Base64) => STANDARD.decode(text).ok()?,
        };
        (limits::RECEIPT_SECRET_MIN_BYTES..=limits::RECEIPT_SECRET_MAX_BYTES).contains(&bytes.len()).then_some(bytes)
    }

    /// Checks what the types can't say, pointers relative to the scheme.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let timed = self.kind == SchemeKind::TimestampedHmac;
        let (hmac, has_time) = (self.kind != SchemeKind::StandardWebhooks, self.kind != SchemeKind::Hmac);
        for (given, goes, pointer) in [
            (self.signature_header.is_some(), hmac, "/signature_header"),
            (self.timestamp_header.is_some(), timed, "/timestamp_header"),
            (self.timestamp_key.is_some(), timed, "/timestamp_key"),
            (self.signature_key.is_some(), timed, "/signature_key"),
            (self.algorithm.is_some(), hmac, "/algorithm"),
            (self.encoding.is_some(), hmac, "/encoding"),
            (self.prefix.is_some(), hmac, "/prefix"),
            (self.signed_content.is_some(), timed, "/signed_content"),
            (self.delivery_header.is_some(), hmac, "/delivery_header"),
            (self.secret_encoding.is_some(), hmac, "/secret_encoding"),
            (self.tolerance_seconds.is_some(), has_time, "/tolerance_seconds"),
        ] {
            if given && !goes {
                faults.push(Fault::new(pointer, "does not go with this kind"));
            }
        }
        self.check_texts(&mut faults);
        if timed {
            self.check_timed(&mut faults);
        }
        if !(1..=limits::INBOUND_TOLERANCE_MAX_SECONDS).contains(&self.tolerance()) {
            faults.push(Fault::new("/tolerance_seconds", "must be between 1 and 3600"));
        }
        faults
    }

    fn check_texts(&self, faults: &mut Vec<Fault>) {
        let is_token = |text: &String| {
            let allowed = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
            (1..=64).contains(&text.len()) && text.bytes().all(allowed)
        };
        for (text, pointer) in [
            (&self.signature_header, "/signature_header"),
            (&self.timestamp_header, "/timestamp_header"),
            (&self.delivery_header, "/delivery_header"),
        ] {
            if text.as_ref().is_some_and(|text| !is_token(text)) {
                faults.push(Fault::new(pointer, "must be the name of a header"));
            }
        }
        for (text, pointer) in [(&self.timestamp_key, "/timestamp_key"), (&self.signature_key, "/signature_key")] {
            let good = |text: &String| text.len() <= 32 && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if text.as_ref().is_some_and(|text| text.is_empty() || !good(text)) {
                faults.push(Fault::new(pointer, "must be 1 to 32 letters, digits and _"));
            }
        }
        let printable = |text: &String| text.len() <= 64 && text.bytes().all(|b| (b' '..=b'~').contains(&b));
        if self.prefix.as_ref().is_some_and(|text| !printable(text)) {
            faults.push(Fault::new("/prefix", "must be at most 64 printable ASCII characters"));
        }
    }

    fn check_timed(&self, faults: &mut Vec<Fault>) {
        if self.signature_header.is_none() {
            faults.push(Fault::new("/signature_header", "is required for this kind"));
        }
        let (own, keyed) = (self.timestamp_header.is_some(), self.timestamp_key.is_some());
        if own == keyed {
            faults.push(Fault::new("/timestamp_header", "is required, or `timestamp_key`, and not both"));
        }
        if keyed != self.signature_key.is_some() {
            faults.push(Fault::new("/signature_key", "goes with `timestamp_key`"));
        }
        let content = self.content();
        let once = |word: &str| content.matches(word).count() == 1;
        let id = content.matches("{id}").count();
        let braces = content.matches(['{', '}']).count();
        let known = braces == 4_usize.saturating_add(id.saturating_mul(2));
        if content.len() > limits::RECEIPT_SOURCE_TEXT_BYTES
            || !once("{timestamp}")
            || !once("{body}")
            || id > 1
            || !known
        {
            let reason = "must hold {timestamp} and {body} once each, {id} at most once, and no other braces";
            faults.push(Fault::new("/signed_content", reason));
        }
        if id > 0 && self.delivery_header.is_none() {
            faults.push(Fault::new("/delivery_header", "is required where {id} is signed"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let scheme: SchemeSpec = serde_json::from_str(text).unwrap();
        scheme.faults().into_iter().map(|fault| fault.pointer).collect()
    }

    #[test]
    fn members_go_with_their_kind() {
        for good in [
            r#"{"kind": "standard_webhooks", "tolerance_seconds": 60}"#,
            r#"{"kind": "hmac"}"#,
            r#"{"kind": "hmac", "signature_header": "x-sig", "algorithm": "sha512", "encoding": "base64", "prefix": ""}"#,
            r#"{"kind": "timestamped_hmac", "signature_header": "s", "timestamp_key": "t", "signature_key": "v1"}"#,
            r#"{"kind": "timestamped_hmac", "signature_header": "s", "timestamp_header": "t", "prefix": "v0=",
                "signed_content": "v0:{timestamp}:{body}"}"#,
        ] {
            assert!(faults(good).is_empty(), "{good}: {:?}", faults(good));
        }
        for (bad, pointers) in [
            (r#"{"kind": "standard_webhooks", "prefix": "x"}"#, vec!["/prefix"]),
            (r#"{"kind": "hmac", "tolerance_seconds": 5}"#, vec!["/tolerance_seconds"]),
            (r#"{"kind": "hmac", "signature_header": "a b"}"#, vec!["/signature_header"]),
            (r#"{"kind": "timestamped_hmac", "signature_header": "s"}"#, vec!["/timestamp_header"]),
            (r#"{"kind": "timestamped_hmac", "signature_header": "s", "timestamp_key": "t"}"#, vec!["/signature_key"]),
            (
                r#"{"kind": "timestamped_hmac", "signature_header": "s", "timestamp_header": "t", "signed_content": "{body}"}"#,
                vec!["/signed_content"],
            ),
            (
                r#"{"kind": "timestamped_hmac", "signature_header": "s", "timestamp_header": "t",
                    "signed_content": "{id}{timestamp}{body}"}"#,
                vec!["/delivery_header"],
            ),
            (r#"{"kind": "standard_webhooks", "tolerance_seconds": 0}"#, vec!["/tolerance_seconds"]),
        ] {
            assert_eq!(faults(bad), pointers, "{bad}");
        }
    }
}
