//! Rows to records: shared by both backends, so that both read the same things the same way.

use std::sync::Arc;

use uuid::Uuid;

use super::error::Corruption;
use super::retention::Unloadable;
use crate::domain::ids::EffectKey;
use crate::domain::record::{Intent, Life, Record};
use crate::domain::state::State;
use crate::domain::time::Timestamp;

/// The number under which a state is stored. Never reuse one.
#[must_use]
pub const fn state_code(state: State) -> i16 {
    match state {
        State::Proposed => 1,
        State::IntentRecorded => 2,
        State::Dispatched => 3,
        State::Verifying => 4,
        State::OutcomeUnknown => 5,
        State::SafeToRetry => 6,
        State::ManualReview => 7,
        State::Completed => 8,
        State::Failed => 9,
        State::Refused => 10,
    }
}

/// The state stored under a number.
#[must_use]
pub fn state_of(code: i16) -> Option<State> {
    State::ALL.into_iter().find(|state| state_code(*state) == code)
}

/// One journal row of an effect, as far as a record needs it.
#[derive(Debug)]
pub struct EntryColumns {
    /// The revision.
    pub revision: i64,
    /// Revision 1 only.
    pub intent: Option<String>,
    /// The record's life.
    pub life: String,
    /// Stored documents.
    pub receipt: Option<String>,
    /// Stored documents.
    pub result: Option<String>,
    /// The hash.
    pub hash: Vec<u8>,
}

/// A corruption of a journal row.
#[must_use]
pub fn bad_entry(column: &'static str, effect: Uuid) -> Corruption {
    Corruption { table: "entries", column, key: effect.to_string() }
}

/// Builds a record from rows in order of revision: at least the first, the newest, and those that
/// carry the recorded documents. `due` is the open row's, which holds the newest lease end.
///
/// # Errors
/// The first row that can't be read back, or that it was pruned.
pub fn record_of(
    key: &EffectKey,
    rows: Vec<EntryColumns>,
    due: Option<Timestamp>,
) -> Result<Option<Record>, Unloadable> {
    let bad = |column| bad_entry(column, key.effect);
    let Some(last) = rows.last() else { return Ok(None) };
    if last.revision == 1 && last.intent.as_deref() == Some("") {
        let tombstone = serde_json::from_str(&last.life).map_err(|_| bad("life"))?;
        return Err(Unloadable::Pruned(Box::new(tombstone)));
    }
    let mut life: Life = serde_json::from_str(&last.life).map_err(|_| bad("life"))?;
    let head: [u8; 32] = last.hash.as_slice().try_into().map_err(|_| bad("hash"))?;
    if i64::from(life.revision) != last.revision {
        return Err(bad("revision").into());
    }
    let receipt_revision = life.receipt.as_ref().map(|receipt| i64::from(receipt.revision));
    let result_revision = life.result.as_ref().filter(|result| !result.truncated).map(|r| i64::from(r.revision));
    let (mut intent, mut receipt, mut result) = (None, None, None);
    for row in rows {
        if Some(row.revision) == receipt_revision {
            receipt = row.receipt;
        }
        if Some(row.revision) == result_revision {
            result = row.result;
        }
        if row.revision == 1 {
            intent = row.intent;
        }
    }
    if receipt_revision.is_some() && receipt.is_none() {
        return Err(bad("receipt").into());
    }
    if result_revision.is_some() && result.is_none() {
        return Err(bad("result").into());
    }
    let intent: Intent = serde_json::from_str(&intent.ok_or_else(|| bad("intent"))?).map_err(|_| bad("intent"))?;
    if EffectKey::of(&key.tenant, &intent.operation_id) != *key {
        return Err(bad("effect").into());
    }
    if let (State::Dispatched, Some(dispatch)) = (life.state, &mut life.dispatch) {
        // A heartbeat moves the open row alone.
        dispatch.lease_expires_at = due.ok_or_else(|| bad("due_us"))?;
    }
    Ok(Some(Record {
        key: key.clone(),
        intent: Arc::new(intent),
        life,
        head,
        receipt: receipt.map(Arc::from),
        result: result.map(Arc::from),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_has_its_own_number() {
        for state in State::ALL {
            assert_eq!(state_of(state_code(state)), Some(state));
        }
        assert_eq!(state_of(0), None);
    }
}
