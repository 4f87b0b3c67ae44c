//! The use cases. HTTP and CLI only translate; the engine only decides and commits.

pub mod effects;
pub mod error;
pub mod inbound;
pub mod journal;
pub mod keys;
pub mod lists;
pub mod mask;
pub mod ports;
pub mod seal;
pub mod sources;
pub mod tools;
pub mod worker;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::engine::Engine;
use inbound::{Inbound, NamedSecrets};
use keys::DataKey;
use seal::Sealer;

pub use error::ServiceError;

/// The use cases on one engine.
#[derive(Debug)]
pub struct Service {
    engine: Arc<Engine>,
    data_key: DataKey,
    stopping: CancellationToken,
    inbound: Inbound,
}

impl Service {
    /// The use cases. When `stopping` is cancelled, requests that wait are answered at once.
    #[must_use]
    pub fn new(engine: Arc<Engine>, data_key: DataKey, stopping: CancellationToken) -> Self {
        let inbound =
            Inbound { sealer: Sealer::new(data_key.clone()), named: Arc::default(), wake: tokio::sync::Notify::new() };
        Self { engine, data_key, stopping, inbound }
    }

    /// The same with secrets of the configuration, which registrations may name.
    #[must_use]
    pub fn with_secrets(mut self, secrets: NamedSecrets) -> Self {
        self.inbound.named = Arc::new(secrets);
        self
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
