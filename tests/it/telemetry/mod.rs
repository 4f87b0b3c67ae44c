//! What the service tells about itself: traces, metrics, timings, and that none of it has content.

mod logs;
mod metrics;
mod scan;
mod timing;
mod traces;

use serde_json::json;

use crate::support::adapter::{FakeAdapter, OPEN};
use crate::support::api::segment;
use crate::support::{Answer, Api, Options, bodies};

/// The tool of these tests.
const TOOL: &str = "payments.refund";

/// Options of a server that may speak to adapters on this machine.
fn open() -> Options {
    OPEN.iter().fold(Options::default(), |options, (name, value)| options.env(name, value))
}

/// Registers the tool with an adapter that is asked about doubts.
async fn register(api: &Api, adapter: &FakeAdapter) {
    let spec = json!({ "effect": "external", "settle_window_seconds": 0, "verification": "waived",
        "adapter": bodies::with(adapter.spec(), &json!({ "verify": false })) });
    let answer = api.put_tool(TOOL, &spec).await;
    assert!(answer.status.is_success(), "{answer}");
}

/// Brings an effect into doubt and asks the adapter about it.
async fn look_up(api: &Api, operation_id: &str, trace: &str) -> Answer {
    let granted = api.intent(&bodies::claiming(operation_id, TOOL)).await.expect(201).directive("dispatch");
    let found = api.outcome(operation_id, &bodies::unknown(&granted)).await.expect(200);
    let body = json!({ "operation_id": operation_id, "tool": TOOL, "expected_revision": found.at("/revision"),
        "lookup": true });
    let path = format!("/api/effects/{}/reconciliations", segment(operation_id));
    api.call("POST", &path).header("prefer", "wait=20").header("traceparent", trace).json(&body).send().await
}
