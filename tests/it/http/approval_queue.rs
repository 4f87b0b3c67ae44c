//! What people are asked to approve: lists, single reads, previews of the arguments (protocol §8).

use serde_json::{Value, json};

use crate::http::approvals::{approve, person};
use crate::http::{TOOL, tool};
use crate::support::{Api, StoreUnderTest, bodies, both_stores, unique};

both_stores!(
    a_preview_is_what_was_sent_byte_for_byte,
    without_retention_there_is_a_digest,
    approvals_are_listed_by_where_they_stand,
    another_try_is_asked_about_in_the_list,
    a_page_is_bounded_by_items_and_bytes,
    what_is_stale_says_so,
    approvals_stay_within_their_tenant,
);

const RETAINING: &str = "retaining";

async fn queue(store: StoreUnderTest) -> (Api, Api) {
    let api = store.tenant();
    let approval = json!({ "mode": "approval" });
    tool(&api, json!({ "effect": "external", "authorization": approval })).await;
    let spec = json!({ "effect": "external", "authorization": approval, "retain_arguments": "until_settled" });
    api.put_tool(RETAINING, &spec).await.expect(201);
    let ann = person(store, &api, "ann");
    (api, ann)
}

async fn listed(ann: &Api, query: &str) -> Vec<String> {
    let items = ann.pages(&format!("/api/approvals?{query}")).await;
    items.iter().map(|item| item["operation_id"].as_str().unwrap().to_owned()).collect()
}

async fn a_preview_is_what_was_sent_byte_for_byte(store: StoreUnderTest) {
    let (api, ann) = queue(store).await;
    for (number, arguments) in [
        r#"{ "b" : 1.0, "a": "\u00e9é", "n": 12345678901234567890,  "z": [ ] }"#,
        r#""just a text""#,
        "null",
        r#"{"nested":{"deep":[1,2,{"x":"\/"}]}}"#,
    ]
    .into_iter()
    .enumerate()
    {
        let operation = format!("op-{number}");
        let head = json!({ "operation_id": operation, "tool": RETAINING, "target": "t" }).to_string();
        let text = format!("{},\"arguments\":{arguments}}}", head.trim_end_matches('}'));
        let proposed = api.call("POST", "/api/intents").text(&text).send().await.expect(201).state("proposed");
        let expected = format!(",\"arguments\":{arguments}}}");
        let read = ann.read(&format!("/api/approvals/{operation}")).await.expect(200);
        assert!(read.text.ends_with(&expected), "{read}");
        assert_eq!(read.at("/arguments_preview"), "available");
        assert_eq!(read.at("/arguments_digest"), proposed.at("/arguments_digest"));
        assert_eq!(read.at("/proposal_digest"), proposed.at("/approval/proposal_digest"));
        assert_eq!(read.revision(), 1);
        let list = ann.read("/api/approvals").await.expect(200);
        assert!(list.text.contains(&expected), "{list}");
        // Nobody else is shown them.
        assert!(!api.get(&operation).await.text.contains("\"arguments\""));
    }
    assert_eq!(listed(&ann, "state=pending").await.len(), 4);
}

async fn without_retention_there_is_a_digest(store: StoreUnderTest) {
    let (api, ann) = queue(store).await;
    let body = bodies::with(bodies::intent("op", TOOL), &json!({ "arguments": { "secret": "hunter2" } }));
    let proposed = api.intent(&body).await.expect(201);
    for path in ["/api/approvals/op", "/api/approvals"] {
        let answer = ann.read(path).await.expect(200);
        assert!(!answer.text.contains("hunter2") && !answer.text.contains("\"arguments\":"), "{answer}");
        assert!(answer.text.contains("\"arguments_preview\":\"not_retained\""), "{answer}");
        assert!(answer.text.contains(proposed.str("/arguments_digest")), "{answer}");
    }
    // What is to be shown has to be sent.
    let digest = proposed.at("/arguments_digest").clone();
    let body = bodies::with(bodies::intent("other", RETAINING), &json!({ "arguments_digest": digest }));
    let body = bodies::without(body, "arguments");
    api.intent(&body).await.problem(400, "invalid-request").faults_at(&["/arguments"]);
    api.get("other").await.problem(404, "not-found");
    // An effect that asks for nothing has no approval.
    api.put_tool("free", &json!({ "effect": "none" })).await.expect(201);
    api.intent(&bodies::intent("free", "free")).await.expect(201);
    ann.read("/api/approvals/free").await.problem(404, "not-found");
}

async fn approvals_are_listed_by_where_they_stand(store: StoreUnderTest) {
    let (api, ann) = queue(store).await;
    let brief = json!({ "effect": "external", "authorization": { "mode": "approval", "expires_after_seconds": 1 } });
    api.put_tool("brief", &brief).await.expect(201);
    let mut proposed = Vec::new();
    for operation in ["pending", "approved", "used", "denied", "withdrawn"] {
        proposed.push(api.intent(&bodies::intent(operation, RETAINING)).await.expect(201));
    }
    api.intent(&bodies::intent("expired", "brief")).await.expect(201);
    for answer in &proposed[1..3] {
        approve(&ann, answer).await.expect(200);
    }
    api.dispatch("used", &bodies::claim()).await.expect(200).directive("dispatch");
    ann.authorize("denied", 1, &bodies::decision(&proposed[3], "deny")).await.expect(200);
    api.cancel("withdrawn").await.expect(200).state("refused");
    api.call("GET", "/api/effects/expired").header("prefer", "wait=30").send().await.expect(200).state("refused");
    for state in ["pending", "approved", "used", "denied", "expired", "withdrawn"] {
        assert_eq!(listed(&ann, &format!("state={state}")).await, [state]);
        let read = ann.read(&format!("/api/approvals/{state}")).await.expect(200);
        assert_eq!(read.at("/state"), state);
        let preview = match state {
            "pending" | "approved" | "used" => "available",
            "expired" => "not_retained",
            _ => "removed",
        };
        assert_eq!(read.at("/arguments_preview"), preview, "{state}");
    }
    let denied = ann.read("/api/approvals/denied").await.expect(200);
    let decision = denied.at("/decisions/0");
    assert_eq!((&decision["principal"], &decision["decision"]), (&json!("ann"), &json!("deny")));
    ann.read("/api/approvals?state=maybe").await.problem(400, "invalid-request");
    ann.read("/api/approvals?limit=201").await.problem(400, "invalid-request").faults_at(&["query:limit"]);
}

async fn another_try_is_asked_about_in_the_list(store: StoreUnderTest) {
    let api = store.tenant();
    tool(
        &api,
        json!({ "effect": "idempotent", "replay_contract": "keys", "downstream_key_ttl_seconds": 1000,
            "authorization": { "mode": "approval" } }),
    )
    .await;
    let ann = person(store, &api, "ann");
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    approve(&ann, &proposed).await.expect(200);
    let granted = api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
    api.outcome("op", &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown");
    assert_eq!(listed(&ann, "state=used").await, ["op"]);
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("authorize");
    let asked = ann.read("/api/approvals/op").await.expect(200);
    assert_eq!((asked.at("/state"), asked.at("/effect_state")), (&json!("pending"), &json!("outcome_unknown")));
    assert_eq!(listed(&ann, "state=pending").await, ["op"]);
    let body = json!({ "decision": "approve", "proposal_digest": asked.at("/proposal_digest"), "reason": "again" });
    ann.authorize("op", asked.revision(), &body).await.expect(200).directive("claim");
    assert_eq!(listed(&ann, "state=approved").await, ["op"]);
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
}

async fn a_page_is_bounded_by_items_and_bytes(store: StoreUnderTest) {
    let (api, ann) = queue(store).await;
    let mut expected = Vec::new();
    for number in 0..12 {
        let operation = format!("op-{number:02}");
        let arguments = json!({ "operation": operation, "text": "x".repeat(250 * 1024) });
        let body = bodies::with(bodies::intent(&operation, RETAINING), &json!({ "arguments": arguments }));
        api.intent(&body).await.expect(201);
        expected.push(operation);
    }
    let page = ann.read("/api/approvals").await.expect(200);
    let items = page.at("/items").as_array().unwrap().len();
    assert!((2..12).contains(&items) && page.text.len() < 4 * 1024 * 1024, "{items}");
    assert_eq!(listed(&ann, "limit=200").await, expected);
    assert_eq!(listed(&ann, "limit=5").await, expected);
    // A cursor is of one list.
    let cursor = crate::support::api::segment(page.str("/next_cursor"));
    ann.read(&format!("/api/approvals?state=denied&cursor={cursor}")).await.problem(400, "invalid-request");
}

async fn what_is_stale_says_so(store: StoreUnderTest) {
    let (api, ann) = queue(store).await;
    let asked = api.intent(&bodies::intent("asked", RETAINING)).await.expect(201);
    let granted = api.intent(&bodies::intent("granted", RETAINING)).await.expect(201);
    approve(&ann, &granted).await.expect(200);
    for operation in ["asked", "granted"] {
        assert_eq!(ann.read(&format!("/api/approvals/{operation}")).await.expect(200).at("/stale"), false);
    }
    let changed = json!({ "effect": "external", "lease_seconds": 61, "authorization": { "mode": "approval" } });
    api.put_tool(RETAINING, &changed).await.expect(200);
    approve(&ann, &asked).await.problem(409, "approval-stale");
    api.dispatch("granted", &bodies::claim()).await.problem(409, "approval-stale");
    for operation in ["asked", "granted"] {
        let read = ann.read(&format!("/api/approvals/{operation}")).await.expect(200);
        assert_eq!((read.at("/stale"), read.at("/arguments_preview")), (&json!(true), &json!("available")));
    }
}

async fn approvals_stay_within_their_tenant(store: StoreUnderTest) {
    let (api, ann) = queue(store).await;
    let (other, ben) = queue(store).await;
    api.intent(&bodies::intent("op", RETAINING)).await.expect(201);
    api.intent(&bodies::intent("next", RETAINING)).await.expect(201);
    assert_eq!(listed(&ben, "state=pending").await, Vec::<String>::new());
    let foreign = ben.read("/api/approvals/op").await.problem(404, "not-found");
    let absent = ben.read(&format!("/api/approvals/{}", unique("absent"))).await.problem(404, "not-found");
    assert_eq!(foreign.text, absent.text);
    // The same name elsewhere is something else.
    let body = bodies::with(bodies::intent("op", RETAINING), &json!({ "arguments": "theirs" }));
    other.intent(&body).await.expect(201);
    assert_eq!(ben.read("/api/approvals/op").await.expect(200).at("/arguments"), &json!("theirs"));
    assert_ne!(ann.read("/api/approvals/op").await.expect(200).at("/arguments"), &json!("theirs"));
    let page = ann.read("/api/approvals?limit=1").await.expect(200);
    let cursor = crate::support::api::segment(page.str("/next_cursor"));
    ben.read(&format!("/api/approvals?limit=1&cursor={cursor}")).await.problem(400, "invalid-request");
    assert_eq!(page.at("/items/0/state"), &Value::from("pending"));
}
