//! Receipts and verifications: evidence about an attempt, and a fresh read after it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::canonical::{self, Sha256Digest};
use super::fault::Fault;
use super::ids::Name;
use super::record::Intent;
use super::time::Timestamp;
use super::tool::Tool;
use crate::limits;

/// What a receipt says of the attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReceiptOutcome {
    /// The downstream did it.
    Completed,
    /// The downstream refused or failed it.
    Failed,
}

impl ReceiptOutcome {
    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// Downstream evidence about the attempted operation, bound to its operation id and target.
#[derive(Debug, Clone, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Receipt {
    /// The downstream's own name for what happened, such as a refund id.
    #[schema(value_type = String)]
    pub receipt_id: Name,
    /// The receipt schema of the tool.
    #[schema(value_type = String)]
    pub schema: Name,
    /// Its version.
    pub schema_version: u32,
    /// Must be the effect's operation id.
    #[schema(value_type = String)]
    pub operation_id: Name,
    /// Must be the effect's target.
    #[schema(value_type = String)]
    pub target: Name,
    /// What happened.
    pub outcome: ReceiptOutcome,
    /// A text for the caller (at most 4 KiB).
    #[serde(default)]
    pub message: String,
    /// An object that satisfies the tool's schema.
    #[serde(default = "empty_object")]
    #[schema(value_type = Object)]
    pub structured: Box<RawValue>,
    /// Public references to what came of it (at most 64 KiB in all).
    #[serde(default)]
    #[schema(value_type = Vec<serde_json::Value>)]
    pub artifacts: Vec<Box<RawValue>>,
    /// Versions of the resources it changed.
    #[serde(default, deserialize_with = "each_key_once")]
    pub resource_versions: BTreeMap<String, String>,
    /// Digests, signatures and the like.
    #[serde(default, deserialize_with = "each_key_once")]
    pub integrity: BTreeMap<String, String>,
    /// When the downstream was seen to say so.
    #[schema(value_type = String, format = DateTime)]
    pub observed_at: Timestamp,
    /// Who says so.
    #[schema(value_type = String)]
    pub source: Name,
}

/// A map of texts in which no key stands twice.
pub(super) fn each_key_once<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct Once;
    impl<'de> Visitor<'de> for Once {
        type Value = BTreeMap<String, String>;
        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str("an object of texts")
        }
        fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((key, value)) = access.next_entry()? {
                if map.insert(key, value).is_some() {
                    return Err(serde::de::Error::custom("must not have a key twice"));
                }
            }
            Ok(map)
        }
    }
    deserializer.deserialize_map(Once)
}

fn empty_object() -> Box<RawValue> {
    RawValue::from_string("{}".to_owned()).unwrap_or_default()
}

/// A receipt whose form was checked, with the bytes that are stored and hashed.
#[derive(Debug, Clone)]
pub struct CheckedReceipt {
    /// The receipt.
    pub receipt: Arc<Receipt>,
    /// The bytes as stored; every reader gets exactly these.
    pub text: Arc<str>,
    /// Digest of `text`.
    pub digest: Sha256Digest,
}

impl Receipt {
    /// Checks everything that does not depend on an effect, and fixes the stored bytes.
    ///
    /// # Errors
    /// Every fault found, pointers relative to the receipt.
    pub fn check(self) -> Result<CheckedReceipt, Vec<Fault>> {
        let mut faults = Vec::new();
        if self.message.len() > limits::MESSAGE_BYTES {
            faults.push(Fault::new("/message", "must be at most 4096 bytes"));
        }
        if self.message.contains('\0') {
            faults.push(Fault::new("/message", "must not contain a NUL character"));
        }
        if !self.structured.get().starts_with('{') {
            faults.push(Fault::new("/structured", "must be an object"));
        }
        if let Err(fault) = canonical::check(&self.structured) {
            faults.push(Fault::new(&format!("/structured{}", fault.pointer), fault.reason));
        }
        let mut artifact_bytes = 0_usize;
        for (index, artifact) in self.artifacts.iter().enumerate() {
            artifact_bytes = artifact_bytes.saturating_add(artifact.get().len());
            if let Err(fault) = canonical::check(artifact) {
                faults.push(Fault::new(&format!("/artifacts/{index}{}", fault.pointer), fault.reason));
            }
        }
        if artifact_bytes > limits::ARTIFACTS_BYTES {
            faults.push(Fault::new("/artifacts", "must be at most 65536 bytes in all"));
        }
        for (map, max, pointer) in [
            (&self.resource_versions, limits::RESOURCE_VERSIONS, "/resource_versions"),
            (&self.integrity, limits::INTEGRITY_ENTRIES, "/integrity"),
        ] {
            if map.len() > max {
                faults.push(Fault::new(pointer, &format!("must have at most {max} entries")));
            }
            for (key, value) in map {
                if Name::new(key).is_err() || value.len() > limits::NAME_BYTES || value.contains('\0') {
                    faults.push(Fault::new(pointer, "must map names to texts, each of at most 256 bytes"));
                }
            }
        }
        let text: Arc<str> = match serde_json::to_string(&self) {
            Ok(text) => text.into(),
            Err(_) => return Err(vec![Fault::new("", "can't be serialized")]),
        };
        if text.len() > limits::RECEIPT_BYTES {
            faults.push(Fault::new("", "must be at most 524288 bytes in all"));
        }
        if faults.is_empty() {
            let digest = Sha256Digest::of(text.as_bytes());
            Ok(CheckedReceipt { receipt: Arc::new(self), text, digest })
        } else {
            Err(faults)
        }
    }
}

impl CheckedReceipt {
    /// Whether the receipt speaks about this effect and satisfies the tool's contract.
    ///
    /// # Errors
    /// Every reason why it does not, pointers relative to the receipt.
    pub fn bind(&self, intent: &Intent, tool: &Tool) -> Result<(), Vec<Fault>> {
        let receipt = &self.receipt;
        let spec = &tool.spec.receipt;
        let mut faults = Vec::new();
        let mut check = |ok: bool, pointer: &str, reason: &str| {
            if !ok {
                faults.push(Fault::new(pointer, reason));
            }
        };
        check(receipt.operation_id == intent.operation_id, "/operation_id", "is not the operation of this effect");
        check(receipt.target == intent.target, "/target", "is not the target of this effect");
        check(receipt.schema.as_str() == spec.schema, "/schema", "is not the receipt schema of the tool");
        check(
            receipt.schema_version == spec.schema_version,
            "/schema_version",
            "is not the receipt schema version of the tool",
        );
        let within = |map: &BTreeMap<String, String>, list: &Option<Vec<String>>| {
            list.as_ref().is_none_or(|list| map.keys().all(|key| list.contains(key)))
        };
        check(
            within(&receipt.resource_versions, &spec.resource_version_fields),
            "/resource_versions",
            "has a key that the tool does not register",
        );
        check(
            within(&receipt.integrity, &spec.integrity_fields),
            "/integrity",
            "has a key that the tool does not register",
        );
        let has_schema = spec.structured_schema.as_object().is_none_or(|schema| !schema.is_empty());
        if has_schema {
            let valid =
                serde_json::from_str(receipt.structured.get()).is_ok_and(|value| tool.structured_is_valid(&value));
            check(valid, "/structured", "does not satisfy the tool's schema");
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// A fresh read of the resulting state, made after the receipt (law 5).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Verification {
    /// Whether the read confirms the receipt.
    pub verified: bool,
    /// When the read was made; not before the receipt was observed.
    #[schema(value_type = String, format = DateTime)]
    pub observed_at: Timestamp,
    /// What was read, such as `GET /refunds/re_77`.
    #[schema(value_type = String)]
    pub source: Name,
    /// Must be the effect's target.
    #[schema(value_type = String)]
    pub target: Name,
}

impl Verification {
    /// Whether the verification speaks about this effect and is fresh.
    ///
    /// # Errors
    /// Every reason why not, pointers relative to the verification.
    pub fn bind(&self, intent: &Intent, receipt_observed_at: Timestamp) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        if self.target != intent.target {
            faults.push(Fault::new("/target", "is not the target of this effect"));
        }
        if self.observed_at < receipt_observed_at {
            faults.push(Fault::new(
                "/observed_at",
                "lies before the receipt; a verification must be a fresh read after it",
            ));
        }
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}
