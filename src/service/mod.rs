//! The use cases. HTTP and CLI only translate; the engine only decides and commits.

pub mod approvals;
pub mod effects;
pub mod error;
pub mod grants;
pub mod journal;
pub mod keys;
pub mod lists;
pub mod mask;
pub mod ports;
pub mod profiles;
pub mod seal;
pub mod tools;
pub mod worker;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use keys::DataKey;
use seal::Sealer;

pub use error::ServiceError;

/// The use cases on one engine.
#[derive(Debug)]
pub struct Service {
    engine: Arc<Engine>,
    data_key: DataKey,
    sealer: Sealer,
    stopping: CancellationToken,
}

impl Service {
    /// The use cases. When `stopping` is cancelled, requests that wait are answered at once.
    #[must_use]
    pub fn new(engine: Arc<Engine>, data_key: DataKey, stopping: CancellationToken) -> Self {
        let sealer = Sealer::new(data_key.clone());
        engine.seal_with(Arc::new(sealer.clone()));
        Self { engine, data_key, sealer, stopping }
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
