//! The use cases. HTTP and CLI only translate; the engine only decides and commits.

pub mod aliases;
pub mod approvals;
mod asking;
pub mod bulk;
pub mod bypass;
mod doubts;
pub mod dry_run;
pub mod effects;
pub mod error;
pub mod events;
pub mod evidence;
mod gauges;
pub mod grants;
pub mod inbound;
pub mod journal;
pub mod keys;
pub mod lists;
pub mod mask;
pub mod outbox;
pub mod places;
pub mod ports;
pub mod profiles;
pub mod proof;
pub mod queue;
pub mod queue_item;
mod quotas;
pub mod reconciliation;
mod reconciliation_history;
pub mod recovery;
pub mod redact;
pub mod restore;
pub mod retention;
pub mod rotation;
pub mod seal;
pub mod secrets;
pub mod sources;
pub mod tools;
pub mod worker;

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::domain::ids::Name;
use crate::engine::Engine;
use aliases::Keyring;
use asking::Asks;
use gauges::Gauges;
use keys::DataKey;
use ports::Adapters;

use inbound::Inbound;
use seal::Sealer;
use secrets::ToolSecrets;

pub use error::ServiceError;

/// The use cases on one engine.
#[derive(Debug)]
pub struct Service {
    engine: Arc<Engine>,
    data_key: DataKey,
    keyring: Option<Keyring>,
    adapters: Arc<dyn Adapters>,
    secrets: Arc<ToolSecrets>,
    asks: Asks,
    principal: Name,
    tasks: TaskTracker,
    stopping: CancellationToken,
    startup: recovery::startup::Board,
    sealer: Arc<Sealer>,
    inbound: Inbound,
    events: events::Events,
    outbox: outbox::Outbox,
    proof: proof::checkpoint::Proof,
    bypass: bypass::Reports,
    /// Doubts are to be woken.
    doubt_wake: tokio::sync::Notify,
    gauges: Gauges,
}

/// What the use cases are made with.
#[derive(Debug)]
pub struct Parts {
    /// Decides and commits.
    pub engine: Arc<Engine>,
    /// Downstream keys and cursors.
    pub data_key: DataKey,
    /// Aliases, if there are any.
    pub keyring: Option<Keyring>,
    /// Asks adapters.
    pub adapters: Arc<dyn Adapters>,
    /// Secrets of tools.
    pub secrets: Arc<ToolSecrets>,
    /// Seals what must not be read in the database.
    pub sealer: Arc<Sealer>,
    /// The name under which the service itself acts.
    pub principal: Name,
    /// Keeps what goes on after an answer.
    pub tasks: TaskTracker,
    /// When it is cancelled, requests that wait are answered at once.
    pub stopping: CancellationToken,
    /// Checkpoints and evidence.
    pub proof: proof::checkpoint::Proof,
}

impl Service {
    /// The use cases.
    #[must_use]
    pub fn new(parts: Parts) -> Self {
        let Parts { engine, data_key, keyring, adapters, secrets, sealer, principal, tasks, stopping, proof } = parts;
        engine.seal_with(Arc::<Sealer>::clone(&sealer));
        Self {
            engine,
            data_key,
            keyring,
            adapters,
            secrets,
            asks: Asks::default(),
            startup: recovery::startup::Board::default(),
            inbound: Inbound::default(),
            events: events::Events::default(),
            outbox: outbox::Outbox::default(),
            doubt_wake: tokio::sync::Notify::new(),
            gauges: Gauges::default(),
            sealer,
            principal,
            tasks,
            stopping,
            proof,
            bypass: bypass::Reports::default(),
        }
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }
}
