//! Who listens. One reader per tenant and process, its bytes shared by all.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use bytes::Bytes;
use tokio::sync::{Notify, broadcast};

use super::place::Place;
use crate::domain::events::Published;
use crate::domain::ids::Tenant;
use crate::limits;
use crate::service::{Service, ServiceError};

/// An event with its place.
#[derive(Debug)]
pub struct Placed {
    /// Where.
    pub place: Place,
    /// What.
    pub event: Published,
    /// As a stream says it.
    pub frame: Bytes,
}

/// What a reader found at once.
#[derive(Debug)]
pub struct Batch {
    /// Behind this place nothing is left out.
    pub after: Place,
    /// Up to this one.
    pub end: Place,
    /// The events.
    pub events: Vec<Placed>,
    /// All frames in one piece.
    pub frames: Bytes,
}

/// What a listener hears.
#[derive(Debug, Clone)]
pub enum Told {
    /// More events.
    Batch(Arc<Batch>),
    /// It was too slow, and something is lost to it.
    Missed,
    /// The reader is gone.
    Ended,
}

/// The reader of one tenant, as listeners see it.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) sender: broadcast::Sender<Arc<Batch>>,
    pub(super) bell: Arc<Notify>,
    pub(super) listeners: AtomicUsize,
    /// The number that the reader has come to.
    pub(super) number: AtomicI64,
}

/// All readers of this process.
#[derive(Debug, Default)]
pub struct Hub {
    pub(super) channels: Mutex<HashMap<Tenant, Arc<Channel>>>,
    listeners: AtomicUsize,
    /// Most listeners, where it is not the usual bound.
    most: OnceLock<usize>,
    pub(super) begun: Notify,
}

impl Hub {
    pub(super) fn lock(&self) -> MutexGuard<'_, HashMap<Tenant, Arc<Channel>>> {
        self.channels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many listen.
    #[must_use]
    pub fn listeners(&self) -> usize {
        self.listeners.load(Ordering::Acquire)
    }
}

/// One who listens.
#[derive(Debug)]
pub struct Listener {
    service: Arc<Service>,
    channel: Arc<Channel>,
    receiver: broadcast::Receiver<Arc<Batch>>,
}

impl Listener {
    /// What comes next.
    pub async fn next(&mut self) -> Told {
        match self.receiver.recv().await {
            Ok(batch) => Told::Batch(batch),
            Err(broadcast::error::RecvError::Lagged(_)) => Told::Missed,
            Err(broadcast::error::RecvError::Closed) => Told::Ended,
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.service.events.hub.listeners.fetch_sub(1, Ordering::AcqRel);
        if self.channel.listeners.fetch_sub(1, Ordering::AcqRel) == 1 {
            // The reader finds that nobody is left.
            self.channel.bell.notify_one();
        }
    }
}

impl Service {
    /// How many listen to events in this process.
    #[must_use]
    pub fn event_listeners(&self) -> usize {
        self.events.hub.listeners()
    }

    /// Lets fewer listen in this process than it may have; the first bound said stays.
    pub fn bound_event_listeners(&self, most: usize) {
        self.events.hub.most.get_or_init(|| most.min(limits::EVENT_LISTENERS));
    }

    /// Listens to a tenant's feed; the first one brings its reader with it.
    ///
    /// # Errors
    /// So many listen already that this one would be too many.
    pub fn listen_to_events(self: &Arc<Self>, tenant: &Tenant) -> Result<Listener, ServiceError> {
        let hub = &self.events.hub;
        let mut channels = hub.lock();
        if hub.listeners() >= hub.most.get().copied().unwrap_or(limits::EVENT_LISTENERS) {
            return Err(ServiceError::Capacity("too many listen to events here"));
        }
        let found = channels.get(tenant).cloned();
        if found.as_ref().is_some_and(|c| c.listeners.load(Ordering::Acquire) >= limits::EVENT_LISTENERS_PER_TENANT) {
            return Err(ServiceError::Capacity("too many of this tenant listen to events here"));
        }
        let is_new = found.is_none();
        let channel = found.unwrap_or_else(|| {
            Arc::new(Channel {
                sender: broadcast::channel(limits::EVENT_BATCHES).0,
                bell: Arc::default(),
                listeners: AtomicUsize::new(0),
                number: AtomicI64::new(i64::MAX),
            })
        });
        hub.listeners.fetch_add(1, Ordering::AcqRel);
        channel.listeners.fetch_add(1, Ordering::AcqRel);
        let receiver = channel.sender.subscribe();
        if is_new {
            channels.insert(tenant.clone(), Arc::clone(&channel));
            self.engine().bells().hang(tenant, &channel.bell);
            self.tasks.spawn(Arc::clone(self).run_reader(tenant.clone(), Arc::clone(&channel)));
            hub.begun.notify_one();
        }
        drop(channels);
        Ok(Listener { service: Arc::clone(self), channel, receiver })
    }
}
