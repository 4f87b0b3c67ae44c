//! Bypass reports: a vendor's export against what was recorded.
//!
//! Memory is bounded by the number of lines that an export may have: for each its identity (16 bytes, half of a
//! SHA-256, as effects are keyed by everywhere) and at most one finding of 12 bytes. Nothing of a line is kept.

pub mod lines;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use uuid::Uuid;

use self::lines::{Format, Line, LineFault, Reader};
use super::keys::marked_key;
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::bypass::Glance;
use crate::store::rows::state_of;
use crate::store::{Position, StoreError};

/// Bytes of one piece of the answer.
const PIECE_BYTES: usize = 16 * 1024;

/// The reports under way in this process.
#[derive(Debug)]
pub struct Reports(Arc<Semaphore>);

impl Default for Reports {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(limits::BYPASS_REPORTS)))
    }
}

/// What the key of a line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyKind {
    /// The operation id.
    OperationId,
    /// A text with the marker in it.
    Marker,
    /// The key that was sent downstream.
    IdempotencyKey,
}

/// What is compared.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Effects of this tool.
    pub tool: Name,
    /// What the lines name them by.
    pub by: KeyKind,
    /// Effects created then or later.
    pub from: Timestamp,
    /// Effects created before.
    pub until: Timestamp,
    /// How the export is written.
    pub format: Format,
    /// The column, or the JSON pointer.
    pub key: String,
}

/// What is wrong with one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fact {
    /// It names nothing.
    Unkeyed,
    /// It names nothing that was recorded.
    Unknown,
    /// The same as an earlier line.
    Double { first: u32 },
    /// Recorded, and not as completed.
    NotCompleted(State),
    /// Recorded for another tool.
    OtherTool,
    /// What was recorded can't be read back.
    Unreadable,
    /// The line can't be read.
    Fault(LineFault),
}

#[derive(Debug, Default)]
struct Counts {
    lines: u32,
    matched: u32,
    bypassed: u32,
    doubles: u32,
    not_completed: u32,
    other_tool: u32,
    unreadable: u32,
    faults: u32,
}

/// An export that is being read.
#[derive(Debug)]
pub struct Matching {
    service: Arc<Service>,
    tenant: Tenant,
    comparison: Comparison,
    reader: Reader,
    read: Vec<Line>,
    bytes: usize,
    /// Lines whose effects are still to be looked up.
    pending: Vec<Pending>,
    seen: HashMap<[u8; 16], u32>,
    facts: Vec<(u32, Fact)>,
    counts: Counts,
    _permit: OwnedSemaphorePermit,
}

/// A line, where its effect would be, and where those are only hints the key to compare.
type Pending = (u32, Vec<EffectKey>, Option<String>);

/// What a comparison needs of an intent.
#[derive(Deserialize)]
struct Intended {
    operation_id: String,
    tool: String,
    idempotency_key: String,
}

fn intended(glance: &Glance) -> Option<(Intended, State)> {
    Some((serde_json::from_str(&glance.intent).ok()?, state_of(glance.state)?))
}

impl Service {
    /// Begins a comparison.
    ///
    /// # Errors
    /// Too many are under way, and none ends in time.
    pub async fn begin_bypass(
        self: &Arc<Self>,
        caller: &Principal,
        comparison: Comparison,
    ) -> Result<Matching, ServiceError> {
        let free = Arc::clone(&self.bypass.0).acquire_owned();
        let waited = tokio::time::timeout(Duration::from_secs(limits::BYPASS_WAIT_SECONDS), free).await;
        let Ok(Ok(permit)) = waited else {
            return Err(ServiceError::Capacity("too many bypass reports are under way"));
        };
        Ok(Matching {
            service: Arc::clone(self),
            tenant: caller.tenant.clone(),
            reader: Reader::new(comparison.format, &comparison.key),
            comparison,
            read: Vec::new(),
            bytes: 0,
            pending: Vec::new(),
            seen: HashMap::new(),
            facts: Vec::new(),
            counts: Counts::default(),
            _permit: permit,
        })
    }
}

fn no_column() -> ServiceError {
    ServiceError::invalid("query:key", "must name exactly one column of the header")
}

impl Matching {
    /// Takes what has arrived.
    ///
    /// # Errors
    /// The header has no such column, the export is too large, or the store can't answer.
    pub async fn push(&mut self, bytes: &[u8]) -> Result<(), ServiceError> {
        self.bytes = self.bytes.saturating_add(bytes.len());
        if self.bytes > limits::BYPASS_BODY_BYTES {
            let limit_bytes = limits::BYPASS_BODY_BYTES;
            return Err(ServiceError::TooLarge { reason: "the export is too large", limit_bytes });
        }
        // In small pieces: a piece has a bounded number of lines.
        for piece in bytes.chunks(PIECE_BYTES) {
            self.reader.push(piece, &mut self.read).map_err(|_| no_column())?;
            self.take_lines().await?;
        }
        Ok(())
    }

    /// The export has ended.
    ///
    /// # Errors
    /// As for [`Self::push`].
    pub async fn finish(&mut self) -> Result<(), ServiceError> {
        self.reader.finish(&mut self.read).map_err(|_| no_column())?;
        self.take_lines().await?;
        self.look_up().await?;
        self.facts.sort_by_key(|(line, _)| *line);
        Ok(())
    }

    async fn take_lines(&mut self) -> Result<(), ServiceError> {
        let full = usize::try_from(limits::BYPASS_LOOKUP).unwrap_or(usize::MAX);
        let mut lines = std::mem::take(&mut self.read);
        for Line { number, key } in lines.drain(..) {
            self.counts.lines = self.counts.lines.saturating_add(1);
            if self.counts.lines > limits::BYPASS_LINES {
                return Err(ServiceError::invalid("", "has more than 1000000 lines: compare it in parts"));
            }
            match key {
                Ok(Some(key)) => self.take_key(number, &key),
                Ok(None) => self.add(number, Fact::Unkeyed),
                Err(fault) => self.add(number, Fact::Fault(fault)),
            }
            if self.pending.len() >= full {
                self.look_up().await?;
            }
        }
        self.read = lines;
        Ok(())
    }

    fn add(&mut self, line: u32, fact: Fact) {
        let counts = &mut self.counts;
        let count = match fact {
            Fact::Unkeyed | Fact::Unknown => &mut counts.bypassed,
            Fact::Double { .. } => &mut counts.doubles,
            Fact::NotCompleted(_) => &mut counts.not_completed,
            Fact::OtherTool => &mut counts.other_tool,
            Fact::Unreadable => &mut counts.unreadable,
            Fact::Fault(_) => &mut counts.faults,
        };
        *count = count.saturating_add(1);
        self.facts.push((line, fact));
    }

    /// Where the effect of a key would be; with the key to compare, where these are only hints.
    fn places_of(&self, key: &str) -> (Vec<EffectKey>, Option<String>) {
        if self.comparison.by == KeyKind::OperationId {
            let named = Name::new(key).ok().map(|name| EffectKey::of(&self.tenant, &name));
            return (named.into_iter().collect(), None);
        }
        (self.service.data_key.places_of_key(&self.tenant, key), Some(key.to_owned()))
    }

    /// What a line's key and an effect have in common: the effect's id, or half a digest of its downstream key.
    fn identity(&self, effect: Uuid, downstream: &str) -> [u8; 16] {
        if self.comparison.by == KeyKind::OperationId { *effect.as_bytes() } else { half(downstream) }
    }

    fn take_key(&mut self, line: u32, key: &str) {
        let named = if self.comparison.by == KeyKind::Marker { marked_key(key) } else { Some(key) };
        let Some(named) = named else { return self.add(line, Fact::Unkeyed) };
        let (places, compared) = self.places_of(named);
        let identity = match places.first() {
            Some(place) => self.identity(place.effect, named),
            None => half(named),
        };
        match self.seen.entry(identity) {
            Entry::Occupied(first) => {
                let first = *first.get();
                return self.add(line, Fact::Double { first });
            }
            Entry::Vacant(free) => drop(free.insert(line)),
        }
        if places.is_empty() {
            self.add(line, Fact::Unknown);
        } else {
            self.pending.push((line, places, compared));
        }
    }

    async fn look_up(&mut self) -> Result<(), ServiceError> {
        let pending = std::mem::take(&mut self.pending);
        let keys: Vec<EffectKey> = pending.iter().flat_map(|(_, places, _)| places.clone()).collect();
        let mut glances = Vec::with_capacity(keys.len());
        for some in keys.chunks(usize::try_from(limits::BYPASS_LOOKUP).unwrap_or(usize::MAX)) {
            glances.extend(self.service.engine().store().glances(some).await?);
        }
        let mut glances = glances.into_iter();
        for (line, places, compared) in pending {
            let found: Vec<Glance> = glances.by_ref().take(places.len()).flatten().collect();
            if found.is_empty() {
                self.add(line, Fact::Unknown);
                continue;
            }
            let read: Vec<_> = found.iter().filter_map(intended).collect();
            let fits = |(intended, _): &(Intended, State)| {
                compared.as_ref().is_none_or(|compared| intended.idempotency_key == *compared)
            };
            let is_readable = read.len() == found.len();
            let Some((intended, state)) = read.into_iter().find(fits) else {
                self.add(line, if is_readable { Fact::Unknown } else { Fact::Unreadable });
                continue;
            };
            if intended.tool != self.comparison.tool.as_str() {
                self.add(line, Fact::OtherTool);
            } else if state != State::Completed {
                self.add(line, Fact::NotCompleted(state));
            } else {
                self.counts.matched = self.counts.matched.saturating_add(1);
            }
        }
        Ok(())
    }

    /// Tells everything, one JSON object per line, the summary last. Whoever reads too slowly gets no summary.
    #[must_use]
    pub fn tell(self) -> mpsc::Receiver<Vec<u8>> {
        let (sink, source) = mpsc::channel(4);
        let (tasks, stopping) = (self.service.tasks.clone(), self.service.stopping.clone());
        tasks.spawn(async move {
            tokio::select! {
                () = stopping.cancelled() => {}
                () = self.tell_all(Teller { sink, piece: Vec::new() }) => {}
            }
        });
        source
    }

    async fn tell_all(self, mut teller: Teller) {
        let told = self.tell_facts(&mut teller).await;
        if told.is_err() {
            tracing::info!("a bypass report was not read to its end");
        }
    }

    async fn tell_facts(&self, teller: &mut Teller) -> Result<(), Unread> {
        for (line, fact) in &self.facts {
            teller.line(&document(*line, *fact)).await?;
        }
        let missing = match self.tell_missing(teller).await? {
            Ok(missing) => missing,
            Err(error) => {
                tracing::warn!(%error, "a bypass report was not completed");
                teller.line(&json!({ "type": "error", "reason": "the store can't answer; ask again" })).await?;
                return teller.flush().await;
            }
        };
        let counts = &self.counts;
        let summary = json!({
            "type": "summary", "lines": counts.lines, "matched": counts.matched, "bypassed": counts.bypassed,
            "doubles": counts.doubles, "not_completed": counts.not_completed, "other_tool": counts.other_tool,
            "unreadable": counts.unreadable, "faults": counts.faults, "missing": missing,
        });
        teller.line(&summary).await?;
        teller.flush().await
    }

    /// Completed effects of the window that no line names.
    async fn tell_missing(&self, teller: &mut Teller) -> Result<Result<u64, StoreError>, Unread> {
        let (store, comparison) = (self.service.engine().store(), &self.comparison);
        let before_it = comparison.from.plus_micros(-1);
        let mut after = Position { created_at: before_it, effect: Uuid::max() };
        let mut missing = 0_u64;
        loop {
            let page = match store.created(&self.tenant, after, comparison.until, limits::BYPASS_LOOKUP).await {
                Ok(page) => page,
                Err(error) => return Ok(Err(error)),
            };
            let Some((last, _)) = page.last() else { return Ok(Ok(missing)) };
            after = *last;
            for (position, glance) in &page {
                let Some((intended, State::Completed)) = intended(glance) else { continue };
                let identity = self.identity(position.effect, &intended.idempotency_key);
                let is_named = self.seen.contains_key(&identity);
                if intended.tool == comparison.tool.as_str() && !is_named {
                    missing = missing.saturating_add(1);
                    teller.line(&json!({ "type": "missing", "operation_id": intended.operation_id })).await?;
                }
            }
        }
    }
}

/// 128 bits of a text.
fn half(text: &str) -> [u8; 16] {
    let digest: [u8; 32] = Sha256::digest(text).into();
    let mut half = [0; 16];
    half.copy_from_slice(&digest[..16]);
    half
}

fn document(line: u32, fact: Fact) -> Value {
    match fact {
        Fact::Unkeyed => json!({ "type": "bypassed", "line": line, "reason": "no_key" }),
        Fact::Unknown => json!({ "type": "bypassed", "line": line, "reason": "unknown" }),
        Fact::Double { first } => json!({ "type": "double", "line": line, "first_line": first }),
        Fact::NotCompleted(state) => json!({ "type": "not_completed", "line": line, "state": state }),
        Fact::OtherTool => json!({ "type": "other_tool", "line": line }),
        Fact::Unreadable => json!({ "type": "unreadable", "line": line }),
        Fact::Fault(fault) => json!({ "type": "fault", "line": line, "reason": fault }),
    }
}

/// Nobody reads any more.
struct Unread;

struct Teller {
    sink: mpsc::Sender<Vec<u8>>,
    piece: Vec<u8>,
}

impl Teller {
    async fn line(&mut self, line: &Value) -> Result<(), Unread> {
        self.piece.extend_from_slice(line.to_string().as_bytes());
        self.piece.push(b'\n');
        if self.piece.len() >= PIECE_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Unread> {
        let piece = std::mem::take(&mut self.piece);
        if piece.is_empty() {
            return Ok(());
        }
        let silence = Duration::from_secs(limits::BYPASS_SILENCE_SECONDS);
        self.sink.send_timeout(piece, silence).await.map_err(|_| Unread)
    }
}
