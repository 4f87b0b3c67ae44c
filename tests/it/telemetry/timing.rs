//! Timings of requests (protocol §13).

use std::collections::BTreeMap;

use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use serde_json::{Value, json};

use super::{look_up, open, register};
use crate::http::{TOOL, external};
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::collector::{Collector, hex, names};
use crate::support::{Answer, Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    phases_are_measured_and_fit_into_the_whole,
    reads_and_writes_of_their_own_are_measured,
    the_ring_is_bounded_and_each_tenant_sees_its_own,
    the_adapter_is_a_phase,
    it_can_be_switched_off,
);

/// `Server-Timing` as milliseconds by name.
fn server_timing(answer: &Answer) -> BTreeMap<String, f64> {
    let text = answer.header("server-timing").unwrap_or_else(|| panic!("no server-timing: {answer}"));
    let entry = |entry: &str| {
        let (name, value) = entry.trim().split_once(";dur=").expect("name;dur=value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    text.split(',').map(entry).collect()
}

async fn recent(api: &Api) -> Vec<Value> {
    let answer = api.read("/api/timing/recent").await.expect(200);
    answer.at("/items").as_array().expect("items").clone()
}

fn of_route<'a>(recent: &'a [Value], route: &str) -> &'a Value {
    recent.iter().find(|item| item["route"] == route).unwrap_or_else(|| panic!("no {route} in {recent:?}"))
}

async fn phases_are_measured_and_fit_into_the_whole(store: StoreUnderTest) {
    // A server of its own: a record that meets another one is left out.
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let answer = api.intent(&bodies::claiming("op", TOOL)).await.expect(201);
    let shown = server_timing(&answer);
    let total = shown["total"];
    let mut sum = 0.0;
    for phase in ["authentication", "admission", "decision", "store_wait", "store_execution", "commit", "response"] {
        sum += shown.get(phase).unwrap_or_else(|| panic!("no {phase} in {shown:?}"));
    }
    assert!(shown["commit"] > 0.0 && shown["decision"] > 0.0, "{shown:?}");
    assert!(sum <= total + 0.01, "the phases are disjoint: {sum} of {total}");
    // The ring has the same request, under the span that the caller knows.
    let items = recent(&api).await;
    let item = of_route(&items, "/api/intents");
    let trace: Vec<&str> = answer.header("traceparent").unwrap().split('-').collect();
    assert_eq!((&item["trace_id"], &item["request_id"]), (&json!(trace[1]), &json!(trace[2])));
    assert_eq!((&item["method"], &item["status"]), (&json!("POST"), &json!(201)));
    let micros =
        |pointer: &str| item.pointer(pointer).and_then(Value::as_u64).unwrap_or_else(|| panic!("{pointer}: {item}"));
    #[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "a short time")]
    let commit = micros("/phases/commit_us") as f64 / 1000.0;
    assert!((commit - shown["commit"]).abs() < 0.002, "{item} {shown:?}");
    assert_eq!(micros("/store/commit_us"), micros("/phases/commit_us"));
    assert!(micros("/store/transactions") >= 1 && micros("/store/batch") >= 1 && micros("/store/bytes_bound") > 500);
    assert!(micros("/store/lock_wait_us") <= micros("/phases/store_wait_us"));
    // Who did not say who they are learn the total alone.
    let stranger = server_timing(&api.with_token(None).get("op").await.expect(401));
    assert_eq!(stranger.keys().collect::<Vec<_>>(), ["total"]);
    let metrics = api.read("/metrics").await.expect(200).text;
    assert!(metrics.contains(r#"actonce_request_phase_seconds_count{phase="commit"}"#), "{metrics}");
}

/// What goes to the store apart from the shared lanes: lists, journals, tools.
async fn reads_and_writes_of_their_own_are_measured(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    api.intent(&bodies::claiming("op", TOOL)).await.expect(201);
    for path in ["/api/effects?limit=1", "/api/effects/op/journal", "/api/queue", "/api/tools"] {
        let shown = server_timing(&api.read(path).await.expect(200));
        assert!(shown.get("store_execution").is_some_and(|spent| *spent > 0.0), "{path}: {shown:?}");
        let sum: f64 = shown.iter().filter(|(name, _)| *name != "total").map(|(_, spent)| spent).sum();
        assert!(sum <= shown["total"] + 0.01, "{path}: {shown:?}");
    }
    let items = recent(&api).await;
    let put = of_route(&items, "/api/tools/{name}");
    assert!(put["phases"]["commit_us"].as_u64() > Some(0), "{put}");
    for route in ["/api/effects", "/api/effects/{operation_id}/journal", "/api/tools/{name}"] {
        let item = of_route(&items, route);
        assert!(item["store"]["transactions"].as_u64() >= Some(1), "{item}");
    }
}

async fn the_ring_is_bounded_and_each_tenant_sees_its_own(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let (a, b) = (Api::of(&server, "a"), Api::of(&server, "b"));
    b.get("absent").await.expect(404);
    for _ in 0..70 {
        a.list("limit=1").await.expect(200);
    }
    let (of_a, of_b) = (recent(&a).await, recent(&b).await);
    assert_eq!(of_a.len(), 64, "bounded");
    assert!(of_a.iter().all(|item| item["route"] == "/api/effects"), "{of_a:?}");
    let times: Vec<&str> = of_a.iter().map(|item| item["started_at"].as_str().unwrap()).collect();
    assert!(times.is_sorted_by(|newer, older| newer >= older), "the newest first");
    assert_eq!(of_b.len(), 1, "another tenant's requests neither show nor push out: {of_b:?}");
    assert_eq!((&of_b[0]["route"], &of_b[0]["status"]), (&json!("/api/effects/{operation_id}"), &json!(404)));
}

async fn the_adapter_is_a_phase(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Late(std::time::Duration::from_millis(120), answers::absent())).await;
    let server = store.server(open());
    let api = Api::of(&server, "t");
    register(&api, &adapter).await;
    let answer = look_up(&api, "op", "").await.expect(200);
    let shown = server_timing(&answer);
    assert!(shown["adapter"] >= 119.0 && shown["total"] >= shown["adapter"], "{shown:?}");
}

async fn it_can_be_switched_off(store: StoreUnderTest) {
    let collector = Collector::start().await;
    let server = store.server(collector.options(Options::default().arg("--timing").arg("off")));
    let api = Api::of(&server, "t");
    external(&api).await;
    let answer = api.intent(&bodies::claiming("op", TOOL)).await.expect(201);
    assert_eq!(answer.header("server-timing"), None);
    // Traces go on, without phases in them.
    let own = answer.header("traceparent").and_then(|header| header.split('-').nth(2)).expect("a span").to_owned();
    let spans = collector.until(|span| hex(&span.span_id) == own).await;
    assert!(spans.iter().all(|span| span.kind == i32::from(SpanKind::Server)), "{:?}", names(&spans));
    let found = api.read("/api/timing/recent").await.expect(200);
    assert_eq!((found.at("/enabled"), found.at("/items")), (&json!(false), &json!([])));
    let metrics = api.read("/metrics").await.expect(200).text;
    let phase = metrics.lines().find(|line| line.starts_with("actonce_request_phase_seconds_count{phase=\"commit\"}"));
    assert!(phase.is_none_or(|line| line.ends_with(" 0")), "{phase:?}");
}
