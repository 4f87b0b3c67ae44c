//! What an answer means: the first rule that holds. A rule that fails, and an answer that no rule
//! matches, mean nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use reqwest::header::HeaderMap;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::FetchResponse;
use crate::domain::adapter::{AdapterAnswer, NoAnswer, Question, Verdict};
use crate::domain::canonical;
use crate::domain::declarative::expression::{Budget, EvaluationFault, Expression, Scope};
use crate::domain::declarative::subject::Subject;
use crate::domain::declarative::{Consistency, Inquiry, ReceiptRule, Rule};
use crate::domain::ids::Name;
use crate::domain::receipt::{CheckedReceipt, Receipt, ReceiptOutcome, Verification};
use crate::domain::time::Timestamp;
use crate::limits;

/// An answer as rules see it.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status, one that may speak about the effect.
    pub status: u16,
    /// Lower-case names; several values of one name are joined by `, `.
    pub headers: BTreeMap<String, String>,
    /// The JSON body; `null` where there is none.
    pub body: Value,
    /// When it was asked for.
    pub asked_at: Timestamp,
    /// Who answered.
    pub source: Name,
}

impl Answer {
    /// Reads an answer.
    ///
    /// # Errors
    /// Its status speaks about the downstream or the request and not about the effect (law 4), or its
    /// body is no JSON that every reader understands alike.
    pub fn of(response: &FetchResponse, source: Name) -> Result<Self, NoAnswer> {
        if response.body.len() > limits::ADAPTER_ANSWER_BYTES {
            return Err(NoAnswer::Contract("the answer is too large"));
        }
        let headers = headers(&response.headers)?;
        Self::from_parts(response.status, headers, &response.body, (response.asked_at, source))
    }

    /// The same, of parts.
    ///
    /// # Errors
    /// As [`Answer::of`].
    pub fn from_parts(
        status: u16,
        headers: BTreeMap<String, String>,
        body: &[u8],
        (asked_at, source): (Timestamp, Name),
    ) -> Result<Self, NoAnswer> {
        if !speaks_of_the_effect(status) {
            return Err(NoAnswer::Status);
        }
        Ok(Self { status, headers, body: json(body)?, asked_at, source })
    }
}

/// Whether a status can say anything about the effect. A redirect, a refused credential, a rate limit
/// and a failure of the server say nothing about it, whatever a rule would make of them.
const fn speaks_of_the_effect(status: u16) -> bool {
    matches!(status, 200..=299 | 400..=499) && !matches!(status, 401 | 403 | 407 | 408 | 421 | 425 | 426 | 429 | 431)
}

fn json(body: &[u8]) -> Result<Value, NoAnswer> {
    const NO_JSON: NoAnswer = NoAnswer::Contract("the answer is not JSON that every reader reads alike");
    if body.trim_ascii().is_empty() {
        return Ok(Value::Null);
    }
    let raw: &RawValue = serde_json::from_slice(body).map_err(|_| NO_JSON)?;
    canonical::check(raw).map_err(|_| NO_JSON)?;
    serde_json::from_str(raw.get()).map_err(|_| NO_JSON)
}

fn headers(found: &HeaderMap) -> Result<BTreeMap<String, String>, NoAnswer> {
    let mut headers: BTreeMap<String, String> = BTreeMap::new();
    for (name, value) in found {
        // What is not text can't be compared with anything, and is left out.
        let Ok(value) = value.to_str() else { continue };
        let joined = headers.entry(name.as_str().to_owned()).or_default();
        if !joined.is_empty() {
            joined.push_str(", ");
        }
        joined.push_str(value);
        if joined.len() > limits::HEADER_BYTES.saturating_mul(2) {
            return Err(NoAnswer::Contract("the answer has too large a header"));
        }
    }
    if headers.len() > limits::TEMPLATE_HEADERS.saturating_mul(4) {
        return Err(NoAnswer::Contract("the answer has too many headers"));
    }
    Ok(headers)
}

/// Which rule holds, and the answer that it makes.
#[derive(Debug, Clone)]
pub struct Judgement {
    /// Its place among the rules.
    pub rule: usize,
    /// What it says.
    pub answer: AdapterAnswer,
}

impl From<EvaluationFault> for NoAnswer {
    fn from(fault: EvaluationFault) -> Self {
        Self::Contract(match fault {
            EvaluationFault::Failed => "a rule failed",
            EvaluationFault::TooLong => "the rules took too long",
            EvaluationFault::Inexact => "the answer has a number that can't be held exactly",
        })
    }
}

/// Finds the rule that holds.
pub(super) fn judge(
    inquiry: &Inquiry,
    question: Question,
    subject: &Subject,
    answer: &Answer,
    budget: Arc<Budget>,
) -> Result<Judgement, NoAnswer> {
    let about = (&subject.effect(), &subject.receipt_value());
    let scope = Scope::new((answer.status, &answer.headers, &answer.body), about, budget)?;
    let judging = Judging { scope, question, subject, answer };
    for (index, rule) in inquiry.rules.iter().enumerate() {
        if judging.holds(&rule.when)? {
            return Ok(Judgement { rule: index, answer: judging.apply(rule)? });
        }
    }
    Err(NoAnswer::Contract("no rule matches"))
}

struct Judging<'a> {
    scope: Scope,
    question: Question,
    subject: &'a Subject,
    answer: &'a Answer,
}

fn only(verdict: Verdict) -> AdapterAnswer {
    AdapterAnswer { verdict, authoritative: false, is_final: false, receipt: None, verification: None }
}

impl Judging<'_> {
    fn read(&self, text: &str) -> Result<Expression, NoAnswer> {
        let receipt = self.question != Question::Lookup;
        // It was read once when it was registered.
        Expression::parse(text, receipt).map_err(|_| NoAnswer::Contract("a rule can't be read"))
    }

    fn holds(&self, text: &str) -> Result<bool, NoAnswer> {
        Ok(self.scope.holds(&self.read(text)?)?)
    }

    fn text(&self, text: &str) -> Result<String, NoAnswer> {
        Ok(self.scope.text(&self.read(text)?)?)
    }

    fn apply(&self, rule: &Rule) -> Result<AdapterAnswer, NoAnswer> {
        let outcome = match rule.verdict {
            Verdict::Completed => ReceiptOutcome::Completed,
            Verdict::Failed => ReceiptOutcome::Failed,
            verdict => {
                let authoritative = rule.consistency == Consistency::Authoritative;
                return Ok(AdapterAnswer { authoritative, is_final: rule.is_final, ..only(verdict) });
            }
        };
        let binds = rule.binds.as_ref().ok_or(NoAnswer::Contract("a rule settles without a proof"))?;
        if !self.holds(binds)? {
            return Ok(only(Verdict::IdentityMismatch));
        }
        let receipt = match (self.question, &rule.receipt, &self.subject.receipt) {
            (Question::Lookup, Some(made), _) => self.receipt(made, outcome)?,
            // The receipt that was asked about, unless the downstream says otherwise than it.
            (Question::Validate | Question::Verify, _, Some(asked)) if asked.receipt.outcome == outcome => {
                asked.clone()
            }
            (Question::Validate | Question::Verify, _, Some(_)) => return Ok(only(Verdict::Conflict)),
            _ => return Err(NoAnswer::Contract("there is no receipt to speak of")),
        };
        let verification = rule.verified.as_ref().map(|verified| self.verification(verified)).transpose()?;
        Ok(AdapterAnswer { receipt: Some(receipt), verification, ..only(rule.verdict) })
    }

    fn verification(&self, verified: &str) -> Result<Verification, NoAnswer> {
        Ok(Verification {
            verified: self.holds(verified)?,
            observed_at: self.answer.asked_at,
            source: self.answer.source.clone(),
            target: self.subject.intent.target.clone(),
        })
    }

    /// A receipt of this effect: the rule proved that the answer is about it.
    fn receipt(&self, made: &ReceiptRule, outcome: ReceiptOutcome) -> Result<CheckedReceipt, NoAnswer> {
        const FORM: NoAnswer = NoAnswer::Contract("the receipt that a rule makes is faulty");
        let (intent, spec) = (&self.subject.intent, &self.subject.tool.spec.receipt);
        let texts = |map: &BTreeMap<String, String>| -> Result<BTreeMap<String, String>, NoAnswer> {
            map.iter().map(|(name, text)| Ok((name.clone(), self.text(text)?))).collect()
        };
        let mut structured = Map::new();
        for (name, text) in &made.structured {
            structured.insert(name.clone(), self.scope.value(&self.read(text)?)?);
        }
        let receipt = Receipt {
            receipt_id: Name::new(&self.text(&made.receipt_id)?).map_err(|_| FORM)?,
            schema: Name::new(&spec.schema).map_err(|_| FORM)?,
            schema_version: spec.schema_version,
            operation_id: intent.operation_id.clone(),
            target: intent.target.clone(),
            outcome,
            message: made.message.as_ref().map(|text| self.text(text)).transpose()?.unwrap_or_default(),
            structured: RawValue::from_string(Value::Object(structured).to_string()).map_err(|_| FORM)?,
            artifacts: Vec::new(),
            resource_versions: texts(&made.resource_versions)?,
            integrity: texts(&made.integrity)?,
            observed_at: self.answer.asked_at,
            source: self.answer.source.clone(),
        };
        let receipt = receipt.check().map_err(|_| FORM)?;
        let binding = receipt.bind(intent, &self.subject.tool);
        binding.map_err(|_| NoAnswer::Contract("the receipt that a rule makes is not as the tool registers it"))?;
        Ok(receipt)
    }
}

#[cfg(test)]
mod tests;
