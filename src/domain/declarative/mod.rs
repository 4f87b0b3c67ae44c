//! Declarative adapters (protocol §7): a request template and rules over the answer, in place of
//! an endpoint of the application's own.
//!
//! A registration says for each question what is asked and how an answer is understood. Nothing
//! is ever guessed: an answer that no rule matches, or that a rule fails on, is no answer.

mod check;
pub mod expression;
pub mod subject;
pub mod template;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::adapter::{Question, Verdict};
use super::canonical;
use super::object;
use super::receipt::each_key_once;

/// What is asked, per question. A question that is not here is not answered by this adapter.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DeclarativeSpec {
    /// Is this receipt genuine?
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub validate: Option<Inquiry>,
    /// What became of this operation?
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub lookup: Option<Inquiry>,
    /// What is there now?
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub verify: Option<Inquiry>,
}

impl DeclarativeSpec {
    /// How a question is asked.
    #[must_use]
    pub const fn inquiry(&self, question: Question) -> Option<&Inquiry> {
        match question {
            Question::Validate => self.validate.as_ref(),
            Question::Lookup => self.lookup.as_ref(),
            Question::Verify => self.verify.as_ref(),
        }
    }

    /// The questions it has, with their names.
    pub fn inquiries(&self) -> impl Iterator<Item = (Question, &'static str, &Inquiry)> {
        let all = [
            (Question::Validate, "validate", &self.validate),
            (Question::Lookup, "lookup", &self.lookup),
            (Question::Verify, "verify", &self.verify),
        ];
        all.into_iter().filter_map(|(question, name, inquiry)| Some((question, name, inquiry.as_ref()?)))
    }

    /// The names of the secrets that its requests carry.
    #[must_use]
    pub fn secrets(&self) -> Vec<String> {
        let headers = self.inquiries().flat_map(|(_, _, inquiry)| inquiry.headers.values());
        let templates = headers.filter_map(|header| template::Template::in_header(header).ok());
        let mut names: Vec<String> = templates
            .flat_map(|template| template.pieces().to_vec())
            .filter_map(|piece| if let template::Piece::Secret(name) = piece { Some(name) } else { None })
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }
}

/// The methods of a read. There is none that means a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum ReadMethod {
    /// A plain read.
    #[default]
    Get,
    /// A read of the headers alone.
    Head,
    /// For search endpoints that take their query as a body. It must be a read.
    Post,
}

impl ReadMethod {
    /// As on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
        }
    }
}

/// One request, and the rules by which its answer is understood.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Inquiry {
    /// GET, HEAD, or POST for a search.
    #[serde(default)]
    pub method: ReadMethod,
    /// Scheme and host are fixed; path segments and query values may have placeholders.
    pub url: String,
    /// The only place for `{{secret.NAME}}`.
    #[serde(default, deserialize_with = "each_key_once", skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// A JSON body; its texts may have placeholders.
    #[serde(default, deserialize_with = "unambiguous", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub body: Option<Value>,
    /// The first one whose `when` is true decides.
    pub rules: Vec<Rule>,
}

/// A value that every reader reads alike.
fn unambiguous<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    let Some(raw) = Option::<Box<RawValue>>::deserialize(deserializer)? else { return Ok(None) };
    canonical::check(&raw).map_err(|fault| serde::de::Error::custom(format_args!("must not have faults: {fault}")))?;
    serde_json::from_str(raw.get()).map(Some).map_err(|_| serde::de::Error::custom("must be JSON"))
}

/// Whether a reading can be trusted to be complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Consistency {
    /// What is not there is not there.
    Authoritative,
    /// It may lag behind.
    #[default]
    Eventual,
}

impl Consistency {
    /// The default is not written out.
    #[must_use]
    pub fn is_eventual(&self) -> bool {
        *self == Self::Eventual
    }
}

/// When it holds, this is what the answer means. All conditions and values are CEL expressions over
/// `status`, `headers`, `body`, `effect` and, where one is validated or verified, `receipt`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// When it holds.
    pub when: String,
    /// What it means.
    pub verdict: Verdict,
    /// For `not_found` and `not_sent`: whether an absence proves anything.
    #[serde(default, skip_serializing_if = "Consistency::is_eventual")]
    pub consistency: Consistency,
    /// For `not_found` and `not_sent`: the downstream can no longer accept the original.
    #[serde(default, rename = "final", skip_serializing_if = "std::ops::Not::not")]
    pub is_final: bool,
    /// Proves that the answer is about this effect. Required for `completed` and `failed`; where it
    /// is false the answer is `identity_mismatch`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binds: Option<String>,
    /// The receipt that is made of the answer. Required for `completed` and `failed` of a lookup.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub receipt: Option<ReceiptRule>,
    /// For `completed`: whether the state that was read confirms the receipt. Required when verifying.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
}

/// The receipt that a rule makes: each value is an expression. Operation id, target, schema and time
/// are not for the rule to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptRule {
    /// The downstream's own name for what happened: a text.
    pub receipt_id: String,
    /// A text for the caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The fields of `structured`.
    #[serde(default, deserialize_with = "each_key_once", skip_serializing_if = "BTreeMap::is_empty")]
    pub structured: BTreeMap<String, String>,
    /// Versions of the resources it changed: texts.
    #[serde(default, deserialize_with = "each_key_once", skip_serializing_if = "BTreeMap::is_empty")]
    pub resource_versions: BTreeMap<String, String>,
    /// Digests, signatures and the like: texts.
    #[serde(default, deserialize_with = "each_key_once", skip_serializing_if = "BTreeMap::is_empty")]
    pub integrity: BTreeMap<String, String>,
}
