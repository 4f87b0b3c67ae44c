//! The walk with curl in the documentation, as somebody who pastes it.

use std::path::Path;
use std::process::Command;

use serde_json::json;

use super::open;
use crate::support::adapter::{FakeAdapter, Reply, answers, secret};
use crate::support::{StoreUnderTest, blocking, bodies, both_stores};

both_stores!(the_walk_in_the_documentation_runs);

async fn the_walk_in_the_documentation_runs(store: StoreUnderTest) {
    let document = include_str!("../../../docs/reconciliation.md");
    let (_, after) = document.split_once("<!-- reconcile-flow -->\n```bash\n").expect("the marked block");
    let (script, _) = after.split_once("\n```").expect("its end");
    let adapter = FakeAdapter::start(|received| {
        let id = received.json()["operation_id"].as_str().unwrap().to_owned();
        let receipt = bodies::with(bodies::receipt(&id), &json!({ "target": format!("order-{id}") }));
        Reply::Json(match id.as_str() {
            "walk-1" => answers::settled(&receipt),
            "walk-2" => answers::absent(),
            _ => answers::other("multiple"),
        })
    })
    .await;
    let server = store.server(open());
    let mut bash = Command::new("bash");
    bash.arg("-c").arg(script).current_dir(Path::new(env!("CARGO_MANIFEST_DIR"))).env_remove("http_proxy");
    bash.env("ACTONCE", server.url()).env("TOKEN", server.ready().token);
    bash.env("ADAPTER", adapter.url()).env("ADAPTER_SECRET", secret(1));
    let output = blocking(move || bash.output().expect("bash runs")).await;
    assert!(output.status.success(), "{output:?}");
    let out = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = out.lines().filter(|line| !line.is_empty()).collect();
    let expected = [
        "walk-1: outcome_unknown",
        "walk-1: completed, now completed",
        "walk-2: outcome_unknown",
        "walk-2: not_found, now safe_to_retry",
        "walk-3: outcome_unknown",
        "walk-3: multiple, now manual_review",
        "walk-4, first time: rejected by revision 4",
        "walk-4, second time: rejected by revision 4",
    ];
    assert_eq!(lines, expected, "{out}");
    assert_eq!(adapter.calls(), 4, "one question for each");
    assert!(adapter.received().iter().all(|question| question.verify(&secret(1)).is_ok()));
}
