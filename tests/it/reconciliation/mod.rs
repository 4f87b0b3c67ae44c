//! Out of doubt (protocol §6): over HTTP, with an adapter that is a real server, on both stores.

mod answers;
mod automatic;
mod crowd;
mod inspection;
mod redaction;
mod replay;
mod supplied;
mod switch;
mod verification;
mod walk;

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::adapter::{FakeAdapter, OPEN};
use crate::support::api::{Answer, Api, Call, segment};
use crate::support::{Options, Server, StoreUnderTest, bodies};

/// The tool of these tests.
const TOOL: &str = "payments.refund";

/// Options of a server that may speak to adapters on this machine.
pub(crate) fn open() -> Options {
    OPEN.iter().fold(Options::default(), |options, (name, value)| options.env(name, value))
}

/// A server of its own whose tool has this adapter, and a client of it.
async fn served(store: StoreUnderTest, adapter: &FakeAdapter, changes: Value) -> (Server, Api) {
    let server = store.server(open());
    let api = Api::of(&server, "t");
    register(&api, adapter, changes).await;
    (server, api)
}

/// Registers the tool: lookups, no verification unless `changes` say so.
async fn register(api: &Api, adapter: &FakeAdapter, changes: Value) {
    let spec = json!({ "effect": "external", "settle_window_seconds": 0, "verification": "waived",
        "adapter": bodies::with(adapter.spec(), &json!({ "verify": false })) });
    let answer = api.put_tool(TOOL, &bodies::with(spec, &changes)).await;
    assert!(answer.status.is_success(), "{answer}");
}

/// An effect whose outcome is unknown.
pub(crate) async fn doubtful(api: &Api, operation_id: &str) -> Answer {
    let granted = api.intent(&bodies::claiming(operation_id, TOOL)).await.expect(201).directive("dispatch");
    api.outcome(operation_id, &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown")
}

/// A request to look the effect up as it is in this answer.
fn lookup(found: &Answer) -> Value {
    json!({ "operation_id": found.str("/operation_id"), "tool": TOOL, "expected_revision": found.at("/revision"),
        "lookup": true })
}

/// A reconciliation, to be sent.
fn asking(api: &Api, operation_id: &str, body: &Value) -> Call {
    api.call("POST", &format!("/api/effects/{}/reconciliations", segment(operation_id))).json(body)
}

/// Asks, and waits until it is closed.
async fn reconciled(api: &Api, operation_id: &str, body: &Value) -> Answer {
    asking(api, operation_id, body).header("prefer", "wait=20").send().await
}

/// The effect, once it is in a state.
async fn until(api: &Api, operation_id: &str, state: &str) -> Answer {
    let deadline = Instant::now() + Duration::from_secs(40);
    loop {
        let found = api.get(operation_id).await.expect(200);
        if found.str("/state") == state {
            return found;
        }
        assert!(Instant::now() < deadline, "not {state} in time: {found}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
