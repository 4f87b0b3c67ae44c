//! The times of one connection.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

use crate::limits;

/// How long after the last byte of an answer the buffers of HTTP stay: who asks again within it pays nothing for them, as long as no
/// more than [`limits::CONNECTIONS_BUFFERED`] have some.
const REST: Duration = Duration::from_millis(200);

/// What is done to a connection when its time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// The buffers go.
    Rest,
    /// It is told that it ends.
    Farewell,
    /// It ends.
    End,
}

/// The times of one connection. Everything is relaxed: one task drives a connection, and what it misses of another
/// it sees when it is woken.
pub(in crate::http) struct Pace {
    started: Instant,
    header_timeout: Duration,
    idle_timeout: Duration,
    /// Requests under way.
    busy: AtomicUsize,
    /// Answers whose bodies are not at their end.
    flowing: AtomicUsize,
    /// What is written finds no room: nobody reads.
    stuck: AtomicBool,
    /// The head of a request is arriving, or the first is awaited.
    head: AtomicBool,
    /// When that began, or when something last went out, in milliseconds since the start.
    since: AtomicU64,
    /// Frames may come between requests.
    framed: AtomicBool,
    /// The buffers of HTTP/1.1 are here, and may be given back.
    is_buffered: AtomicBool,
    /// How many connections have such buffers.
    buffered: Arc<AtomicUsize>,
}

impl Pace {
    pub(in crate::http) fn new(header_timeout: Duration, idle_timeout: Duration, buffered: Arc<AtomicUsize>) -> Self {
        Self {
            started: Instant::now(),
            header_timeout,
            idle_timeout,
            busy: AtomicUsize::new(0),
            flowing: AtomicUsize::new(0),
            stuck: AtomicBool::new(false),
            head: AtomicBool::new(true),
            since: AtomicU64::new(0),
            framed: AtomicBool::new(false),
            is_buffered: AtomicBool::new(false),
            buffered,
        }
    }

    /// When the head of the first request has to be here, and the TLS before it.
    pub(in crate::http) fn first_head(&self) -> Instant {
        self.started + self.header_timeout
    }

    fn mark(&self) {
        let passed = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.since.store(passed, Ordering::Relaxed);
    }

    fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) > 0
    }

    fn is_in_head(&self) -> bool {
        self.head.load(Ordering::Relaxed)
    }

    /// Whether nothing would be lost with the buffers. Asked between requests.
    fn may_rest(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        self.flowing.load(Ordering::Relaxed) == 0 && !is_set(&self.stuck) && is_set(&self.is_buffered)
    }

    /// Whether so many connections have buffers that none is to keep them for a moment.
    pub(super) fn is_in_crowd(&self) -> bool {
        self.buffered.load(Ordering::Relaxed) > limits::CONNECTIONS_BUFFERED
    }

    /// Bytes of the other side.
    pub(super) fn came_in(&self) {
        if !self.is_busy() && !self.is_in_head() && !self.framed.load(Ordering::Relaxed) {
            self.mark();
            self.head.store(true, Ordering::Relaxed);
        }
    }

    /// Bytes for the other side.
    pub(super) fn went_out(&self) {
        if !self.is_busy() && !self.is_in_head() {
            self.mark();
        }
    }

    /// Whether the other side leaves no room for what is to be written.
    pub(super) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    /// HTTP is spoken from now on.
    pub(super) fn speaks(&self, framed: bool) {
        self.framed.store(framed, Ordering::Relaxed);
        if !framed && !self.is_buffered.swap(true, Ordering::Relaxed) {
            self.buffered.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The buffers are given back.
    pub(super) fn rests(&self) {
        if self.is_buffered.swap(false, Ordering::Relaxed) {
            self.buffered.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// What is to be done next, and when; `None` while a request is under way.
    pub(super) fn until(&self) -> Option<(Instant, Due)> {
        if self.is_busy() {
            return None;
        }
        let (bound, due) = if self.is_in_head() {
            (self.header_timeout, Due::End)
        } else if REST < self.idle_timeout && self.may_rest() {
            (REST, Due::Rest)
        } else {
            (self.idle_timeout, Due::Farewell)
        };
        Some((self.started + Duration::from_millis(self.since.load(Ordering::Relaxed)) + bound, due))
    }
}

impl Drop for Pace {
    fn drop(&mut self) {
        self.rests();
    }
}

/// A request under way; it has ended when this is dropped, however it ended.
pub(super) struct UnderWay(Arc<Pace>);

impl UnderWay {
    pub(super) fn begin(pace: Arc<Pace>) -> Self {
        pace.busy.fetch_add(1, Ordering::Relaxed);
        pace.head.store(false, Ordering::Relaxed);
        Self(pace)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.mark();
        self.0.busy.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The body of an answer, of which its connection knows whether it is at its end.
pub(in crate::http) struct Flowing {
    body: Body,
    pace: Arc<Pace>,
}

impl Flowing {
    pub(super) fn new(body: Body, pace: Arc<Pace>) -> Self {
        pace.flowing.fetch_add(1, Ordering::Relaxed);
        Self { body, pace }
    }
}

impl Drop for Flowing {
    fn drop(&mut self) {
        self.pace.flowing.fetch_sub(1, Ordering::Relaxed);
    }
}

impl hyper::body::Body for Flowing {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
