//! The effect that a question is about: what placeholders and expressions may know of it.

use std::sync::Arc;

use serde_json::{Value, json};

use super::template::Field;
use crate::domain::receipt::CheckedReceipt;
use crate::domain::record::Intent;
use crate::domain::time::Timestamp;
use crate::domain::tool::Tool;

/// The members of `effect` in expressions.
pub const EFFECT_FIELDS: [&str; 9] = [
    "operation_id",
    "tool",
    "target",
    "run_id",
    "idempotency_key",
    "marker",
    "arguments_digest",
    "attempt",
    "dispatched_at",
];

/// See the module. Never arguments: from what is asked, nobody can act again.
#[derive(Debug, Clone)]
pub struct Subject {
    /// What was stated.
    pub intent: Arc<Intent>,
    /// The tool revision that is asked.
    pub tool: Arc<Tool>,
    /// The hidden text in what was made.
    pub marker: String,
    /// Dispatches so far.
    pub attempt: u32,
    /// When the newest one was granted.
    pub dispatched_at: Option<Timestamp>,
    /// The receipt to be validated or verified.
    pub receipt: Option<CheckedReceipt>,
}

impl Subject {
    /// The value of a placeholder; `None` where this effect has none.
    #[must_use]
    pub fn value(&self, field: &Field) -> Option<String> {
        let intent = &self.intent;
        Some(match field {
            Field::OperationId => intent.operation_id.to_string(),
            Field::Tool => intent.tool.to_string(),
            Field::Target => intent.target.to_string(),
            Field::RunId => intent.run_id.as_ref()?.to_string(),
            Field::IdempotencyKey => intent.idempotency_key.to_string(),
            Field::Marker => self.marker.clone(),
            Field::ArgumentsDigest => intent.arguments_digest.as_str().to_owned(),
            Field::Attempt => self.attempt.to_string(),
            Field::DispatchedAt => self.dispatched_at?.to_string(),
            Field::ReceiptId => self.receipt.as_ref()?.receipt.receipt_id.to_string(),
            Field::Structured(path) => {
                let structured: Value = serde_json::from_str(self.receipt.as_ref()?.receipt.structured.get()).ok()?;
                let value = path.iter().try_fold(&structured, |value, step| value.get(step))?;
                match value {
                    Value::String(text) => text.clone(),
                    Value::Number(number) if !number.is_f64() => number.to_string(),
                    _ => return None,
                }
            }
        })
    }

    /// The variable `effect`.
    #[must_use]
    pub fn effect(&self) -> Value {
        let intent = &self.intent;
        json!({
            "operation_id": intent.operation_id, "tool": intent.tool, "target": intent.target, "run_id": intent.run_id,
            "idempotency_key": intent.idempotency_key, "marker": self.marker,
            "arguments_digest": intent.arguments_digest, "attempt": self.attempt, "dispatched_at": self.dispatched_at,
        })
    }

    /// The variable `receipt`; `null` where there is none.
    #[must_use]
    pub fn receipt_value(&self) -> Value {
        self.receipt.as_ref().and_then(|receipt| serde_json::from_str(&receipt.text).ok()).unwrap_or_default()
    }
}
