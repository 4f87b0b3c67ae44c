//! Events as they are told outside (protocol §10): made from a journal entry and the intent of its
//! effect, always the same bytes, and never with content (law 11).

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::ids::Name;
use super::journal::EventKind;

/// One event, ready to be told.
#[derive(Debug, Clone)]
pub struct Published {
    /// Stable for ever: made of effect, revision and place in the entry.
    pub id: Arc<str>,
    /// The name.
    pub kind: EventKind,
    /// The tool.
    pub tool: Arc<str>,
    /// The operation.
    pub operation_id: Arc<str>,
    /// Its place in the entry.
    pub index: u32,
    /// The document.
    pub json: Arc<str>,
}

/// What an event is about. It names no tenant.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct EventEffect<'a> {
    /// The effect's id.
    effect_id: Uuid,
    /// The operation id.
    operation_id: &'a str,
    /// The tool.
    tool: &'a str,
    /// The state after the change.
    state: &'a str,
    /// The revision that the change made.
    revision: u32,
}

/// Where an event stands in the journal of its effect.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct EventJournal {
    /// Place of the entry in the journal of the effect: its revision.
    sequence: u32,
    /// Place of the event in the entry, from 0.
    index: u32,
    /// Hash of the entry.
    hash: String,
}

/// An event.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Event)]
pub struct EventDocument<'a> {
    /// Stable for ever: the same in every answer and every message.
    id: &'a str,
    /// The name.
    r#type: EventKind,
    /// When, by database time.
    #[schema(format = DateTime)]
    timestamp: &'a str,
    /// What it is about.
    data: EventEffect<'a>,
    /// Where it stands in the journal.
    journal: EventJournal,
}

/// Which events are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFilter {
    /// These names; none named: all.
    #[serde(default)]
    pub events: Vec<EventKind>,
    /// These tools; none named: all.
    #[serde(default)]
    pub tools: Vec<Name>,
    /// This operation.
    #[serde(default)]
    pub operation_id: Option<Name>,
}

impl EventFilter {
    /// Whether every event is wanted.
    #[must_use]
    pub fn is_all(&self) -> bool {
        *self == Self::default()
    }

    /// Whether this one is.
    #[must_use]
    pub fn wants(&self, event: &Published) -> bool {
        (self.events.is_empty() || self.events.contains(&event.kind))
            && (self.tools.is_empty() || self.tools.iter().any(|tool| tool.as_str() == &*event.tool))
            && self.operation_id.as_ref().is_none_or(|operation| operation.as_str() == &*event.operation_id)
    }
}

#[derive(Deserialize)]
struct EntryHead<'a> {
    #[serde(borrow)]
    at: Cow<'a, str>,
    #[serde(borrow)]
    state: Cow<'a, str>,
    events: Vec<EventHead>,
}

#[derive(Deserialize)]
struct EventHead {
    r#type: EventKind,
}

#[derive(Deserialize)]
struct IntentHead<'a> {
    #[serde(borrow)]
    operation_id: Cow<'a, str>,
    #[serde(borrow)]
    tool: Cow<'a, str>,
}

/// An entry as stored, with the intent of its effect.
#[derive(Debug, Clone, Copy)]
pub struct Stored<'a> {
    /// The effect.
    pub effect: Uuid,
    /// The revision.
    pub revision: u32,
    /// The entry's bytes.
    pub entry: &'a str,
    /// Its hash.
    pub hash: &'a [u8],
    /// The intent's bytes.
    pub intent: &'a str,
}

/// The events of an entry.
///
/// # Errors
/// Entry or intent can't be read back.
pub fn published(stored: &Stored<'_>) -> Result<Vec<Published>, serde_json::Error> {
    let entry: EntryHead<'_> = serde_json::from_str(stored.entry)?;
    let intent: IntentHead<'_> = serde_json::from_str(stored.intent)?;
    let (tool, operation_id): (Arc<str>, Arc<str>) = (Arc::from(&*intent.tool), Arc::from(&*intent.operation_id));
    let hash = hex::encode(stored.hash);
    let mut all = Vec::with_capacity(entry.events.len());
    for (index, event) in (0_u32..).zip(&entry.events) {
        let id = format!("evt_{}_{}_{index}", stored.effect.simple(), stored.revision);
        let document = EventDocument {
            id: &id,
            r#type: event.r#type,
            timestamp: &entry.at,
            data: EventEffect {
                effect_id: stored.effect,
                operation_id: &operation_id,
                tool: &tool,
                state: &entry.state,
                revision: stored.revision,
            },
            journal: EventJournal { sequence: stored.revision, index, hash: hash.clone() },
        };
        let json: Arc<str> = serde_json::to_string(&document)?.into();
        all.push(Published {
            id: id.into(),
            kind: event.r#type,
            tool: Arc::clone(&tool),
            operation_id: Arc::clone(&operation_id),
            index,
            json,
        });
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTRY: &str = r#"{"revision":2,"at":"2030-01-01T00:00:00.000001Z","by":"me","state":"completed",
        "events":[{"type":"effect.receipt.validated","receipt_id":"hunter2"},{"type":"effect.completed"}],"record_digest":"x"}"#;
    const INTENT: &str = r#"{"operation_id":"op \"1\"","tool":"t","target":"hunter2","idempotency_key":"hunter2"}"#;

    fn all() -> Vec<Published> {
        let stored = Stored { effect: Uuid::nil(), revision: 2, entry: ENTRY, hash: &[1, 2], intent: INTENT };
        published(&stored).unwrap()
    }

    #[test]
    fn an_event_is_always_the_same_and_tells_no_content() {
        let (one, two) = (all(), all());
        assert_eq!(one.len(), 2);
        assert_eq!(one[1].json, two[1].json);
        assert_eq!(
            &*one[1].json,
            r#"{"id":"evt_00000000000000000000000000000000_2_1","type":"effect.completed","timestamp":"2030-01-01T00:00:00.000001Z","data":{"effect_id":"00000000-0000-0000-0000-000000000000","operation_id":"op \"1\"","tool":"t","state":"completed","revision":2},"journal":{"sequence":2,"index":1,"hash":"0102"}}"#
        );
        assert!(!one.iter().any(|event| event.json.contains("hunter2")));
    }

    #[test]
    fn a_filter_wants_what_it_names() {
        let all = all();
        let wanted = |filter: &EventFilter| all.iter().map(|event| filter.wants(event)).collect::<Vec<_>>();
        assert_eq!(wanted(&EventFilter::default()), [true, true]);
        let by_name = EventFilter { events: vec![EventKind::Completed], ..EventFilter::default() };
        assert_eq!(wanted(&by_name), [false, true]);
        let tool = |name: &str| EventFilter { tools: vec![Name::new(name).unwrap()], ..EventFilter::default() };
        assert_eq!((wanted(&tool("t")), wanted(&tool("u"))), (vec![true, true], vec![false, false]));
    }
}
