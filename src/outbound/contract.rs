//! What an adapter's answer must look like (protocol §7). The clause that is broken has a name: it is
//! all that anybody is told of a broken answer.

use std::collections::BTreeMap;

use http::{HeaderMap, header};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::client::OutboundResponse;
use crate::domain::adapter::{AdapterAnswer, NoAnswer, Verdict};
use crate::domain::canonical;
use crate::domain::fault::Fault;
use crate::domain::ids::Name;
use crate::domain::receipt::{CheckedReceipt, Receipt, ReceiptOutcome, Verification};
use crate::domain::record::Intent;
use crate::domain::tool::Tool;
use crate::limits;
use crate::service::redact::{KnownSecrets, Unredactable};

/// The members of an answer.
const MEMBERS: [&str; 8] =
    ["outcome", "observation", "consistency", "final", "retryable", "receipt", "resource_versions", "verification"];

/// What was seen of the operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Observation {
    Sent,
    NotSent,
    OutcomeUnknown,
    Partial,
}

/// How good the reading was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Consistency {
    Authoritative,
    Eventual,
}

type Members = BTreeMap<String, Box<RawValue>>;

/// Reads the answer to a question about an effect made under `intent`, given by the adapter of `tool`.
///
/// # Errors
/// `Status` for another status than 200, `Contract` with the clause that is broken.
pub fn read(response: &OutboundResponse, intent: &Intent, tool: &Tool) -> Result<AdapterAnswer, NoAnswer> {
    if response.status != 200 {
        return Err(NoAnswer::Status);
    }
    keep(is_json(&response.headers), "content_type")?;
    keep(response.body.len() <= limits::ADAPTER_ANSWER_BYTES, "size")?;
    let text = std::str::from_utf8(&response.body).map_err(|_| NoAnswer::Contract("json"))?;
    parse(text, intent, tool)
}

fn parse(text: &str, intent: &Intent, tool: &Tool) -> Result<AdapterAnswer, NoAnswer> {
    let raw: &RawValue = serde_json::from_str(text).map_err(|_| NoAnswer::Contract("json"))?;
    canonical::check(raw).map_err(|_| NoAnswer::Contract("json_ambiguous"))?;
    let members: Members = serde_json::from_str(raw.get()).map_err(|_| NoAnswer::Contract("json_object"))?;
    keep(members.keys().all(|name| MEMBERS.contains(&name.as_str())), "unknown_member")?;
    let verdict: Verdict = required(&members, "outcome")?;
    let observation: Observation = required(&members, "observation")?;
    let consistency: Option<Consistency> = optional(&members, "consistency", "consistency")?;
    let _: bool = required(&members, "retryable")?;
    let is_final = optional(&members, "final", "final")?.unwrap_or(false);
    // An absence means something else in a reading that lags behind, so it has to say which it is.
    let is_absence = matches!(verdict, Verdict::NotFound | Verdict::NotSent);
    keep(consistency.is_some() || !is_absence, "consistency")?;
    let authoritative = consistency == Some(Consistency::Authoritative);
    keep(fits(observation, verdict, authoritative), "observation_contradicts")?;
    let receipt = receipt(&members, verdict, intent, tool)?;
    resource_versions(&members, tool)?;
    let verification: Option<Verification> = optional(&members, "verification", "verification_form")?;
    Ok(AdapterAnswer { verdict, authoritative, is_final, receipt, verification })
}

/// Whether an observation and an outcome can both be true.
const fn fits(observation: Observation, verdict: Verdict, authoritative: bool) -> bool {
    match verdict {
        Verdict::Completed | Verdict::Failed => matches!(observation, Observation::Sent),
        Verdict::NotSent => matches!(observation, Observation::NotSent),
        // Who knows for sure that it is not there does not also call the outcome unknown.
        Verdict::NotFound => match observation {
            Observation::NotSent => true,
            Observation::OutcomeUnknown => !authoritative,
            Observation::Sent | Observation::Partial => false,
        },
        Verdict::Pending | Verdict::Multiple => matches!(observation, Observation::Sent | Observation::OutcomeUnknown),
        Verdict::Unsupported => matches!(observation, Observation::OutcomeUnknown),
        Verdict::Conflict | Verdict::IdentityMismatch => !matches!(observation, Observation::Partial),
        Verdict::Partial => matches!(observation, Observation::Partial),
    }
}

/// The receipt: there exactly for `completed` and `failed`, in form, and of this operation.
fn receipt(
    members: &Members,
    verdict: Verdict,
    intent: &Intent,
    tool: &Tool,
) -> Result<Option<CheckedReceipt>, NoAnswer> {
    let outcome = match verdict {
        Verdict::Completed => Some(ReceiptOutcome::Completed),
        Verdict::Failed => Some(ReceiptOutcome::Failed),
        _ => None,
    };
    let sent: Option<Receipt> = optional(members, "receipt", "receipt_form")?;
    let (Some(outcome), Some(receipt)) = (outcome, &sent) else {
        keep(outcome.is_none() || sent.is_some(), "receipt_missing")?;
        keep(outcome.is_some() || sent.is_none(), "receipt_unexpected")?;
        return Ok(None);
    };
    keep(receipt.outcome == outcome, "receipt_outcome")?;
    let checked = sent.map(Receipt::check).transpose().map_err(|_| NoAnswer::Contract("receipt_form"))?;
    if let Some(clause) = checked.as_ref().and_then(|checked| broken(checked, intent, tool)) {
        return Err(NoAnswer::Contract(clause));
    }
    Ok(checked)
}

/// The clause that a receipt breaks, if it breaks one.
fn broken(checked: &CheckedReceipt, intent: &Intent, tool: &Tool) -> Option<&'static str> {
    checked.bind(intent, tool).err().and_then(|faults| faults.iter().find_map(clause_of))
}

/// An answer without the secrets that its author could know. What must stay exact is never masked, and what
/// was masked has to keep the contract.
///
/// # Errors
/// `Contract` where it can't be done: nothing of the answer counts then.
pub fn redact(
    answer: AdapterAnswer,
    known: &KnownSecrets,
    intent: &Intent,
    tool: &Tool,
) -> Result<AdapterAnswer, NoAnswer> {
    const SECRET: NoAnswer = NoAnswer::Contract("secret");
    const REDACTED: NoAnswer = NoAnswer::Contract("redacted");
    let exact = answer.verification.as_ref().map(|verification| verification.source.as_str());
    if exact.is_some_and(|text| known.is_in_exact(text)) {
        return Err(SECRET);
    }
    let Some(sent) = &answer.receipt else { return Ok(answer) };
    let receipt = known.redact(sent).map_err(|fault| match fault {
        Unredactable::Exact => SECRET,
        Unredactable::Form => REDACTED,
    })?;
    if receipt.digest != sent.digest && broken(&receipt, intent, tool).is_some() {
        return Err(REDACTED);
    }
    Ok(AdapterAnswer { receipt: Some(receipt), ..answer })
}

/// The clause that a fault of a receipt breaks. Another target is no broken answer but a finding, and
/// the domain's to judge.
fn clause_of(fault: &Fault) -> Option<&'static str> {
    match fault.pointer.as_str() {
        "/operation_id" => Some("receipt_operation_id"),
        "/schema" | "/schema_version" => Some("receipt_schema"),
        "/structured" => Some("receipt_structured"),
        "/resource_versions" => Some("receipt_resource_versions"),
        "/integrity" => Some("receipt_integrity"),
        _ => None,
    }
}

/// Versions beside the receipt: the same form, and the same registered keys.
fn resource_versions(members: &Members, tool: &Tool) -> Result<(), NoAnswer> {
    let versions: Option<BTreeMap<String, String>> = optional(members, "resource_versions", "resource_versions")?;
    let versions = versions.unwrap_or_default();
    let registered = tool.spec.receipt.resource_version_fields.as_ref();
    let is_in_form = versions.len() <= limits::RESOURCE_VERSIONS
        && versions.iter().all(|(key, value)| Name::new(key).is_ok() && value.len() <= limits::NAME_BYTES);
    let is_registered = registered.is_none_or(|list| versions.keys().all(|key| list.contains(key)));
    keep(is_in_form && is_registered, "resource_versions")
}

fn keep(kept: bool, clause: &'static str) -> Result<(), NoAnswer> {
    if kept { Ok(()) } else { Err(NoAnswer::Contract(clause)) }
}

/// A member that has to be there. Its own name is the clause.
fn required<T: DeserializeOwned>(members: &Members, name: &'static str) -> Result<T, NoAnswer> {
    optional(members, name, name)?.ok_or(NoAnswer::Contract(name))
}

/// A member that may be absent; `null` is absent too.
fn optional<T: DeserializeOwned>(members: &Members, name: &str, clause: &'static str) -> Result<Option<T>, NoAnswer> {
    match members.get(name) {
        Some(value) => serde_json::from_str(value.get()).map_err(|_| NoAnswer::Contract(clause)),
        None => Ok(None),
    }
}

/// Whether the answer says that it is JSON, in the one encoding that JSON has, and not packed.
fn is_json(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default().to_ascii_lowercase();
    let content_type = text(header::CONTENT_TYPE);
    let mut parts = content_type.split(';').map(str::trim);
    let media = parts.next().unwrap_or_default();
    let is_media = media == "application/json" || (media.starts_with("application/") && media.ends_with("+json"));
    let is_charset = parts.all(|part| {
        let (name, value) = part.split_once('=').unwrap_or((part, ""));
        name != "charset" || matches!(value.trim_matches('"'), "utf-8" | "utf8")
    });
    is_media && is_charset && matches!(text(header::CONTENT_ENCODING).as_str(), "" | "identity")
}
