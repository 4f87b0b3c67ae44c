//! Reading one effect's journal, and checking all of them.

use uuid::Uuid;

use super::proof::{PublicKeys, Signed};
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::journal::{GENESIS, entry_hash};
use crate::domain::record::Life;
use crate::domain::retention::Tombstone;
use crate::domain::time::Timestamp;
use crate::store::audit::AuditPlace;
use crate::store::retention::is_tombstone;
use crate::store::rows::state_code;
use crate::store::{AuditRow, Corruption, JournalRow, Store, StoreError};
use crate::telemetry::probe;

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
        let after = self.place_after(caller, &seal, cursor, |text| text.parse().ok())?.unwrap_or(0);
        let mut rows = probe::read(self.engine().store().journal(&key, after, limit.saturating_add(1))).await?;
        if rows.is_empty() && after == 0 {
            return Err(ServiceError::NotFound);
        }
        if rows.first().is_some_and(|row| is_tombstone(row.revision, &row.entry)) {
            self.engine().store().load(std::slice::from_ref(&key)).await?.pop().transpose()?;
        }
        let next = self.cut_to_page(caller, &seal, &mut rows, limit, |row| row.revision.to_string());
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
    /// Every entry of an effect is gone, and a checkpoint names it.
    Removed,
    /// An entry holds by itself and is another one than a checkpoint names: the chain was made anew.
    Rewritten,
    /// A checkpoint is not what was signed, or its leaves are not those that it covers.
    CheckpointEdited,
    /// A checkpoint is not there.
    CheckpointMissing,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Finding {
    /// The tenant.
    pub tenant: String,
    /// The effect's id in the store; empty where the damage is a checkpoint's own.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub effect: String,
    /// The revision that shows it; 0 where there is none.
    pub revision: u32,
    /// The checkpoint that shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<u64>,
    /// The column that can't be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub column: Option<&'static str>,
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
    /// Effects of which nothing but a tombstone is kept.
    pub pruned: u64,
    /// Checkpoints looked at.
    pub checkpoints: u64,
    /// Whether the signatures of the checkpoints were checked; without the public key they were not.
    pub signatures_checked: bool,
    /// Kept copies of checkpoints that were looked for.
    pub copies: u64,
    /// Restores to an earlier point that this database has been through.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub restores: Vec<RestoreFact>,
    /// Findings in all.
    pub damaged: u64,
    /// The first findings, at most 1,000.
    pub findings: Vec<Finding>,
}

/// A restore to an earlier point: what was written down after it may be missed by whoever kept copies.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct RestoreFact {
    /// Its number.
    pub epoch: u32,
    /// The operator's name for it.
    pub epoch_id: Name,
    /// When, by database time.
    pub begun_at: Timestamp,
}

const FINDINGS: usize = 1_000;
const PAGE: u32 = 500;

/// What is verified, and with what.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// One tenant alone.
    pub tenant: Option<Tenant>,
    /// One effect of it alone.
    pub effect: Option<Uuid>,
    /// Keys that checkpoints are checked with.
    pub keys: Option<PublicKeys>,
    /// Checkpoints that were kept elsewhere, as they were printed.
    pub copies: Vec<Signed>,
}

impl Scope {
    /// Whether it has a tenant, by its stored name.
    pub(super) fn has(&self, tenant: &str) -> bool {
        self.tenant.as_ref().is_none_or(|only| only.as_str() == tenant)
    }

    /// Whether it has an effect.
    pub(super) fn has_effect(&self, key: &EffectKey) -> bool {
        self.has(key.tenant.as_str()) && self.effect.is_none_or(|only| only == key.effect)
    }

    /// Whether it has what stands at a place.
    fn has_place(&self, place: &AuditPlace) -> bool {
        self.tenant.as_ref().is_none_or(|only| only.as_str().as_bytes() == place.tenant)
            && self.effect.is_none_or(|only| only == place.effect)
    }

    /// Before its first effect.
    fn start(&self) -> Option<EffectKey> {
        let tenant = self.tenant.clone()?;
        Some(EffectKey { tenant, effect: self.effect.unwrap_or(Uuid::nil()) })
    }
}

impl Report {
    pub(super) fn add(&mut self, key: &EffectKey, revision: u32, damage: Damage, detail: &'static str) {
        let (tenant, effect) = (key.tenant.as_str().to_owned(), key.effect.to_string());
        self.push(Finding { tenant, effect, revision, checkpoint: None, column: None, damage, detail });
    }

    /// A row that can't be decoded at all: everything else is looked at all the same.
    fn add_unreadable(&mut self, place: &AuditPlace, corruption: &Corruption) {
        self.push(Finding {
            tenant: String::from_utf8_lossy(&place.tenant).into_owned(),
            effect: place.effect.to_string(),
            revision: u32::try_from(place.revision).unwrap_or(u32::MAX),
            checkpoint: None,
            column: Some(corruption.column),
            damage: Damage::Unreadable,
            detail: "the entry can't be decoded",
        });
    }

    pub(super) fn push(&mut self, finding: Finding) {
        self.damaged = self.damaged.saturating_add(1);
        if self.findings.len() < FINDINGS {
            self.findings.push(finding);
        }
    }
}

/// The newest entry of the effect that is being walked.
struct Head {
    place: AuditPlace,
    /// `None` where the tenant has no name.
    key: Option<EffectKey>,
    revision: u32,
    /// `None` where the entry can't be decoded.
    hash: Option<Vec<u8>>,
    is_open: bool,
    /// Whether the entry is what was hashed.
    holds: bool,
}

impl Head {
    fn is_of(&self, place: &AuditPlace) -> bool {
        self.place.tenant == place.tenant && self.place.effect == place.effect
    }

    fn of(row: &AuditRow, place: &AuditPlace, holds: bool) -> Self {
        Self {
            place: place.clone(),
            key: Some(row.key.clone()),
            revision: row.journal.revision,
            hash: Some(row.journal.hash.clone()),
            is_open: serde_json::from_str::<Life>(&row.life).is_ok_and(|life| life.is_open()),
            holds,
        }
    }

    /// Nothing is known of it but where it stands.
    fn unreadable(place: &AuditPlace) -> Self {
        let revision = u32::try_from(place.revision).unwrap_or(u32::MAX);
        Self { place: place.clone(), key: None, revision, hash: None, is_open: false, holds: false }
    }
}

/// Re-checks every journal from the database alone: hashes, links, gaps, the documents that the
/// entries cover, and that the newest entry agrees with the table of open effects.
///
/// # Errors
/// The store can't answer.
pub async fn verify(store: &dyn Store) -> Result<Report, StoreError> {
    verify_scope(store, &Scope::default()).await
}

/// The same for a part of the database, with checkpoints, and with kept copies of them.
///
/// # Errors
/// The store can't answer.
pub async fn verify_scope(store: &dyn Store, scope: &Scope) -> Result<Report, StoreError> {
    let restores = store.restore_epochs().await?.into_iter();
    let restores =
        restores.map(|row| RestoreFact { epoch: row.number, epoch_id: row.epoch_id, begun_at: row.begun_at });
    let mut report = Report { restores: restores.collect(), ..Report::default() };
    verify_entries(store, scope, &mut report).await?;
    check_open(store, scope, &mut report).await?;
    super::proof::check::checkpoints(store, scope, &mut report).await?;
    Ok(report)
}

async fn verify_entries(store: &dyn Store, scope: &Scope, report: &mut Report) -> Result<(), StoreError> {
    let mut head: Option<Head> = None;
    let mut after = scope.start().map(|key| AuditPlace::of(&key, 0));
    'pages: loop {
        let all = store.audit_each(after.as_ref(), PAGE).await?;
        let Some(last) = all.last() else { break };
        after = Some(last.place.clone());
        for found in &all {
            if !scope.has_place(&found.place) {
                break 'pages;
            }
            report.entries = report.entries.saturating_add(1);
            if head.as_ref().is_none_or(|head| !head.is_of(&found.place)) {
                if let Some(head) = head.take() {
                    check_end(store, &head, report).await?;
                }
                report.effects = report.effects.saturating_add(1);
            }
            head = Some(match &found.row {
                Ok(row) => {
                    let holds = check_row(row, head.as_ref(), report);
                    Head::of(row, &found.place, holds)
                }
                Err(corruption) => {
                    report.add_unreadable(&found.place, corruption);
                    Head::unreadable(&found.place)
                }
            });
        }
    }
    match head.take() {
        Some(head) => check_end(store, &head, report).await,
        None => Ok(()),
    }
}

/// Checks a row that stands for a pruned effect: it continues the last entry, whose hash it keeps.
fn check_tombstone(row: &AuditRow, report: &mut Report) -> bool {
    let (key, journal) = (&row.key, &row.journal);
    report.pruned = report.pruned.saturating_add(1);
    let Ok(tombstone) = serde_json::from_str::<Tombstone>(&row.life) else {
        report.add(key, journal.revision, Damage::Unreadable, "a tombstone can't be read");
        return false;
    };
    let head: Option<[u8; 32]> = journal.prev_hash.as_slice().try_into().ok();
    let is_whole = head.is_some_and(|head| {
        entry_hash(key, tombstone.revision, &head, &row.life).as_slice() == journal.hash && head != GENESIS
    });
    let bare = row.intent.as_deref() == Some("") && row.receipt.is_none() && row.result.is_none();
    let holds = is_whole && bare && tombstone.state.is_terminal() && state_code(tombstone.state) == row.state;
    if !holds {
        report.add(key, journal.revision, Damage::Edited, "a tombstone is not what was hashed");
    }
    holds
}

/// Checks one row. Answers whether the entry is what was hashed.
fn check_row(row: &AuditRow, head: Option<&Head>, report: &mut Report) -> bool {
    let (key, revision) = (&row.key, row.journal.revision);
    if is_tombstone(revision, &row.journal.entry) {
        return check_tombstone(row, report);
    }
    let (expected, prev): (u32, Option<&[u8]>) = match head {
        Some(head) => (head.revision.saturating_add(1), head.hash.as_deref()),
        None => (1, Some(&GENESIS)),
    };
    if revision != expected {
        report.add(key, expected, Damage::Missing, "an entry is not there although a later one is");
    }
    let stored_prev: [u8; 32] = row.journal.prev_hash.as_slice().try_into().unwrap_or(GENESIS);
    let holds = entry_hash(key, revision, &stored_prev, &row.journal.entry).as_slice() == row.journal.hash;
    if revision == expected && prev.is_some_and(|prev| row.journal.prev_hash != prev) {
        // Both entries are what somebody hashed: that is how two writers look that went on from one another's
        // lost entries, each on a copy of its own. Otherwise one of them was edited where it stands.
        let detail = if holds && head.is_some_and(|head| head.holds) {
            "two histories, each whole in itself: two writers on two copies, a restored copy, or a tail hashed anew"
        } else {
            "the entry continues another history than the one before it"
        };
        report.add(key, revision, Damage::Forked, detail);
    }
    if !holds {
        report.add(key, revision, Damage::Edited, "the entry is not what was hashed");
        return false;
    }
    match serde_json::from_str::<Covered>(&row.journal.entry) {
        Err(_) => report.add(key, revision, Damage::Unreadable, "the entry can't be read"),
        Ok(covered) => {
            let life: Option<Life> = serde_json::from_str(&row.life).ok();
            let says = life.as_ref().map(|life| (life.revision, state_code(life.state)));
            if !covered.covers(row) {
                report.add(key, revision, Damage::Edited, "a document is not what the entry covers");
            } else if says != Some((revision, row.state)) || covered.revision != revision {
                report.add(key, revision, Damage::Edited, "the row's columns are not what the entry says");
            }
        }
    }
    true
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
            (Some(digest), Some(text)) => Sha256Digest::of(text.as_bytes()).as_str() == digest,
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
    let Some(key) = head.key.as_ref().filter(|_| head.is_open) else { return Ok(()) };
    if open_mark(store, key).await?.is_none() {
        // A server may have gone on since the entry was read. The mark was looked for before the newest
        // revision is: where that is still the same, the mark was missing.
        let newest = store.revisions(std::slice::from_ref(key)).await?;
        if newest.first() == Some(&head.revision) {
            report.add(key, head.revision, Damage::Truncated, "the effect is open and not marked so");
        }
    }
    Ok(())
}

fn step_back(key: &EffectKey) -> EffectKey {
    EffectKey { tenant: key.tenant.clone(), effect: Uuid::from_u128(key.effect.as_u128().saturating_sub(1)) }
}

async fn open_mark(store: &dyn Store, key: &EffectKey) -> Result<Option<u32>, StoreError> {
    // Marks are read strictly after a key: step back by one id.
    let marks = match store.open_marks(Some(step_back(key)), 1).await {
        // Another one's, or told where all marks are looked at.
        Err(StoreError::Corrupt(_)) => return Ok(None),
        found => found?,
    };
    Ok(marks.into_iter().find(|mark| mark.key == *key).map(|mark| mark.revision))
}

/// Every open mark names the newest entry of its effect. An entry is never younger than the mark that
/// names it, and the marks are read first: what they name and is not there was cut off.
async fn check_open(store: &dyn Store, scope: &Scope, report: &mut Report) -> Result<(), StoreError> {
    // Marks are read strictly after a key: one id back, the effect itself is among them.
    let mut after = scope.start().map(|key| step_back(&key));
    loop {
        let mut marks = match store.open_marks(after.take(), PAGE).await {
            Err(StoreError::Corrupt(corruption)) => {
                report.push(Finding {
                    tenant: String::new(),
                    effect: corruption.key,
                    revision: 0,
                    checkpoint: None,
                    column: Some(corruption.column),
                    damage: Damage::Unreadable,
                    detail: "the mark of an open effect can't be decoded; the marks beside it were not compared",
                });
                return Ok(());
            }
            found => found?,
        };
        let read = marks.len();
        let Some(last) = marks.last() else { return Ok(()) };
        after = Some(last.key.clone());
        marks.retain(|mark| scope.has_effect(&mark.key));
        if marks.is_empty() && read > 0 && scope.tenant.is_some() {
            return Ok(());
        }
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
