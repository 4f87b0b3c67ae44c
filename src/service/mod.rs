//! The use cases. HTTP and CLI only translate; the engine only decides and commits.

pub mod effects;
pub mod error;
pub mod journal;
pub mod keys;
pub mod lists;
pub mod mask;
pub mod ports;
pub mod seal;
pub mod tools;
pub mod worker;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use keys::DataKey;

pub use error::ServiceError;

/// The use cases on one engine.
#[derive(Debug)]
pub struct Service {
    engine: Arc<Engine>,
    data_key: DataKey,
    stopping: CancellationToken,
}

impl Service {
    /// The use cases. When `stopping` is cancelled, requests that wait are answered at once.
    #[must_use]
    pub const fn new(engine: Arc<Engine>, data_key: DataKey, stopping: CancellationToken) -> Self {
        Self { engine, data_key, stopping }
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
