//! Checkpoints: signed lists of the heads that moved since the last one, one chain per tenant.
//!
//! Each run looks at the rows that were written since the last run, and at nothing else, so that it costs what
//! has happened and not what there is. It goes in steps of a bounded number of rows; each step is one
//! transaction that also moves the mark, so that of several replicas one makes it and the others go on after it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::merkle;
use super::signer::{Signed, Signer};
use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::Tenant;
use crate::domain::time::Timestamp;
use crate::limits;
use crate::service::Service;
use crate::store::checkpoints::{CheckpointRow, LEAF_BYTES, MovedRow};
use crate::store::{Store, StoreError};

/// The `typ` of a checkpoint.
pub const TYP: &str = "actonce-checkpoint";
/// The `previous` of a first one.
pub const NONE: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

/// What is signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoint {
    /// Which form this is.
    pub format: u32,
    /// The tenant.
    pub tenant: String,
    /// 1 for the tenant's first.
    pub number: u64,
    /// When, by database time.
    pub at: Timestamp,
    /// Digest of the one before.
    pub previous: String,
    /// How many leaves it has.
    pub leaves: u64,
    /// How many all have together, up to this one.
    pub total_leaves: u64,
    /// The root over the leaves, in hex.
    pub root: String,
    /// The newest restore to an earlier point that the database had been through, where there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restore_epoch: Option<u32>,
}

impl Checkpoint {
    /// Reads what was signed, without a look at the signature.
    #[must_use]
    pub fn read(jws: &str) -> Option<(Self, String)> {
        let payload = Signed::parse(jws)?.unchecked_payload()?;
        Some((serde_json::from_slice(&payload).ok()?, digest(&payload)))
    }
}

/// The digest by which the next one names it.
#[must_use]
pub fn digest(payload: &[u8]) -> String {
    Sha256Digest::of(payload).as_str().to_owned()
}

/// A head: effect, revision, hash.
#[must_use]
pub fn leaf(effect: Uuid, revision: u32, hash: &[u8; 32]) -> [u8; LEAF_BYTES] {
    let mut leaf = [0; LEAF_BYTES];
    leaf[..16].copy_from_slice(effect.as_bytes());
    leaf[16..20].copy_from_slice(&revision.to_be_bytes());
    leaf[20..].copy_from_slice(hash);
    leaf
}

/// What a leaf says.
#[must_use]
pub fn read_leaf(leaf: &[u8]) -> Option<(Uuid, u32, [u8; 32])> {
    let (effect, rest) = leaf.split_at_checked(16)?;
    let (revision, hash) = rest.split_at_checked(4)?;
    let revision = u32::from_be_bytes(revision.try_into().ok()?);
    Some((Uuid::from_slice(effect).ok()?, revision, hash.try_into().ok()?))
}

/// What a run came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Made {
    /// Checkpoints made.
    pub checkpoints: u64,
    /// Heads in them.
    pub leaves: u64,
}

/// Writes down every head that moved since the last run.
///
/// # Errors
/// The store can't answer.
pub async fn make(store: &dyn Store, signer: &Signer) -> Result<Made, StoreError> {
    let mut made = Made::default();
    loop {
        let seen = store.checkpoint_mark().await?;
        let moved = store.moved(&seen, limits::CHECKPOINT_ROWS).await?;
        if moved.rows.is_empty() && moved.next == seen {
            return Ok(made);
        }
        let rows = checkpoints(store, signer, &moved.rows).await?;
        if store.write_checkpoints(&seen, &moved.next, &rows).await? {
            let leaves = rows.iter().map(|row| row.leaves.len() / LEAF_BYTES).sum::<usize>();
            made.checkpoints = made.checkpoints.saturating_add(u64::try_from(rows.len()).unwrap_or(0));
            made.leaves = made.leaves.saturating_add(u64::try_from(leaves).unwrap_or(0));
        }
        if moved.is_last {
            return Ok(made);
        }
    }
}

/// One checkpoint for each tenant of these rows.
async fn checkpoints(store: &dyn Store, signer: &Signer, moved: &[MovedRow]) -> Result<Vec<CheckpointRow>, StoreError> {
    let mut heads: BTreeMap<Tenant, BTreeMap<Uuid, (u32, [u8; 32])>> = BTreeMap::new();
    for row in moved {
        // What can't be read has no head; the verification of the journals names it.
        let (Ok(tenant), Ok(hash)) = (Tenant::new(&row.tenant), row.hash.as_slice().try_into()) else { continue };
        let head = heads.entry(tenant).or_default().entry(row.effect).or_insert((row.revision, hash));
        if head.0 < row.revision {
            *head = (row.revision, hash);
        }
    }
    let tenants: Vec<Tenant> = heads.keys().cloned().collect();
    let newest = store.newest_checkpoints(&tenants).await?;
    let at = store.now().await?;
    let restore_epoch = store.restore_epochs().await?.last().map(|epoch| epoch.number);
    let made = heads.iter().zip(newest).map(|((tenant, heads), newest)| {
        let leaves: Vec<[u8; LEAF_BYTES]> =
            heads.iter().map(|(effect, (revision, hash))| leaf(*effect, *revision, hash)).collect();
        let (number, before) = newest.map_or((0, None), |(number, jws)| (number, Checkpoint::read(&jws)));
        let (previous, total) =
            before.map_or_else(|| (NONE.to_owned(), 0), |(before, digest)| (digest, before.total_leaves));
        let count = u64::try_from(leaves.len()).unwrap_or(u64::MAX);
        let document = Checkpoint {
            format: 1,
            tenant: tenant.as_str().to_owned(),
            number: number.saturating_add(1),
            at,
            previous,
            leaves: count,
            total_leaves: total.saturating_add(count),
            root: hex::encode(merkle::root(&leaves.iter().map(<[u8; LEAF_BYTES]>::as_slice).collect::<Vec<_>>())),
            restore_epoch,
        };
        let text = serde_json::to_string(&document).unwrap_or_default();
        let jws = signer.sign(TYP, &text).compact();
        CheckpointRow { tenant: document.tenant, number: document.number, at, jws, leaves: leaves.concat() }
    });
    Ok(made.collect())
}

/// The newest checkpoint of each tenant, or of one.
///
/// # Errors
/// The store can't answer.
pub async fn newest(store: &dyn Store, tenant: Option<&Tenant>) -> Result<Vec<String>, StoreError> {
    if let Some(tenant) = tenant {
        let found = store.newest_checkpoints(std::slice::from_ref(tenant)).await?;
        return Ok(found.into_iter().flatten().map(|(_, jws)| jws).collect());
    }
    let (mut after, mut all): (String, Vec<String>) = (String::new(), Vec::new());
    loop {
        // From each tenant to the next one: behind its last number.
        let next = store.checkpoints(Some((&after, u64::MAX)), 1).await?;
        let Some(tenant) = next.into_iter().next().map(|row| row.tenant) else { return Ok(all) };
        if let Ok(known) = Tenant::new(&tenant) {
            let found = store.newest_checkpoints(&[known]).await?;
            all.extend(found.into_iter().flatten().map(|(_, jws)| jws));
        }
        after = tenant;
    }
}

impl Service {
    /// The key that signs checkpoints and evidence, where there is one.
    #[must_use]
    pub const fn signer(&self) -> Option<&Arc<Signer>> {
        self.proof.signer.as_ref()
    }

    /// Makes checkpoints every so often, until stopped.
    pub async fn run_checkpoints(self: Arc<Self>, stop: CancellationToken) {
        let Some(signer) = self.signer().cloned() else { return };
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(self.proof.every) => {}
            }
            match make(self.engine().store().as_ref(), &signer).await {
                Ok(made) => {
                    metrics::counter!("actonce_checkpoints_total").increment(made.checkpoints);
                    tracing::debug!(checkpoints = made.checkpoints, leaves = made.leaves, "checkpoints were made");
                }
                Err(error) => {
                    metrics::counter!("actonce_checkpoint_failures_total").increment(1);
                    tracing::warn!(%error, "checkpoints could not be made and are tried again");
                }
            }
        }
    }
}

/// How this process shows what was recorded to others.
#[derive(Debug, Clone)]
pub struct Proof {
    /// The key; without it there are no checkpoints and no evidence.
    pub signer: Option<Arc<Signer>>,
    /// How often checkpoints are made.
    pub every: Duration,
}

impl Default for Proof {
    fn default() -> Self {
        Self { signer: None, every: Duration::from_secs(limits::CHECKPOINT_DEFAULT_SECONDS) }
    }
}
