//! The data key is changed (docs/key-rotation.md): beside running replicas, on both stores, and nothing is lost.

mod beside;
mod command;
mod store;

use actonce::domain::data_key::{key_id, key_name};
use serde_json::{Value, json};

use crate::http::receipts::{Vendor, event, put};
use crate::support::adapter::{FakeAdapter, OPEN, Reply, answers, secret};
use crate::support::server::program;
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, blocking, bodies};

/// What is in the arguments, and must be in no output.
const CARD: &str = "hunter2-4929-1111-2222-3333";

fn key(number: u8) -> String {
    hex::encode([number; 32])
}

/// What a key is called.
fn id(number: u8) -> String {
    key_name(key_id(&[number; 32]))
}

fn ring(keys: &[u8]) -> String {
    keys.iter().map(|number| key(*number)).collect::<Vec<_>>().join(",")
}

fn options(keys: &[u8]) -> Options {
    let open = OPEN.iter().fold(Options::default(), |options, (name, value)| options.env(name, value));
    open.env("ACTONCE_DATA_KEY", &ring(keys))
}

/// A server of its own on an empty database.
fn served(store: StoreUnderTest, keys: &[u8]) -> Server {
    store.server(options(keys))
}

/// The same database with another ring.
fn with_ring(server: &Server, keys: &[u8]) -> Server {
    Server::start(server.options().clone().data_dir(server.data_dir()).env("ACTONCE_DATA_KEY", &ring(keys)))
}

/// `actonce rotate-data-key` on the database of a server: exit code, report, and everything that it wrote.
async fn rotate(server: &Server, keys: &[u8], arguments: &[&str]) -> (i32, Value, String) {
    let mut command = program();
    command.arg("rotate-data-key").args(arguments).arg("--data-dir").arg(server.data_dir());
    command.env("ACTONCE_DATA_KEY", ring(keys));
    if let Some(url) = server.database_url() {
        command.env("DATABASE_URL", url);
    }
    let output = blocking(move || command.output().unwrap()).await;
    let report = serde_json::from_slice(&output.stdout).unwrap_or(Value::Null);
    let text = String::from_utf8(output.stdout).unwrap() + &String::from_utf8_lossy(&output.stderr);
    assert!(!text.contains(CARD) && !text.contains("whsec_") && !text.contains(&secret(1)[6..]), "{text}");
    assert!((1..=4).all(|number| !text.contains(&key(number))), "{text}");
    (output.status.code().unwrap(), report, text)
}

/// How many rows of each table stand under a key.
fn under(report: &Value, key: &str) -> Vec<u64> {
    report["tables"].as_array().unwrap().iter().map(|table| table["rows"][key].as_u64().unwrap_or(0)).collect()
}

fn of_key<'a>(report: &'a Value, key: &str) -> &'a Value {
    report["keys"].as_array().unwrap().iter().find(|entry| entry["key_id"] == key).unwrap()
}

/// One of everything that is sealed, made by one server.
struct Sealed {
    name: &'static str,
    vendor: Vendor,
    subscription: String,
    downstream_key: String,
}

async fn sealed(api: &Api, name: &'static str, adapter: &FakeAdapter, endpoint: &FakeAdapter) -> Sealed {
    let called = format!("called-{name}");
    let adapter = bodies::with(adapter.spec(), &json!({ "verify": false }));
    let spec =
        json!({ "effect": "external", "settle_window_seconds": 0, "verification": "waived", "adapter": adapter });
    api.put_tool(&called, &spec).await.expect(201);
    keep(api, name, &[name]).await;
    let by_key = json!({ "tools": [called], "operation_id": null, "downstream_key": "/data/metadata/operation_id" });
    let vendor = Vendor::new(api, &put(api, &format!("vendor-{name}"), &by_key).await);
    let body = json!({ "url": endpoint.url(), "secret": secret(7), "tools": [called] });
    let subscription = api.post("/api/subscriptions", &body).await.expect(201).str("/subscription_id").to_owned();
    let doubt = doubtful(api, &format!("doubt-{name}"), &called).await;
    let downstream_key = doubt.str("/dispatch/idempotency_key").to_owned();
    Sealed { name, vendor, subscription, downstream_key }
}

/// Proposals whose arguments are retained.
async fn keep(api: &Api, name: &str, operations: &[&str]) {
    let tool = format!("kept-{name}");
    let approval = json!({ "mode": "approval" });
    let spec = json!({ "effect": "external", "authorization": approval, "retain_arguments": "until_settled" });
    let put = api.put_tool(&tool, &spec).await;
    assert!(put.status.is_success(), "{put}");
    for operation in operations {
        let arguments = json!({ "card": CARD, "of": operation });
        let intent =
            bodies::with(bodies::intent(&format!("kept-{operation}"), &tool), &json!({ "arguments": arguments }));
        api.intent(&intent).await.expect(201).state("proposed");
    }
}

async fn doubtful(api: &Api, operation: &str, tool: &str) -> Answer {
    let granted = api.intent(&bodies::claiming(operation, tool)).await.expect(201).directive("dispatch");
    api.outcome(operation, &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown");
    granted
}

async fn readable(server: &Server, operation: &str) {
    let ann = Api::of(server, "t").with_token(Some(server.token("t", "ann", "effects:approve")));
    let read = ann.read(&format!("/api/approvals/kept-{operation}")).await.expect(200);
    assert_eq!(read.at("/arguments/card"), CARD, "{read}");
}

impl Sealed {
    /// Arguments are read, adapters and subscribers are told by who they know, vendors are understood.
    async fn works(&self, server: &Server, adapter: &FakeAdapter, endpoint: &FakeAdapter) {
        let (name, api) = (self.name, Api::of(server, "t"));
        readable(server, name).await;
        let (called, operation) = (format!("called-{name}"), format!("asked-{name}-{}", server.pid()));
        doubtful(&api, &operation, &called).await;
        adapter.set(Reply::Json(answers::settled(&bodies::receipt(&operation))));
        let body = json!({ "operation_id": operation, "tool": called, "expected_revision": api.get(&operation).await.revision(),
            "lookup": true });
        let path = format!("/api/effects/{operation}/reconciliations");
        let told = api.call("POST", &path).json(&body).header("prefer", "wait=20").send().await.expect(200);
        assert_eq!(told.str("/status"), "settled", "{told}");
        adapter.last().verify(&secret(1)).unwrap();
        crate::http::receipts::eventually("a message to the subscriber", || async {
            endpoint.received().iter().any(|message| {
                let body = message.json();
                body["data"]["operation_id"] == operation.as_str() || body.to_string().contains(&operation)
            })
        })
        .await;
        endpoint.last().verify(&secret(7)).unwrap();
        api.read(&format!("/api/subscriptions/{}", self.subscription)).await.expect(200);
    }

    /// What the vendor says about an effect by its downstream key is taken.
    async fn settles_by_key(&self, api: &Api) {
        let vendor = self.vendor.at(api);
        vendor.told(&event(&self.downstream_key, &format!("re-{}", self.name), "succeeded"), "settled").await;
        api.get(&format!("doubt-{}", self.name)).await.state("completed");
    }
}
