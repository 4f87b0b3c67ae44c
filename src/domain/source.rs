//! Receipt sources: where a vendor's webhooks come in, and how they are read (protocol §6).

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::adapter::WriteOnly;
use super::fault::Fault;
use super::ids::Name;
use super::object;
use super::receipt::ReceiptOutcome;
use super::signing::SchemeSpec;
use crate::limits;

/// The word for `target` that takes the target of the effect.
pub const FROM_EFFECT: &str = "from_effect";

/// A source's registration, as `PUT /api/receipt-sources/{source}` takes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SourceSpec {
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The tools whose effects it may settle (1 to 32).
    pub tools: Vec<String>,
    /// How deliveries are signed.
    #[serde(deserialize_with = "object::required")]
    pub scheme: SchemeSpec,
    /// One secret, or two while the first replaces the second; write-only. Absent in a change: they stay.
    #[serde(default, skip_serializing)]
    #[schema(value_type = Option<Vec<String>>, write_only)]
    pub secrets: Option<Vec<WriteOnly>>,
    /// Names a secret of the configuration instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Which deliveries count; the others are answered and dropped.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub filter: Option<FilterSpec>,
    /// JSON pointer to the operation id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// JSON pointer to the downstream key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downstream_key: Option<String>,
    /// JSON pointer to a text that holds the marker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub marker: Option<String>,
    /// JSON pointer to the vendor's own name for what happened.
    pub receipt_id: String,
    /// Where the outcome stands, and what its values mean.
    #[serde(deserialize_with = "object::required")]
    pub outcome: OutcomeSpec,
    /// JSON pointer to the target, or `from_effect` where a private key or marker finds the effect.
    pub target: String,
    /// When the vendor saw it; without it, when the delivery arrived.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub observed_at: Option<TimeSpec>,
    /// JSON pointers to the versions of what was changed, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_versions: BTreeMap<String, String>,
    /// What goes into the receipt's `structured`: a JSON pointer to an object, or one per member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structured: Option<StructuredSpec>,
}

/// Which deliveries count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FilterSpec {
    /// JSON pointer to what kind of delivery it is.
    pub pointer: String,
    /// The kinds that count.
    pub values: Vec<String>,
}

/// What a value of the vendor means.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Meaning {
    /// The downstream did it.
    Completed,
    /// The downstream refused or failed it.
    Failed,
    /// Nothing is decided yet; the delivery is answered and dropped.
    Ignore,
}

impl Meaning {
    /// What a receipt of this meaning says.
    #[must_use]
    pub const fn outcome(self) -> Option<ReceiptOutcome> {
        match self {
            Self::Completed => Some(ReceiptOutcome::Completed),
            Self::Failed => Some(ReceiptOutcome::Failed),
            Self::Ignore => None,
        }
    }
}

/// What becomes of a value that no mapping lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Otherwise {
    /// People look at it.
    #[default]
    Quarantine,
    /// It is answered and dropped.
    Ignore,
}

/// Where the outcome stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutcomeSpec {
    /// JSON pointer to it.
    pub pointer: String,
    /// What its values mean.
    pub values: BTreeMap<String, Meaning>,
    /// What becomes of any other value.
    #[serde(default)]
    pub otherwise: Otherwise,
}

/// How a vendor writes times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum TimeFormat {
    /// RFC 3339 with an offset.
    #[default]
    Rfc3339,
    /// Seconds since 1970.
    UnixSeconds,
    /// Milliseconds since 1970.
    UnixMilliseconds,
}

/// Where a time stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TimeSpec {
    /// JSON pointer to it.
    pub pointer: String,
    /// How it is written.
    #[serde(default)]
    pub format: TimeFormat,
}

/// What goes into `structured`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum StructuredSpec {
    /// JSON pointer to an object.
    Whole(String),
    /// JSON pointers by member; what is not there is left out.
    Members(BTreeMap<String, String>),
}

/// Collects faults.
struct Check(Vec<Fault>);

impl Check {
    fn that(&mut self, ok: bool, pointer: &str, reason: &str) {
        if !ok {
            self.0.push(Fault::new(pointer, reason));
        }
    }

    fn json_pointer(&mut self, at: &str, text: &str) {
        self.that(is_pointer(text), at, "must be a JSON pointer of at most 16 steps and 256 bytes, such as /data/id");
    }

    fn names(&mut self, at: &str, names: &[String], max: usize) {
        self.that((1..=max).contains(&names.len()), at, &format!("must have 1 to {max} entries"));
        let mut seen = BTreeSet::new();
        for (index, name) in names.iter().enumerate() {
            self.that(Name::new(name).is_ok(), &format!("{at}/{index}"), "must be a name of 1 to 256 bytes");
            self.that(seen.insert(name), &format!("{at}/{index}"), "stands in the list twice");
        }
    }

    fn pointers(&mut self, at: &str, map: &BTreeMap<String, String>, max: usize) {
        self.that(map.len() <= max, at, &format!("must have at most {max} entries"));
        for (name, pointer) in map {
            let place = format!("{at}/{}", escape(name));
            self.that(Name::new(name).is_ok(), &place, "must be named by 1 to 256 bytes");
            self.json_pointer(&place, pointer);
        }
    }
}

impl SourceSpec {
    /// Whether a private key or marker alone may find the effect.
    #[must_use]
    pub fn takes_target_from_effect(&self) -> bool {
        self.target == FROM_EFFECT
    }

    /// Checks what the types can't say.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut check = Check(Vec::new());
        check.that(self.description.len() <= limits::REASON_BYTES, "/description", "must be at most 2048 bytes");
        check.that(!self.description.contains('\0'), "/description", "must not contain a NUL character");
        check.names("/tools", &self.tools, limits::RECEIPT_SOURCE_TOOLS);
        for fault in self.scheme.faults() {
            check.0.push(Fault::new(&format!("/scheme{}", fault.pointer), &fault.reason));
        }
        self.check_secrets(&mut check);
        self.check_locators(&mut check);
        if let Some(filter) = &self.filter {
            check.json_pointer("/filter/pointer", &filter.pointer);
            check.names("/filter/values", &filter.values, limits::RECEIPT_SOURCE_VALUES);
        }
        check.json_pointer("/receipt_id", &self.receipt_id);
        check.json_pointer("/outcome/pointer", &self.outcome.pointer);
        let values = &self.outcome.values;
        check.that(values.len() <= limits::RECEIPT_SOURCE_VALUES, "/outcome/values", "must have at most 64 entries");
        for name in values.keys() {
            let place = format!("/outcome/values/{}", escape(name));
            check.that(Name::new(name).is_ok(), &place, "must be a value of 1 to 256 bytes");
        }
        let decides = values.values().any(|meaning| meaning.outcome().is_some());
        check.that(decides, "/outcome/values", "must map a value to `completed` or `failed`");
        if let Some(time) = &self.observed_at {
            check.json_pointer("/observed_at/pointer", &time.pointer);
        }
        check.pointers("/resource_versions", &self.resource_versions, limits::RESOURCE_VERSIONS);
        match &self.structured {
            None => {}
            Some(StructuredSpec::Whole(pointer)) => check.json_pointer("/structured", pointer),
            Some(StructuredSpec::Members(members)) => {
                check.pointers("/structured", members, limits::RECEIPT_SOURCE_VALUES);
            }
        }
        check.0
    }

    fn check_secrets(&self, check: &mut Check) {
        if let Some(name) = &self.secret_ref {
            check.that(self.secrets.is_none(), "/secrets", "can't stand beside `secret_ref`");
            check.that(Name::new(name).is_ok(), "/secret_ref", "must be a name of 1 to 256 bytes");
        }
        let Some(secrets) = &self.secrets else { return };
        let count = (1..=limits::RECEIPT_SECRETS).contains(&secrets.len());
        check.that(count, "/secrets", "must have 1 or 2 entries");
        for (index, secret) in secrets.iter().enumerate() {
            let good = self.scheme.secret(secret.expose()).is_some();
            check.that(good, &format!("/secrets/{index}"), "must be 16 to 256 bytes, written as the scheme asks");
        }
    }

    fn check_locators(&self, check: &mut Check) {
        let locators = [
            ("/operation_id", &self.operation_id),
            ("/downstream_key", &self.downstream_key),
            ("/marker", &self.marker),
        ];
        for (at, pointer) in locators {
            if let Some(pointer) = pointer {
                check.json_pointer(at, pointer);
            }
        }
        let given = locators.iter().filter(|(_, pointer)| pointer.is_some()).count();
        check.that(given == 1, "/operation_id", "is required, or `downstream_key`, or `marker`: exactly one of them");
        if self.takes_target_from_effect() {
            check.that(
                self.operation_id.is_none(),
                "/target",
                "must be a JSON pointer: an operation id is no secret, so it alone does not prove what was acted on",
            );
        } else {
            let reason = "must be a JSON pointer of at most 16 steps and 256 bytes, or `from_effect`";
            check.that(is_pointer(&self.target), "/target", reason);
        }
    }
}

/// Whether a text is a JSON pointer (RFC 6901) within the limits. The whole document is none of ours.
fn is_pointer(text: &str) -> bool {
    let escapes = text.split('~').skip(1).all(|rest| rest.starts_with(['0', '1']));
    text.starts_with('/')
        && text.len() <= limits::RECEIPT_SOURCE_TEXT_BYTES
        && text.matches('/').count() <= limits::RECEIPT_POINTER_STEPS
        && escapes
        && !text.contains('\0')
}

fn escape(name: &str) -> String {
    name.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(changes: &str) -> SourceSpec {
        let mut base = serde_json::json!({
            "tools": ["refund"], "scheme": {"kind": "standard_webhooks"}, "operation_id": "/data/metadata/op",
            "receipt_id": "/data/id", "outcome": {"pointer": "/data/status", "values": {"ok": "completed"}},
            "target": "/data/order",
        });
        let changes: serde_json::Value = serde_json::from_str(changes).unwrap();
        for (name, value) in changes.as_object().unwrap() {
            base[name] = value.clone();
        }
        base.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        serde_json::from_value(base).unwrap()
    }

    #[test]
    fn each_fault_is_pointed_at() {
        assert!(spec("{}").faults().is_empty());
        for (changes, pointer) in [
            (r#"{"tools": []}"#, "/tools"),
            (r#"{"tools": ["a", "a"]}"#, "/tools/1"),
            (r#"{"operation_id": null}"#, "/operation_id"),
            (r#"{"downstream_key": "/k"}"#, "/operation_id"),
            (r#"{"operation_id": "x"}"#, "/operation_id"),
            (r#"{"operation_id": "/a~2"}"#, "/operation_id"),
            (r#"{"target": "from_effect"}"#, "/target"),
            (r#"{"target": "order"}"#, "/target"),
            (r#"{"outcome": {"pointer": "/s", "values": {"x": "ignore"}}}"#, "/outcome/values"),
            (r#"{"filter": {"pointer": "/t", "values": []}}"#, "/filter/values"),
            (r#"{"secrets": []}"#, "/secrets"),
            (r#"{"secrets": ["short"]}"#, "/secrets/0"),
            (r#"{"structured": {"a/b": "nowhere"}}"#, "/structured/a~1b"),
            (r#"{"resource_versions": {"v": ""}}"#, "/resource_versions/v"),
        ] {
            let found = spec(changes).faults();
            assert_eq!(found.iter().map(|fault| fault.pointer.as_str()).collect::<Vec<_>>(), [pointer], "{changes}");
        }
        let by_marker = spec(r#"{"operation_id": null, "marker": "/body", "target": "from_effect"}"#);
        assert!(by_marker.faults().is_empty());
    }
}
