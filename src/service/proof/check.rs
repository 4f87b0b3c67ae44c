//! Checkpoints against the journals, against one another, and against kept copies.

use std::collections::{HashMap, HashSet};

use uuid::Uuid;

use super::checkpoint::{Checkpoint, NONE, TYP, read_leaf};
use super::merkle;
use super::signer::{PublicKeys, Signed};
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::retention::Tombstone;
use crate::service::journal::{Damage, Finding, Report, Scope};
use crate::store::checkpoints::{CheckpointRow, LEAF_BYTES};
use crate::store::{Store, StoreError};

/// Checkpoints that are read at once: each has at most a thousand leaves.
const PAGE: u32 = 8;
/// Effects that are remembered as told, so that each is told once.
const TOLD: usize = 10_000;

/// Where a tenant's chain is.
#[derive(Default)]
struct Chain {
    tenant: String,
    number: u64,
    digest: Option<String>,
    total: u64,
    told: HashSet<Uuid>,
    /// Pruned effects that a checkpoint names: the first one that does, and whether one names the last entry.
    pruned: HashMap<Uuid, (u64, bool)>,
}

/// Checks all checkpoints of a scope, and looks for the kept copies.
///
/// # Errors
/// The store can't answer.
pub async fn checkpoints(store: &dyn Store, scope: &Scope, report: &mut Report) -> Result<(), StoreError> {
    report.signatures_checked = scope.keys.is_some();
    let mut copies = copies(scope, report);
    let mut chain = Chain::default();
    let mut after = scope.tenant.as_ref().map(|tenant| (tenant.as_str().to_owned(), 0));
    'pages: loop {
        let place = after.as_ref().map(|(tenant, number)| (tenant.as_str(), *number));
        let rows = store.checkpoints(place, PAGE).await?;
        let Some(last) = rows.last() else { break };
        after = Some((last.tenant.clone(), last.number));
        for row in &rows {
            if !scope.has(&row.tenant) {
                break 'pages;
            }
            if chain.tenant != row.tenant {
                check_pruned(&mut chain, report);
                chain = Chain { tenant: row.tenant.clone(), ..Chain::default() };
            }
            report.checkpoints = report.checkpoints.saturating_add(1);
            let copy = copies.remove(&(row.tenant.clone(), row.number));
            let is_whole = check_one(row, &mut chain, scope, copy.as_ref(), report);
            if is_whole {
                check_leaves(store, row, &mut chain, scope, report).await?;
            }
        }
    }
    check_pruned(&mut chain, report);
    let mut lost: Vec<_> = copies.into_iter().collect();
    lost.sort_by(|(one, _), (other, _)| one.cmp(other));
    for ((tenant, number), _) in lost {
        let detail = "a checkpoint that was kept elsewhere is not there";
        told(report, (&tenant, number), Damage::CheckpointMissing, detail);
    }
    Ok(())
}

fn told(report: &mut Report, (tenant, number): (&str, u64), damage: Damage, detail: &'static str) {
    let (tenant, checkpoint) = (tenant.to_owned(), Some(number));
    report.push(Finding { tenant, effect: String::new(), revision: 0, checkpoint, column: None, damage, detail });
}

/// The kept copies by tenant and number; a copy that is none is told.
fn copies(scope: &Scope, report: &mut Report) -> HashMap<(String, u64), String> {
    let mut copies = HashMap::new();
    for signed in &scope.copies {
        report.copies = report.copies.saturating_add(1);
        let read = Checkpoint::read(&signed.compact());
        let is_good = scope.keys.as_ref().is_none_or(|keys| keys.open(TYP, signed).is_ok());
        match read {
            Some((document, digest)) if is_good => {
                if scope.has(&document.tenant) {
                    copies.insert((document.tenant, document.number), digest);
                }
            }
            Some((document, _)) => {
                let detail = "a kept copy is not what was signed";
                told(report, (&document.tenant, document.number), Damage::CheckpointEdited, detail);
            }
            None => told(report, ("", 0), Damage::CheckpointEdited, "a kept copy can't be read"),
        }
    }
    copies
}

/// A checkpoint against its signature, the one before it, its leaves, and a kept copy.
fn check_one(
    row: &CheckpointRow,
    chain: &mut Chain,
    scope: &Scope,
    copy: Option<&String>,
    report: &mut Report,
) -> bool {
    let place = (row.tenant.as_str(), row.number);
    let expected = chain.number.saturating_add(1);
    let gap = row.number != expected;
    if gap {
        told(
            report,
            (&row.tenant, expected),
            Damage::CheckpointMissing,
            "a checkpoint is not there although a later one is",
        );
    }
    chain.number = row.number;
    let before = std::mem::take(&mut chain.digest);
    let mut edited = |detail| {
        told(report, place, Damage::CheckpointEdited, detail);
        false
    };
    let (document, digest) = match signed(&row.jws, scope.keys.as_ref()) {
        Ok(read) => read,
        Err(detail) => return edited(detail),
    };
    chain.digest = Some(digest.clone());
    let previous = before.unwrap_or_else(|| NONE.to_owned());
    let total = std::mem::replace(&mut chain.total, document.total_leaves);
    if copy.is_some_and(|copy| *copy != digest) {
        return edited("a checkpoint is another one than the copy that was kept");
    }
    if document.tenant != row.tenant || document.number != row.number || document.at != row.at || document.format != 1 {
        return edited("a checkpoint's columns are not what it says");
    }
    let leaves: Vec<&[u8]> = row.leaves.chunks(LEAF_BYTES).collect();
    let count = u64::try_from(leaves.len()).unwrap_or(u64::MAX);
    if count != document.leaves || hex::encode(merkle::root(&leaves)) != document.root {
        return edited("a checkpoint's leaves are not those that it covers");
    }
    if !gap && (document.previous != previous || total.saturating_add(count) != document.total_leaves) {
        return edited("a checkpoint continues another one than the one before it");
    }
    true
}

fn signed(jws: &str, keys: Option<&PublicKeys>) -> Result<(Checkpoint, String), &'static str> {
    let unreadable = "a checkpoint can't be read";
    if let Some(keys) = keys {
        keys.open(TYP, &Signed::parse(jws).ok_or(unreadable)?)?;
    }
    Checkpoint::read(jws).ok_or(unreadable)
}

/// Each head that was signed is still in its journal.
async fn check_leaves(
    store: &dyn Store,
    row: &CheckpointRow,
    chain: &mut Chain,
    scope: &Scope,
    report: &mut Report,
) -> Result<(), StoreError> {
    let Ok(tenant) = Tenant::new(&row.tenant) else { return Ok(()) };
    let mut wanted: Vec<(EffectKey, u32)> = Vec::new();
    let mut signed = Vec::new();
    for (effect, revision, hash) in row.leaves.chunks(LEAF_BYTES).filter_map(read_leaf) {
        let key = EffectKey { tenant: tenant.clone(), effect };
        if scope.has_effect(&key) {
            wanted.push((key, revision));
            signed.push(hash);
        }
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let found = store.entry_hashes(&wanted).await?;
    let named = wanted.into_iter().zip(signed).zip(found);
    let others: Vec<_> = named.filter(|((_, hash), found)| found.as_deref() != Some(hash.as_slice())).collect();
    if others.is_empty() {
        return Ok(());
    }
    let keys: Vec<EffectKey> = others.iter().map(|(((key, _), _), _)| key.clone()).collect();
    let mut lost = Vec::new();
    for ((((key, revision), hash), found), buried) in others.into_iter().zip(store.buried(&keys).await?) {
        if let Some(tombstone) = buried.as_ref().and_then(|buried| serde_json::from_str(&buried.text).ok()) {
            let head = buried.map(|buried| buried.head).unwrap_or_default();
            note_pruned(chain, &tombstone, (&key, revision, row.number), head == hash);
        } else if found.is_some() {
            let detail = "the entry is another one than the one that a checkpoint names";
            tell(report, chain, (&key, revision, row.number), Damage::Rewritten, detail);
        } else {
            lost.push((key, revision));
        }
    }
    if lost.is_empty() {
        return Ok(());
    }
    let keys: Vec<EffectKey> = lost.iter().map(|(key, _)| key.clone()).collect();
    for ((key, revision), newest) in lost.into_iter().zip(store.revisions(&keys).await?) {
        let place = (&key, revision, row.number);
        if newest == 0 {
            tell(report, chain, place, Damage::Removed, "every entry of an effect that a checkpoint names is gone");
        } else if newest < revision {
            tell(
                report,
                chain,
                place,
                Damage::Truncated,
                "the newest entries are not there, and a checkpoint names one",
            );
        }
        // A gap before a later entry was found in the journal itself.
    }
    Ok(())
}

/// A checkpoint names an entry of a pruned effect. Only of the last one is the hash kept.
fn note_pruned(chain: &mut Chain, tombstone: &Tombstone, (key, revision, number): (&EffectKey, u32, u64), same: bool) {
    let is_last = revision.checked_add(1) == Some(tombstone.revision);
    let (_, covered) = chain.pruned.entry(key.effect).or_insert((number, false));
    *covered |= is_last && same;
}

/// What is pruned was in a checkpoint before, with its last entry: a tombstone that no checkpoint leads to is none.
fn check_pruned(chain: &mut Chain, report: &mut Report) {
    let mut faults: Vec<_> =
        std::mem::take(&mut chain.pruned).into_iter().filter(|(_, (_, covered))| !covered).collect();
    faults.sort_unstable();
    for (effect, (number, _)) in faults {
        let (tenant, effect) = (chain.tenant.clone(), effect.to_string());
        let detail = "a tombstone continues another entry than the last one that a checkpoint names";
        report.push(Finding {
            tenant,
            effect,
            revision: 1,
            checkpoint: Some(number),
            column: None,
            damage: Damage::Rewritten,
            detail,
        });
    }
}

/// Tells of an effect once: every checkpoint that names it shows the same damage.
fn tell(
    report: &mut Report,
    chain: &mut Chain,
    (key, revision, number): (&EffectKey, u32, u64),
    damage: Damage,
    detail: &'static str,
) {
    if chain.told.len() < TOLD && !chain.told.insert(key.effect) {
        return;
    }
    let (tenant, effect) = (key.tenant.as_str().to_owned(), key.effect.to_string());
    report.push(Finding { tenant, effect, revision, checkpoint: Some(number), column: None, damage, detail });
}
