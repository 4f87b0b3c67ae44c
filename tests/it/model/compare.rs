//! Answers and rows in words that do not depend on a store's clock: each time that lies after the
//! beginning becomes a number of minutes.

use actonce::domain::decide::{Answer, Context, directive};
use actonce::domain::record::Record;
use actonce::domain::time::Timestamp;
use actonce::engine::{Decided, EngineError};
use serde_json::Value;

/// When a history began, by the store's own clock. A history takes less than a minute of real time,
/// and all durations in it are whole minutes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base(pub(super) Timestamp);

impl Base {
    fn shown(self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Some(at) = Timestamp::parse(text).filter(|at| *at >= self.0) {
                    *text = format!("+{} min", at.since(self.0) / 60_000_000);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.shown(item)),
            Value::Object(members) => members.values_mut().for_each(|item| self.shown(item)),
            _ => {}
        }
    }
}

fn json(value: impl serde::Serialize, base: Base) -> Value {
    let mut value = serde_json::to_value(value).unwrap();
    base.shown(&mut value);
    value
}

/// A record: its intent, its life, its documents.
pub(super) fn record(record: &Record, base: Base) -> String {
    let intent = json(record.intent.as_ref(), base);
    let life = json(&record.life, base);
    format!("{intent}\n{life}\n{:?} {:?}\n", record.receipt, record.result)
}

/// A journal entry, without the digests that cover times.
pub(super) fn entry(text: &str, base: Base) -> String {
    let mut entry = json(serde_json::from_str::<Value>(text).unwrap(), base);
    let members = entry.as_object_mut().unwrap();
    for covered in ["intent_digest", "record_digest"] {
        if let Some(digest) = members.get_mut(covered) {
            *digest = Value::Bool(true);
        }
    }
    format!("{entry}\n")
}

/// What a caller is told, and what he would read.
pub(super) fn told(found: &Record, answer: Answer, context: &Context, created: bool, base: Base) -> String {
    let word = directive(found, context, answer.owns_dispatch).as_str();
    format!("{word} {answer:?} created {created}\n{}", record(found, base))
}

pub(super) fn said(answer: &Result<Decided, EngineError>, base: Base) -> String {
    match answer {
        Ok(decided) => told(&decided.record, decided.answer, &decided.context, decided.created, base),
        Err(EngineError::Refused { refusal, record: found }) => {
            let found = found.as_ref().map(|found| record(found, base)).unwrap_or_default();
            format!("{refusal:?}\n{found}")
        }
        Err(EngineError::UnknownTool) => "unknown tool".to_owned(),
        Err(error) => panic!("{error}"),
    }
}
