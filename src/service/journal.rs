//! Reading one effect's journal, and checking all of them.

use sha2::{Digest as _, Sha256};

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::journal::{GENESIS, entry_hash};
use crate::domain::record::Life;
use crate::store::{AuditRow, JournalRow, Store, StoreError};

impl Service {
    /// A page of an effect's journal, after a revision.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn journal(
        &self,
        caller: &Principal,
        operation_id: &Name,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<JournalRow>, Option<String>), ServiceError> {
        let key = EffectKey::of(&caller.tenant, operation_id);
        let seal = format!("journal {}", key.effect);
        let after = match cursor {
            Some(cursor) => self
                .data_key
                .open_cursor(&caller.tenant, &seal, cursor)
                .and_then(|text| text.parse().ok())
                .ok_or_else(super::lists::bad_cursor)?,
            None => 0,
        };
        let mut rows = self.engine().store().journal(&key, after, limit.saturating_add(1)).await?;
        if rows.is_empty() && after == 0 {
            return Err(ServiceError::NotFound);
        }
        let page = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > page;
        rows.truncate(page);
        let next = rows
            .last()
            .filter(|_| more)
            .map(|row| self.data_key.seal_cursor(&caller.tenant, &seal, &row.revision.to_string()));
        Ok((rows, next))
    }
}

/// A kind of damage that a verification tells apart (protocol §10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// An entry, or a document that it covers, is not what was hashed.
    Edited,
    /// A revision is not there although a later one is.
    Missing,
    /// An entry continues another history than the one before it.
    Forked,
    /// The newest entries are not there.
    Truncated,
    /// A row is not readable at all.
    Unreadable,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The tenant.
    pub tenant: String,
    /// The effect's id in the store.
    pub effect: String,
    /// The revision that shows it.
    pub revision: u32,
    /// What it is.
    pub damage: Damage,
    /// In words.
    pub detail: &'static str,
}

/// What a verification came to.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Report {
    /// Effects looked at.
    pub effects: u64,
    /// Entries looked at.
    pub entries: u64,
    /// Findings in all.
    pub damaged: u64,
    /// The first findings, at most 1,000.
    pub findings: Vec<Finding>,
}

const FINDINGS: usize = 1_000;
const PAGE: u32 = 500;

impl Report {
    fn add(&mut self, key: &EffectKey, revision: u32, damage: Damage, detail: &'static str) {
        self.damaged = self.damaged.saturating_add(1);
        if self.findings.len() < FINDINGS {
            self.findings.push(Finding {
                tenant: key.tenant.as_str().to_owned(),
                effect: key.effect.to_string(),
                revision,
                damage,
                detail,
            });
        }
    }
}

/// The newest entry of the effect that is being walked.
struct Head {
    key: EffectKey,
    revision: u32,
    hash: Vec<u8>,
    is_open: bool,
}

/// Re-checks every journal from the database alone: hashes, links, gaps, the documents that the
/// entries cover, and that the newest entry agrees with the table of open effects.
///
/// # Errors
/// The store can't answer.
pub async fn verify(store: &dyn Store) -> Result<Report, StoreError> {
    let mut report = Report::default();
    let mut head: Option<Head> = None;
    let mut after = None;
    loop {
        let rows = store.audit(after.take(), PAGE).await?;
        let Some(last) = rows.last() else { break };
        after = Some((last.key.clone(), last.journal.revision));
        for row in &rows {
            report.entries = report.entries.saturating_add(1);
            if head.as_ref().is_none_or(|head| head.key != row.key) {
                if let Some(head) = head.take() {
                    check_end(store, &head, &mut report).await?;
                }
                report.effects = report.effects.saturating_add(1);
            }
            check_row(row, head.as_ref(), &mut report);
            let is_open = serde_json::from_str::<Life>(&row.life).is_ok_and(|life| life.is_open());
            head = Some(Head {
                key: row.key.clone(),
                revision: row.journal.revision,
                hash: row.journal.hash.clone(),
                is_open,
            });
        }
    }
    if let Some(head) = head.take() {
        check_end(store, &head, &mut report).await?;
    }
    check_open(store, &mut report).await?;
    Ok(report)
}

fn check_row(row: &AuditRow, head: Option<&Head>, report: &mut Report) {
    let (key, revision) = (&row.key, row.journal.revision);
    let (expected, prev): (u32, &[u8]) = match head {
        Some(head) => (head.revision.saturating_add(1), &head.hash),
        None => (1, &GENESIS),
    };
    if revision != expected {
        report.add(key, expected, Damage::Missing, "an entry is not there although a later one is");
    } else if row.journal.prev_hash != prev {
        report.add(key, revision, Damage::Forked, "the entry continues another history than the one before it");
    }
    let prev: [u8; 32] = row.journal.prev_hash.as_slice().try_into().unwrap_or(GENESIS);
    if entry_hash(key, revision, &prev, &row.journal.entry).as_slice() != row.journal.hash {
        report.add(key, revision, Damage::Edited, "the entry is not what was hashed");
        return;
    }
    match serde_json::from_str::<Covered>(&row.journal.entry) {
        Err(_) => report.add(key, revision, Damage::Unreadable, "the entry can't be read"),
        Ok(covered) => {
            let life: Option<Life> = serde_json::from_str(&row.life).ok();
            let says = life.as_ref().map(|life| (life.revision, crate::store::rows::state_code(life.state)));
            if !covered.covers(row) {
                report.add(key, revision, Damage::Edited, "a document is not what the entry covers");
            } else if says != Some((revision, row.state)) || covered.revision != revision {
                report.add(key, revision, Damage::Edited, "the row's columns are not what the entry says");
            }
        }
    }
}

/// The digests in an entry.
#[derive(serde::Deserialize)]
struct Covered {
    revision: u32,
    intent_digest: Option<String>,
    record_digest: String,
    receipt_digest: Option<String>,
    result_digest: Option<String>,
}

impl Covered {
    fn covers(&self, row: &AuditRow) -> bool {
        let same = |digest: Option<&String>, text: Option<&String>| match (digest, text) {
            (None, None) => true,
            (Some(digest), Some(text)) => {
                digest.strip_prefix("sha256:") == Some(hex::encode(Sha256::digest(text.as_bytes())).as_str())
            }
            _ => false,
        };
        same(self.intent_digest.as_ref(), row.intent.as_ref())
            && Sha256Digest::of(row.life.as_bytes()).as_str() == self.record_digest
            && same(self.receipt_digest.as_ref(), row.receipt.as_ref())
            && same(self.result_digest.as_ref(), row.result.as_ref())
    }
}

/// Whether the newest entry agrees with the table of open effects: what is open is marked so.
async fn check_end(store: &dyn Store, head: &Head, report: &mut Report) -> Result<(), StoreError> {
    if head.is_open && open_mark(store, &head.key).await?.is_none() {
        // A server may have gone on since the entry was read. The mark was looked for before the newest
        // revision is: where that is still the same, the mark was missing.
        let newest = store.revisions(std::slice::from_ref(&head.key)).await?;
        if newest.first() == Some(&head.revision) {
            report.add(&head.key, head.revision, Damage::Truncated, "the effect is open and not marked so");
        }
    }
    Ok(())
}

async fn open_mark(store: &dyn Store, key: &EffectKey) -> Result<Option<u32>, StoreError> {
    // Marks are read strictly after a key: step back by one id.
    let before =
        EffectKey { tenant: key.tenant.clone(), effect: uuid::Uuid::from_u128(key.effect.as_u128().saturating_sub(1)) };
    let marks = store.open_marks(Some(before), 1).await?;
    Ok(marks.into_iter().find(|mark| mark.key == *key).map(|mark| mark.revision))
}

/// Every open mark names the newest entry of its effect. An entry is never younger than the mark that
/// names it, and the marks are read first: what they name and is not there was cut off.
async fn check_open(store: &dyn Store, report: &mut Report) -> Result<(), StoreError> {
    let mut after = None;
    loop {
        let marks = store.open_marks(after.take(), PAGE).await?;
        let Some(last) = marks.last() else { return Ok(()) };
        after = Some(last.key.clone());
        let keys: Vec<EffectKey> = marks.iter().map(|mark| mark.key.clone()).collect();
        let revisions = store.revisions(&keys).await?;
        for (mark, newest) in marks.iter().zip(revisions) {
            if newest == 0 {
                report.add(&mark.key, mark.revision, Damage::Truncated, "every entry of an open effect is not there");
            } else if newest < mark.revision {
                report.add(&mark.key, mark.revision, Damage::Truncated, "the newest entries are not there");
            } else if newest > mark.revision
                && open_mark(store, &mark.key).await?.is_some_and(|revision| revision < newest)
            {
                report.add(&mark.key, mark.revision, Damage::Edited, "the mark does not name the newest entry");
            }
        }
    }
}
