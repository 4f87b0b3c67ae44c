//! Why a use case has no answer. One exhaustive match in `http::errors` turns it into a problem.

use std::sync::Arc;

use crate::domain::fault::Fault;
use crate::domain::quota::Bounded;
use crate::domain::record::Record;
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::engine::EngineError;
use crate::engine::batch::LaneError;
use crate::store::{Corruption, StoreError, Unloadable};

/// See the module.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// The domain refused.
    #[error("refused")]
    Refused {
        /// Why.
        refusal: Refusal,
        /// The effect as it is, where there is one.
        record: Option<Arc<Record>>,
    },
    /// What was sent is faulty.
    #[error("invalid request")]
    Invalid(Vec<Fault>),
    /// No operation id, and nothing to derive one from.
    #[error("no operation id")]
    OperationIdRequired,
    /// Nothing there, or nothing of this tenant.
    #[error("not found")]
    NotFound,
    /// The tool can't be changed now.
    #[error("{0}")]
    ToolConflict(&'static str),
    /// What is there stands for something else.
    #[error("{0}")]
    Conflict(&'static str),
    /// The session has effects that are neither settled nor mere proposals.
    #[error("the session has unresolved effects")]
    Unresolved(Vec<(State, u64)>),
    /// The key of the request was used for another request.
    #[error("the key was used for another request")]
    KeyReused,
    /// The tool was changed by somebody else.
    #[error("stale tool revision {found}")]
    StaleTool {
        /// The revision found.
        found: u32,
    },
    /// Aliases are asked for, and no keyring is configured.
    #[error("no alias keyring")]
    NoKeyring,
    /// The receipt source was changed by somebody else.
    #[error("stale source revision {found}")]
    StaleSource {
        /// The revision found.
        found: u32,
    },
    /// The subscription was changed by somebody else.
    #[error("stale subscription revision {found}")]
    StaleSubscription {
        /// The revision found.
        found: u32,
    },
    /// No such receipt source, or a delivery that it did not sign: nobody is told which.
    #[error("no good signature")]
    BadSignature,
    /// The event that a cursor of the feed names is not there any more.
    #[error("the cursor's event is gone")]
    CursorGone,
    /// More than can be kept.
    #[error("too large: {reason}")]
    TooLarge {
        /// What is.
        reason: &'static str,
        /// The bound.
        limit_bytes: usize,
    },
    /// The tenant or the principal has as many effects open as it may.
    #[error("over the quota of open effects")]
    OverQuota {
        /// Whose.
        whose: Bounded,
        /// The bound.
        most: u32,
    },
    /// A queue or a bound is full.
    #[error("capacity: {0}")]
    Capacity(&'static str),
    /// The store can't answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The store failed for a whole batch.
    #[error("{0}")]
    SharedStore(Arc<StoreError>),
    /// A stored row can't be read back.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// Something of ours is wrong.
    #[error("internal: {0}")]
    Internal(&'static str),
}

impl ServiceError {
    /// One fault.
    #[must_use]
    pub fn invalid(pointer: &str, reason: &str) -> Self {
        Self::Invalid(vec![Fault::new(pointer, reason)])
    }
}

impl From<Unloadable> for ServiceError {
    fn from(error: Unloadable) -> Self {
        EngineError::from(error).into()
    }
}

impl From<EngineError> for ServiceError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Refused { refusal: Refusal::Invalid(faults), .. } => Self::Invalid(faults),
            EngineError::Refused { refusal: Refusal::NotFound, .. } => Self::NotFound,
            EngineError::Refused { refusal, record } => Self::Refused { refusal, record },
            EngineError::OverQuota { whose, most } => Self::OverQuota { whose, most },
            EngineError::UnknownTool => Self::invalid("/tool", "is not a registered tool of this tenant"),
            EngineError::Lane(LaneError::Full) => Self::Capacity("too many changes wait for a commit"),
            EngineError::Lane(LaneError::Stopped) => Self::Capacity("the service is stopping"),
            EngineError::Lane(LaneError::Store(error)) => Self::SharedStore(error),
            EngineError::Store(StoreError::Corrupt(corruption)) | EngineError::Corrupt(corruption) => {
                Self::Corrupt(corruption)
            }
            EngineError::Store(error) => Self::Store(error),
            EngineError::Contention => Self::Capacity("the effect is changed by too many at once"),
            EngineError::TooManyWaiters => Self::Capacity("too many requests wait"),
            EngineError::Unsealed => Self::Internal("arguments can't be sealed"),
            EngineError::Encode(_) => Self::Internal("a document can't be serialized"),
        }
    }
}
