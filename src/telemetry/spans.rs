//! Finished spans on their way out: a bounded queue that drops and counts, and never makes a request wait.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::probe::Timing;
use super::trace::Trace;
use crate::limits;

/// Something that ended and whose trace is recorded. Numbers and words of our own alone.
#[derive(Debug)]
pub enum Finished {
    /// A request that was answered here.
    Request(RequestSpan),
    /// A request that was sent from here.
    Call(CallSpan),
}

/// A request that was answered.
#[derive(Debug)]
pub struct RequestSpan {
    /// Its method.
    pub method: &'static str,
    /// Its route.
    pub route: Arc<str>,
    /// Its status.
    pub status: u16,
    /// What was measured; its spans are made from it.
    pub timing: Arc<Timing>,
}

/// A request that was sent.
#[derive(Debug)]
pub struct CallSpan {
    /// Its place.
    pub trace: Trace,
    /// Its method.
    pub method: &'static str,
    /// When it began, by the database's clock.
    pub started_us: i64,
    /// When it ended.
    pub ended_us: i64,
    /// The status of the answer.
    pub status: Option<u16>,
    /// Why there was no answer.
    pub error: Option<&'static str>,
}

/// Takes finished spans.
#[derive(Debug, Clone)]
pub struct SpanSink {
    queue: mpsc::Sender<Finished>,
}

impl SpanSink {
    /// A sink, and what comes out of it.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Finished>) {
        let (queue, finished) = mpsc::channel(limits::SPAN_QUEUE);
        (Self { queue }, finished)
    }

    /// Takes a span, or drops it where too many wait.
    pub fn push(&self, finished: Finished) {
        if self.queue.try_send(finished).is_err() {
            super::meters::spans_dropped("full", 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics_exporter_prometheus::PrometheusBuilder;

    use super::*;
    use crate::telemetry::trace::Sampling;

    fn call() -> Finished {
        let trace = Trace::root(Sampling::NONE);
        Finished::Call(CallSpan { trace, method: "GET", started_us: 0, ended_us: 0, status: None, error: None })
    }

    #[test]
    fn what_does_not_fit_is_dropped_and_counted_and_nobody_waits() {
        let recorder = PrometheusBuilder::new().build_recorder();
        let (sink, mut finished) = SpanSink::new();
        metrics::with_local_recorder(&recorder, || {
            for _ in 0..limits::SPAN_QUEUE + 3 {
                sink.push(call());
            }
        });
        assert_eq!(finished.len(), limits::SPAN_QUEUE);
        let told = recorder.handle().render();
        assert!(told.contains("actonce_spans_dropped_total{reason=\"full\"} 3"), "{told}");
        // Once there is room again it goes on.
        finished.try_recv().unwrap();
        sink.push(call());
        assert_eq!(finished.len(), limits::SPAN_QUEUE);
    }
}
