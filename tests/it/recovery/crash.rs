//! An executor that dies: what it did is found, what it did not do is done, and nothing twice.

use std::time::Duration;

use serde_json::json;

use super::{doubtful, execute, execution, plan, prepared, receipts, repair};
use crate::http::{TOOL, external};
use crate::scenarios::{count, intact, sql};
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_kill_in_the_middle_is_repaired_by_repeating,
    a_receipt_that_was_not_written_is_written_from_the_effect,
    a_prepared_effect_of_a_killed_client_is_settled_and_never_acted_on,
    an_execution_is_finished_from_every_one_of_its_commits,
);

async fn a_kill_in_the_middle_is_repaired_by_repeating(store: StoreUnderTest) {
    const ITEMS: usize = 400;
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    let operations: Vec<String> = (0..ITEMS).map(|number| format!("op-{number}")).collect();
    for some in operations.chunks(100) {
        let items: Vec<_> = some.iter().map(|operation| bodies::intent(operation, TOOL)).collect();
        api.post("/api/intents/batch", &json!({ "items": items })).await.expect(200);
    }
    let made = plan(&api, &json!({ "limit": 1000 })).await;
    let decisions = json!(operations.iter().map(|operation| repair(operation)).collect::<Vec<_>>());
    let request = execution(&made, "e", decisions);
    let working = api.call("POST", "/api/recovery/executions").json(&request).try_send();
    let killing = async {
        loop {
            let read = api.call("GET", "/api/recovery/executions/e").send().await;
            if read.status == 200 && read.json["receipts"].as_array().unwrap().len() >= 20 {
                break;
            }
        }
        server.kill9();
    };
    let (answered, ()) = tokio::join!(working, killing);
    assert!(answered.is_err(), "it was killed before it had done everything");
    server.restart();
    let api = api.at(&server);
    let before = api.read("/api/recovery/executions/e").await.expect(200);
    let written = before.json["receipts"].as_array().unwrap().clone();
    assert!(written.len() >= 20 && written.len() < ITEMS, "{}", written.len());
    let mut now = execute(&api, &request).await.expect(200);
    // What the dead one had in hand is not taken from it before its time.
    let held = now.json["pending"].as_array().unwrap().len();
    assert!(held <= 16, "{held}");
    sql(&server, "UPDATE recovery_claims SET expires_us = 1");
    now = if held > 0 { execute(&api, &request).await.expect(200) } else { now };
    assert_eq!((now.at("/completed"), now.at("/pending")), (&json!(true), &json!([])));
    let all = now.json["receipts"].as_array().unwrap();
    assert_eq!(all.len(), ITEMS);
    for receipt in &written {
        assert!(all.contains(receipt), "what was written stays: {receipt}");
    }
    for (receipt, operation) in all.iter().zip(&operations) {
        assert_eq!((&receipt["outcome"], &receipt["operation_id"]), (&json!("executed"), &json!(operation)));
        assert_eq!(receipt["revision"], 2, "{receipt}");
    }
    for operation in &operations {
        assert_eq!(api.get(operation).await.state("failed").revision(), 2, "settled once");
    }
    eprintln!("{} receipts before the kill, {held} items in its hands", written.len());
    intact(&server);
}

/// The crash between the effect's commit and its receipt, at its exact place.
async fn a_receipt_that_was_not_written_is_written_from_the_effect(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    prepared(&api, "op", "s").await;
    let granted = doubtful(&api, "doubt", "s").await;
    let made = plan(&api, &json!({})).await;
    let mark = json!({ "operation_id": "doubt", "action": "mark_failed", "message": "looked" });
    let request = execution(&made, "e", json!([repair("op"), mark]));
    let done = execute(&api, &request).await.expect(200);
    let forget = |server| sql(server, "DELETE FROM recovery_receipts");
    forget(&server);
    let bare = api.read("/api/recovery/executions/e").await.expect(200);
    assert_eq!((bare.at("/completed"), bare.at("/receipts")), (&json!(false), &json!([])));
    let journals = async || [api.journal("op").await, api.journal("doubt").await];
    let before = journals().await;
    let again = execute(&api, &request).await.expect(200);
    assert_eq!(receipts(&again), receipts(&done), "to the letter");
    assert_eq!(journals().await, before, "and nothing is done again");
    // Also when the effect has been written to since.
    api.outcome("doubt", &bodies::succeeded(&granted)).await.problem(409, "state-conflict");
    forget(&server);
    let again: Answer = execute(&api, &request).await.expect(200);
    assert_eq!(receipts(&again), receipts(&done));
    // Another execution of the same plan does not take it for its own.
    let other = bodies::set(request, "/execution_id", json!("another"));
    let other = execute(&api, &other).await.expect(200);
    assert_eq!(
        (other.at("/receipts/0/blockers"), other.at("/receipts/1/blockers")),
        (&json!(["stale_plan"]), &json!(["stale_plan"]))
    );
}

/// Prepared, then the service is killed; the client is gone too.
async fn a_prepared_effect_of_a_killed_client_is_settled_and_never_acted_on(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    prepared(&api, "op", "s").await;
    let made = plan(&api, &json!({})).await;
    server.kill9();
    server.restart();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let api = api.at(&server);
    // A plan from before the restart is as good as it was.
    let done = execute(&api, &execution(&made, "e", json!([repair("op")]))).await.expect(200);
    assert_eq!(done.at("/receipts/0/outcome"), "executed");
    let settled = api.get("op").await.state("failed");
    assert_eq!((settled.at("/executed"), settled.at("/attempt")), (&json!(false), &json!(0)));
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("stop");
}

/// From now on nothing is written into a table.
fn refuse(server: &Server, table: &str) {
    let statement = if server.database_url().is_some() {
        format!(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$; \
             CREATE TRIGGER refuse BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION refuse();"
        )
    } else {
        format!("CREATE TRIGGER refuse BEFORE INSERT ON {table} BEGIN SELECT RAISE(ABORT, 'refused'); END")
    };
    sql(server, &statement);
}

fn accept(server: &Server, table: &str) {
    if server.database_url().is_some() {
        sql(server, &format!("DROP TRIGGER refuse ON {table}; DROP FUNCTION refuse()"));
    } else {
        sql(server, "DROP TRIGGER refuse");
    }
}

/// The process dies before and after each commit of an execution: the decisions, the claim of an item,
/// the effect, the receipt. What is durable then is what was committed; the same request does the rest.
async fn an_execution_is_finished_from_every_one_of_its_commits(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let mut api = Api::of(&server, "t");
    external(&api).await;
    for (table, begun, settled) in [
        ("recovery_executions", 0, false),
        ("recovery_claims", 1, false),
        ("entries", 1, false),
        ("recovery_receipts", 1, true),
    ] {
        let (op, doubt) = (format!("op-{table}"), format!("doubt-{table}"));
        prepared(&api, &op, table).await;
        doubtful(&api, &doubt, table).await;
        let made = plan(&api, &json!({ "session_ids": [table] })).await;
        let mark = json!({ "operation_id": doubt, "action": "mark_failed", "message": "looked" });
        let request = execution(&made, table, json!([repair(&op), mark]));
        refuse(&server, table);
        let call = api.call("POST", "/api/recovery/executions").json(&request);
        let broken = call.send_to_a_fault().await.unwrap();
        assert!(broken.status.is_server_error(), "{table}: {broken}");
        server.kill9();
        accept(&server, table);
        let found = format!("SELECT count(*) FROM recovery_executions WHERE execution_id = '{table}'");
        assert_eq!(count(&server, &found), begun, "{table}");
        let found = format!("SELECT count(*) FROM recovery_receipts WHERE execution_id = '{table}'");
        assert_eq!(count(&server, &found), 0, "{table}");
        server.restart();
        api = api.at(&server);
        for (operation, before) in [(&op, "intent_recorded"), (&doubt, "outcome_unknown")] {
            api.get(operation).await.state(if settled { "failed" } else { before });
        }
        // What the dead one may have in hand ends by itself; here it is over.
        sql(&server, "UPDATE recovery_claims SET expires_us = 1");
        let done = execute(&api, &request).await.expect(200);
        assert_eq!((done.at("/completed"), done.at("/pending")), (&json!(true), &json!([])), "{table}");
        for number in 0..2 {
            assert_eq!(done.at(&format!("/receipts/{number}/outcome")), "executed", "{table}: {done}");
        }
        for operation in [&op, &doubt] {
            api.get(operation).await.state("failed");
            let events = api.events(operation).await;
            let executed = events.iter().filter(|event| *event == "recovery.item.executed").count();
            assert_eq!(executed, 1, "{table}, {operation}: {events:?}");
        }
        // After the last commit the answer alone is lost.
        let again = execute(&api, &request).await.expect(200);
        assert_eq!((receipts(&again), again.at("/replayed")), (receipts(&done), &json!(true)));
    }
    intact(&server);
}
