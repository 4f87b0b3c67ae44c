//! Why there is no answer.

use std::sync::Arc;

use super::batch::LaneError;
use crate::domain::quota::Bounded;
use crate::domain::record::Record;
use crate::domain::refusal::Refusal;
use crate::store::{Corruption, StoreError, Unloadable};

/// Why the engine has no answer.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The domain refused.
    #[error("refused: {refusal:?}")]
    Refused {
        /// Why.
        refusal: Refusal,
        /// The effect as it is, where there is one.
        record: Option<Arc<Record>>,
    },
    /// The tenant or the principal has as many effects open as it may; nothing but a new one is refused for that.
    #[error("over the quota of open effects")]
    OverQuota {
        /// Whose.
        whose: Bounded,
        /// The bound.
        most: u32,
    },
    /// The tool is not registered, and the tenant may not use others.
    #[error("the tool is not registered")]
    UnknownTool,
    /// The store or a queue failed.
    #[error(transparent)]
    Lane(#[from] LaneError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A stored row can't be read back.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// The effect changed under every try.
    #[error("the effect changes too fast")]
    Contention,
    /// Too many wait already.
    #[error("too many requests wait")]
    TooManyWaiters,
    /// Arguments have to be retained and can't be sealed.
    #[error("the arguments can't be sealed")]
    Unsealed,
    /// A document of ours can't be written as JSON.
    #[error("serialization failed")]
    Encode(#[from] serde_json::Error),
}

impl From<Refusal> for EngineError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused { refusal, record: None }
    }
}

impl From<Unloadable> for EngineError {
    fn from(error: Unloadable) -> Self {
        match error {
            Unloadable::Corrupt(corruption) => Self::Corrupt(corruption),
            Unloadable::Pruned(tombstone) => Refusal::Pruned(tombstone).into(),
        }
    }
}
