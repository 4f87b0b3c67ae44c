//! A restored copy knows what the original knew: operation ids, outcomes, approvals, grants, execution ids.

use serde_json::{Value, json};

use super::{execute, execution, plan, prepared, receipts, repair};
use crate::http::{TOOL, external};
use crate::scenarios::intact;
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores, postgres};

both_stores!(a_restored_copy_answers_as_the_original_did);

/// Stops a server, and starts another one on a copy of its data.
fn restored(server: &Server) -> Server {
    server.stop();
    let folder = server.data_dir().with_file_name("restored");
    std::fs::create_dir_all(&folder).unwrap();
    for file in std::fs::read_dir(server.data_dir()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), folder.join(file.file_name())).unwrap();
    }
    let database_url = server.database_url().map(postgres::copy_of);
    Server::start(Options { database_url, ..Options::default() }.data_dir(&folder))
}

async fn a_restored_copy_answers_as_the_original_did(store: StoreUnderTest) {
    let original = store.server(Options::default());
    let api = Api::of(&original, "t");
    let ann = |server: &Server| api.at(server).with_token(Some(server.token("t", "ann", "effects:approve")));
    external(&api).await;
    let guarded = json!({ "effect": "external", "authorization": { "mode": "approval" } });
    api.put_tool("guarded", &guarded).await.expect(201);
    let done = api.intent(&bodies::claiming("done", TOOL)).await.expect(201).directive("dispatch");
    let report = bodies::with(bodies::succeeded(&done), &json!({ "result": { "b": 1.0, "a": "é" } }));
    api.outcome("done", &report).await.expect(200).state("completed");
    let proposed = api.intent(&bodies::intent("approved", "guarded")).await.expect(201);
    ann(&original).authorize("approved", 1, &bodies::decision(&proposed, "approve")).await.expect(200);
    let terms =
        json!({ "tool": "guarded", "target": "x", "max_uses": 2, "expires_after_seconds": 3_600, "reason": "routine" });
    let grant = ann(&original).post("/api/grants", &terms).await.expect(201);
    let at_x = |operation: &str| bodies::with(bodies::claiming(operation, "guarded"), &json!({ "target": "x" }));
    api.intent(&at_x("granted-1")).await.expect(201).directive("dispatch");
    prepared(&api, "prepared", "s").await;
    let made = plan(&api, &json!({ "session_ids": ["s"] })).await;
    let request = execution(&made, "night", json!([repair("prepared")]));
    let executed = execute(&api, &request).await.expect(200);
    let result = |answer: &Answer| answer.text[answer.text.find("\"receipt\":").unwrap()..].to_owned();
    let settled = api.intent(&bodies::claiming("done", TOOL)).await.expect(200).directive("replay");
    let before: Vec<Value> = api.pages("/api/effects?limit=200").await;

    let copy = restored(&original);
    let (ann, api) = (ann(&copy), api.at(&copy));
    assert_eq!(api.pages("/api/effects?limit=200").await, before);
    let replay: Answer = api.intent(&bodies::claiming("done", TOOL)).await.expect(200).directive("replay");
    assert_eq!(result(&replay), result(&settled), "byte for byte");
    api.outcome("done", &report).await.expect(200).state("completed");
    let other = bodies::with(bodies::claiming("done", TOOL), &json!({ "target": "elsewhere" }));
    api.intent(&other).await.problem(422, "operation-reused");
    // The approval is there, and good for one dispatch.
    let granted = api.dispatch("approved", &bodies::claim()).await.expect(200).directive("dispatch");
    api.outcome("approved", &bodies::not_sent(&granted)).await.expect(200);
    api.dispatch("approved", &bodies::claim()).await.expect(200).directive("authorize");
    // The grant has one use left.
    let read = ann.read(&format!("/api/grants/{}", grant.str("/grant_id"))).await.expect(200);
    assert_eq!(read.at("/uses"), 1, "{read}");
    let twin = |answer: &str| bodies::with(at_x(answer), &json!({ "arguments": { "n": answer } }));
    api.intent(&twin("granted-2")).await.expect(201).directive("dispatch");
    api.intent(&twin("granted-3")).await.expect(201).directive("authorize");
    // The execution is known under its id, and another decision is fenced.
    let again = execute(&api, &request).await.expect(200);
    assert_eq!((receipts(&again), again.at("/replayed")), (receipts(&executed), &json!(true)));
    let intact_instead = json!([{ "operation_id": "prepared", "action": "leave_intact" }]);
    execute(&api, &execution(&made, "night", intact_instead)).await.problem(409, "state-conflict");
    intact(&copy);
}
