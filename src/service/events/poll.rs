//! The readers, and the look at what other replicas wrote.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio_util::sync::CancellationToken;

use super::hub::{Batch, Channel, Placed};
use super::place::Place;
use super::stream::frame;
use super::{Scan, Service};
use crate::domain::ids::Tenant;
use crate::limits;
use crate::service::ServiceError;

/// The least time between two looks of a reader that has caught up, and what each listener adds: fewer and
/// larger pieces cost the writers less.
const PACE: Duration = Duration::from_millis(50);
const PACE_PER_LISTENER: Duration = Duration::from_micros(400);
const PACE_MAX: Duration = Duration::from_secs(1);
/// Bytes a second that all readers of a process together hand to all who listen. So many streams of a busy
/// tenant come later rather than take the machine from those who write.
const BYTES_PER_SECOND: u64 = 100_000_000;
/// A change that rang is not shown while an older transaction is under way: then the reader looks again.
const AGAIN: [Duration; 7] = [
    Duration::from_millis(20),
    Duration::from_millis(50),
    Duration::from_millis(100),
    Duration::from_millis(250),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(2),
];
/// How often a process asks for all tenants that are listened to, whatever was heard.
const POLL: Duration = Duration::from_secs(5);
/// The least time between two such questions.
const POLL_MIN: Duration = Duration::from_millis(100);
/// After the store failed.
const STORE_PAUSE: Duration = Duration::from_secs(1);

impl Service {
    /// Reads a tenant's feed for all who listen, until nobody does.
    pub(super) async fn run_reader(self: Arc<Self>, tenant: Tenant, channel: Arc<Channel>) {
        let end = match self.feed_end_place(&tenant).await {
            Ok(place) => self.read_on(&tenant, &channel, place).await,
            Err(error) => Err(error),
        };
        if let Err(error) = end {
            tracing::warn!(%error, "a feed of events could not be read on: its listeners begin anew");
        }
        // Dropping the channel tells those who still listen.
        self.engine().bells().take_down(&tenant, &channel.bell);
        let mut channels = self.events.hub.lock();
        if channels.get(&tenant).is_some_and(|known| Arc::ptr_eq(known, &channel)) {
            channels.remove(&tenant);
        }
    }

    async fn read_on(&self, tenant: &Tenant, channel: &Channel, mut place: Place) -> Result<(), ServiceError> {
        let mut again = AGAIN.iter();
        loop {
            channel.number.store(place.number(), Ordering::Release);
            let scan = match self.read_feed(tenant, &place, limits::EVENT_ROWS).await {
                Ok(scan) => scan,
                Err(error @ ServiceError::CursorGone) => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "a feed of events could not be read and is tried again");
                    self.pause_reader(STORE_PAUSE).await;
                    continue;
                }
            };
            let more = scan.more;
            if scan.end > place {
                again = AGAIN.iter();
                let bytes;
                (place, bytes) = self.tell(tenant, channel, place, scan)?;
                let share = share(bytes, self.events.hub.listeners());
                self.pause_reader(if more { share } else { share.max(pace(channel)) }).await;
            }
            if self.is_unheard(tenant, channel) {
                return Ok(());
            }
            if more {
                continue;
            }
            match again.next() {
                Some(pause) => tokio::select! {
                    () = channel.bell.notified() => again = AGAIN.iter(),
                    () = self.pause_reader(*pause) => {}
                },
                None => {
                    tokio::select! {
                        () = channel.bell.notified() => {}
                        () = self.stopping.cancelled() => {}
                    }
                    again = AGAIN.iter();
                }
            }
        }
    }

    async fn pause_reader(&self, time: Duration) {
        tokio::select! {
            () = tokio::time::sleep(time) => {}
            () = self.stopping.cancelled() => {}
        }
    }

    /// Whether nobody is left; then nobody can come to this channel any more.
    fn is_unheard(&self, tenant: &Tenant, channel: &Channel) -> bool {
        let mut channels = self.events.hub.lock();
        let is_unheard = channel.listeners.load(Ordering::Acquire) == 0 || self.stopping.is_cancelled();
        if is_unheard {
            channels.remove(tenant);
        }
        is_unheard
    }

    fn tell(
        &self,
        tenant: &Tenant,
        channel: &Channel,
        after: Place,
        scan: Scan,
    ) -> Result<(Place, usize), ServiceError> {
        let mut frames = BytesMut::new();
        let mut lengths = Vec::with_capacity(scan.items.len());
        for (place, event) in &scan.items {
            let before = frames.len();
            frame(&mut frames, &self.event_cursor(tenant, place)?, event);
            lengths.push(frames.len().saturating_sub(before));
        }
        let frames: Bytes = frames.freeze();
        let bytes = frames.len();
        let mut rest = frames.clone();
        let events = scan.items.into_iter().zip(lengths);
        let events = events.map(|((place, event), length)| Placed { place, event, frame: rest.split_to(length) });
        let batch = Batch { after, end: scan.end.clone(), events: events.collect(), frames };
        // Nobody there is no failure.
        drop(channel.sender.send(Arc::new(batch)));
        Ok((scan.end, bytes))
    }

    /// Asks whether something was written elsewhere, with one question for all tenants that are listened
    /// to, and not at all while nobody listens; until stopped.
    pub async fn run_feed_poll(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let watched: Vec<(Tenant, i64)> = {
                let channels = self.events.hub.lock();
                channels.iter().map(|(tenant, c)| (tenant.clone(), c.number.load(Ordering::Acquire))).collect()
            };
            if watched.is_empty() {
                tokio::select! {
                    () = stop.cancelled() => return,
                    () = self.events.hub.begun.notified() => continue,
                }
            }
            for some in watched.chunks(500) {
                match self.engine().store().feed_moved(some).await {
                    Ok(moved) => self.ring_moved(some, &moved),
                    Err(error) => tracing::warn!(%error, "the feeds could not be looked at"),
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL) => {}
                () = async {
                    tokio::time::sleep(POLL_MIN).await;
                    self.engine().bells().rung_elsewhere().await;
                } => {}
            }
        }
    }

    fn ring_moved(&self, watched: &[(Tenant, i64)], moved: &[bool]) {
        let channels = self.events.hub.lock();
        for ((tenant, _), moved) in watched.iter().zip(moved) {
            if *moved && let Some(channel) = channels.get(tenant) {
                channel.bell.notify_one();
            }
        }
    }
}

/// How long the bytes of one piece take if `BYTES_PER_SECOND` are shared by so many who listen.
fn share(bytes: usize, listeners: usize) -> Duration {
    let whole = u64::try_from(bytes.saturating_mul(listeners)).unwrap_or(u64::MAX);
    Duration::from_micros(whole / (BYTES_PER_SECOND / 1_000_000))
}

fn pace(channel: &Channel) -> Duration {
    let listeners = u32::try_from(channel.listeners.load(Ordering::Acquire)).unwrap_or(u32::MAX);
    PACE_PER_LISTENER.saturating_mul(listeners).saturating_add(PACE).min(PACE_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_shared_by_all_who_listen() {
        assert_eq!(share(100_000, 1), Duration::from_millis(1));
        assert_eq!(share(100_000, 500), Duration::from_millis(500));
        assert_eq!(share(0, 500), Duration::ZERO);
    }
}
