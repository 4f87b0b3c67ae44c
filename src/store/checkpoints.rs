//! Signed checkpoints: which rows of the journals moved, and what was signed about them.

use async_trait::async_trait;
use uuid::Uuid;

use super::Result;
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::time::Timestamp;

/// Bytes of one leaf: effect, revision (big endian), hash.
pub const LEAF_BYTES: usize = 52;

/// How far the checkpoints of a deployment are. SQLite goes through the rows as they were written, and `moved` is
/// the last one that was seen. Postgres goes tenant by tenant through what was written in a span, as there is no
/// other order in which rows are found and none is left out: between two looks `moved` is where the next one begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// The store's number of when it was written.
    pub moved: i64,
    /// Its tenant.
    pub tenant: String,
    /// Its effect.
    pub effect: Uuid,
    /// Its revision.
    pub revision: u32,
    /// While a look is under way: where it began. Below zero it is a look at everything.
    pub low: Option<i64>,
    /// While a look is under way: where the next one begins.
    pub again_to: Option<i64>,
}

impl Mark {
    /// Before every row.
    #[must_use]
    pub const fn start() -> Self {
        Self { moved: 0, tenant: String::new(), effect: Uuid::nil(), revision: 0, low: None, again_to: None }
    }
}

/// A row that was written since a mark. Nothing here can fail to be read.
#[derive(Debug, Clone)]
pub struct MovedRow {
    /// The tenant, as stored.
    pub tenant: String,
    /// The effect.
    pub effect: Uuid,
    /// The revision.
    pub revision: u32,
    /// The hash, as stored.
    pub hash: Vec<u8>,
}

/// Rows that were written since a mark.
#[derive(Debug)]
pub struct Moved {
    /// The rows.
    pub rows: Vec<MovedRow>,
    /// Where the next look starts.
    pub next: Mark,
    /// Whether there was no more.
    pub is_last: bool,
}

/// One checkpoint, as stored.
#[derive(Debug, Clone)]
pub struct CheckpointRow {
    /// The tenant, as stored.
    pub tenant: String,
    /// Its number: 1 for the tenant's first.
    pub number: u64,
    /// When it was made, by database time.
    pub at: Timestamp,
    /// What was signed.
    pub jws: String,
    /// The leaves, [`LEAF_BYTES`] each, in order of effect.
    pub leaves: Vec<u8>,
}

/// Reads and writes of checkpoints.
#[async_trait]
pub trait CheckpointStore {
    /// How far the checkpoints are.
    async fn checkpoint_mark(&self) -> Result<Mark>;

    /// Rows written since a mark. No row is left out for ever, however late its commit. Where
    /// the store's numbers were given anew (a restore, a rebuilt file) it begins again with all of them.
    async fn moved(&self, after: &Mark, limit: u32) -> Result<Moved>;

    /// The newest checkpoint of each tenant, without leaves.
    async fn newest_checkpoints(&self, tenants: &[Tenant]) -> Result<Vec<Option<(u64, String)>>>;

    /// Writes checkpoints and moves the mark, in one transaction. `false`, and nothing written, where the mark is
    /// not the one that was seen any more.
    async fn write_checkpoints(&self, seen: &Mark, next: &Mark, rows: &[CheckpointRow]) -> Result<bool>;

    /// Checkpoints by tenant and number, strictly after a place.
    async fn checkpoints(&self, after: Option<(&str, u64)>, limit: u32) -> Result<Vec<CheckpointRow>>;

    /// The first checkpoint of a tenant that was made at a time or later and has this leaf; a bounded look.
    async fn checkpoint_of(&self, tenant: &Tenant, from: Timestamp, leaf: &[u8]) -> Result<Option<CheckpointRow>>;

    /// The hash stored at each revision.
    async fn entry_hashes(&self, wanted: &[(EffectKey, u32)]) -> Result<Vec<Option<Vec<u8>>>>;
}
