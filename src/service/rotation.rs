//! The change of the data key: everything that is sealed under another key of the ring is sealed under the active one,
//! in small batches, beside whatever else is going on.
//!
//! What is recorded does not change: no journal entry, digest or receipt is made of anything sealed. A run that ends in the
//! middle has sealed anew what it has, and the next one goes on with the rest: what is left is known by its first bytes.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

use super::keys::DataKey;
use super::outbox::secrets::SEAL_DOMAIN as SUBSCRIPTIONS;
use super::seal::{ARGUMENTS, Sealer};
use super::secrets::DOMAIN as TOOL_SECRETS;
use super::sources::SEAL_DOMAIN as SOURCES;
use crate::domain::data_key::key_name;
use crate::limits;
use crate::store::seals::{Resealed, SealedKey, SealedOwner, SealedRow, SealedTable};
use crate::store::{Store, StoreError};

/// Whose rows begin with nothing that is known.
const NO_KEY: &str = "unknown";

/// What is asked for.
#[derive(Debug)]
pub struct Ask {
    /// The ring, for what is sealed.
    pub sealer: Sealer,
    /// The ring, for downstream keys.
    pub data_key: DataKey,
    /// Rows in one transaction.
    pub batch: u32,
    /// Only count.
    pub dry_run: bool,
}

/// One table.
#[derive(Debug, Clone, Serialize)]
pub struct TableKeys {
    /// Which.
    pub table: SealedTable,
    /// Rows by the id of the key that they were found under at the last look.
    pub rows: BTreeMap<String, u64>,
    /// Rows that were sealed anew, or with a dry run: would be.
    pub resealed: u64,
}

/// One key of the ring.
#[derive(Debug, Clone, Serialize)]
pub struct KeyUse {
    /// Its id.
    pub key_id: String,
    /// Whether new things are sealed under it.
    pub active: bool,
    /// Sealed rows.
    pub rows: u64,
    /// Open effects whose downstream key was made under it: what vendors say about them is found by that key.
    pub open_effects: u64,
}

/// What a run came to.
#[derive(Debug, Clone, Serialize)]
pub struct Rotated {
    /// Nothing was written.
    pub dry_run: bool,
    /// Every sealed row is under the active key.
    pub complete: bool,
    /// Rows that were sealed anew, or with a dry run: would be.
    pub resealed: u64,
    /// Each table with sealed content.
    pub tables: Vec<TableKeys>,
    /// Each key of the ring, the active one first.
    pub keys: Vec<KeyUse>,
    /// Rows by the id of a key that is not in the ring. They were left alone.
    pub missing_keys: BTreeMap<String, u64>,
    /// Rows whose key should be in the ring by its id, and that don't open: damaged, or under another key of that id. They
    /// were left alone.
    pub unreadable: u64,
    /// Open effects whose downstream key no key of the ring made.
    pub open_effects_of_no_key: u64,
    /// Keys of the ring that nothing refers to any more.
    pub removable_keys: Vec<String>,
}

/// How far it is.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The table.
    pub table: SealedTable,
    /// Rows of it that were looked at.
    pub looked_at: u64,
    /// Rows of it that were sealed anew.
    pub resealed: u64,
}

/// One look at everything.
#[derive(Debug, Default)]
struct Look {
    rows: Vec<(SealedTable, BTreeMap<String, u64>)>,
    /// Rows that open and are not under the active key, by table.
    to_do: BTreeMap<SealedTable, u64>,
    resealed: BTreeMap<SealedTable, u64>,
    missing: BTreeMap<String, u64>,
    unreadable: u64,
}

/// Seals everything under the active key. Looks again until a look finds nothing to do, a bounded number of times.
///
/// # Errors
/// The store can't answer; the same again goes on.
pub async fn rotate(
    store: &dyn Store,
    ask: &Ask,
    told: &mut (dyn FnMut(Progress) + Send),
) -> Result<Rotated, StoreError> {
    let mut resealed: BTreeMap<SealedTable, u64> = BTreeMap::new();
    let mut looks = 1;
    let last = loop {
        let look = look(store, ask, told).await?;
        for (table, count) in if ask.dry_run { &look.to_do } else { &look.resealed } {
            add(&mut resealed, *table, *count);
        }
        if ask.dry_run || look.to_do.is_empty() || looks >= limits::ROTATE_LOOKS {
            break look;
        }
        looks = looks.saturating_add(1);
    };
    let (open_effects, of_no_key) = open_effects(store, &ask.data_key).await?;
    Ok(report(ask, last, &resealed, &open_effects, of_no_key))
}

fn report(
    ask: &Ask,
    last: Look,
    resealed: &BTreeMap<SealedTable, u64>,
    open_effects: &BTreeMap<u8, u64>,
    open_effects_of_no_key: u64,
) -> Rotated {
    let rows_of = |name: &str| last.rows.iter().filter_map(|(_, rows)| rows.get(name)).sum();
    let keys: Vec<KeyUse> = ask
        .sealer
        .key_ids()
        .enumerate()
        .map(|(place, id)| {
            let key_id = key_name(id);
            let (rows, open_effects) = (rows_of(&key_id), open_effects.get(&id).copied().unwrap_or(0));
            KeyUse { key_id, active: place == 0, rows, open_effects }
        })
        .collect();
    let is_unused = |key: &&KeyUse| !key.active && key.rows == 0 && key.open_effects == 0;
    let removable_keys = keys.iter().filter(is_unused).map(|key| key.key_id.clone()).collect();
    let complete = last.to_do.is_empty() && last.missing.is_empty() && last.unreadable == 0;
    let of_table = |(table, rows): (SealedTable, BTreeMap<String, u64>)| TableKeys {
        table,
        rows,
        resealed: resealed.get(&table).copied().unwrap_or(0),
    };
    Rotated {
        dry_run: ask.dry_run,
        complete,
        resealed: resealed.values().sum(),
        tables: last.rows.into_iter().map(of_table).collect(),
        keys,
        missing_keys: last.missing,
        unreadable: last.unreadable,
        open_effects_of_no_key,
        removable_keys,
    }
}

fn add<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, more: u64) {
    let count = counts.entry(key).or_default();
    *count = count.saturating_add(more);
}

async fn look(store: &dyn Store, ask: &Ask, told: &mut (dyn FnMut(Progress) + Send)) -> Result<Look, StoreError> {
    let mut look = Look::default();
    for table in SealedTable::ALL {
        let rows = look_at_table(store, ask, table, &mut look, told).await?;
        look.rows.push((table, rows));
    }
    Ok(look)
}

async fn look_at_table(
    store: &dyn Store,
    ask: &Ask,
    table: SealedTable,
    look: &mut Look,
    told: &mut (dyn FnMut(Progress) + Send),
) -> Result<BTreeMap<String, u64>, StoreError> {
    let mut found: BTreeMap<String, u64> = BTreeMap::new();
    let mut after = SealedKey::before_all(table);
    let mut looked_at: u64 = 0;
    loop {
        let page = store.sealed(table, &after, ask.sealer.head(), ask.batch).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = last.key.clone();
        looked_at = looked_at.saturating_add(u64::try_from(page.len()).unwrap_or(u64::MAX));
        let mut fresh = Vec::new();
        for row in page {
            let name = key_of(table, &row.start).map_or_else(|| NO_KEY.to_owned(), key_name);
            add(&mut found, name.clone(), 1);
            match judge(&ask.sealer, table, row) {
                Judged::Active => {}
                Judged::Missing => add(&mut look.missing, name, 1),
                Judged::Unreadable => look.unreadable = look.unreadable.saturating_add(1),
                Judged::Fresh(row) => fresh.push(row),
            }
        }
        if !fresh.is_empty() {
            add(&mut look.to_do, table, u64::try_from(fresh.len()).unwrap_or(u64::MAX));
            if !ask.dry_run {
                add(&mut look.resealed, table, store.reseal(table, &fresh).await?);
            }
        }
        told(Progress { table, looked_at, resealed: look.resealed.get(&table).copied().unwrap_or(0) });
    }
}

/// The id of the key that a row was sealed under, by how it begins where it is kept.
#[must_use]
pub fn key_of(table: SealedTable, start: &[u8]) -> Option<u8> {
    if !table.is_text() {
        return Sealer::key_id_of(start);
    }
    // Three digits are two bytes and a bit: with a fourth they are three.
    let digits = [start.get(..3)?, b"A"].concat();
    Sealer::key_id_of(&STANDARD.decode(digits).ok()?)
}

/// What is to be done about a row.
enum Judged {
    Active,
    /// Its key is not in the ring.
    Missing,
    /// Its key should be, and it does not open.
    Unreadable,
    Fresh(Resealed),
}

fn judge(sealer: &Sealer, table: SealedTable, row: SealedRow) -> Judged {
    let Some(id) = key_of(table, &row.start) else { return Judged::Missing };
    if sealer.key_ids().next() == Some(id) {
        return Judged::Active;
    }
    if !sealer.key_ids().any(|known| known == id) {
        return Judged::Missing;
    }
    match resealed(sealer, table, row) {
        Some(row) => Judged::Fresh(row),
        None => Judged::Unreadable,
    }
}

/// Opens a row and seals it anew, for the same purpose and the same place.
fn resealed(sealer: &Sealer, table: SealedTable, row: SealedRow) -> Option<Resealed> {
    let seen = row.content?;
    let owner = match (&row.key.owner, row.source) {
        (SealedOwner::Name(_), Some(source)) => source.to_string(),
        (SealedOwner::Name(name), None) => name.clone(),
        (SealedOwner::Id(id), _) => id.to_string(),
    };
    let domain = match table {
        SealedTable::ToolSecrets => TOOL_SECRETS,
        SealedTable::RetainedArguments => ARGUMENTS,
        SealedTable::ReceiptSources => SOURCES,
        SealedTable::Subscriptions => SUBSCRIPTIONS,
    };
    let place = [row.key.tenant.as_str(), owner.as_str()];
    let sealed = if table.is_text() { STANDARD.decode(&seen).ok()? } else { seen.clone() };
    let fresh = sealer.seal(domain, &place, &sealer.open(domain, &place, &sealed).ok()?).ok()?;
    // Nobody can read it any more if this were not so.
    sealer.open(domain, &place, &fresh).ok()?;
    let fresh = if table.is_text() { STANDARD.encode(fresh).into_bytes() } else { fresh };
    Some(Resealed { key: row.key, seen, fresh })
}

/// Open effects by the key of the ring that made their downstream keys, and those that none made.
async fn open_effects(store: &dyn Store, data_key: &DataKey) -> Result<(BTreeMap<u8, u64>, u64), StoreError> {
    let (mut made, mut of_no_key) = (BTreeMap::new(), 0_u64);
    let mut after = None;
    loop {
        let page = store.open_marks(after, limits::ROTATE_PAGE).await?;
        let Some(last) = page.last() else { return Ok((made, of_no_key)) };
        after = Some(last.key.clone());
        let keys: Vec<_> = page.iter().map(|mark| mark.key.clone()).collect();
        // What can't be read back is named by the verification of the journals.
        for record in store.load(&keys).await?.into_iter().filter_map(|loaded| loaded.ok().flatten()) {
            let intent = &record.intent;
            match data_key.maker_of(&record.key.tenant, &intent.operation_id, &intent.idempotency_key) {
                Some(id) => add(&mut made, id, 1),
                None => of_no_key = of_no_key.saturating_add(1),
            }
        }
    }
}
