//! Executions: exactly the plan that was made, once.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{doubtful, execute, execution, item, live, plan, prepared, receipts, repair};
use crate::http::{TOOL, external};
use crate::scenarios::intact;
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    what_was_prepared_is_settled_and_told_again_to_the_letter,
    another_decision_under_the_same_id_is_fenced,
    an_edited_plan_is_refused,
    an_item_that_moved_is_stale,
    another_registration_makes_a_plan_stale,
    a_person_s_word_needs_a_message_and_ends_a_doubt,
    decisions_are_checked_against_the_plan,
    four_eyes_hold_for_a_mark,
    four_eyes_that_are_asked_for_since_hold_too,
    a_mark_needs_the_scope_of_a_resolution_too,
    two_executors_at_once_settle_each_item_once,
);

async fn what_was_prepared_is_settled_and_told_again_to_the_letter(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    prepared(&api, "op", "s").await;
    prepared(&api, "left", "s").await;
    let made = plan(&api, &json!({ "session_ids": ["s"] })).await;
    let leave = json!({ "operation_id": "left", "action": "leave_intact" });
    let request = execution(&made, "night shift", json!([repair("op"), leave]));
    let done = execute(&api, &request).await.expect(200);
    assert_eq!(
        (done.at("/completed"), done.at("/replayed"), done.at("/items")),
        (&json!(true), &json!(false), &json!(2))
    );
    for (member, value) in [
        ("execution_id", json!("night shift")),
        ("plan_id", made.json["plan_id"].clone()),
        ("operation_id", json!("op")),
        ("action", json!("automatic_repair")),
        ("outcome", json!("executed")),
        ("blockers", json!([])),
        ("state", json!("failed")),
        ("revision", json!(2)),
    ] {
        assert_eq!(done.json["receipts"][0][member], value, "{member}: {done}");
    }
    assert_eq!(done.at("/receipts/1/outcome"), "left_intact");
    let settled = api.get("op").await.state("failed");
    assert_eq!((settled.at("/executed"), settled.revision()), (&json!(false), 2));
    assert!(settled.json.get("dispatch").is_none() && settled.json.get("receipt").is_none(), "{settled}");
    let journal = api.journal("op").await;
    let events = journal[1]["events"].as_array().unwrap();
    assert_eq!(events[0]["type"], "effect.failed");
    let executed = json!({
        "type": "recovery.item.executed", "execution_id": "night shift", "plan_id": made.json["plan_id"],
        "action": "automatic_repair", "decision_digest": events[1]["decision_digest"],
    });
    assert_eq!((&events[1], journal[1]["at"].as_str()), (&executed, done.json["receipts"][0]["at"].as_str()));
    let left = api.get("left").await.state("intent_recorded");
    // The same question: the same bytes, and nothing more in any journal.
    for _ in 0..2 {
        let again = execute(&api, &request).await.expect(200);
        assert_eq!((receipts(&again), again.at("/replayed")), (receipts(&done), &json!(true)));
        let read = api.read("/api/recovery/executions/night%20shift").await.expect(200);
        assert_eq!(read.text, again.text);
    }
    assert_eq!(api.journal("op").await, journal);
    // The old worker is told to stop, by every way of asking.
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("stop");
    api.intent(&bodies::with(bodies::claiming("op", TOOL), &json!({ "session_id": "s" }))).await.directive("stop");
    assert_eq!(api.get("left").await.revision(), left.revision());
    api.dispatch("left", &bodies::claim()).await.expect(200).directive("dispatch");
}

async fn another_decision_under_the_same_id_is_fenced(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    prepared(&api, "a", "s").await;
    prepared(&api, "b", "s").await;
    let made = plan(&api, &json!({})).await;
    let first = execute(&api, &execution(&made, "e", json!([repair("a")]))).await.expect(200);
    let leave = json!([{ "operation_id": "a", "action": "leave_intact" }]);
    let worded = json!([{ "operation_id": "a", "action": "automatic_repair", "message": "why not" }]);
    let others = [json!([repair("b")]), json!([repair("a"), repair("b")]), leave, worded];
    for decisions in others {
        let refused = execute(&api, &execution(&made, "e", decisions)).await.problem(409, "state-conflict");
        assert!(refused.json.get("receipts").is_none());
    }
    let later = plan(&api, &json!({})).await;
    execute(&api, &execution(&later, "e", json!([repair("b")]))).await.problem(409, "state-conflict");
    api.get("b").await.state("intent_recorded");
    let read = api.read("/api/recovery/executions/e").await.expect(200);
    assert_eq!(receipts(&read), receipts(&first));
}

async fn an_edited_plan_is_refused(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    prepared(&api, "op", "s").await;
    doubtful(&api, "doubt", "s").await;
    let made = plan(&api, &json!({})).await;
    let request = execution(&made, "e", json!([repair("op")]));
    let number = made.json["items"].as_array().unwrap().iter().position(|item| item["operation_id"] == "op").unwrap();
    for (member, value) in [
        ("revision", json!(2)),
        ("state", json!("proposed")),
        ("session_id", json!("other")),
        ("fingerprint", json!(format!("sha256:{}", "0".repeat(64)))),
        ("allowed_actions", json!(["automatic_repair", "mark_completed", "leave_intact"])),
        ("blockers", json!(["tool_approval_required"])),
    ] {
        let edited = bodies::set(request.clone(), &format!("/plan/items/{number}/{member}"), value);
        execute(&api, &edited).await.problem(400, "invalid-request").faults_at(&["/plan/plan_id"]);
    }
    let edited = bodies::set(request.clone(), "/plan/created_at", json!("2026-01-01T00:00:00Z"));
    execute(&api, &edited).await.problem(400, "invalid-request").faults_at(&["/plan/plan_id"]);
    let more = bodies::set(request.clone(), "/plan/note", json!("mine"));
    execute(&api, &more).await.problem(400, "invalid-request");
    api.read("/api/recovery/executions/e").await.problem(404, "not-found");
    api.get("op").await.state("intent_recorded");
    // Another way to write the same plan is the same plan.
    execute(&api, &request).await.expect(200);
}

async fn an_item_that_moved_is_stale(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for operation in ["claimed", "cancelled", "still"] {
        prepared(&api, operation, "s").await;
    }
    let granted = doubtful(&api, "reported", "s").await;
    let made = plan(&api, &json!({})).await;
    api.dispatch("claimed", &bodies::claim()).await.directive("dispatch");
    api.cancel("cancelled").await.expect(200);
    api.outcome("reported", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    let before = api.pages("/api/effects?limit=200").await;
    let mark = json!({ "operation_id": "reported", "action": "mark_failed", "message": "it is not there" });
    let decisions = json!([repair("claimed"), mark, repair("cancelled"), repair("still")]);
    let request = execution(&made, "e", decisions);
    let done = execute(&api, &request).await.expect(200);
    for number in 0..3 {
        let receipt = &done.json["receipts"][number];
        assert_eq!(
            (&receipt["outcome"], &receipt["blockers"]),
            (&json!("blocked"), &json!(["stale_plan"])),
            "{receipt}"
        );
    }
    assert_eq!(
        (done.at("/receipts/0/state"), done.at("/receipts/3/outcome")),
        (&json!("dispatched"), &json!("executed"))
    );
    let after = api.pages("/api/effects?limit=200").await;
    for (was, is) in before.iter().zip(&after).filter(|(was, _)| was["operation_id"] != "still") {
        assert_eq!(was, is, "a stale item is left alone");
    }
    assert_eq!(receipts(&execute(&api, &request).await), receipts(&done), "blocked is an answer too");
}

async fn another_registration_makes_a_plan_stale(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for operation in ["a", "b", "c"] {
        prepared(&api, operation, "s").await;
    }
    let made = plan(&api, &json!({})).await;
    // Pausing is none.
    api.pause(TOOL).await.expect(200);
    let done = execute(&api, &execution(&made, "one", json!([repair("a")]))).await.expect(200);
    assert_eq!(done.at("/receipts/0/outcome"), "executed");
    api.put_tool(TOOL, &json!({ "effect": "external", "receipt": { "schema": "refund" } })).await.expect(200);
    let done = execute(&api, &execution(&made, "two", json!([repair("b")]))).await.expect(200);
    assert_eq!(done.at("/receipts/0/blockers"), &json!(["stale_plan"]));
    let now = plan(&api, &json!({})).await;
    assert_eq!(item(&now, "b")["blockers"], json!(["registration_incompatible"]));
    assert_eq!(item(&now, "b")["allowed_actions"], json!(["leave_intact"]));
    api.get("b").await.state("intent_recorded");
    // A registration that says that it settles the older one opens the way again.
    let spec = json!({ "effect": "external", "receipt": { "schema": "refund" }, "settles_revisions": [1] });
    api.put_tool(TOOL, &spec).await.expect(200);
    let now = plan(&api, &json!({})).await;
    let done = execute(&api, &execution(&now, "three", json!([repair("b"), repair("c")]))).await.expect(200);
    assert_eq!(
        (done.at("/receipts/0/outcome"), done.at("/receipts/1/outcome")),
        (&json!("executed"), &json!("executed"))
    );
}

async fn a_person_s_word_needs_a_message_and_ends_a_doubt(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = doubtful(&api, "failed", "s").await;
    doubtful(&api, "completed", "s").await;
    let made = plan(&api, &json!({})).await;
    let mark = |operation: &str, action: &str, message: Value| json!({ "operation_id": operation, "action": action, "message": message });
    for message in [Value::Null, json!(""), json!("  "), json!("x".repeat(2049)), json!("a\u{0}b")] {
        let request = execution(&made, "e", json!([mark("failed", "mark_failed", message)]));
        execute(&api, &request).await.problem(400, "invalid-request").faults_at(&["/decisions/0/message"]);
    }
    let message = "the vendor says that hunter2 was never charged";
    let decisions =
        json!([mark("failed", "mark_failed", json!(message)), mark("completed", "mark_completed", json!("seen"))]);
    let done = execute(&api, &execution(&made, "e", decisions)).await.expect(200);
    let states = (done.at("/receipts/0/state"), done.at("/receipts/1/state"));
    assert_eq!(states, (&json!("failed"), &json!("completed")));
    let events = api.events("failed").await;
    let expected = ["effect.manual_review", "effect.resolved", "effect.failed", "recovery.item.executed"];
    assert_eq!(events[events.len() - 4..], expected);
    assert!(api.events("completed").await.contains(&"effect.completed".to_owned()));
    // What a person wrote stands in no journal and no answer (law 11).
    let journal = api.journal("failed").await;
    assert!(!format!("{journal:?}{done}").contains("hunter2"));
    assert_eq!(journal.last().unwrap()["by"], "tester");
    // Late truth is kept, and contradicts the word (law 7).
    let late = api.outcome("failed", &bodies::succeeded(&granted)).await.problem(409, "state-conflict");
    assert_eq!(late.at("/evidence_recorded"), true);
    let now = api.get("failed").await.state("failed");
    assert_eq!(now.at("/contradicted"), true);
    api.intent(&bodies::with(bodies::claiming("failed", TOOL), &json!({ "session_id": "s" }))).await.directive("stop");
}

async fn decisions_are_checked_against_the_plan(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    prepared(&api, "op", "s").await;
    live(&api, "live", "s").await;
    let made = plan(&api, &json!({})).await;
    for (decisions, pointers) in [
        (json!([]), &["/decisions"][..]),
        (json!([repair("absent")]), &["/decisions/0/operation_id"]),
        (json!([repair("live")]), &["/decisions/0/action"]),
        (json!([repair("op"), repair("op")]), &["/decisions/1/operation_id"]),
        (json!([repair(" op")]), &["/decisions/0/operation_id"]),
        (
            json!([{ "operation_id": "op", "action": "mark_completed" }]),
            &["/decisions/0/action", "/decisions/0/message"],
        ),
        (json!([{ "operation_id": "op", "action": "redispatch" }]), &["/decisions/0/action"]),
    ] {
        let refused = execute(&api, &execution(&made, "e", decisions)).await;
        refused.problem(400, "invalid-request").faults_at(pointers);
    }
    for id in ["", " e", &"x".repeat(257)] {
        let refused = execute(&api, &execution(&made, id, json!([repair("op")]))).await;
        refused.problem(400, "invalid-request").faults_at(&["/execution_id"]);
    }
    api.get("op").await.state("intent_recorded");
    api.read("/api/recovery/executions/e").await.problem(404, "not-found");
}

async fn four_eyes_hold_for_a_mark(store: StoreUnderTest) {
    let (server, api) = (store.shared(), store.tenant());
    api.put_tool(TOOL, &json!({ "effect": "external", "authorization": { "mode": "approval" } })).await.expect(201);
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let other = api.with_token(Some(server.token(&api.tenant, "other", "all")));
    other.authorize("op", 1, &bodies::decision(&proposed, "approve")).await.expect(200);
    let granted = api.dispatch("op", &bodies::claim()).await.directive("dispatch");
    api.outcome("op", &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown");
    let made = plan(&api, &json!({})).await;
    let decisions = json!([{ "operation_id": "op", "action": "mark_failed", "message": "looked" }]);
    // Neither who proposed nor who approved: a mark is no way around what a resolution asks for.
    for (who, id) in [(&api, "mine"), (&other, "theirs")] {
        let blocked = execute(who, &execution(&made, id, decisions.clone())).await.expect(200);
        assert_eq!(blocked.at("/receipts/0/blockers"), &json!(["tool_approval_required"]));
        api.get("op").await.state("outcome_unknown");
    }
    let third = api.with_token(Some(server.token(&api.tenant, "third", "all")));
    let done = execute(&third, &execution(&made, "third", decisions)).await.expect(200);
    assert_eq!(done.at("/receipts/0/outcome"), "executed");
}

/// A registration that asks for four eyes now counts as much as the one that the effect was made under.
async fn four_eyes_that_are_asked_for_since_hold_too(store: StoreUnderTest) {
    let (server, api) = (store.shared(), store.tenant());
    external(&api).await;
    doubtful(&api, "op", "s").await;
    let asking = json!({ "effect": "external", "authorization": { "mode": "approval" }, "settles_revisions": [1] });
    api.put_tool(TOOL, &asking).await.expect(200);
    let made = plan(&api, &json!({})).await;
    let decisions = json!([{ "operation_id": "op", "action": "mark_completed", "message": "looked" }]);
    let blocked = execute(&api, &execution(&made, "mine", decisions.clone())).await.expect(200);
    assert_eq!(blocked.at("/receipts/0/blockers"), &json!(["tool_approval_required"]));
    let other = api.with_token(Some(server.token(&api.tenant, "other", "all")));
    let done = execute(&other, &execution(&made, "theirs", decisions)).await.expect(200);
    assert_eq!(done.at("/receipts/0/outcome"), "executed");
}

async fn a_mark_needs_the_scope_of_a_resolution_too(store: StoreUnderTest) {
    let (server, api) = (store.shared(), store.tenant());
    external(&api).await;
    doubtful(&api, "op", "s").await;
    prepared(&api, "prepared", "s").await;
    let made = plan(&api, &json!({})).await;
    let with = |scopes: &str| api.with_token(Some(server.token(&api.tenant, "operator", scopes)));
    let operator = with("recovery:operate");
    for action in ["mark_completed", "mark_failed"] {
        let decisions = json!([repair("prepared"), { "operation_id": "op", "action": action, "message": "looked" }]);
        let request = execution(&made, "e", decisions);
        let refused = execute(&operator, &request).await.problem(403, "insufficient-scope");
        assert_eq!(refused.at("/required_scope"), "effects:resolve");
        let refused = execute(&with("effects:resolve"), &request).await.problem(403, "insufficient-scope");
        assert_eq!(refused.at("/required_scope"), "recovery:operate");
    }
    // Nothing was begun under that id, and nothing else asks for more.
    operator.read("/api/recovery/executions/e").await.problem(404, "not-found");
    api.get("prepared").await.state("intent_recorded");
    let intact = json!([repair("prepared"), { "operation_id": "op", "action": "leave_intact" }]);
    execute(&operator, &execution(&made, "e", intact)).await.expect(200);
    api.get("op").await.state("outcome_unknown");
    let mark = json!([{ "operation_id": "op", "action": "mark_failed", "message": "looked" }]);
    let both = with("recovery:operate,effects:resolve");
    let done = execute(&both, &execution(&made, "marks", mark)).await.expect(200);
    assert_eq!(done.at("/receipts/0/outcome"), "executed");
}

/// Overlapping plans, two execution ids, two replicas where the store has them.
async fn two_executors_at_once_settle_each_item_once(store: StoreUnderTest) {
    const ITEMS: usize = 60;
    let server = store.server(Options::default());
    let replica = (store == StoreUnderTest::Postgres).then(|| server.replica());
    let one = Api::of(&server, "t");
    let two = replica.as_ref().map_or_else(|| one.clone(), |replica| one.at(replica));
    external(&one).await;
    let operations: Vec<String> = (0..ITEMS).map(|number| format!("op-{number}")).collect();
    for operation in &operations {
        prepared(&one, operation, "s").await;
    }
    let (first, second) = (plan(&one, &json!({})).await, plan(&two, &json!({ "session_ids": ["s"] })).await);
    let decisions = json!(operations.iter().map(|operation| repair(operation)).collect::<Vec<_>>());
    let requests = [execution(&first, "one", decisions.clone()), execution(&second, "two", decisions)];
    // Each of them twice at once, as if its client had lost patience.
    let calls = [(&one, &requests[0]), (&two, &requests[1]), (&two, &requests[0]), (&one, &requests[1])];
    for answer in join_all(calls.map(|(api, request)| execute(api, request))).await {
        answer.expect(200);
    }
    // What one had in hand the other has left; one after the other they come to their ends.
    let mut ends = Vec::new();
    for (api, request) in calls {
        ends.push(execute(api, request).await.expect(200));
    }
    for end in &ends {
        assert_eq!((end.at("/completed"), end.at("/pending")), (&json!(true), &json!([])), "{end}");
    }
    assert_eq!(receipts(&ends[0]), receipts(&ends[2]));
    assert_eq!(receipts(&ends[1]), receipts(&ends[3]));
    for (number, operation) in operations.iter().enumerate() {
        let outcomes = [&ends[0], &ends[1]].map(|end| end.json["receipts"][number].clone());
        let executed = outcomes.iter().filter(|receipt| receipt["outcome"] == "executed").count();
        let stale = outcomes.iter().filter(|receipt| receipt["blockers"] == json!(["stale_plan"])).count();
        assert_eq!((executed, stale), (1, 1), "{operation}: {outcomes:?}");
        let events = one.events(operation).await;
        assert_eq!(events.iter().filter(|event| *event == "recovery.item.executed").count(), 1, "{operation}");
    }
    intact(&server);
}
