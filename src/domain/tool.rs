//! Tools: registered kinds of operation, versioned (protocol §4 "Tools").

use std::sync::{Arc, OnceLock};

use jsonschema::Validator;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::adapter::AdapterSpec;
use super::canonical;
use super::elapsed::ElapsedLimit;
use super::fault::Fault;
use super::ids::Name;
use super::object;
use super::state::EffectClass;
use super::time::Timestamp;
use crate::limits;

/// Whether a fresh read has to confirm a receipt (law 5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerificationRule {
    /// A receipt alone does not complete.
    Required,
    /// A binding receipt completes.
    Waived,
}

/// What `not_sent` by the live owner means for this tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum NotSentRule {
    /// It is positive evidence: `safe_to_retry`.
    #[default]
    Accept,
    /// It is not trusted: `outcome_unknown`.
    Doubt,
}

/// What happens to the same act under another operation id while the first is unresolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DuplicateRule {
    /// 409 `suspected-duplicate`.
    Refuse,
    /// `proposed` until an approver decides or the first one settles.
    Hold,
    /// No check.
    Allow,
}

/// Who authorizes a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthorizationMode {
    /// The registration itself.
    #[default]
    Automatic,
    /// A quorum of people.
    Approval,
}

/// The approval policy of a tool (protocol §8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AuthorizationSpec {
    /// Automatic, or by approval.
    pub mode: AuthorizationMode,
    /// Approvals needed (1 to 16).
    pub approvals: u32,
    /// Whether the proposer's own approval is refused.
    pub four_eyes: bool,
    /// How long a proposal waits, in seconds of database time.
    pub expires_after_seconds: u32,
}

impl Default for AuthorizationSpec {
    fn default() -> Self {
        Self { mode: AuthorizationMode::Automatic, approvals: 1, four_eyes: true, expires_after_seconds: 3600 }
    }
}

/// What receipts of a tool look like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ReceiptSpec {
    /// The name of the receipt schema.
    pub schema: String,
    /// Its version.
    pub schema_version: u32,
    /// A JSON Schema for `structured`; external references are refused.
    #[serde(deserialize_with = "unambiguous")]
    #[schema(value_type = Object)]
    pub structured_schema: Value,
    /// The keys that `integrity` may have; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub integrity_fields: Option<Vec<String>>,
    /// The keys that `resource_versions` may have; absent: any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resource_version_fields: Option<Vec<String>>,
}

/// A value that every reader reads alike: see [`canonical::check`].
fn unambiguous<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Value, D::Error> {
    let raw = Box::<RawValue>::deserialize(deserializer)?;
    canonical::check(&raw).map_err(|fault| serde::de::Error::custom(format_args!("must not have faults: {fault}")))?;
    serde_json::from_str(raw.get()).map_err(|_| serde::de::Error::custom("must be JSON"))
}

impl Default for ReceiptSpec {
    fn default() -> Self {
        Self {
            schema: "generic".to_owned(),
            schema_version: 1,
            structured_schema: Value::Object(serde_json::Map::new()),
            integrity_fields: None,
            resource_version_fields: None,
        }
    }
}

/// The versioned identity of the component behind a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Component {
    /// Its name.
    pub name: String,
    /// Changes when the behaviour changes.
    pub behavior_version: String,
    /// Changes with every build.
    pub implementation_version: String,
}

/// How unknown outcomes of a tool are settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ReconciliationMode {
    /// Somebody asks.
    #[default]
    Explicit,
    /// The service asks by itself.
    Automatic,
}

/// Whether arguments are kept, encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum RetainArguments {
    /// Only their digest.
    #[default]
    Never,
    /// Until the effect is settled.
    UntilSettled,
}

/// A tool's registration, as `PUT /api/tools/{name}` takes it. Only `effect` is required.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ToolSpec {
    /// What a replay can do to durable state outside.
    pub effect: EffectClass,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The component behind the tool.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub component: Option<Component>,
    /// Why a replay is harmless, in words; required for `idempotent`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub replay_contract: String,
    /// How long the downstream remembers a key, in seconds since the first dispatch; required for `idempotent`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub downstream_key_ttl_seconds: Option<u32>,
    /// The lease where a claim names none (1 to 3600 s).
    #[serde(default = "default_lease")]
    pub lease_seconds: u32,
    /// Whether `not_sent` is accepted as evidence.
    #[serde(default)]
    pub not_sent: NotSentRule,
    /// The receipts of this tool.
    #[serde(default, deserialize_with = "object::required")]
    pub receipt: ReceiptSpec,
    /// Whether a receipt must be confirmed; default: required for `external`, waived otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<VerificationRule>,
    /// How long a verification may take before a person looks.
    #[serde(default = "default_verify_deadline")]
    pub verify_deadline_seconds: u32,
    /// Who authorizes.
    #[serde(default, deserialize_with = "object::required")]
    pub authorization: AuthorizationSpec,
    /// How long a run or a session may be at work before nothing more of this tool is dispatched for it.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub elapsed_limit: Option<ElapsedLimit>,
    /// How doubt is settled.
    #[serde(default)]
    pub reconciliation: ReconciliationMode,
    /// How long an act may still be travelling after its lease ended.
    #[serde(default = "default_settle_window")]
    pub settle_window_seconds: u32,
    /// How long an outcome may stay unknown before a person looks.
    #[serde(default = "default_reconcile_deadline")]
    pub reconcile_deadline_seconds: u32,
    /// Older revisions of this tool whose effects this revision may settle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settles_revisions: Vec<u32>,
    /// The application's endpoint that validates, looks up and verifies.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub adapter: Option<AdapterSpec>,
    /// The rule for suspected duplicates; default: refuse for `external`, allow otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_suspected_duplicate: Option<DuplicateRule>,
    /// The top-level argument fields that make the identity; `null`: all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_fields: Option<Vec<String>>,
    /// Whether arguments are kept.
    #[serde(default)]
    pub retain_arguments: RetainArguments,
    /// Whether claims are held.
    #[serde(default)]
    pub paused: bool,
}

const fn default_lease() -> u32 {
    limits::LEASE_DEFAULT_SECONDS
}
const fn default_verify_deadline() -> u32 {
    3600
}
const fn default_settle_window() -> u32 {
    60
}
const fn default_reconcile_deadline() -> u32 {
    86_400
}

impl ToolSpec {
    /// The registration that stands for a tool nobody registered, where a tenant allows that:
    /// `external`, no adapter, everything else default.
    #[must_use]
    pub fn ad_hoc() -> Self {
        Self {
            effect: EffectClass::External,
            description: String::new(),
            component: None,
            replay_contract: String::new(),
            downstream_key_ttl_seconds: None,
            lease_seconds: default_lease(),
            not_sent: NotSentRule::Accept,
            receipt: ReceiptSpec::default(),
            verification: None,
            verify_deadline_seconds: default_verify_deadline(),
            authorization: AuthorizationSpec::default(),
            elapsed_limit: None,
            reconciliation: ReconciliationMode::Explicit,
            settle_window_seconds: default_settle_window(),
            reconcile_deadline_seconds: default_reconcile_deadline(),
            settles_revisions: Vec::new(),
            adapter: None,
            on_suspected_duplicate: None,
            identity_fields: None,
            retain_arguments: RetainArguments::Never,
            paused: false,
        }
    }

    /// Whether effects of this class need a verification to complete.
    #[must_use]
    pub fn verification_rule(&self, class: EffectClass) -> VerificationRule {
        self.verification.unwrap_or(if class == EffectClass::External {
            VerificationRule::Required
        } else {
            VerificationRule::Waived
        })
    }

    /// The rule for suspected duplicates of effects of this class.
    #[must_use]
    pub fn duplicate_rule(&self, class: EffectClass) -> DuplicateRule {
        self.on_suspected_duplicate.unwrap_or(if class == EffectClass::External {
            DuplicateRule::Refuse
        } else {
            DuplicateRule::Allow
        })
    }

    /// Checks what the types can't say.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut check = |ok: bool, pointer: &str, reason: &str| {
            if !ok {
                faults.push(Fault::new(pointer, reason));
            }
        };
        if self.effect == EffectClass::Idempotent {
            check(!self.replay_contract.trim().is_empty(), "/replay_contract", "is required for an `idempotent` tool");
            check(
                self.downstream_key_ttl_seconds.is_some(),
                "/downstream_key_ttl_seconds",
                "is required for an `idempotent` tool",
            );
        }
        check(
            (limits::LEASE_MIN_SECONDS..=limits::LEASE_MAX_SECONDS).contains(&self.lease_seconds),
            "/lease_seconds",
            "must be between 1 and 3600",
        );
        for (value, pointer) in [
            (self.downstream_key_ttl_seconds.unwrap_or(1), "/downstream_key_ttl_seconds"),
            (self.verify_deadline_seconds, "/verify_deadline_seconds"),
            (self.reconcile_deadline_seconds, "/reconcile_deadline_seconds"),
            (self.authorization.expires_after_seconds, "/authorization/expires_after_seconds"),
            (self.elapsed_limit.map_or(1, |limit| limit.max_elapsed_seconds), "/elapsed_limit/max_elapsed_seconds"),
        ] {
            check((1..=limits::DEADLINE_MAX_SECONDS).contains(&value), pointer, "must be between 1 and 31536000");
        }
        check(
            self.settle_window_seconds <= limits::DEADLINE_MAX_SECONDS,
            "/settle_window_seconds",
            "must be at most 31536000",
        );
        check(
            (1..=limits::APPROVALS_MAX).contains(&self.authorization.approvals),
            "/authorization/approvals",
            "must be between 1 and 16",
        );
        for (text, pointer) in [(&self.description, "/description"), (&self.replay_contract, "/replay_contract")] {
            check(text.len() <= limits::REASON_BYTES, pointer, "must be at most 2048 bytes");
            check(!text.contains('\0'), pointer, "must not contain a NUL character");
        }
        check(self.settles_revisions.len() <= 64, "/settles_revisions", "must have at most 64 entries");
        check(
            self.reconciliation == ReconciliationMode::Explicit
                || self.adapter.as_ref().is_some_and(|adapter| adapter.lookup),
            "/reconciliation",
            "`automatic` needs an adapter that looks up",
        );
        if let Some(adapter) = &self.adapter {
            let found = adapter.faults().into_iter();
            faults.extend(found.map(|fault| Fault::new(&format!("/adapter{}", fault.pointer), &fault.reason)));
        }
        self.list_faults(&mut faults);
        faults
    }

    fn list_faults(&self, faults: &mut Vec<Fault>) {
        if Name::new(&self.receipt.schema).is_err() {
            faults.push(Fault::new("/receipt/schema", "must be a name of 1 to 256 bytes"));
        }
        for (list, max, pointer) in [
            (&self.receipt.integrity_fields, limits::INTEGRITY_ENTRIES, "/receipt/integrity_fields"),
            (&self.receipt.resource_version_fields, limits::RESOURCE_VERSIONS, "/receipt/resource_version_fields"),
            (&self.identity_fields, 64, "/identity_fields"),
        ] {
            let Some(list) = list else { continue };
            if list.len() > max {
                faults.push(Fault::new(pointer, &format!("must have at most {max} entries")));
            }
            let mut seen = std::collections::BTreeSet::new();
            for (index, item) in list.iter().enumerate() {
                if Name::new(item).is_err() {
                    faults.push(Fault::new(&format!("{pointer}/{index}"), "must be a name of 1 to 256 bytes"));
                }
                if !seen.insert(item) {
                    faults.push(Fault::new(&format!("{pointer}/{index}"), "stands in the list twice"));
                }
            }
        }
        if let Some(component) = &self.component {
            for (text, pointer) in [
                (&component.name, "/component/name"),
                (&component.behavior_version, "/component/behavior_version"),
                (&component.implementation_version, "/component/implementation_version"),
            ] {
                if !text.is_empty() && Name::new(text).is_err() {
                    faults.push(Fault::new(pointer, "must be a name of at most 256 bytes"));
                }
            }
        }
        if let Err(reason) = compile(&self.receipt.structured_schema) {
            faults.push(Fault::new("/receipt/structured_schema", reason));
        }
    }
}

/// Compiles a receipt schema; nothing outside the document is ever fetched.
fn compile(schema: &Value) -> Result<Validator, &'static str> {
    if !schema.is_object() {
        return Err("must be a JSON Schema object");
    }
    jsonschema::options()
        .build(schema)
        .map_err(|_| "is not a JSON Schema that stands by itself (external references are refused)")
}

/// One revision of a registered tool.
#[derive(Debug)]
pub struct Tool {
    /// Its name.
    pub name: Name,
    /// Grows by 1 with every change of the registration; 0 for an ad-hoc tool.
    pub revision: u32,
    /// The registration. `paused` here is as it was registered; see [`Tool::paused`].
    pub spec: ToolSpec,
    /// Whether claims are held now.
    pub paused: bool,
    /// Grows with every change, pause and resume included: the compare-and-set token of grants.
    pub stamp: i64,
    /// When this revision was registered.
    pub registered_at: Timestamp,
    schema: OnceLock<Option<Validator>>,
}

impl Tool {
    /// A tool as loaded.
    #[must_use]
    pub fn new(name: Name, revision: u32, spec: ToolSpec, paused: bool, stamp: i64, at: Timestamp) -> Arc<Self> {
        Arc::new(Self { name, revision, spec, paused, stamp, registered_at: at, schema: OnceLock::new() })
    }

    /// Whether a receipt's `structured` satisfies the registered schema. A schema that does not
    /// compile (impossible after registration) accepts nothing.
    #[must_use]
    pub fn structured_is_valid(&self, structured: &Value) -> bool {
        let validator = self.schema.get_or_init(|| compile(&self.spec.receipt.structured_schema).ok());
        validator.as_ref().is_some_and(|validator| validator.is_valid(structured))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_class_is_required_and_defaults_follow_it() {
        let spec: ToolSpec = serde_json::from_str(r#"{"effect":"external"}"#).unwrap();
        assert!(spec.faults().is_empty());
        assert_eq!(spec.verification_rule(spec.effect), VerificationRule::Required);
        assert_eq!(spec.duplicate_rule(spec.effect), DuplicateRule::Refuse);
        let none: ToolSpec = serde_json::from_str(r#"{"effect":"none"}"#).unwrap();
        assert_eq!(none.verification_rule(none.effect), VerificationRule::Waived);
        assert_eq!(none.duplicate_rule(none.effect), DuplicateRule::Allow);
    }

    #[test]
    fn each_fault_is_pointed_at() {
        let spec: ToolSpec = serde_json::from_str(
            r#"{"effect":"idempotent","lease_seconds":0,"authorization":{"approvals":17},
                "receipt":{"structured_schema":{"$ref":"https://example.org/x"},"integrity_fields":["a","a"]}}"#,
        )
        .unwrap();
        let at: Vec<String> = spec.faults().into_iter().map(|fault| fault.pointer).collect();
        for pointer in [
            "/replay_contract",
            "/downstream_key_ttl_seconds",
            "/lease_seconds",
            "/authorization/approvals",
            "/receipt/structured_schema",
            "/receipt/integrity_fields/1",
        ] {
            assert!(at.iter().any(|p| p == pointer), "{pointer} missing in {at:?}");
        }
    }
}
