//! Finished spans to a collector, over OTLP (protobuf over HTTP).
//!
//! One task sends batch after batch. What it can't send in time it drops and counts; the queue in front
//! of it does the same. No request and no sweep waits for a collector. The spans are made here, from the
//! numbers of finished requests, so that nothing can get into one that is not in those.

use std::fmt;
use std::time::{Duration, UNIX_EPOCH};

use async_trait::async_trait;
use bytes::Bytes;
use http::{Request, Response};
use opentelemetry::trace::{SpanContext, SpanId, SpanKind, Status, TraceFlags, TraceId, TraceState};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_http::{HttpClient, HttpError};
use opentelemetry_otlp::{ExporterBuildError, Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::limits;
use crate::telemetry::meters;
use crate::telemetry::phase::Phase;
use crate::telemetry::probe::Timing;
use crate::telemetry::spans::{CallSpan, Finished, RequestSpan};
use crate::telemetry::trace::Trace;

/// How long spans are gathered for one request to the collector.
const GATHER: Duration = Duration::from_millis(500);
/// Largest answer of a collector that is read.
const ANSWER_BYTES: usize = 64 * 1024;

/// Spans can't be sent as configured.
#[derive(Debug, thiserror::Error)]
pub enum OtlpError {
    /// No client.
    #[error("no client for the trace collector: {0}")]
    Client(#[source] reqwest::Error),
    /// No exporter.
    #[error("no exporter for the trace collector: {0}")]
    Exporter(#[source] ExporterBuildError),
}

/// The client: the operator named the collector, so its address needs no check.
struct Client(reqwest::Client);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut response = self.0.execute(request.try_into()?).await?;
        let mut answer = Response::builder().status(response.status());
        for (name, value) in response.headers() {
            answer = answer.header(name, value);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await? {
            if body.len().saturating_add(chunk.len()) > ANSWER_BYTES {
                return Err("the collector's answer is too large".into());
            }
            body.extend_from_slice(&chunk);
        }
        Ok(answer.body(body.into())?)
    }
}

/// Sends what is finished.
pub struct Exporter {
    client: opentelemetry_otlp::SpanExporter,
    finished: mpsc::Receiver<Finished>,
    scope: InstrumentationScope,
}

impl fmt::Debug for Exporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exporter")
    }
}

impl Exporter {
    /// An exporter to `{endpoint}/v1/traces`. Headers come from `OTEL_EXPORTER_OTLP_HEADERS`, attributes of
    /// the resource from `OTEL_RESOURCE_ATTRIBUTES`.
    ///
    /// # Errors
    /// See [`OtlpError`].
    pub fn new(endpoint: &str, finished: mpsc::Receiver<Finished>) -> Result<Self, OtlpError> {
        let client = reqwest::Client::builder()
            .user_agent("actonce")
            .no_proxy()
            .referer(false)
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .connect_timeout(Duration::from_secs(2))
            .timeout(Duration::from_secs(limits::SPAN_EXPORT_SECONDS))
            .build()
            .map_err(OtlpError::Client)?;
        let mut exporter = opentelemetry_otlp::SpanExporter::builder()
            .with_http()
            .with_protocol(Protocol::HttpBinary)
            .with_endpoint(format!("{}/v1/traces", endpoint.trim_end_matches('/')))
            .with_timeout(Duration::from_secs(limits::SPAN_EXPORT_SECONDS))
            .with_http_client(Client(client))
            .build()
            .map_err(OtlpError::Exporter)?;
        let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
        exporter.set_resource(&Resource::builder().with_service_name("actonce").with_attribute(version).build());
        let scope = InstrumentationScope::builder("actonce").with_version(env!("CARGO_PKG_VERSION")).build();
        Ok(Self { client: exporter, finished, scope })
    }

    /// Sends until stopped; then what is left, for a bounded time.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut batch = Vec::with_capacity(limits::SPAN_BATCH);
        loop {
            let taken = tokio::select! {
                () = stop.cancelled() => break,
                taken = self.finished.recv_many(&mut batch, limits::SPAN_BATCH) => taken,
            };
            if taken == 0 {
                return;
            }
            // Nobody wakes this task while it is not receiving, and a batch grows meanwhile.
            if taken < limits::SPAN_BATCH {
                tokio::select! {
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(GATHER) => {}
                }
                self.take_waiting(&mut batch);
            }
            self.send(&mut batch).await;
        }
        let flush = async {
            loop {
                self.take_waiting(&mut batch);
                if batch.is_empty() {
                    return;
                }
                self.send(&mut batch).await;
            }
        };
        if tokio::time::timeout(Duration::from_secs(limits::SPAN_FLUSH_SECONDS), flush).await.is_err() {
            tracing::warn!("the trace collector did not take the last spans in time");
        }
    }

    fn take_waiting(&mut self, batch: &mut Vec<Finished>) {
        while batch.len() < limits::SPAN_BATCH
            && let Ok(finished) = self.finished.try_recv()
        {
            batch.push(finished);
        }
    }

    async fn send(&self, batch: &mut Vec<Finished>) {
        let mut spans = Vec::with_capacity(batch.len().saturating_mul(8));
        for finished in batch.drain(..) {
            match finished {
                Finished::Request(request) => self.request(&request, &mut spans),
                Finished::Call(call) => spans.push(self.call(&call)),
            }
        }
        let count = u64::try_from(spans.len()).unwrap_or(u64::MAX);
        let limit = Duration::from_secs(limits::SPAN_EXPORT_SECONDS);
        match tokio::time::timeout(limit, self.client.export(spans)).await {
            Ok(Ok(())) => meters::spans_exported(count),
            // The reason may quote an answer of the collector.
            Ok(Err(_)) | Err(_) => {
                meters::spans_dropped("failed", count);
                tracing::debug!(count, "the trace collector did not take spans");
            }
        }
    }

    fn span(&self, trace: &Trace, name: String, kind: SpanKind, times: (i64, i64)) -> SpanData {
        let flags = if trace.sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
        let trace_id = TraceId::from_bytes(trace.id.to_be_bytes());
        let span_id = SpanId::from_bytes(trace.span.to_be_bytes());
        let moment = |micros: i64| UNIX_EPOCH + Duration::from_micros(u64::try_from(micros).unwrap_or(0));
        SpanData {
            span_context: SpanContext::new(trace_id, span_id, flags, false, TraceState::NONE),
            parent_span_id: trace.parent.map_or(SpanId::INVALID, |parent| SpanId::from_bytes(parent.to_be_bytes())),
            parent_span_is_remote: trace.is_remote,
            span_kind: kind,
            name: name.into(),
            start_time: moment(times.0),
            end_time: moment(times.1),
            attributes: Vec::new(),
            dropped_attributes_count: 0,
            events: SpanEvents::default(),
            links: SpanLinks::default(),
            status: Status::Unset,
            instrumentation_scope: self.scope.clone(),
        }
    }

    /// The span of a request, and those of its phases below it.
    fn request(&self, request: &RequestSpan, spans: &mut Vec<SpanData>) {
        let timing = &*request.timing;
        let after = |since: Duration| timing.started_us.saturating_add(micros(since));
        let name = format!("{} {}", request.method, request.route);
        let times = (timing.started_us, after(timing.total));
        let mut span = self.span(&timing.trace, name, SpanKind::Server, times);
        span.attributes = attributes(request, timing);
        if request.status >= 500 {
            span.status = Status::error("");
        }
        spans.push(span);
        for phase in Phase::ALL {
            let Some(found) = timing.phase(phase) else { continue };
            let below = timing.trace.child();
            let times = (after(found.first), after(found.last));
            let mut span = self.span(&below, phase.as_str().to_owned(), SpanKind::Internal, times);
            span.attributes.push(KeyValue::new("actonce.spent_us", micros(found.spent)));
            spans.push(span);
        }
    }

    fn call(&self, call: &CallSpan) -> SpanData {
        let times = (call.started_us, call.ended_us);
        let mut span = self.span(&call.trace, call.method.to_owned(), SpanKind::Client, times);
        span.attributes.push(KeyValue::new("http.request.method", call.method));
        if let Some(status) = call.status {
            span.attributes.push(KeyValue::new("http.response.status_code", i64::from(status)));
        }
        if let Some(error) = call.error {
            span.attributes.push(KeyValue::new("error.type", error));
            span.status = Status::error("");
        }
        span
    }
}

fn attributes(request: &RequestSpan, timing: &Timing) -> Vec<KeyValue> {
    let mut attributes = vec![
        KeyValue::new("http.request.method", request.method),
        KeyValue::new("http.route", request.route.to_string()),
        KeyValue::new("http.response.status_code", i64::from(request.status)),
    ];
    if let Some(tenant) = &timing.tenant {
        attributes.push(KeyValue::new("actonce.tenant", tenant.as_str().to_owned()));
    }
    if timing.store.transactions > 0 {
        let store = timing.store;
        attributes.push(KeyValue::new("actonce.store.transactions", i64::from(store.transactions)));
        attributes.push(KeyValue::new("actonce.store.lock_wait_us", micros(store.lock_wait)));
        let bytes = i64::try_from(store.bytes_bound).unwrap_or(i64::MAX);
        attributes.push(KeyValue::new("actonce.store.bytes_bound", bytes));
        attributes.push(KeyValue::new("actonce.store.batch", i64::from(store.largest_batch)));
    }
    attributes
}

fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}
