//! `POST /api/intents`: one identity (law 1), the same answer to the same question (law 9).

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::http::{TOOL, external, profile, tool};
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    new_then_known,
    other_content_under_a_known_id_is_refused,
    operation_ids_come_from_the_header_too,
    operation_ids_are_derived_from_the_run,
    classes_may_be_stronger_not_weaker,
    ad_hoc_tools_are_external,
    digests_are_as_published,
    a_digest_stands_for_its_arguments,
    identity_fields_decide_what_is_the_same,
    identity_is_one_among_concurrent_posts,
);

async fn new_then_known(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let profile = profile(&api, "1").await;
    let body = bodies::with(
        bodies::intent("run-42:refund", TOOL),
        &json!({ "run_id": "run-42", "session_id": "s-7", "call_id": "call_9", "profile_id": profile }),
    );
    let first = api.intent(&body).await.expect(201).directive("claim").state("intent_recorded");
    assert_eq!(first.revision(), 1);
    assert_eq!(first.header("content-type"), Some("application/json"));
    let location = first.header("location").expect("a location");
    assert_eq!(location, "/api/effects/run%2D42%3Arefund");
    let expected = json!({
        "operation_id": "run-42:refund", "tool": TOOL, "tool_revision": 1, "effect": "external", "target": bodies::TARGET,
        "attempt": 0, "run_id": "run-42", "session_id": "s-7", "call_id": "call_9", "profile_id": profile,
        "digest_algorithm": "sha256-jcs-int53", "replayed": false,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(&first.json[name], value, "{name}");
    }
    assert!(first.json.get("dispatch").is_none(), "{first}");
    assert_eq!(first.json["created_at"], first.json["updated_at"]);
    assert_is_micros(first.str("/created_at"));
    let read = api.read(location).await.expect(200);
    assert_eq!(read.json, first.json);
    for _ in 0..2 {
        let again = api.intent(&body).await.expect(200);
        assert_eq!(again.json, first.json);
        assert_eq!(again.revision(), 1);
        assert_eq!(again.header("location"), None);
    }
    let entries = api.journal("run-42:refund").await;
    assert_eq!(entries.len(), 1, "a repeat writes nothing");
    assert_eq!(api.events("run-42:refund").await, ["effect.proposed", "effect.authorized", "effect.intent_recorded"]);
}

/// RFC 3339, UTC, microseconds.
fn assert_is_micros(text: &str) {
    let shape: String = text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    assert_eq!(shape, "0000-00-00T00:00:00.000000Z");
}

async fn other_content_under_a_known_id_is_refused(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.put_tool("other", &json!({ "effect": "external" })).await.expect(201);
    let body =
        bodies::with(bodies::intent("op", TOOL), &json!({ "arguments": { "a": 1, "b": null }, "run_id": "run" }));
    let first = api.intent(&body).await.expect(201);
    let reused = |more: Value| bodies::with(body.clone(), &bodies::with(json!({ "claim": bodies::claim() }), &more));
    for (more, differs) in [
        (json!({ "tool": "other" }), json!(["tool"])),
        (json!({ "tool": "unregistered" }), json!(["tool"])),
        (json!({ "target": "order-1002" }), json!(["target"])),
        (json!({ "arguments": { "a": 2, "b": null } }), json!(["arguments"])),
        (json!({ "arguments": { "a": 1 } }), json!(["arguments"])),
        (json!({ "arguments": { "a": "1", "b": null } }), json!(["arguments"])),
        (json!({ "tool": "other", "target": "x", "arguments": [] }), json!(["tool", "target", "arguments"])),
    ] {
        let answer = api.intent(&reused(more)).await.problem(422, "operation-reused");
        assert_eq!(answer.at("/differs"), &differs, "{answer}");
    }
    assert_eq!(api.get("op").await.expect(200).json, first.json, "nothing of the loser is stored");
    assert_eq!(api.journal("op").await.len(), 1);
    // The same content in other words is the same; what only correlates stays as it was.
    let same =
        json!({ "arguments": { "b": null, "a": 1.0 }, "run_id": "other", "session_id": "s", "effect": "external" });
    let again = api.intent(&bodies::with(body.clone(), &same)).await.expect(200);
    assert_eq!(again.json, first.json);
    assert_eq!(api.run("other").await.status, 404);
}

async fn operation_ids_come_from_the_header_too(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let body = |target: &str| json!({ "tool": TOOL, "target": target, "arguments": {}, "run_id": "run" });
    let post = |key: &str, body: &Value| api.call("POST", "/api/intents").header("idempotency-key", key).json(body);
    for (key, id) in
        [("bare-key", "bare-key"), ("\"quoted key\"", "quoted key"), ("a:b/c", "a:b/c"), ("schlüssel", "schlüssel")]
    {
        let answer = post(key, &body(id)).send().await.expect(201);
        assert_eq!(answer.str("/operation_id"), id);
        post(key, &body(id)).send().await.expect(200);
        assert_eq!(api.get(id).await.expect(200).str("/target"), id);
    }
    let named = bodies::with(body("both"), &json!({ "operation_id": "both" }));
    post("\"both\"", &named).send().await.expect(201);
    post("both", &named).send().await.expect(200);
    for key in ["other", "\"other\"", "Both"] {
        post(key, &named).send().await.problem(400, "invalid-request").faults_at(&["/operation_id"]);
    }
    api.get("other").await.problem(404, "not-found");
}

async fn operation_ids_are_derived_from_the_run(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let body = json!({ "tool": TOOL, "target": "t", "arguments": { "currency": "EUR", "amount": 1200.0 } });
    for body in [body.clone(), bodies::with(body.clone(), &json!({ "session_id": "s", "call_id": "c" }))] {
        let answer = api.intent(&body).await.problem(400, "operation-id-required");
        answer.faults_at(&["/operation_id"]);
    }
    super::conventions::assert_nothing_stored(&api, &[TOOL]).await;
    let in_run = bodies::with(body, &json!({ "run_id": "run-42" }));
    let hex = hex::encode(Sha256::digest(br#"{"amount":1200,"currency":"EUR"}"#));
    let id = format!("run-42:{TOOL}:{hex}");
    let first = api.intent(&in_run).await.expect(201);
    assert_eq!(first.str("/operation_id"), id);
    let again = bodies::with(in_run.clone(), &json!({ "arguments": { "amount": 12e2, "currency": "EUR" } }));
    assert_eq!(api.intent(&again).await.expect(200).str("/operation_id"), id);
    let mut by_digest = bodies::without(in_run.clone(), "arguments");
    by_digest["arguments_digest"] = json!(format!("sha256:{hex}"));
    assert_eq!(api.intent(&by_digest).await.expect(200).str("/operation_id"), id);
    let elsewhere = bodies::with(in_run.clone(), &json!({ "target": "other" }));
    api.intent(&elsewhere).await.problem(422, "operation-reused");
    let room = 256 - id.len() + "run-42".len();
    let long = bodies::with(in_run.clone(), &json!({ "run_id": "r".repeat(room + 1) }));
    api.intent(&long).await.problem(400, "invalid-request").faults_at(&["/operation_id"]);
    let fits = bodies::with(in_run, &json!({ "run_id": "r".repeat(room), "target": "fits" }));
    assert_eq!(api.intent(&fits).await.expect(201).str("/operation_id").len(), 256);
}

async fn classes_may_be_stronger_not_weaker(store: StoreUnderTest) {
    let api = store.tenant();
    let idempotent = json!({ "effect": "idempotent", "replay_contract": "by key", "downstream_key_ttl_seconds": 600 });
    for (tool, spec) in [("n", json!({ "effect": "none" })), ("i", idempotent), ("e", json!({ "effect": "external" }))]
    {
        api.put_tool(tool, &spec).await.expect(201);
    }
    for (tool, effect, is_taken) in [
        ("n", "none", true),
        ("n", "idempotent", true),
        ("n", "external", true),
        ("i", "none", false),
        ("i", "idempotent", true),
        ("i", "external", true),
        ("e", "none", false),
        ("e", "idempotent", false),
        ("e", "external", true),
    ] {
        let id = format!("{tool}-{effect}");
        let body = bodies::with(bodies::intent(&id, tool), &json!({ "effect": effect }));
        let answer = api.intent(&body).await;
        if is_taken {
            assert_eq!(answer.expect(201).str("/effect"), effect);
        } else {
            answer.problem(400, "invalid-request").faults_at(&["/effect"]);
            api.get(&id).await.problem(404, "not-found");
        }
    }
    // The class is part of the identity; left out, it is not a claim about it.
    let weaker = bodies::with(bodies::intent("n-external", "n"), &json!({ "effect": "none" }));
    assert_eq!(api.intent(&weaker).await.problem(422, "operation-reused").at("/differs"), &json!(["effect"]));
    assert_eq!(api.intent(&bodies::intent("n-external", "n")).await.expect(200).str("/effect"), "external");
    // A stronger class counts in all that follows: no replay without evidence.
    let claim = api.dispatch("n-external", &bodies::claim()).await.directive("dispatch");
    api.outcome("n-external", &bodies::unknown(&claim)).await.directive("reconcile");
    let claim = api.dispatch("n-none", &bodies::claim()).await.directive("dispatch");
    api.outcome("n-none", &bodies::unknown(&claim)).await.directive("claim");
}

async fn ad_hoc_tools_are_external(store: StoreUnderTest) {
    let refused = store.tenant();
    refused.intent(&bodies::claiming("op", TOOL)).await.problem(400, "invalid-request").faults_at(&["/tool"]);
    super::conventions::assert_nothing_stored(&refused, &[]).await;
    let server = store.server(Options::default().env("ACTONCE_AD_HOC_TOOLS", "allowed,also"));
    let api = Api::of(&server, "allowed");
    let granted = api.intent(&bodies::claiming("op", TOOL)).await.expect(201).directive("dispatch");
    assert_eq!((granted.str("/effect"), granted.at("/tool_revision")), ("external", &json!(0)));
    let weak = bodies::with(bodies::intent("weak", TOOL), &json!({ "effect": "none" }));
    api.intent(&weak).await.problem(400, "invalid-request").faults_at(&["/effect"]);
    api.tool(TOOL).await.problem(404, "not-found");
    let other = Api::of(&server, "other");
    other.intent(&bodies::claiming("op", TOOL)).await.problem(400, "invalid-request").faults_at(&["/tool"]);
    // It is as `external` as any: verified before it is complete, suspicious of its double.
    let twin = bodies::with(bodies::intent("twin", TOOL), &json!({ "arguments": { "operation": "op" } }));
    api.intent(&twin).await.problem(409, "suspected-duplicate");
    api.outcome("op", &bodies::receipted(&granted)).await.directive("verify");
    api.verify("op", &bodies::verification()).await.directive("replay");
    // A registration that comes later does not touch it.
    api.put_tool(TOOL, &json!({ "effect": "none" })).await.expect(201);
    assert_eq!(api.intent(&bodies::intent("op", TOOL)).await.expect(200).str("/effect"), "external");
    let all = store.server(Options::default().env("ACTONCE_AD_HOC_TOOLS", "*"));
    Api::of(&all, "anybody").intent(&bodies::claiming("op", TOOL)).await.expect(201).directive("dispatch");
}

/// SHA-256 over the canonical text, made with other tools.
async fn digests_are_as_published(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "none" })).await;
    for (place, (arguments, canonical)) in [
        (r#"{ "currency" : "EUR", "amount" : 1.2e3 }"#, r#"{"amount":1200,"currency":"EUR"}"#),
        ("{}", "{}"),
        ("null", "null"),
        ("-0", "0"),
        ("100E-2", "1"),
        ("0.0000001", "1e-7"),
        ("1E30", "1e+30"),
        ("333333333.33333329", "333333333.3333333"),
        ("9007199254740992", "9007199254740992"),
        ("9007199254740993", "9007199254740993"),
        ("-9007199254740993", "-9007199254740993"),
        ("1152921504606846976", "1152921504606846976"),
        ("1152921504606846976.0", "1152921504606847000"),
        (
            r#"{"\u20ac":1,"\r":2,"\ufb33":3,"1":4,"\ud83d\ude00":5,"\u0080":6,"\u00f6":7}"#,
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"\u{1F600}\":5,\"\u{fb33}\":3}",
        ),
        (r#""\u000f\n\u0008\"\\\/\u00e9""#, "\"\\u000f\\n\\b\\\"\\\\/é\""),
        (r#"[ 1 , { "b" : [ ] , "a" : null } ]"#, r#"[1,{"a":null,"b":[]}]"#),
    ]
    .into_iter()
    .enumerate()
    {
        let text = format!(r#"{{"operation_id":"op-{place}","tool":"{TOOL}","target":"t","arguments":{arguments}}}"#);
        let answer = api.call("POST", "/api/intents").text(&text).send().await.expect(201);
        let expected = format!("sha256:{}", hex::encode(Sha256::digest(canonical)));
        assert_eq!(answer.str("/arguments_digest"), expected, "{arguments}");
    }
    let golden = api.get("op-0").await;
    assert_eq!(
        golden.str("/arguments_digest"),
        "sha256:cc4d9f720c2753fb36eb4c6fc4d5b44d9ea4845d71cf1fbfe2cd4da669f98555"
    );
}

async fn a_digest_stands_for_its_arguments(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(br#"{"amount":1200,"currency":"EUR"}"#)));
    let by_digest = json!({ "operation_id": "op", "tool": TOOL, "target": "t", "arguments_digest": digest });
    let first = api.intent(&by_digest).await.expect(201);
    assert_eq!(first.str("/arguments_digest"), digest);
    let arguments = json!({ "arguments": { "currency": "EUR", "amount": 1200 } });
    let both = bodies::with(by_digest.clone(), &arguments);
    assert_eq!(api.intent(&both).await.expect(200).json, first.json);
    assert_eq!(api.intent(&bodies::without(both.clone(), "arguments_digest")).await.expect(200).json, first.json);
    let wrong = bodies::with(both, &json!({ "arguments": { "currency": "EUR", "amount": 1201 } }));
    api.intent(&wrong).await.problem(400, "invalid-request").faults_at(&["/arguments_digest"]);
    api.intent(&bodies::without(wrong, "arguments_digest")).await.problem(422, "operation-reused");
    assert_eq!(api.journal("op").await.len(), 1);
}

async fn identity_fields_decide_what_is_the_same(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "identity_fields": ["order", "amount"] })).await;
    let body = |id: &str, arguments: Value| bodies::with(bodies::intent(id, TOOL), &json!({ "arguments": arguments }));
    let first = api.intent(&body("op", json!({ "order": 1, "amount": 5, "at": "10:00" }))).await.expect(201);
    for same in [json!({ "amount": 5.0, "order": 1, "at": "10:01" }), json!({ "amount": 5, "order": 1, "trace": {} })] {
        let again = api.intent(&body("op", same)).await.expect(200);
        assert_eq!(again.json, first.json, "the first digest stays on record");
    }
    for other in [json!({ "order": 1, "amount": 6, "at": "10:00" }), json!({ "order": 1 }), json!([1, 5])] {
        let answer = api.intent(&body("op", other)).await.problem(422, "operation-reused");
        assert_eq!(answer.at("/differs"), &json!(["arguments"]));
    }
    // They also decide what looks like a double.
    let twin = body("twin", json!({ "order": 1, "amount": 5, "at": "10:02" }));
    assert_eq!(api.intent(&twin).await.problem(409, "suspected-duplicate").at("/operation_id"), "op");
    api.intent(&body("other", json!({ "order": 2, "amount": 5, "at": "10:00" }))).await.expect(201);
    // What counted when the effect was made goes on counting.
    api.put_tool(TOOL, &json!({ "effect": "external", "identity_fields": ["at"] })).await.expect(200);
    api.intent(&body("op", json!({ "order": 1, "amount": 5, "at": "11:00" }))).await.expect(200);
    api.intent(&body("op", json!({ "order": 3, "amount": 5, "at": "10:00" }))).await.problem(422, "operation-reused");
}

async fn identity_is_one_among_concurrent_posts(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for round in 0..5 {
        let id = format!("op-{round}");
        let posts = (0..12).map(|n| {
            let body =
                bodies::with(bodies::claiming(&id, TOOL), &json!({ "arguments": { "n": n % 3, "round": round } }));
            let api = api.clone();
            async move { api.intent(&body).await }
        });
        let answers = futures_util::future::join_all(posts).await;
        let count = |status: u16| answers.iter().filter(|answer| answer.status.as_u16() == status).count();
        assert_eq!(count(201), 1, "{answers:#?}");
        assert_eq!((count(200), count(422)), (3, 8), "{answers:#?}");
        let dispatches = answers.iter().filter(|answer| answer.json["directive"] == "dispatch").count();
        assert_eq!(dispatches, 1, "{answers:#?}");
        assert_eq!(api.get(&id).await.expect(200).revision(), 1);
    }
}
