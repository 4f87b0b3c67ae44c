//! Streams of events (server-sent events): a task that follows the feed, and a short queue to its
//! client. A client that does not take what is there is cut, never waited for.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::hub::{Batch, Listener, Told};
use super::place::Place;
use crate::auth::Principal;
use crate::domain::events::{EventFilter, Published};
use crate::domain::ids::Tenant;
use crate::limits;
use crate::service::{Service, ServiceError};

/// How often a stream says something, if only that it is there.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client may leave its queue full.
const PATIENCE: Duration = Duration::from_secs(10);
/// Pieces that wait for a client.
const QUEUE: usize = 8;

/// An event as a stream says it.
pub(super) fn frame(to: &mut BytesMut, cursor: &str, event: &Published) {
    let name = serde_json::to_string(&event.kind).unwrap_or_default();
    for part in ["id: ", cursor, "\nevent: ", name.trim_matches('"'), "\ndata: ", &event.json, "\n\n"] {
        to.put_slice(part.as_bytes());
    }
}

struct Stream {
    service: Arc<Service>,
    tenant: Tenant,
    filter: EventFilter,
    place: Place,
    sink: mpsc::Sender<Bytes>,
    /// When it said something last. What is passed by (others' events, events that are not wanted) is silence.
    said: Instant,
}

/// Why a stream ends.
enum End {
    /// The client is gone, its time is over, or the service stops.
    Over,
    /// It was too slow.
    Slow,
    /// Something failed.
    Failed,
}

impl Service {
    /// A stream of all events after a place, in pieces.
    ///
    /// # Errors
    /// Too many listen, or the place is gone.
    pub async fn event_stream(
        self: &Arc<Self>,
        caller: &Principal,
        place: Place,
        filter: EventFilter,
    ) -> Result<mpsc::Receiver<Bytes>, ServiceError> {
        let listener = self.listen_to_events(&caller.tenant)?;
        // A place that is gone is told as a problem, and not in the middle of a stream.
        self.read_feed(&caller.tenant, &place, 1).await?;
        let (sink, pieces) = mpsc::channel(QUEUE);
        let stream = Stream {
            service: Arc::clone(self),
            tenant: caller.tenant.clone(),
            filter,
            place,
            sink,
            said: Instant::now(),
        };
        self.tasks.spawn(stream.run(listener));
        Ok(pieces)
    }
}

impl Stream {
    async fn run(mut self, listener: Listener) {
        let word = match self.follow(listener).await {
            End::Over => "over",
            End::Slow => "slow",
            End::Failed => "failed",
        };
        metrics::counter!("actonce_event_streams_ended_total", "reason" => word).increment(1);
    }

    async fn send(&mut self, piece: Bytes) -> Result<(), End> {
        if piece.is_empty() {
            return Ok(());
        }
        match self.sink.send_timeout(piece, PATIENCE).await {
            Ok(()) => {
                self.said = Instant::now();
                Ok(())
            }
            Err(mpsc::error::SendTimeoutError::Timeout(_)) => Err(End::Slow),
            Err(mpsc::error::SendTimeoutError::Closed(_)) => Err(End::Over),
        }
    }

    async fn follow(&mut self, mut listener: Listener) -> End {
        let until = Instant::now() + Duration::from_secs(limits::EVENT_STREAM_SECONDS);
        if let Err(end) = self.send(Bytes::from_static(b": events\nretry: 1000\n\n")).await {
            return end;
        }
        if let Err(end) = self.catch_up().await {
            return end;
        }
        loop {
            let heartbeat = tokio::time::sleep_until(self.said + HEARTBEAT);
            let told = tokio::select! {
                told = listener.next() => told,
                () = heartbeat => {
                    // With the place: a client whose filter lets nothing pass comes back to here.
                    let Ok(cursor) = self.service.event_cursor(&self.tenant, &self.place) else { return End::Failed };
                    if let Err(end) = self.send(Bytes::from(format!(": heartbeat\nid: {cursor}\n\n"))).await {
                        return end;
                    }
                    continue;
                }
                () = tokio::time::sleep_until(until) => return End::Over,
                () = self.service.stopping.cancelled() => return End::Over,
                () = self.sink.closed() => return End::Over,
            };
            let done = match told {
                Told::Batch(batch) if batch.after <= self.place => self.pass_on(&batch).await,
                Told::Batch(_) => self.catch_up().await,
                Told::Missed => Err(End::Slow),
                Told::Ended => Err(End::Over),
            };
            if let Err(end) = done {
                return end;
            }
        }
    }

    /// Reads by itself, until there is no more.
    async fn catch_up(&mut self) -> Result<(), End> {
        loop {
            let scan = self.service.read_feed(&self.tenant, &self.place, limits::EVENT_ROWS).await;
            let scan = scan.map_err(|error| {
                tracing::warn!(%error, "a stream of events could not be read on");
                End::Failed
            })?;
            let mut piece = BytesMut::new();
            for (place, event) in scan.items.iter().filter(|(_, event)| self.filter.wants(event)) {
                let cursor = self.service.event_cursor(&self.tenant, place).map_err(|_| End::Failed)?;
                frame(&mut piece, &cursor, event);
            }
            self.place = scan.end;
            self.send(piece.freeze()).await?;
            if !scan.more {
                return Ok(());
            }
        }
    }

    async fn pass_on(&mut self, batch: &Batch) -> Result<(), End> {
        if batch.end <= self.place {
            return Ok(());
        }
        let piece = if self.filter.is_all() && batch.after == self.place {
            batch.frames.clone()
        } else {
            let wanted = batch.events.iter().filter(|one| one.place > self.place && self.filter.wants(&one.event));
            let mut piece = BytesMut::new();
            wanted.for_each(|one| piece.put_slice(&one.frame));
            piece.freeze()
        };
        self.place = batch.end.clone();
        self.send(piece).await
    }
}
