//! Traces over OTLP, into a collector that is a real server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;

use super::{TOOL, look_up, open, register};
use crate::http::external;
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::collector::{Collector, hex, names};
use crate::support::{Api, Options, StoreUnderTest, blocking, bodies, both_stores};

both_stores!(
    spans_arrive_with_their_parents,
    a_trace_that_is_not_sampled_is_not_sent,
    a_stop_sends_what_is_left,
    a_collector_that_is_away_holds_nothing_up,
);

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

fn sent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// The span id of an answer's `traceparent`.
fn span_of(traceparent: &str) -> String {
    traceparent.split('-').nth(2).expect("a traceparent").to_owned()
}

fn find<'a>(spans: &'a [Span], id: &str) -> &'a Span {
    spans.iter().find(|span| hex(&span.span_id) == id).unwrap_or_else(|| panic!("no {id} in {:?}", names(spans)))
}

async fn spans_arrive_with_their_parents(store: StoreUnderTest) {
    let collector = Collector::start().await;
    let adapter = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let server = store.server(collector.options(open()));
    let api = Api::of(&server, "t");
    register(&api, &adapter).await;
    let answer = look_up(&api, "op", &sent("01")).await.expect(200);
    let own = span_of(answer.header("traceparent").unwrap());
    let spans = collector.until(|span| hex(&span.span_id) == own).await;
    let request = find(&spans, &own);
    assert_eq!(request.name, "POST /api/effects/{operation_id}/reconciliations");
    assert_eq!((hex(&request.trace_id), hex(&request.parent_span_id)), (TRACE.to_owned(), PARENT.to_owned()));
    assert_eq!(request.kind, i32::from(SpanKind::Server));
    assert!(request.end_time_unix_nano > request.start_time_unix_nano);
    // What it did stands below it, and within it.
    let below: Vec<&Span> = spans.iter().filter(|span| hex(&span.parent_span_id) == own).collect();
    let phases: BTreeSet<&str> = below.iter().map(|span| span.name.as_str()).collect();
    for phase in ["authentication", "admission", "decision", "store_wait", "commit", "adapter", "response", "POST"] {
        assert!(phases.contains(phase), "{phase} is missing in {phases:?}");
    }
    for span in &below {
        assert_eq!(hex(&span.trace_id), TRACE);
        // Numbers are cut to microseconds.
        let slack = 2_000;
        assert!(span.start_time_unix_nano + slack >= request.start_time_unix_nano, "{} began before", span.name);
        assert!(span.end_time_unix_nano <= request.end_time_unix_nano + slack, "{} ended after", span.name);
    }
    // The adapter was told of the span of its call.
    let asked = adapter.last().header("traceparent").to_owned();
    let call = find(&spans, &span_of(&asked));
    assert!(asked.starts_with(&format!("00-{TRACE}-")) && asked.ends_with("-01"), "{asked}");
    assert_eq!((call.name.as_str(), call.kind), ("POST", i32::from(SpanKind::Client)));
    assert_eq!(hex(&call.parent_span_id), own);
    // A request without a trace begins one.
    let answer = api.get("op").await.expect(200);
    let own = span_of(answer.header("traceparent").unwrap());
    let spans = collector.until(|span| hex(&span.span_id) == own).await;
    assert!(find(&spans, &own).parent_span_id.is_empty(), "a root");
    let ids: BTreeSet<&[u8]> = spans.iter().map(|span| span.span_id.as_slice()).collect();
    assert_eq!(ids.len(), spans.len(), "no span came twice");
}

async fn a_trace_that_is_not_sampled_is_not_sent(store: StoreUnderTest) {
    let collector = Collector::start().await;
    let server = store.server(collector.options(Options::default()).env("ACTONCE_OTLP_SAMPLE_PERCENT", "0"));
    let api = Api::of(&server, "t");
    let silent = api.call("GET", "/api/effects").header("traceparent", &sent("00")).send().await.expect(200);
    assert!(silent.header("traceparent").unwrap().ends_with("-00"), "{silent}");
    api.read("/api/effects").await.expect(200);
    let loud = api.call("GET", "/api/effects").header("traceparent", &sent("01")).send().await.expect(200);
    let own = span_of(loud.header("traceparent").unwrap());
    let spans = collector.until(|span| hex(&span.span_id) == own).await;
    let servers = spans.iter().filter(|span| span.kind == i32::from(SpanKind::Server)).count();
    assert_eq!(servers, 1, "{:?}", names(&spans));
}

async fn a_stop_sends_what_is_left(store: StoreUnderTest) {
    let collector = Collector::start().await;
    let server = Arc::new(store.server(collector.options(Options::default())));
    let api = Api::of(&server, "t");
    let answer = api.read("/api/effects").await.expect(200);
    let own = span_of(answer.header("traceparent").unwrap());
    let stopping = Arc::clone(&server);
    let status = blocking(move || stopping.stop()).await;
    assert!(status.success(), "{status}");
    find(&collector.spans(), &own);
}

async fn a_collector_that_is_away_holds_nothing_up(store: StoreUnderTest) {
    let hanging = FakeAdapter::always(Reply::Hang).await;
    let server = store.server(Options::default().env("ACTONCE_OTLP_ENDPOINT", &format!("http://{}", hanging.address)));
    let api = Api::of(&server, "t");
    external(&api).await;
    let started = Instant::now();
    for number in 0..20 {
        let granted = api.intent(&bodies::claiming(&format!("op-{number}"), TOOL)).await.expect(201);
        api.outcome(&format!("op-{number}"), &bodies::succeeded(&granted)).await.expect(200);
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let metrics = api.read("/metrics").await.expect(200).text;
        let line = metrics.lines().find(|line| line.starts_with("actonce_spans_dropped_total{reason=\"failed\"}"));
        let dropped: f64 = line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).expect("the counter is there");
        if dropped > 0.0 {
            break;
        }
        assert!(Instant::now() < deadline, "nothing was counted");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let server = Arc::new(server);
    let (stopping, began) = (Arc::clone(&server), Instant::now());
    assert!(blocking(move || stopping.stop()).await.success());
    assert!(began.elapsed() < Duration::from_secs(15), "a stop waits for it for a bounded time");
}
