//! Arguments that a tool retains: sealed, until the effect is settled, and nowhere else (law 11).

use serde_json::{Value, json};

use crate::http::approvals::{approve, person};
use crate::http::{TOOL, tool};
use crate::scenarios::{count, intact};
use crate::support::{Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(
    retained_arguments_go_with_the_settlement,
    retained_arguments_stand_nowhere_in_clear,
    they_outlive_a_kill_and_are_read_by_every_replica,
    another_data_key_opens_nothing,
    a_refused_intent_retains_nothing,
);

const SECRET: &str = "hunter2-4929-1111-2222-3333";

async fn retaining(store: StoreUnderTest, options: Options, approval: &Value) -> (Server, Api) {
    let server = store.server(options);
    let api = Api::of(&server, "t");
    let spec = json!({ "effect": "external", "authorization": approval, "retain_arguments": "until_settled" });
    tool(&api, spec).await;
    (server, api)
}

fn secret(operation: &str) -> Value {
    let arguments = json!({ "operation": operation, "card": SECRET });
    bodies::with(bodies::intent(operation, TOOL), &json!({ "arguments": arguments }))
}

async fn retained_arguments_go_with_the_settlement(store: StoreUnderTest) {
    let (server, api) = retaining(store, Options::default(), &json!({ "mode": "automatic" })).await;
    let claiming = |operation: &str| bodies::with(secret(operation), &json!({ "claim": bodies::claim() }));
    let rows = || count(&server, "SELECT count(*) FROM retained_arguments");
    // Each way in which an effect settles.
    api.intent(&secret("cancelled")).await.expect(201).state("intent_recorded");
    let completed = api.intent(&claiming("completed")).await.expect(201);
    let verified = api.intent(&claiming("verified")).await.expect(201);
    let failed = api.intent(&claiming("failed")).await.expect(201);
    let given_up = api.intent(&claiming("given-up")).await.expect(201);
    assert_eq!(rows(), 5);
    api.cancel("cancelled").await.expect(200).state("failed");
    assert_eq!(rows(), 4);
    api.outcome("completed", &bodies::succeeded(&completed)).await.expect(200).state("completed");
    assert_eq!(rows(), 3);
    // What is not settled stays.
    api.outcome("verified", &bodies::receipted(&verified)).await.expect(200).state("verifying");
    api.outcome("given-up", &bodies::not_sent(&given_up)).await.expect(200).state("safe_to_retry");
    assert_eq!(rows(), 3);
    api.verify("verified", &bodies::verification()).await.expect(200).state("completed");
    api.outcome("failed", &bodies::failed(&failed)).await.expect(200).state("failed");
    api.cancel("given-up").await.expect(200).state("failed");
    assert_eq!(rows(), 0);
    // Evidence that comes later changes nothing of that, nor does a repeat.
    api.outcome("completed", &bodies::failed(&completed)).await.problem(409, "state-conflict");
    api.intent(&claiming("completed")).await.expect(200).directive("replay");
    assert_eq!(rows(), 0);
    // Many at once, in one batch and in several.
    let all: Vec<_> = (0..40).map(|number| format!("crowd-{number}")).collect();
    let work = all.iter().map(|operation| async {
        let granted = api.intent(&claiming(operation)).await.expect(201).directive("dispatch");
        api.outcome(operation, &bodies::succeeded(&granted)).await.expect(200).state("completed");
    });
    futures_util::future::join_all(work).await;
    assert_eq!(rows(), 0);
    // Proposals: denied, withdrawn, expired.
    let brief = json!({ "effect": "external", "retain_arguments": "until_settled",
        "authorization": { "mode": "approval", "expires_after_seconds": 1 } });
    api.put_tool(TOOL, &brief).await.expect(200);
    let ann = api.with_token(Some(server.token("t", "ann", "effects:approve")));
    let denied = api.intent(&secret("denied")).await.expect(201);
    api.intent(&secret("withdrawn")).await.expect(201);
    api.intent(&secret("expired")).await.expect(201);
    ann.authorize("denied", 1, &bodies::decision(&denied, "deny")).await.expect(200).state("refused");
    api.cancel("withdrawn").await.expect(200).state("refused");
    api.call("GET", "/api/effects/expired").header("prefer", "wait=30").send().await.expect(200).state("refused");
    assert_eq!(rows(), 0);
    intact(&server);
}

async fn retained_arguments_stand_nowhere_in_clear(store: StoreUnderTest) {
    let options = Options::default().env("ACTONCE_LOG", "info,actonce=trace,sqlx=trace");
    let (server, api) = retaining(store, options, &json!({ "mode": "approval" })).await;
    let ann = api.with_token(Some(server.token("t", "ann", "effects:approve")));
    let proposed = api.intent(&secret("op")).await.expect(201);
    assert!(ann.read("/api/approvals/op").await.expect(200).text.contains(SECRET), "for the approver alone");
    assert!(!proposed.text.contains(SECRET));
    approve(&ann, &proposed).await.expect(200);
    let granted = api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
    for answer in [api.get("op").await, api.list("limit=10").await, api.read("/metrics").await] {
        assert!(!answer.text.contains(SECRET), "{answer}");
    }
    assert!(!json!(api.journal("op").await).to_string().contains(SECRET));
    assert_eq!(count(&server, "SELECT count(*) FROM retained_arguments"), 1);
    let is_clear = |table: &str| {
        if server.database_url().is_some() {
            count(&server, &format!("SELECT count(*) FROM {table} AS x WHERE x::text LIKE '%{SECRET}%'"))
        } else {
            0
        }
    };
    for table in ["entries", "open_effects", "retained_arguments", "tool_revisions", "grants", "grant_uses"] {
        assert_eq!(is_clear(table), 0, "{table}");
    }
    if server.database_url().is_none() {
        for file in std::fs::read_dir(server.data_dir()).unwrap() {
            let path = file.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            assert!(!bytes.windows(SECRET.len()).any(|window| window == SECRET.as_bytes()), "{}", path.display());
        }
    }
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    assert_eq!(count(&server, "SELECT count(*) FROM retained_arguments"), 0);
    assert!(!server.log().contains(SECRET));
}

async fn they_outlive_a_kill_and_are_read_by_every_replica(store: StoreUnderTest) {
    let (server, api) = retaining(store, Options::default(), &json!({ "mode": "approval" })).await;
    let proposed = api.intent(&secret("op")).await.expect(201);
    server.kill9();
    server.restart();
    let replica = server.replica();
    for server in [&server, &replica] {
        let ann = Api::of(server, "t").with_token(Some(server.token("t", "ann", "effects:approve")));
        let read = ann.read("/api/approvals/op").await.expect(200);
        assert_eq!(read.at("/arguments/card"), SECRET);
    }
    // Asked here, approved there, settled here: gone on both.
    let there = Api::of(&replica, "t").with_token(Some(replica.token("t", "ann", "effects:approve")));
    approve(&there, &proposed).await.expect(200);
    Api::of(&server, "t").cancel("op").await.expect(200).state("failed");
    assert_eq!(there.read("/api/approvals/op").await.expect(200).at("/arguments_preview"), "removed");
}

async fn another_data_key_opens_nothing(store: StoreUnderTest) {
    let (server, api) = retaining(store, Options::default(), &json!({ "mode": "approval" })).await;
    api.intent(&secret("op")).await.expect(201);
    server.stop();
    std::fs::write(server.data_dir().join("dev-data-key"), "07".repeat(32)).unwrap();
    server.restart();
    let ann = api.at(&server).with_token(Some(server.token("t", "ann", "effects:approve")));
    for path in ["/api/approvals/op", "/api/approvals"] {
        let read = ann.read(path).await.expect(200);
        assert!(read.text.contains("\"arguments_preview\":\"unreadable\"") && !read.text.contains(SECRET), "{read}");
    }
    assert!(server.log().contains("can't be opened"));
}

async fn a_refused_intent_retains_nothing(store: StoreUnderTest) {
    let (server, api) = retaining(store, Options::default(), &json!({ "mode": "approval" })).await;
    api.intent(&secret("op")).await.expect(201);
    // Another content under the same id, and the same act under another id.
    let other = bodies::with(secret("op"), &json!({ "arguments": { "card": "other" } }));
    api.intent(&other).await.problem(422, "operation-reused");
    api.intent(&bodies::with(secret("op"), &json!({ "operation_id": "two" })))
        .await
        .problem(409, "suspected-duplicate");
    assert_eq!(count(&server, "SELECT count(*) FROM retained_arguments"), 1);
    let ann = person(store, &api, "ann").at(&server);
    let ann = ann.with_token(Some(server.token("t", "ann", "effects:approve")));
    assert_eq!(ann.read("/api/approvals/op").await.expect(200).at("/arguments/card"), SECRET);
}
