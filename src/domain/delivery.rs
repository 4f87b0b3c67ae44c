//! Reading a delivery: from a vendor's body to what it says, by the pointers of its source.

use std::collections::{BTreeMap, HashMap};

use serde_json::value::RawValue;

use super::canonical::Sha256Digest;
use super::ids::Name;
use super::receipt::{CheckedReceipt, Receipt, ReceiptOutcome};
use super::record::Intent;
use super::source::{Otherwise, SourceSpec, StructuredSpec, TimeFormat, TimeSpec};
use super::time::Timestamp;
use super::tool::Tool;

/// How a delivery names its effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Locator {
    /// By the operation id.
    Operation(Name),
    /// By a text that is, or holds, the private downstream key.
    Key {
        /// The text.
        text: String,
        /// Whether the key stands in a marker.
        marked: bool,
    },
    /// Not at all.
    Nothing,
}

/// What a delivery says.
#[derive(Debug, Clone)]
pub struct Told {
    /// About which effect.
    pub locator: Locator,
    /// The vendor's name for what happened.
    pub receipt_id: Name,
    /// What happened.
    pub outcome: ReceiptOutcome,
    /// What was acted on; `None`: the target of the effect.
    pub target: Option<Name>,
    /// When the vendor saw it, where it says so.
    pub observed_at: Option<Timestamp>,
    /// For the receipt.
    pub structured: Box<RawValue>,
    /// For the receipt.
    pub resource_versions: BTreeMap<String, String>,
}

/// What was read.
#[derive(Debug)]
pub enum Reading {
    /// It says nothing that counts.
    Ignored,
    /// It says something.
    Told(Box<Told>),
    /// It can't be read by the source's pointers: why.
    Faulty(&'static str),
}

/// The value at a pointer, as the bytes that were sent.
fn at<'a>(body: &'a RawValue, pointer: &str) -> Option<&'a RawValue> {
    let mut place = body;
    for step in pointer.split('/').skip(1) {
        let step = step.replace("~1", "/").replace("~0", "~");
        place = if place.get().starts_with('{') {
            serde_json::from_str::<HashMap<String, &'a RawValue>>(place.get()).ok()?.remove(&step)?
        } else if place.get().starts_with('[') {
            let index: usize = step.parse().ok()?;
            serde_json::from_str::<Vec<&'a RawValue>>(place.get()).ok()?.get(index).copied()?
        } else {
            return None;
        };
    }
    Some(place)
}

/// A text, an integer or a truth value, as text. An integer keeps all its digits.
fn scalar(value: &RawValue) -> Option<String> {
    let text = value.get();
    match text.as_bytes().first()? {
        b'"' => serde_json::from_str(text).ok(),
        b'-' | b'0'..=b'9' if !text.contains(['.', 'e', 'E']) => Some(text.to_owned()),
        b't' | b'f' => Some(text.to_owned()),
        _ => None,
    }
}

fn name_at(body: &RawValue, pointer: &str) -> Option<Name> {
    Name::new(&scalar(at(body, pointer)?)?).ok()
}

fn time_at(body: &RawValue, spec: &TimeSpec) -> Option<Timestamp> {
    let text = scalar(at(body, &spec.pointer)?)?;
    let unix = |scale: i64| {
        let micros = text.parse::<i64>().ok()?.checked_mul(scale)?;
        // Only what can be shown again.
        Timestamp::parse(&Timestamp::from_micros(micros).to_string()).filter(|time| time.micros() == micros)
    };
    match spec.format {
        TimeFormat::Rfc3339 => Timestamp::parse(&text),
        TimeFormat::UnixSeconds => unix(1_000_000),
        TimeFormat::UnixMilliseconds => unix(1_000),
    }
}

/// Reads a body whose JSON was checked.
#[must_use]
pub fn read(spec: &SourceSpec, body: &RawValue) -> Reading {
    if let Some(filter) = &spec.filter {
        let kind = at(body, &filter.pointer).and_then(scalar);
        if !kind.is_some_and(|kind| filter.values.contains(&kind)) {
            return Reading::Ignored;
        }
    }
    let Some(value) = at(body, &spec.outcome.pointer).and_then(scalar) else { return Reading::Faulty("no_outcome") };
    let outcome = match (spec.outcome.values.get(&value), spec.outcome.otherwise) {
        (Some(meaning), _) => match meaning.outcome() {
            Some(outcome) => outcome,
            None => return Reading::Ignored,
        },
        (None, Otherwise::Ignore) => return Reading::Ignored,
        (None, Otherwise::Quarantine) => return Reading::Faulty("unmapped_outcome"),
    };
    match told(spec, body, outcome) {
        Ok(told) => Reading::Told(Box::new(told)),
        Err(reason) => Reading::Faulty(reason),
    }
}

fn told(spec: &SourceSpec, body: &RawValue, outcome: ReceiptOutcome) -> Result<Told, &'static str> {
    let receipt_id = name_at(body, &spec.receipt_id).ok_or("no_receipt_id")?;
    let target =
        if spec.takes_target_from_effect() { None } else { Some(name_at(body, &spec.target).ok_or("no_target")?) };
    let observed_at = match &spec.observed_at {
        Some(time) => Some(time_at(body, time).ok_or("no_observed_at")?),
        None => None,
    };
    let mut resource_versions = BTreeMap::new();
    for (name, pointer) in &spec.resource_versions {
        if let Some(version) = at(body, pointer).and_then(scalar) {
            resource_versions.insert(name.clone(), version);
        }
    }
    Ok(Told {
        locator: locator(spec, body),
        receipt_id,
        outcome,
        target,
        observed_at,
        structured: structured(spec, body).ok_or("no_structured")?,
        resource_versions,
    })
}

fn locator(spec: &SourceSpec, body: &RawValue) -> Locator {
    let text_at = |pointer: &Option<String>| at(body, pointer.as_deref()?).and_then(scalar);
    if let Some(text) = text_at(&spec.operation_id) {
        return Name::new(&text).map_or(Locator::Nothing, Locator::Operation);
    }
    if let Some(text) = text_at(&spec.downstream_key) {
        return Locator::Key { text, marked: false };
    }
    text_at(&spec.marker).map_or(Locator::Nothing, |text| Locator::Key { text, marked: true })
}

fn structured(spec: &SourceSpec, body: &RawValue) -> Option<Box<RawValue>> {
    let text = match &spec.structured {
        None => "{}".to_owned(),
        Some(StructuredSpec::Whole(pointer)) => {
            at(body, pointer).filter(|v| v.get().starts_with('{'))?.get().to_owned()
        }
        Some(StructuredSpec::Members(members)) => {
            let found: BTreeMap<&str, &RawValue> =
                members.iter().filter_map(|(name, pointer)| Some((name.as_str(), at(body, pointer)?))).collect();
            serde_json::to_string(&found).ok()?
        }
    };
    RawValue::from_string(text).ok()
}

/// What is known about how a delivery came.
#[derive(Debug, Clone)]
pub struct Provenance<'a> {
    /// The source.
    pub source: &'a Name,
    /// When it was taken, by database time.
    pub received_at: Timestamp,
    /// Facts for the receipt's `integrity`, as far as the tool takes them.
    pub facts: &'a BTreeMap<String, String>,
}

impl Told {
    /// The receipt about an effect. Whether it binds is checked like that of any receipt.
    ///
    /// # Errors
    /// A part of it is beyond the limits of a receipt.
    pub fn receipt(&self, intent: &Intent, tool: &Tool, came: &Provenance<'_>) -> Result<CheckedReceipt, &'static str> {
        let spec = &tool.spec.receipt;
        let takes = |list: &Option<Vec<String>>, key: &String| list.as_ref().is_none_or(|list| list.contains(key));
        let integrity = came.facts.iter().filter(|(key, _)| takes(&spec.integrity_fields, key));
        let receipt = Receipt {
            receipt_id: self.receipt_id.clone(),
            schema: Name::new(&spec.schema).map_err(|_| "does_not_bind")?,
            schema_version: spec.schema_version,
            operation_id: intent.operation_id.clone(),
            target: self.target.clone().unwrap_or_else(|| intent.target.clone()),
            outcome: self.outcome,
            message: String::new(),
            structured: self.structured.clone(),
            artifacts: Vec::new(),
            resource_versions: self.resource_versions.clone(),
            integrity: integrity.map(|(key, value)| (key.clone(), value.clone())).collect(),
            // A vendor's clock may run ahead; what it saw, it saw before it told us.
            observed_at: self.observed_at.map_or(came.received_at, |at| at.min(came.received_at)),
            source: came.source.clone(),
        };
        receipt.check().map_err(|_| "beyond_limits")
    }

    /// What makes two deliveries of a source the same word about the same thing, however often and with
    /// whatever else around it the vendor sends it.
    #[must_use]
    pub fn digest(&self, source: &Name, intent: &Intent) -> Sha256Digest {
        let parts = serde_json::json!([
            "actonce inbound receipt v1",
            source,
            intent.operation_id,
            self.receipt_id,
            self.outcome,
        ]);
        Sha256Digest::of(parts.to_string().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{
        "type": "refund.updated", "id": "evt_1",
        "data": {"object": {"id": 12345678901234567890123, "status": "succeeded", "created": 1767225600,
            "metadata": {"op": "run-1:refund", "a/b": "slash"}, "order": "order-1", "list": [1, {"x": "y"}],
            "version": 1.50}}
    }"#;

    fn spec(changes: &serde_json::Value) -> SourceSpec {
        let mut base = serde_json::json!({
            "tools": ["refund"], "scheme": {"kind": "hmac"}, "operation_id": "/data/object/metadata/op",
            "receipt_id": "/data/object/id", "target": "/data/object/order",
            "outcome": {"pointer": "/data/object/status", "values": {"succeeded": "completed", "pending": "ignore"}},
        });
        for (name, value) in changes.as_object().unwrap() {
            base[name] = value.clone();
        }
        serde_json::from_value(base).unwrap()
    }

    fn reading(changes: &serde_json::Value, body: &str) -> Reading {
        let spec = spec(changes);
        assert_eq!(spec.faults(), []);
        read(&spec, serde_json::from_str::<&RawValue>(body).unwrap())
    }

    fn told(changes: &serde_json::Value) -> Told {
        match reading(changes, BODY) {
            Reading::Told(told) => *told,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_is_pointed_at_is_read_with_all_its_digits() {
        let told = told(&serde_json::json!({
            "observed_at": {"pointer": "/data/object/created", "format": "unix_seconds"},
            "structured": {"v": "/data/object/version", "deep": "/data/object/list/1/x", "absent": "/nothing"},
            "resource_versions": {"slash": "/data/object/metadata/a~1b", "none": "/data/object/list"},
        }));
        assert_eq!(told.locator, Locator::Operation(Name::new("run-1:refund").unwrap()));
        assert_eq!(told.receipt_id.as_str(), "12345678901234567890123");
        assert_eq!(told.target.as_ref().unwrap().as_str(), "order-1");
        assert_eq!(told.observed_at.unwrap().to_string(), "2026-01-01T00:00:00.000000Z");
        assert_eq!(told.structured.get(), r#"{"deep":"y","v":1.50}"#);
        assert_eq!(told.resource_versions, BTreeMap::from([("slash".to_owned(), "slash".to_owned())]));
    }

    #[test]
    fn what_is_not_there_is_not_guessed() {
        let none = serde_json::json!({});
        let with = |pointer: &str, value: &str| {
            // A generic value would round the id.
            let body = BODY.replace("12345678901234567890123", "\"re_1\"");
            let mut body: serde_json::Value = serde_json::from_str(&body).unwrap();
            *body.pointer_mut(pointer).unwrap() = serde_json::from_str(value).unwrap();
            body.to_string()
        };
        for (pointer, value, reason) in [
            ("/data/object/status", "\"refunded\"", "unmapped_outcome"),
            ("/data/object/status", "null", "no_outcome"),
            ("/data/object/id", "1.5", "no_receipt_id"),
            ("/data/object/id", "{}", "no_receipt_id"),
            ("/data/object/order", "\"\"", "no_target"),
        ] {
            match reading(&none, &with(pointer, value)) {
                Reading::Faulty(found) => assert_eq!(found, reason, "{pointer} {value}"),
                other => panic!("{pointer} {value}: {other:?}"),
            }
        }
        let pending = with("/data/object/status", "\"pending\"");
        assert!(matches!(reading(&none, &pending), Reading::Ignored));
        let filter = serde_json::json!({"filter": {"pointer": "/type", "values": ["refund.created"]}});
        assert!(matches!(reading(&filter, BODY), Reading::Ignored));
        match reading(&none, &with("/data/object/metadata", "{}")) {
            Reading::Told(told) => assert_eq!(told.locator, Locator::Nothing),
            other => panic!("{other:?}"),
        }
        for text in ["9223372036854775807", "-62135596800001"] {
            let time = TimeSpec { pointer: "/t".to_owned(), format: TimeFormat::UnixSeconds };
            let body = format!("{{\"t\": {text}}}");
            assert_eq!(time_at(serde_json::from_str(&body).unwrap(), &time), None);
        }
    }
}
