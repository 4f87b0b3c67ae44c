//! What was recorded beside the outcome of an effect: late reports (law 7) and operators' decisions.

use serde_json::Value;

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::record::{Life, Record, Resolution};
use crate::limits;
use crate::store::EvidenceRow;
use crate::store::rows::bad_entry;
use crate::telemetry::probe;

/// Rows read by one call: each may carry a receipt of [`limits::RECEIPT_BYTES`].
const STEP: usize = 4;

/// A report that was stored as evidence.
#[derive(Debug, Clone)]
pub struct LateReport {
    /// The revision that stored it.
    pub revision: u32,
    /// When, as the journal says.
    pub at: String,
    /// Who brought it.
    pub by: String,
    /// The event, with its public facts.
    pub event: Value,
    /// The receipt that came with it, byte for byte.
    pub receipt: Option<String>,
}

/// A page of one effect's evidence.
#[derive(Debug)]
pub struct EvidencePage<T> {
    /// The items, oldest first.
    pub items: Vec<T>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

impl Service {
    /// Late reports of an effect, with their receipts.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn late_reports(
        &self,
        caller: &Principal,
        operation_id: &Name,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<EvidencePage<LateReport>, ServiceError> {
        let key = EffectKey::of(&caller.tenant, operation_id);
        let record = self.newest(&key).await?;
        let marks = record.life.reports.iter().filter(|mark| mark.evidence_only);
        let revisions: Vec<u32> = marks.map(|mark| mark.revision).collect();
        let read = |row: EvidenceRow| {
            let bytes = row.receipt.as_ref().map_or(0, String::len);
            Ok((late_report(&row).ok_or_else(|| bad_entry("entry", key.effect))?, bytes))
        };
        self.evidence_page(caller, (&key, "reports"), (revisions, cursor, limit), read).await
    }

    /// Operators' decisions about an effect, with reason and evidence.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn resolutions(
        &self,
        caller: &Principal,
        operation_id: &Name,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<EvidencePage<(u32, Resolution)>, ServiceError> {
        let key = EffectKey::of(&caller.tenant, operation_id);
        let record = self.newest(&key).await?;
        let revisions: Vec<u32> = record.life.decisions.iter().map(|mark| mark.revision).collect();
        let read = |row: EvidenceRow| {
            let bytes = row.life.len();
            let life: Option<Life> = serde_json::from_str(&row.life).ok();
            let made = life.and_then(|life| life.resolution).ok_or_else(|| bad_entry("life", key.effect))?;
            Ok(((row.revision, made), bytes))
        };
        self.evidence_page(caller, (&key, "resolutions"), (revisions, cursor, limit), read).await
    }

    async fn newest(&self, key: &EffectKey) -> Result<Record, ServiceError> {
        let mut found = probe::read(self.engine().store().load(std::slice::from_ref(key))).await?;
        found.pop().transpose()?.flatten().ok_or(ServiceError::NotFound)
    }

    /// A page of what stands at some revisions, bounded in items and in bytes.
    async fn evidence_page<T>(
        &self,
        caller: &Principal,
        (key, list): (&EffectKey, &str),
        (mut revisions, cursor, limit): (Vec<u32>, Option<&str>, u32),
        read: impl Fn(EvidenceRow) -> Result<(T, usize), ServiceError>,
    ) -> Result<EvidencePage<T>, ServiceError> {
        let seal = format!("{list} {}", key.effect);
        let after: u32 = self.place_after(caller, &seal, cursor, |text| text.parse().ok())?.unwrap_or(0);
        revisions.retain(|revision| *revision > after);
        let (mut items, mut bytes, mut last) = (Vec::new(), 0_usize, after);
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let newest = revisions.last().copied();
        for some in revisions.chunks(STEP) {
            for row in probe::read(self.engine().store().evidence(key, some)).await? {
                if items.len() >= wanted || bytes >= limits::EVIDENCE_PAGE_BYTES {
                    break;
                }
                last = row.revision;
                let (item, size) = read(row)?;
                items.push(item);
                bytes = bytes.saturating_add(size);
            }
            if items.len() >= wanted || bytes >= limits::EVIDENCE_PAGE_BYTES {
                break;
            }
        }
        let more = newest.is_some_and(|newest| last < newest) && !items.is_empty();
        let next_cursor = more.then(|| self.data_key.seal_cursor(&caller.tenant, &seal, &last.to_string()));
        Ok(EvidencePage { items, next_cursor })
    }
}

/// The report in a journal row. An entry stores one report at most.
fn late_report(row: &EvidenceRow) -> Option<LateReport> {
    let entry: Value = serde_json::from_str(&row.entry).ok()?;
    let events = entry.get("events")?.as_array()?;
    let event = events.iter().find(|event| event.get("type").is_some_and(|kind| kind == "effect.late_report"))?;
    let text = |name: &str| entry.get(name).and_then(Value::as_str).map(str::to_owned);
    // The row's receipt is the report's where the report says that it brought one.
    let brought = event.get("receipt_digest").is_some();
    Some(LateReport {
        revision: row.revision,
        at: text("at")?,
        by: text("by")?,
        event: event.clone(),
        receipt: row.receipt.clone().filter(|_| brought),
    })
}
