//! The feed of events (protocol §10): pages, waiting for more, and streams. All who listen to a tenant
//! in this process share one reader.

pub mod hub;
pub mod place;
mod poll;
pub mod stream;

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::time::Instant;

use self::hub::{Hub, Told};
use self::place::Place;
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::events::{EventFilter, Published, Stored, published};
use crate::domain::ids::Tenant;
use crate::limits;
use crate::store::feed::{FeedMark, FeedRow};
use crate::store::retention::is_tombstone;

/// What the feed needs of a process.
#[derive(Debug, Default)]
pub struct Events {
    pub(super) hub: Hub,
}

/// A page of events.
#[derive(Debug)]
pub struct EventPage {
    /// The events, in the order of the feed.
    pub items: Vec<Published>,
    /// Where the next page starts. There always is one.
    pub next_cursor: String,
}

/// Events with their places, and where reading goes on.
#[derive(Debug)]
pub(super) struct Scan {
    pub(super) items: Vec<(Place, Published)>,
    pub(super) end: Place,
    pub(super) more: bool,
}

fn at_of(row: &FeedRow, index: u32) -> Place {
    Place::At { mark: row.mark, index, proof: place::proof(&row.hash) }
}

/// The events of a row. One that can't be read back is passed by: `journal verify` names it.
pub(super) fn events_of(row: &FeedRow) -> Vec<Published> {
    let FeedMark { effect, revision, .. } = row.mark;
    // Of another tenant, or pruned.
    let content = row.content.as_ref().filter(|content| !is_tombstone(revision, &content.entry));
    let Some(content) = content else { return Vec::new() };
    let stored = Stored { effect, revision, entry: &content.entry, hash: &row.hash, intent: &content.intent };
    published(&stored).unwrap_or_else(|_| {
        tracing::error!(%effect, revision, "a journal entry can't be read back; its events are not told");
        Vec::new()
    })
}

impl Service {
    /// Reads on from a place: at most so many rows.
    pub(super) async fn read_feed(&self, tenant: &Tenant, from: &Place, rows: u32) -> Result<Scan, ServiceError> {
        let (mark, seen) = match from {
            Place::Start => (FeedMark::START, None),
            Place::At { mark, index, proof } => (*mark, Some((*index, *proof))),
        };
        // The row that is named comes again, as the proof that it is still there.
        let limit = rows.saturating_add(u32::from(seen.is_some()));
        let found = self.engine().store().feed(tenant, &mark, limit).await?;
        let mut scan = Scan { items: Vec::new(), end: from.clone(), more: found.more };
        let mut skip = None;
        if let Some((index, proof)) = seen {
            let first = found.rows.first().filter(|row| row.mark == mark && place::proof(&row.hash) == proof);
            if first.is_some() {
                skip = Some(index);
            } else if !self.engine().store().feed_place_is_pruned(tenant, &mark).await? {
                return Err(ServiceError::CursorGone);
            }
        }
        for row in &found.rows {
            for event in events_of(row) {
                let at = at_of(row, event.index);
                if skip.is_some_and(|index| event.index <= index) {
                    continue;
                }
                scan.end = at.clone();
                scan.items.push((at, event));
            }
            if skip.take().is_none() && scan.end < at_of(row, 0) {
                scan.end = at_of(row, 0);
            }
        }
        Ok(scan)
    }

    /// Looks for events that are wanted, over a bounded number of rows.
    pub(super) async fn scan_feed(
        &self,
        tenant: &Tenant,
        from: Place,
        filter: &EventFilter,
        limit: usize,
    ) -> Result<Scan, ServiceError> {
        let mut scan = Scan { items: Vec::new(), end: from, more: true };
        let mut looked_at = 0;
        let step = limits::EVENT_ROWS;
        while scan.more && looked_at < limits::LIST_SCAN_ROWS {
            let found = self.read_feed(tenant, &scan.end, step).await?;
            for (at, event) in found.items {
                scan.end = at.clone();
                if filter.wants(&event) {
                    scan.items.push((at, event));
                    if scan.items.len() == limit {
                        return Ok(scan);
                    }
                }
            }
            scan.end = found.end;
            scan.more = found.more;
            looked_at += usize::try_from(step).unwrap_or(usize::MAX);
        }
        Ok(scan)
    }

    /// Where a reader begins.
    ///
    /// # Errors
    /// The cursor is none of this tenant's feed.
    pub async fn event_place(&self, caller: &Principal, after: Option<&str>) -> Result<Place, ServiceError> {
        match after {
            None => Ok(Place::Start),
            Some("latest") => self.feed_end_place(&caller.tenant).await,
            Some(cursor) => {
                let sealed = URL_SAFE_NO_PAD.decode(cursor).unwrap_or_default();
                let text = self.sealer.open(place::DOMAIN, &[caller.tenant.as_str()], &sealed).ok();
                let found = text.and_then(|text| Place::parse(std::str::from_utf8(&text).ok()?));
                found.ok_or_else(|| ServiceError::invalid("query:after", "is not a cursor of this feed"))
            }
        }
    }

    pub(super) async fn feed_end_place(&self, tenant: &Tenant) -> Result<Place, ServiceError> {
        let Some(row) = self.engine().store().feed_end(tenant).await? else { return Ok(Place::Start) };
        let last = events_of(&row).last().map_or(0, |event| event.index);
        Ok(at_of(&row, last))
    }

    /// A place as a cursor. Nobody can read it, and none is like another: the numbers in it grow with what other
    /// tenants do.
    pub(super) fn event_cursor(&self, tenant: &Tenant, place: &Place) -> Result<String, ServiceError> {
        let sealed = self.sealer.seal(place::DOMAIN, &[tenant.as_str()], place.to_string().as_bytes());
        sealed
            .map(|sealed| URL_SAFE_NO_PAD.encode(sealed))
            .map_err(|_| ServiceError::Internal("a cursor can't be sealed"))
    }

    /// A page of events after a place; with `wait`, not before there is one.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn events(
        self: &Arc<Self>,
        caller: &Principal,
        place: Place,
        filter: &EventFilter,
        limit: u32,
        wait: Option<Duration>,
    ) -> Result<EventPage, ServiceError> {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut scan = self.scan_feed(&caller.tenant, place, filter, limit).await?;
        if let Some(wait) = wait {
            let deadline = Instant::now() + wait;
            while scan.items.is_empty() && scan.more && Instant::now() < deadline {
                scan = self.scan_feed(&caller.tenant, scan.end, filter, limit).await?;
            }
            if scan.items.is_empty() && !scan.more {
                scan = self.await_events(caller, scan.end, filter, limit, deadline).await?;
            }
        }
        Ok(EventPage {
            next_cursor: self.event_cursor(&caller.tenant, &scan.end)?,
            items: scan.items.into_iter().map(|(_, event)| event).collect(),
        })
    }

    async fn await_events(
        self: &Arc<Self>,
        caller: &Principal,
        place: Place,
        filter: &EventFilter,
        limit: usize,
        deadline: Instant,
    ) -> Result<Scan, ServiceError> {
        let mut listener = self.listen_to_events(&caller.tenant)?;
        // Once more: what was written before somebody listened rings no bell.
        let mut scan = self.scan_feed(&caller.tenant, place, filter, limit).await?;
        while scan.items.is_empty() && !scan.more {
            let told = tokio::select! {
                told = listener.next() => told,
                () = tokio::time::sleep_until(deadline) => return Ok(scan),
                () = self.stopping.cancelled() => return Ok(scan),
            };
            match told {
                Told::Batch(batch) if batch.end <= scan.end => {}
                Told::Batch(batch) if batch.after <= scan.end => {
                    let seen = scan.end.clone();
                    for event in batch.events.iter().filter(|event| event.place > seen) {
                        scan.end = event.place.clone();
                        if filter.wants(&event.event) {
                            scan.items.push((event.place.clone(), event.event.clone()));
                            if scan.items.len() == limit {
                                return Ok(scan);
                            }
                        }
                    }
                    scan.end = scan.end.max(batch.end.clone());
                }
                // Something between was not heard.
                Told::Batch(_) | Told::Missed | Told::Ended => {
                    scan = self.scan_feed(&caller.tenant, scan.end, filter, limit).await?;
                    if matches!(told, Told::Ended) {
                        return Ok(scan);
                    }
                }
            }
        }
        Ok(scan)
    }
}
