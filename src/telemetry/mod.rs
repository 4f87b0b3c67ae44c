//! What the service tells about itself: traces, timings, metrics, the context of its log lines.
//!
//! All of it is best effort and bounded, writes nothing durable, and never makes a request wait. What is
//! kept is numbers and words of our own: no argument, result, secret or text of a caller (law 11).

pub mod log;
pub mod meters;
pub mod phase;
pub mod probe;
pub mod ring;
pub mod spans;
pub mod stderr;
pub mod trace;

use std::fmt;
use std::sync::Arc;

use http::{HeaderMap, Method};

use crate::domain::ids::Tenant;
use probe::Timing;
use ring::{Recent, Rings};
use spans::{Finished, RequestSpan, SpanSink};
use trace::{Sampling, Trace};

/// The database's time in microseconds.
pub type Clock = Box<dyn Fn() -> i64 + Send + Sync>;

/// What one process collects.
pub struct Telemetry {
    timing: bool,
    rings: Rings,
    sampling: Sampling,
    sink: Option<SpanSink>,
    clock: Clock,
}

impl fmt::Debug for Telemetry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry")
            .field("timing", &self.timing)
            .field("sampling", &self.sampling)
            .finish_non_exhaustive()
    }
}

impl Telemetry {
    /// Collects timings where `timing` says so.
    #[must_use]
    pub fn new(timing: bool, clock: Clock) -> Self {
        Self { timing, rings: Rings::default(), sampling: Sampling::NONE, sink: None, clock }
    }

    /// Collects nothing; trace contexts are handed on all the same.
    #[must_use]
    pub fn off() -> Arc<Self> {
        Arc::new(Self::new(false, Box::new(|| 0)))
    }

    /// The same, which also records so many traces.
    #[must_use]
    pub fn recording(mut self, sink: SpanSink, sampling: Sampling) -> Self {
        self.sink = Some(sink);
        self.sampling = sampling;
        self
    }

    /// Whether phases are measured.
    #[must_use]
    pub const fn is_timing(&self) -> bool {
        self.timing
    }

    /// The database's time.
    #[must_use]
    pub fn now_us(&self) -> i64 {
        (self.clock)()
    }

    /// The place in a trace of a request that came in.
    #[must_use]
    pub fn incoming(&self, headers: &HeaderMap) -> Trace {
        Trace::of(headers, self.sampling)
    }

    /// The place in a trace of a request that goes out: below what this task works for, or a new trace.
    #[must_use]
    pub fn outgoing(&self) -> Trace {
        probe::with(|probe| probe.trace().child()).unwrap_or_else(|| Trace::root(self.sampling))
    }

    /// Hands a span on, if its trace is recorded.
    pub fn record(&self, trace: &Trace, finished: impl FnOnce() -> Finished) {
        if let Some(sink) = self.sink.as_ref().filter(|_| trace.sampled) {
            sink.push(finished());
        }
    }

    /// Keeps what a request came to.
    pub fn finished(&self, method: &'static str, route: &Arc<str>, status: u16, timing: Timing) {
        let trace = timing.trace;
        let is_recorded = trace.sampled && self.sink.is_some();
        if !self.timing && !is_recorded {
            return;
        }
        if self.timing {
            meters::phases(&timing);
        }
        let timing = Arc::new(timing);
        if let Some(tenant) = timing.tenant.as_ref().filter(|_| self.timing) {
            let recent = Recent { method, route: Arc::clone(route), status, timing: Arc::clone(&timing) };
            if !self.rings.push(tenant, recent) {
                meters::timing_dropped();
            }
        }
        self.record(&trace, || Finished::Request(RequestSpan { method, route: Arc::clone(route), status, timing }));
    }

    /// The newest timings of a tenant, the newest first.
    #[must_use]
    pub fn recent(&self, tenant: &Tenant) -> Vec<Recent> {
        self.rings.of(tenant)
    }
}

/// A method as a word of ours.
#[must_use]
pub fn known_method(method: &Method) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD", "OPTIONS"];
    KNOWN.into_iter().find(|known| *known == method.as_str()).unwrap_or("_OTHER")
}
