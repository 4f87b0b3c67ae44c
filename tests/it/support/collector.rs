//! A trace collector: takes OTLP over HTTP and keeps what it got.

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message as _;

use super::adapter::{FakeAdapter, Reply};
use super::server::Options;

/// The collector. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Collector {
    server: FakeAdapter,
}

impl Collector {
    pub(crate) async fn start() -> Self {
        Self { server: FakeAdapter::always(Reply::status("200 OK")).await }
    }

    /// Options of a server that sends its traces here.
    pub(crate) fn options(&self, options: Options) -> Options {
        options.env("ACTONCE_OTLP_ENDPOINT", &format!("http://{}", self.server.address))
    }

    /// Everything that came, byte by byte.
    pub(crate) fn bytes(&self) -> Vec<Vec<u8>> {
        self.server.received().into_iter().map(|received| received.body).collect()
    }

    /// All spans so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let mut spans = Vec::new();
        for received in self.server.received() {
            assert_eq!((received.method.as_str(), received.path.as_str()), ("POST", "/v1/traces"));
            assert_eq!(received.header("content-type"), "application/x-protobuf");
            let request = ExportTraceServiceRequest::decode(received.body.as_slice()).expect("OTLP");
            for resource in request.resource_spans {
                spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        spans
    }

    /// The spans, once one is there that is looked for.
    pub(crate) async fn until(&self, is_there: impl Fn(&Span) -> bool) -> Vec<Span> {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            let spans = self.spans();
            if spans.iter().any(&is_there) {
                return spans;
            }
            assert!(Instant::now() < deadline, "it did not come; what came: {:?}", names(&spans));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

/// The names of spans.
pub(crate) fn names(spans: &[Span]) -> Vec<&str> {
    spans.iter().map(|span| span.name.as_str()).collect()
}

/// An id as it is written in headers.
pub(crate) fn hex(id: &[u8]) -> String {
    hex::encode(id)
}
