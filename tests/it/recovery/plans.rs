//! Plans: read-only, filtered, paged, and each tenant's own.

use serde_json::{Value, json};

use super::{NEVER_US, doubtful, execute, execution, item, live, plan, prepared, repair, take};
use crate::http::{TOOL, external};
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_plan_says_what_each_effect_waits_for_and_changes_nothing,
    a_plan_is_about_sessions_or_states_and_what_nobody_touches,
    a_plan_is_paged,
    a_plan_s_request_is_checked,
    a_plan_is_its_tenant_s_own,
    nothing_is_offered_where_a_receipt_speaks,
    what_an_executor_has_in_hand_is_said,
);

async fn a_plan_says_what_each_effect_waits_for_and_changes_nothing(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let guarded = json!({ "effect": "external", "authorization": { "mode": "approval" } });
    api.put_tool("guarded", &guarded).await.expect(201);
    prepared(&api, "prepared", "s").await;
    live(&api, "live", "s").await;
    doubtful(&api, "doubtful", "s").await;
    api.intent(&bodies::intent("proposed", "guarded")).await.expect(201).state("proposed");
    let granted = live(&api, "verifying", "s").await;
    api.outcome("verifying", &bodies::receipted(&granted)).await.expect(200).state("verifying");
    let granted = live(&api, "retry", "s").await;
    api.outcome("retry", &bodies::not_sent(&granted)).await.expect(200).state("safe_to_retry");
    let granted = live(&api, "done", "s").await;
    api.outcome("done", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    api.intent(&bodies::with(bodies::intent("of-a-run", TOOL), &json!({ "run_id": "r" }))).await.expect(201);
    let before = api.pages("/api/effects?limit=200").await;
    let first = plan(&api, &json!({})).await;
    let marks = json!(["mark_completed", "mark_failed", "leave_intact"]);
    for (operation, root, blockers, actions) in [
        ("prepared", ("session", "s"), json!([]), json!(["automatic_repair", "leave_intact"])),
        ("of-a-run", ("run", "r"), json!([]), json!(["automatic_repair", "leave_intact"])),
        ("live", ("session", "s"), json!(["active_execution_owner"]), json!(["leave_intact"])),
        ("doubtful", ("session", "s"), json!(["tool_effect_outcome_unknown"]), marks),
        ("proposed", ("effect", "proposed"), json!(["tool_approval_required"]), json!(["leave_intact"])),
        ("verifying", ("session", "s"), json!(["tool_effect_continuation_required"]), json!(["leave_intact"])),
        ("retry", ("session", "s"), json!(["tool_effect_continuation_required"]), json!(["leave_intact"])),
    ] {
        let item = item(&first, operation);
        assert_eq!(item["root"], json!({ "kind": root.0, "id": root.1 }), "{item}");
        assert_eq!((&item["blockers"], &item["allowed_actions"]), (&blockers, &actions), "{item}");
        let now = api.get(operation).await.expect(200);
        assert_eq!((&item["revision"], &item["state"]), (&now.json["revision"], &now.json["state"]));
    }
    assert_eq!(first.json["items"].as_array().unwrap().len(), 7, "what is settled is not there: {first}");
    let again = plan(&api, &json!({})).await;
    assert_eq!(again.json["items"], first.json["items"], "a plan moves nothing, and the next one sees the same");
    assert_eq!(api.pages("/api/effects?limit=200").await, before);
}

fn operations(items: &[Value]) -> Vec<&str> {
    let mut found: Vec<&str> = items.iter().map(|item| item["operation_id"].as_str().unwrap()).collect();
    found.sort_unstable();
    found
}

async fn a_plan_is_about_sessions_or_states_and_what_nobody_touches(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for (operation, session) in [("a", "one"), ("b", "two"), ("c", "three")] {
        prepared(&api, operation, session).await;
    }
    doubtful(&api, "d", "two").await;
    for (request, expected) in [
        (json!({ "session_ids": ["two"] }), vec!["b", "d"]),
        (json!({ "session_ids": ["three", "one", "three", "absent"] }), vec!["a", "c"]),
        (json!({ "states": ["outcome_unknown"] }), vec!["d"]),
        (json!({ "states": ["manual_review"] }), vec![]),
        (json!({ "inactive_for_seconds": 0 }), vec!["a", "b", "c", "d"]),
        (json!({ "inactive_for_seconds": 3600 }), vec![]),
        (json!({ "session_ids": ["two"], "inactive_for_seconds": 3600 }), vec![]),
    ] {
        let plan = plan(&api, &request).await;
        assert_eq!(operations(plan.json["items"].as_array().unwrap()), expected, "{request}");
        assert!(plan.json["next_cursor"].is_null());
    }
    // A second later they are a second old, except where somebody still gives signs of life.
    let granted = live(&api, "e", "two").await;
    tokio::time::sleep(std::time::Duration::from_millis(1_100)).await;
    api.heartbeat("e", &bodies::heartbeat(&granted)).await.expect(200);
    let plan = plan(&api, &json!({ "inactive_for_seconds": 1 })).await;
    assert_eq!(operations(plan.json["items"].as_array().unwrap()), ["a", "b", "c", "d"]);
}

async fn a_plan_is_paged(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let mut expected = Vec::new();
    for number in 0..30 {
        let operation = format!("op-{number:02}");
        if number % 3 == 0 {
            doubtful(&api, &operation, &format!("s-{}", number % 4)).await;
        } else {
            prepared(&api, &operation, &format!("s-{}", number % 4)).await;
        }
        expected.push(operation);
    }
    for scope in [json!({}), json!({ "session_ids": ["s-0", "s-1", "s-2", "s-3"] })] {
        for limit in [1, 7, 29, 30, 1000] {
            let (mut items, mut request) = (Vec::new(), bodies::with(scope.clone(), &json!({ "limit": limit })));
            loop {
                let page = plan(&api, &request).await;
                let found = page.json["items"].as_array().unwrap();
                assert!(found.len() <= limit, "{page}");
                items.extend(found.iter().cloned());
                match &page.json["next_cursor"] {
                    Value::Null => break,
                    cursor => request["cursor"] = cursor.clone(),
                }
            }
            assert_eq!(operations(&items), expected, "limit {limit}");
        }
    }
    // A cursor belongs to its question.
    let page = plan(&api, &json!({ "limit": 1 })).await;
    let other = json!({ "limit": 1, "states": ["outcome_unknown"], "cursor": page.json["next_cursor"] });
    api.post("/api/recovery/plans", &other).await.problem(400, "invalid-request").faults_at(&["/cursor"]);
}

async fn a_plan_s_request_is_checked(store: StoreUnderTest) {
    let api = store.tenant();
    let many: Vec<String> = (0..201).map(|n| format!("s-{n}")).collect();
    for (request, pointers) in [
        (json!({ "limit": 0 }), &["/limit"][..]),
        (json!({ "limit": 1001 }), &["/limit"]),
        (json!({ "inactive_for_seconds": 31_536_001 }), &["/inactive_for_seconds"]),
        (json!({ "session_ids": [] }), &["/session_ids"]),
        (json!({ "session_ids": many }), &["/session_ids"]),
        (json!({ "session_ids": ["a", " b", ""] }), &["/session_ids/1", "/session_ids/2"]),
        (json!({ "session_ids": ["a"], "states": ["proposed"] }), &["/states"]),
        (json!({ "states": [] }), &["/states"]),
        (json!({ "states": ["proposed", "failed"] }), &["/states/1"]),
        (json!({ "states": ["nonsense"] }), &["/states/0"]),
        (json!({ "cursor": "AAAA" }), &["/cursor"]),
        (json!({ "limit": true }), &["/limit"]),
    ] {
        api.post("/api/recovery/plans", &request).await.problem(400, "invalid-request").faults_at(pointers);
    }
    api.post("/api/recovery/plans", &json!({ "unknown": 1 })).await.problem(400, "invalid-request");
}

async fn a_plan_is_its_tenant_s_own(store: StoreUnderTest) {
    let (own, foreign) = (store.tenant(), store.tenant());
    for api in [&own, &foreign] {
        external(api).await;
    }
    prepared(&own, "op", "s").await;
    let made = plan(&own, &json!({ "session_ids": ["s"] })).await;
    let none = plan(&foreign, &json!({ "session_ids": ["s"] })).await;
    assert_eq!(none.json["items"], json!([]));
    let request = execution(&made, "mine", json!([repair("op")]));
    let refused = execute(&foreign, &request).await.problem(400, "invalid-request").faults_at(&["/plan/plan_id"]);
    // As with a plan that never was.
    let edited = bodies::set(request.clone(), "/plan/items/0/revision", json!(9));
    let nonsense = execute(&own, &edited).await.problem(400, "invalid-request");
    assert_eq!(refused.text, nonsense.text);
    own.get("op").await.state("intent_recorded");
    execute(&own, &request).await.expect(200);
    let read = |api: &Api, id: &str| api.call("GET", &format!("/api/recovery/executions/{id}")).send();
    read(&own, "mine").await.expect(200);
    let (there, absent) = (read(&foreign, "mine").await, read(&foreign, "absent").await);
    assert_eq!(there.problem(404, "not-found").text, absent.problem(404, "not-found").text);
    // The same execution id is another tenant's own.
    prepared(&foreign, "op", "s").await;
    let theirs = plan(&foreign, &json!({})).await;
    let done = execute(&foreign, &execution(&theirs, "mine", json!([repair("op")]))).await.expect(200);
    assert_eq!((done.at("/replayed"), done.at("/receipts/0/outcome")), (&json!(false), &json!("executed")));
}

async fn nothing_is_offered_where_a_receipt_speaks(store: StoreUnderTest) {
    let api = store.tenant();
    let spec = json!({ "effect": "idempotent", "replay_contract": "keys", "downstream_key_ttl_seconds": 3600 });
    api.put_tool(TOOL, &spec).await.expect(201);
    let first = live(&api, "op", "s").await;
    api.outcome("op", &bodies::not_sent(&first)).await.expect(200);
    let second = api.dispatch("op", &bodies::claim()).await.directive("dispatch");
    api.outcome("op", &bodies::unknown(&second)).await.expect(200).state("outcome_unknown");
    let before = plan(&api, &json!({})).await;
    assert_eq!(item(&before, "op")["allowed_actions"], json!(["mark_completed", "mark_failed", "leave_intact"]));
    let late = api.outcome("op", &bodies::receipted(&first)).await.problem(409, "stale-fence");
    assert_eq!(late.at("/evidence_recorded"), true);
    let after = plan(&api, &json!({})).await;
    assert_eq!(item(&after, "op")["allowed_actions"], json!(["leave_intact"]), "{after}");
    let mark = json!([{ "operation_id": "op", "action": "mark_failed", "message": "nobody saw it" }]);
    execute(&api, &execution(&after, "e", mark.clone()))
        .await
        .problem(400, "invalid-request")
        .faults_at(&["/decisions/0/action"]);
    let done = execute(&api, &execution(&before, "e", mark)).await.expect(200);
    assert_eq!(done.at("/receipts/0/blockers"), &json!(["stale_plan"]));
    api.get("op").await.state("outcome_unknown");
}

async fn what_an_executor_has_in_hand_is_said(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    external(&api).await;
    prepared(&api, "op", "s").await;
    let before = plan(&api, &json!({})).await;
    take(&server, &api, "op", NEVER_US);
    let held = plan(&api, &json!({})).await;
    let (was, is) = (item(&before, "op"), item(&held, "op"));
    assert_eq!(
        (&is["blockers"], &is["allowed_actions"]),
        (&json!(["active_recovery_claim"]), &json!(["leave_intact"]))
    );
    assert_eq!(is["fingerprint"], was["fingerprint"], "a claim is no change of the effect");
    // Whoever planned before waits, and nothing is written down about that.
    let request = execution(&before, "e", json!([repair("op")]));
    for _ in 0..2 {
        let waits = execute(&api, &request).await.expect(200);
        assert_eq!((waits.at("/completed"), waits.at("/receipts")), (&json!(false), &json!([])));
        assert_eq!(waits.at("/pending"), &json!([{ "operation_id": "op", "blockers": ["active_recovery_claim"] }]));
    }
    api.get("op").await.state("intent_recorded");
    // The claim of an executor that died ends by the database's time.
    take(&server, &api, "op", 1);
    assert_eq!(item(&plan(&api, &json!({})).await, "op")["blockers"], json!([]));
    let done = execute(&api, &request).await.expect(200);
    assert_eq!((done.at("/completed"), done.at("/pending")), (&json!(true), &json!([])));
    api.get("op").await.state("failed");
}
