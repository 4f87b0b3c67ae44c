//! Registrations of tools (protocol §4).

use serde_json::{Value, json};

use crate::http::{TOOL, external, granted, tool};
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    only_the_class_is_required,
    a_registration_comes_back_as_sent,
    each_change_is_a_revision_and_nothing_else_is,
    a_change_names_its_revision,
    a_tool_in_use_is_not_deleted,
    a_deleted_tool_can_be_registered_again,
    pausing_makes_no_revision,
    tools_are_listed_by_name,
    concurrent_changes_are_all_there,
    what_is_not_in_this_version_is_refused,
    a_registration_is_bounded,
    an_effect_keeps_the_revision_it_was_made_under,
);

async fn only_the_class_is_required(store: StoreUnderTest) {
    let api = store.tenant();
    for (class, verification, duplicates) in [("external", "required", "refuse"), ("none", "waived", "allow")] {
        let put = api.put_tool(class, &json!({ "effect": class })).await.expect(201);
        let expected = json!({
            "name": class, "revision": 1, "effect": class, "lease_seconds": 60, "not_sent": "accept",
            "verification": verification, "verify_deadline_seconds": 3600, "reconciliation": "explicit",
            "settle_window_seconds": 60, "reconcile_deadline_seconds": 86400, "on_suspected_duplicate": duplicates,
            "retain_arguments": "never", "paused": false,
            "authorization": { "mode": "automatic", "approvals": 1, "four_eyes": true, "expires_after_seconds": 3600 },
        });
        for (name, value) in expected.as_object().unwrap() {
            assert_eq!(&put.json[name], value, "{name}: {put}");
        }
        assert_eq!(put.at("/receipt/schema"), "generic");
        assert_eq!(put.at("/receipt/schema_version"), 1);
        assert_eq!(put.revision(), 1);
        let read = api.tool(class).await.expect(200);
        assert_eq!((read.json.clone(), read.revision()), (put.json, 1));
    }
}

fn whole() -> Value {
    json!({
        "effect": "idempotent", "description": "Refunds – für Bestellungen",
        "component": { "name": "refunder", "behavior_version": "1", "implementation_version": "1.4.2" },
        "replay_contract": "the provider answers a repeated key with the first refund", "downstream_key_ttl_seconds": 86400,
        "lease_seconds": 30, "not_sent": "doubt",
        "receipt": {
            "schema": "refund", "schema_version": 2, "structured_schema": { "type": "object", "required": ["amount"] },
            "integrity_fields": ["sha256"], "resource_version_fields": ["order", "refund"],
        },
        "verification": "required", "verify_deadline_seconds": 60,
        "authorization": { "mode": "approval", "approvals": 2, "four_eyes": false, "expires_after_seconds": 60 },
        "reconciliation": "explicit", "settle_window_seconds": 0, "reconcile_deadline_seconds": 60,
        "settles_revisions": [1], "on_suspected_duplicate": "hold", "identity_fields": ["order", "amount"],
        "retain_arguments": "never", "paused": true,
    })
}

async fn a_registration_comes_back_as_sent(store: StoreUnderTest) {
    let api = store.tenant();
    let name = "payments/refund ä:1";
    let put = api.put_tool(name, &whole()).await.expect(201);
    for (member, value) in whole().as_object().unwrap() {
        assert_eq!(&put.json[member], value, "{member}");
    }
    assert_eq!(api.tool(name).await.expect(200).json, put.json);
    assert_eq!(api.pages("/api/tools?limit=10").await, std::slice::from_ref(&put.json));
    // What comes back can be sent again, and changes nothing.
    let mut back = put.json.clone();
    for member in ["name", "revision", "registered_at"] {
        back = bodies::without(back, member);
    }
    assert_eq!(api.put_tool(name, &back).await.expect(200).json, put.json);
}

async fn each_change_is_a_revision_and_nothing_else_is(store: StoreUnderTest) {
    let api = store.tenant();
    let spec = json!({ "effect": "external" });
    let first = api.put_tool(TOOL, &spec).await.expect(201);
    for same in [
        json!({ "effect": "external" }),
        json!({ "effect": "external", "lease_seconds": 60, "paused": false, "description": "" }),
        json!({ "receipt": { "structured_schema": {}, "schema": "generic" }, "effect": "external" }),
    ] {
        let again = api.put_tool(TOOL, &same).await.expect(200);
        assert_eq!(again.json, first.json, "an equal registration changes nothing: {same}");
    }
    let second = api.put_tool(TOOL, &bodies::with(spec.clone(), &json!({ "lease_seconds": 61 }))).await.expect(200);
    assert_eq!((second.revision(), second.at("/lease_seconds")), (2, &json!(61)));
    assert!(second.str("/registered_at") > first.str("/registered_at"));
    let third = api.put_tool(TOOL, &spec).await.expect(200);
    assert_eq!(third.revision(), 3, "back to the first is a change too");
}

async fn a_change_names_its_revision(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let put = |tag: &str, lease: u32| {
        let call = api.call("PUT", "/api/tools/payments.refund").header("if-match", tag);
        call.json(&json!({ "effect": "external", "lease_seconds": lease })).send()
    };
    let stale = put("\"2\"", 10).await.problem(412, "stale-revision");
    assert_eq!(stale.at("/found/revision"), 1);
    assert_eq!(put("\"1\"", 10).await.expect(200).revision(), 2);
    put("\"1\"", 20).await.problem(412, "stale-revision");
    assert_eq!(api.tool(TOOL).await.expect(200).at("/lease_seconds"), 10);
    let delete = |tag: &str| api.call("DELETE", "/api/tools/payments.refund").header("if-match", tag).send();
    let stale = delete("\"1\"").await.problem(412, "stale-revision");
    assert_eq!(stale.at("/found/revision"), 2);
    delete("\"2\"").await.expect(204);
    // Nobody changes what is not there.
    let absent = api.call("PUT", "/api/tools/absent").header("if-match", "\"1\"").json(&json!({ "effect": "none" }));
    absent.send().await.problem(412, "stale-revision");
    api.tool("absent").await.problem(404, "not-found");
}

async fn a_tool_in_use_is_not_deleted(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let in_use = async |state: &str| {
        api.get("op").await.state(state);
        api.delete_tool(TOOL).await.problem(409, "state-conflict");
        api.tool(TOOL).await.expect(200);
    };
    api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    in_use("intent_recorded").await;
    let granted = api.dispatch("op", &bodies::claim()).await.directive("dispatch");
    in_use("dispatched").await;
    api.outcome("op", &bodies::unknown(&granted)).await.expect(200);
    in_use("outcome_unknown").await;
    api.outcome("op", &bodies::receipted(&granted)).await.expect(200);
    in_use("verifying").await;
    api.verify("op", &bodies::verification()).await.expect(200).state("completed");
    api.delete_tool(TOOL).await.expect(204);
    api.tool(TOOL).await.problem(404, "not-found");
    api.delete_tool(TOOL).await.problem(404, "not-found");
    assert!(api.pages("/api/tools?limit=10").await.is_empty());
    // What was done with it can still be read, and repeated.
    api.get("op").await.directive("replay");
    api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("replay");
    api.intent(&bodies::intent("new", TOOL)).await.problem(400, "invalid-request").faults_at(&["/tool"]);
    for verb in ["pause", "resume"] {
        api.call("POST", &format!("/api/tools/{TOOL}/{verb}")).send().await.problem(404, "not-found");
    }
}

async fn a_deleted_tool_can_be_registered_again(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.put_tool(TOOL, &json!({ "effect": "external", "lease_seconds": 5, "paused": true })).await.expect(200);
    api.delete_tool(TOOL).await.expect(204);
    let again = api.put_tool(TOOL, &json!({ "effect": "none" })).await.expect(201);
    assert!(again.revision() > 2, "a revision is never used twice: {again}");
    assert_eq!((again.str("/effect"), again.at("/paused")), ("none", &json!(false)));
    let granted = granted(&api, "op").await;
    assert_eq!(granted.at("/tool_revision"), again.at("/revision"));
}

async fn pausing_makes_no_revision(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external" })).await;
    for _ in 0..2 {
        let paused = api.pause(TOOL).await.expect(200);
        assert_eq!((paused.revision(), paused.at("/paused")), (1, &json!(true)));
        assert_eq!(api.tool(TOOL).await.expect(200).json, paused.json);
    }
    for _ in 0..2 {
        let resumed = api.resume(TOOL).await.expect(200);
        assert_eq!((resumed.revision(), resumed.at("/paused")), (1, &json!(false)));
    }
    for verb in ["pause", "resume"] {
        api.call("POST", &format!("/api/tools/absent/{verb}")).send().await.problem(404, "not-found");
    }
}

async fn tools_are_listed_by_name(store: StoreUnderTest) {
    let api = store.tenant();
    let names = ["Z", "a", "a.b", "aa", "b", "ä", "€"];
    for name in names.iter().rev() {
        api.put_tool(name, &json!({ "effect": "none" })).await.expect(201);
    }
    for limit in [1, 3, 6, 7, 8] {
        let found = api.pages(&format!("/api/tools?limit={limit}")).await;
        let found: Vec<&str> = found.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!(found, names, "limit {limit}: the same order on both stores");
        let page = api.read(&format!("/api/tools?limit={limit}")).await.expect(200);
        assert_eq!(page.json["next_cursor"].is_null(), limit >= 7, "limit {limit}");
    }
}

async fn concurrent_changes_are_all_there(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let puts = (1..=8).map(|n| {
        let (api, spec) = (api.clone(), json!({ "effect": "external", "lease_seconds": n }));
        async move { api.put_tool(TOOL, &spec).await.expect(200).revision() }
    });
    let mut revisions = futures_util::future::join_all(puts).await;
    revisions.sort_unstable();
    assert_eq!(revisions, (2..=9).collect::<Vec<_>>(), "each change has a revision of its own");
    assert_eq!(api.tool(TOOL).await.revision(), 9);
    // Of those that name the same revision, one wins.
    let puts = (1..=6).map(|n| {
        let call = api.call("PUT", "/api/tools/payments.refund").header("if-match", "\"9\"");
        call.json(&json!({ "effect": "external", "lease_seconds": 100 + n })).send()
    });
    let answers = futures_util::future::join_all(puts).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1, "{answers:#?}");
    assert_eq!(answers.iter().filter(|answer| answer.status == 412).count(), 5, "{answers:#?}");
}

async fn what_is_not_in_this_version_is_refused(store: StoreUnderTest) {
    let api = store.tenant();
    for (more, pointer) in [(json!({ "reconciliation": "automatic" }), "/reconciliation")] {
        let answer = api.put_tool(TOOL, &bodies::with(json!({ "effect": "external" }), &more)).await;
        let answer = answer.problem(400, "invalid-request").faults_at(&[pointer]);
        assert!(!answer.text.contains("hunter2"), "{answer}");
    }
    super::conventions::assert_nothing_stored(&api, &[]).await;
}

async fn a_registration_is_bounded(store: StoreUnderTest) {
    let api = store.tenant();
    let with =
        |bytes: usize| json!({ "effect": "none", "receipt": { "structured_schema": { "title": "t".repeat(bytes) } } });
    api.put_tool(TOOL, &with(128 * 1024)).await.problem(400, "invalid-request").faults_at(&[""]);
    super::conventions::assert_nothing_stored(&api, &[]).await;
    api.put_tool(TOOL, &with(127 * 1024)).await.expect(201);
    let fields: Vec<String> = (0..65).map(|n| format!("f{n}")).collect();
    let spec = json!({ "effect": "none", "identity_fields": fields, "settles_revisions": vec![1; 65] });
    let answer = api.put_tool("other", &spec).await.problem(400, "invalid-request");
    answer.faults_at(&["/identity_fields", "/settles_revisions"]);
}

async fn an_effect_keeps_the_revision_it_was_made_under(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "verification": "waived" })).await;
    let old = granted(&api, "old").await;
    let receipt = json!({ "schema": "refund", "schema_version": 2 });
    api.put_tool(TOOL, &json!({ "effect": "external", "receipt": receipt })).await.expect(200);
    let new = granted(&api, "new").await;
    assert_eq!((old.at("/tool_revision"), new.at("/tool_revision")), (&json!(1), &json!(2)));
    api.outcome("old", &bodies::receipted(&old)).await.expect(200).state("completed");
    api.outcome("new", &bodies::receipted(&new)).await.problem(422, "receipt-rejected");
    assert_eq!(api.get("old").await.at("/tool_revision"), 1);
}
