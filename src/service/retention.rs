//! Pruning settled effects after their tenant's window, in small batches, beside whatever else is going on.

use serde::Serialize;
use uuid::Uuid;

use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::journal::entry_hash;
use crate::domain::record::Record;
use crate::domain::retention::{DAY_SECONDS, Retention, Tombstone};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::retention::{Grave, Old};
use crate::store::{Position, Store, StoreError};

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Ask {
    /// One tenant alone.
    pub tenant: Option<Tenant>,
    /// Days; never fewer than what is promised.
    pub older_than_days: Option<u32>,
    /// What is promised.
    pub promised: Retention,
    /// Effects in one transaction.
    pub batch: u32,
    /// Effects pruned in all.
    pub limit: u64,
    /// Only count.
    pub dry_run: bool,
}

/// What was done for one tenant.
#[derive(Debug, Clone, Serialize)]
pub struct TenantPruned {
    /// The tenant.
    pub tenant: Tenant,
    /// Days that were kept at least.
    pub days: u32,
    /// Effects that were looked at: created before that.
    pub examined: u64,
    /// Pruned, or with a dry run: would be.
    pub pruned: u64,
    /// Left whole: open, changed later, of a run or session that still takes intents, not yet in a checkpoint, or
    /// not readable.
    pub kept: u64,
}

/// What a run came to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Pruned {
    /// Nothing was written.
    pub dry_run: bool,
    /// Of all tenants.
    pub examined: u64,
    /// Of all tenants.
    pub pruned: u64,
    /// Of all tenants.
    pub kept: u64,
    /// Tenants whose effects are kept for ever.
    pub unlimited_tenants: u64,
    /// The limit was reached, and there is more.
    pub more: bool,
    /// Each tenant with something old, the first 1,000.
    pub tenants: Vec<TenantPruned>,
}

/// Prunes. Every transaction stands for itself: a run that was killed has pruned what it has pruned.
///
/// # Errors
/// The store can't answer; the same again goes on.
pub async fn prune(store: &dyn Store, ask: &Ask) -> Result<Pruned, StoreError> {
    let mut all = Pruned { dry_run: ask.dry_run, ..Pruned::default() };
    let mut after = String::new();
    loop {
        let name = match &ask.tenant {
            Some(only) if after.is_empty() => Some(only.as_str().to_owned()),
            Some(_) => None,
            None => store.next_tenant(&after).await?,
        };
        let Some(name) = name else { return Ok(all) };
        after.clone_from(&name);
        let Ok(tenant) = Tenant::new(&name) else { continue };
        let Some(days) = ask.promised.days(&tenant, ask.older_than_days) else {
            all.unlimited_tenants = all.unlimited_tenants.saturating_add(1);
            continue;
        };
        let of_tenant = prune_tenant(store, ask, tenant, days, &mut all).await?;
        all.examined = all.examined.saturating_add(of_tenant.examined);
        all.kept = all.kept.saturating_add(of_tenant.kept);
        if of_tenant.examined > 0 && all.tenants.len() < limits::PRUNE_TENANTS_LISTED {
            all.tenants.push(of_tenant);
        }
        if all.more {
            return Ok(all);
        }
    }
}

async fn prune_tenant(
    store: &dyn Store,
    ask: &Ask,
    tenant: Tenant,
    days: u32,
    all: &mut Pruned,
) -> Result<TenantPruned, StoreError> {
    let now = store.now().await?;
    let window = i64::from(days).saturating_mul(i64::from(DAY_SECONDS)).saturating_mul(1_000_000);
    let before = now.plus_micros(window.saturating_neg());
    let mut done = TenantPruned { tenant, days, examined: 0, pruned: 0, kept: 0 };
    let mut after = Position { created_at: Timestamp::from_micros(0), effect: Uuid::nil() };
    loop {
        let room = ask.limit.saturating_sub(all.pruned);
        let batch = ask.batch.min(u32::try_from(room).unwrap_or(u32::MAX));
        let old = store.old_effects(&done.tenant, after, before, batch.max(1)).await?;
        let Some(last) = old.last() else { return Ok(done) };
        if room == 0 {
            all.more = true;
            return Ok(done);
        }
        after = last.position;
        let graves = graves(store, &done.tenant, &old, before, now).await?;
        let pruned = if ask.dry_run { graves.len() } else { bury(store, &graves).await? };
        let (examined, pruned) = (count(old.len()), count(pruned));
        done.examined = done.examined.saturating_add(examined);
        done.pruned = done.pruned.saturating_add(pruned);
        done.kept = done.kept.saturating_add(examined.saturating_sub(pruned));
        all.pruned = all.pruned.saturating_add(pruned);
    }
}

async fn bury(store: &dyn Store, graves: &[Grave]) -> Result<usize, StoreError> {
    if graves.is_empty() { Ok(0) } else { Ok(store.prune(graves).await?.len()) }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// What of a page may be pruned, by what is recorded.
async fn graves(
    store: &dyn Store,
    tenant: &Tenant,
    old: &[Old],
    before: Timestamp,
    now: Timestamp,
) -> Result<Vec<Grave>, StoreError> {
    let key = |old: &Old| EffectKey { tenant: tenant.clone(), effect: old.position.effect };
    let keys: Vec<EffectKey> = old.iter().filter(|old| !old.stays).map(key).collect();
    // What can't be read back stays, and is named by the verification of the journals.
    let records = store.load(&keys).await?.into_iter().filter_map(|loaded| loaded.ok().flatten());
    Ok(records.filter_map(|record| grave(&record, before, now)).collect())
}

fn grave(record: &Record, before: Timestamp, now: Timestamp) -> Option<Grave> {
    let tombstone = Tombstone::of(record, before, now)?;
    let text = serde_json::to_string(&tombstone).ok()?;
    let hash = entry_hash(&record.key, tombstone.revision, &record.head, &text);
    Some(Grave { key: record.key.clone(), head: record.head, state: tombstone.state, text, hash })
}
