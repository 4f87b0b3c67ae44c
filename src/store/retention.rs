//! Pruning: which effects may be, and one row in place of all of them.

use async_trait::async_trait;
use uuid::Uuid;

use super::{Corruption, Position, Result};
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::retention::Tombstone;
use crate::domain::state::State;
use crate::domain::time::Timestamp;

/// Why a record can't be loaded.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Unloadable {
    /// Its rows can't be read back.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// It was pruned; this stays of it.
    #[error("the effect was pruned")]
    Pruned(Box<Tombstone>),
}

impl Unloadable {
    /// What can't be read back, where that is it.
    #[must_use]
    pub fn corruption(self) -> Option<Corruption> {
        match self {
            Self::Corrupt(corruption) => Some(corruption),
            Self::Pruned(_) => None,
        }
    }
}

/// A settled effect that is old enough to be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Old {
    /// Its place.
    pub position: Position,
    /// Whether it has to stay whatever it says: it is open, or its run or session still takes intents.
    pub stays: bool,
}

/// One effect that is pruned.
#[derive(Debug, Clone)]
pub struct Grave {
    /// The effect.
    pub key: EffectKey,
    /// The hash of its newest entry: what the pruning rests on.
    pub head: [u8; 32],
    /// What it had come to.
    pub state: State,
    /// The tombstone's bytes.
    pub text: String,
    /// Their hash, behind the head.
    pub hash: [u8; 32],
}

/// A tombstone as stored.
#[derive(Debug, Clone)]
pub struct Buried {
    /// Its bytes.
    pub text: String,
    /// The hash of the last entry before it.
    pub head: Vec<u8>,
    /// Its own hash.
    pub hash: Vec<u8>,
}

/// What a row of the journal holds where it stands for a pruned effect: no entry. The tombstone is in place of the
/// record's life.
#[must_use]
pub fn is_tombstone(revision: u32, entry: &str) -> bool {
    revision == 1 && entry.is_empty()
}

/// The store's part of it.
#[async_trait]
pub trait RetentionStore {
    /// The tenant after one, in order of names.
    async fn next_tenant(&self, after: &str) -> Result<Option<String>>;

    /// Effects created before a time, oldest first, strictly after a place; pruned ones are none.
    async fn old_effects(&self, tenant: &Tenant, after: Position, before: Timestamp, limit: u32) -> Result<Vec<Old>>;

    /// Prunes effects of different keys, all in one transaction and each by itself; the ones that were. An effect is
    /// left alone where its newest entry is another one, it is open, or a deployment with checkpoints has not yet
    /// covered that entry.
    async fn prune(&self, graves: &[Grave]) -> Result<Vec<Uuid>>;

    /// The tombstones of effects, where they were pruned.
    async fn buried(&self, keys: &[EffectKey]) -> Result<Vec<Option<Buried>>>;
}
