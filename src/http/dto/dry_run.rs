//! Dry runs of declarative adapters.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::{Faults, present};
use crate::domain::adapter::{NoAnswer, Question, Verdict};
use crate::domain::canonical::{self, Sha256Digest};
use crate::domain::declarative::{Consistency, DeclarativeSpec};
use crate::domain::object;
use crate::domain::receipt::{CheckedReceipt, Receipt, Verification};
use crate::domain::time::Timestamp;
use crate::http::problem::Problem;
use crate::limits;
use crate::outbound::declarative::DryRun;
use crate::service::dry_run::{DryRunRequest, SampleEffect};

/// A question to an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuestionWord {
    /// Is this receipt genuine?
    Validate,
    /// What became of this operation?
    Lookup,
    /// What is there now?
    Verify,
}

impl From<QuestionWord> for Question {
    fn from(word: QuestionWord) -> Self {
        match word {
            QuestionWord::Validate => Self::Validate,
            QuestionWord::Lookup => Self::Lookup,
            QuestionWord::Verify => Self::Verify,
        }
    }
}

/// An effect to try with; what is left out is made up.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct SampleBody {
    /// The operation id.
    #[schema(min_length = 1, max_length = 256)]
    pub operation_id: Option<String>,
    /// The target.
    #[schema(min_length = 1, max_length = 256)]
    pub target: Option<String>,
    /// The run.
    #[schema(min_length = 1, max_length = 256)]
    pub run_id: Option<String>,
    /// The downstream key. The marker follows from it.
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
    /// Digest of the arguments.
    #[schema(pattern = "^sha256:[0-9a-f]{64}$")]
    pub arguments_digest: Option<String>,
    /// Dispatches so far.
    #[schema(minimum = 1)]
    pub attempt: Option<u32>,
    /// When the newest one was granted.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub dispatched_at: Option<Timestamp>,
}

/// An answer of the downstream, as it would come.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SampleAnswer {
    /// The status.
    #[schema(minimum = 100, maximum = 599)]
    pub status: u16,
    /// The headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// The JSON body; absent: none.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub body: Option<Box<RawValue>>,
}

/// What is tried.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct DryRunBody {
    /// What is asked.
    pub question: QuestionWord,
    /// The effect it is about.
    #[serde(default, deserialize_with = "object::required")]
    pub effect: SampleBody,
    /// The receipt that is validated or verified; one is made up where it is left out.
    #[serde(default, deserialize_with = "object::optional")]
    pub receipt: Option<Receipt>,
    /// A request that is not registered, in place of the tool's.
    #[serde(default, deserialize_with = "object::optional")]
    pub request: Option<DeclarativeSpec>,
    /// What the downstream would answer.
    #[serde(deserialize_with = "object::required")]
    pub answer: SampleAnswer,
}

impl DryRunBody {
    /// Checks what is tried.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self) -> Result<DryRunRequest, Problem> {
        let mut faults = Faults::default();
        let sample = &self.effect;
        let effect = SampleEffect {
            operation_id: faults.optional("/effect/operation_id", sample.operation_id.as_ref()),
            target: faults.optional("/effect/target", sample.target.as_ref()),
            run_id: faults.optional("/effect/run_id", sample.run_id.as_ref()),
            idempotency_key: faults.optional("/effect/idempotency_key", sample.idempotency_key.as_ref()),
            arguments_digest: sample.arguments_digest.as_ref().and_then(|text| {
                let digest = Sha256Digest::parse(text);
                if digest.is_none() {
                    faults.add("/effect/arguments_digest", "must be `sha256:` and 64 lower-case hex digits");
                }
                digest
            }),
            attempt: sample.attempt,
            dispatched_at: sample.dispatched_at,
        };
        let receipt = receipt(self.receipt, &mut faults);
        let answer = answer(self.answer, &mut faults);
        if !faults.is_empty() {
            return Err(faults.problem());
        }
        Ok(DryRunRequest { question: self.question.into(), effect, receipt, request: self.request, answer })
    }
}

fn receipt(receipt: Option<Receipt>, faults: &mut Faults) -> Option<CheckedReceipt> {
    receipt?.check().map_err(|found| faults.under("/receipt", found)).ok()
}

fn answer(answer: SampleAnswer, faults: &mut Faults) -> (u16, BTreeMap<String, String>, Vec<u8>) {
    if !(100..=599).contains(&answer.status) {
        faults.add("/answer/status", "must be between 100 and 599");
    }
    let mut headers = BTreeMap::new();
    for (name, value) in answer.headers {
        if name.len().saturating_add(value.len()) > limits::HEADER_BYTES || value.contains('\0') {
            faults.add("/answer/headers", "must map names to texts of at most 4096 bytes in all");
        }
        if headers.insert(name.to_ascii_lowercase(), value).is_some() {
            faults.add("/answer/headers", "must not have a name twice");
        }
    }
    if headers.len() > limits::TEMPLATE_HEADERS {
        faults.add("/answer/headers", "must have at most 32 entries");
    }
    let body = answer.body.map(|body| body.get().to_owned()).unwrap_or_default();
    if body.len() > limits::ADAPTER_ANSWER_BYTES {
        faults.add("/answer/body", "must be at most 262144 bytes");
    }
    if let Some(fault) = answer_fault(&body) {
        faults.add(&format!("/answer/body{}", fault.pointer), fault.reason);
    }
    (answer.status, headers, body.into_bytes())
}

fn answer_fault(body: &str) -> Option<canonical::JsonFault> {
    let raw: &RawValue = serde_json::from_str(body).ok()?;
    canonical::check(raw).err()
}

/// A request as it would be sent.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RequestView {
    /// The method.
    method: &'static str,
    /// The URL.
    url: String,
    /// The headers; a secret shows as `[hidden]`.
    headers: BTreeMap<String, String>,
    /// The body.
    body: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct NoAnswerView {
    /// The word of journals and metrics, such as `contract_break`.
    reason: &'static str,
    /// What is wrong, where more can be said.
    detail: Option<&'static str>,
}

impl From<NoAnswer> for NoAnswerView {
    fn from(reason: NoAnswer) -> Self {
        Self { reason: reason.as_str(), detail: reason.clause() }
    }
}

/// What would come of it.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct DryRunView {
    /// The request; `null` where it can't be filled in.
    request: Option<RequestView>,
    /// Why there is no answer; `null` where there is one.
    no_answer: Option<NoAnswerView>,
    /// The place of the rule that holds.
    rule: Option<usize>,
    /// What the adapter would say. Not always the verdict of the rule: `identity_mismatch` where `binds`
    /// is false.
    verdict: Option<Verdict>,
    /// Whether an absence would prove anything, where the tool says so too.
    consistency: Option<Consistency>,
    /// Whether the downstream could no longer accept the original.
    #[serde(rename = "final")]
    is_final: Option<bool>,
    /// The receipt that would be stored.
    #[schema(value_type = Option<Receipt>)]
    receipt: Option<Box<RawValue>>,
    /// The fresh read that would be stored.
    verification: Option<Verification>,
}

impl From<DryRun> for DryRunView {
    fn from(run: DryRun) -> Self {
        let request = run.request.ok().map(|request| RequestView {
            method: request.method,
            url: request.url,
            headers: request.headers.into_iter().collect(),
            body: request.body,
        });
        let empty = Self {
            request,
            no_answer: None,
            rule: None,
            verdict: None,
            consistency: None,
            is_final: None,
            receipt: None,
            verification: None,
        };
        let judgement = match run.judgement {
            Ok(judgement) => judgement,
            Err(reason) => return Self { no_answer: Some(reason.into()), ..empty },
        };
        let answer = judgement.answer;
        let consistency = if answer.authoritative { Consistency::Authoritative } else { Consistency::Eventual };
        Self {
            rule: Some(judgement.rule),
            verdict: Some(answer.verdict),
            consistency: Some(consistency),
            is_final: Some(answer.is_final),
            receipt: answer.receipt.and_then(|receipt| RawValue::from_string(receipt.text.as_ref().to_owned()).ok()),
            verification: answer.verification,
            ..empty
        }
    }
}
