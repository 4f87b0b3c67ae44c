//! Intents with faults: each is pointed at, and nothing is stored.

use serde_json::{Value, json};

use super::{assert_nothing_stored, nested_arrays, nested_objects};
use crate::http::{TOOL, external, profile};
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    names_are_bounded_and_clean,
    names_at_the_limit_are_taken,
    members_are_known_and_of_their_type,
    arguments_are_json_that_all_readers_agree_on,
    leases_are_bounded,
    all_faults_are_told_at_once,
    headers_are_pointed_at,
);

const NAMES: [&str; 9] = [
    "/operation_id",
    "/tool",
    "/target",
    "/run_id",
    "/session_id",
    "/call_id",
    "/profile_id",
    "/claim/worker",
    "/claim/claim_id",
];

fn body() -> Value {
    bodies::claiming("op", TOOL)
}

async fn refused(api: &Api, body: &str, pointers: &[&str]) {
    api.call("POST", "/api/intents").text(body).send().await.problem(400, "invalid-request").faults_at(pointers);
}

async fn names_are_bounded_and_clean(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for pointer in NAMES {
        for value in [
            json!(""),
            json!(" "),
            json!(" x"),
            json!("x "),
            json!("\u{a0}x"),
            json!("a\0b"),
            json!("a\nb"),
            json!("a\u{85}b"),
            json!("x".repeat(257)),
            json!("é".repeat(129)),
            json!(5),
            json!(true),
            json!(["x"]),
            json!({ "x": 1 }),
        ] {
            refused(&api, &bodies::set(body(), pointer, value).to_string(), &[pointer]).await;
        }
        for surrogate in [r"\ud800", r"a\udc00", r"\ud83dx", r"\udc00\ud800"] {
            let body = bodies::set(body(), pointer, json!("SURROGATE")).to_string();
            refused(&api, &body.replace("SURROGATE", surrogate), &[pointer]).await;
        }
    }
    assert_nothing_stored(&api, &[TOOL]).await;
}

async fn names_at_the_limit_are_taken(store: StoreUnderTest) {
    let api = store.tenant();
    for name in ["x".repeat(256), "é".repeat(128), "\u{1F600}".repeat(64), "€".repeat(85) + "x"] {
        assert_eq!(name.len(), 256);
        api.put_tool(&name, &json!({ "effect": "external" })).await.expect(201);
        let body = NAMES.iter().fold(body(), |body, pointer| bodies::set(body, pointer, json!(name)));
        // A profile is named by its digest.
        let body = bodies::set(body, "/profile_id", json!(profile(&api, &name).await));
        let answer = api.intent(&body).await.expect(201).directive("dispatch");
        for member in ["/operation_id", "/tool", "/target", "/run_id", "/session_id", "/call_id", "/dispatch/worker"] {
            assert_eq!(answer.str(member), name, "{member}");
        }
        assert_eq!(api.get(&name).await.expect(200).str("/operation_id"), name);
        assert_eq!(api.run(&name).await.expect(200).at("/total"), 1);
        assert_eq!(api.journal(&name).await.len(), 1);
    }
}

async fn members_are_known_and_of_their_type(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for (changed, pointer) in [
        (bodies::set(body(), "/bogus", json!(1)), "/bogus"),
        (bodies::set(body(), "/claim/bogus", json!(1)), "/claim/bogus"),
        (bodies::set(body(), "/Operation_id", json!("x")), "/Operation_id"),
        (bodies::set(body(), "/effect", json!("strong")), "/effect"),
        (bodies::set(body(), "/effect", json!("External")), "/effect"),
        (bodies::set(body(), "/effect", json!(1)), "/effect"),
        (bodies::set(body(), "/claim", json!(true)), "/claim"),
        (bodies::set(body(), "/claim", json!("worker")), "/claim"),
        (bodies::set(body(), "/claim/lease_seconds", json!("60")), "/claim/lease_seconds"),
        (bodies::set(body(), "/claim/lease_seconds", json!(1.5)), "/claim/lease_seconds"),
        (bodies::set(body(), "/claim/lease_seconds", json!(-1)), "/claim/lease_seconds"),
        (bodies::set(body(), "/tool", Value::Null), "/tool"),
        (bodies::set(body(), "/target", Value::Null), "/target"),
        (bodies::set(body(), "/arguments_digest", json!("sha256:00")), "/arguments_digest"),
        (bodies::set(body(), "/arguments_digest", json!(format!("sha256:{}", "A".repeat(64)))), "/arguments_digest"),
        (bodies::set(body(), "/arguments_digest", json!(format!("md5:{}", "a".repeat(64)))), "/arguments_digest"),
        (bodies::set(body(), "/arguments_digest", json!(format!("sha256:{}", "a".repeat(64)))), "/arguments_digest"),
        (bodies::without(body(), "arguments"), "/arguments"),
        (bodies::set(body(), "/tool", json!("payments.unknown")), "/tool"),
    ] {
        refused(&api, &changed.to_string(), &[pointer]).await;
    }
    // What lacks is named, at the object that lacks it.
    for (changed, pointer, member) in [
        (bodies::without(body(), "tool"), "", "`tool`"),
        (bodies::without(body(), "target"), "", "`target`"),
        (bodies::set(body(), "/claim", json!({})), "/claim", "`worker`"),
    ] {
        let answer = api.intent(&changed).await.problem(400, "invalid-request").faults_at(&[pointer]);
        assert!(answer.str("/faults/0/reason").contains(member), "{answer}");
    }
    // A member that stands twice is refused whichever it is, also with equal values.
    for (text, pointer) in [
        (r#"{"operation_id":"a","operation_id":"b","tool":"payments.refund","target":"t","arguments":1}"#, ""),
        (r#"{"operation_id":"a","tool":"payments.refund","target":"t","target":"t","arguments":1}"#, ""),
        (r#"{"operation_id":"a","tool":"payments.refund","target":"t","arguments":1,"arguments":1}"#, ""),
        (
            r#"{"operation_id":"a","tool":"payments.refund","target":"t","arguments":1,"claim":{"worker":"a","worker":"b"}}"#,
            "/claim",
        ),
    ] {
        refused(&api, text, &[pointer]).await;
    }
    assert_nothing_stored(&api, &[TOOL]).await;
}

async fn arguments_are_json_that_all_readers_agree_on(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let with = |arguments: &str| body().to_string().replace(r#"{"operation":"op"}"#, arguments);
    assert_ne!(with("1"), body().to_string());
    for (arguments, pointer) in [
        (r#"{"a":1,"a":2}"#, "/arguments/a"),
        (r#"{"a":1,"a":1}"#, "/arguments/a"),
        (r#"{"a":1,"\u0061":2}"#, "/arguments/a"),
        (r#"{"x":[0,{"b/c":{"d~":1,"d~":2}}]}"#, "/arguments/x/1/b~1c/d~0"),
        (r#""a\u0000b""#, "/arguments"),
        (r#"{"a":["x","\u0000"]}"#, "/arguments/a/1"),
        (r#"{"a\u0000":1}"#, "/arguments"),
        (r#"{"a":"\ud800"}"#, "/arguments/a"),
        (r#"["\udc00"]"#, "/arguments/0"),
        ("1e400", "/arguments"),
        (r#"{"a":-1e999}"#, "/arguments/a"),
    ] {
        refused(&api, &with(arguments), &[pointer]).await;
    }
    for arguments in [nested_arrays(65), nested_objects(65), nested_arrays(5_000), nested_objects(20_000)] {
        let answer = api.call("POST", "/api/intents").text(&with(&arguments)).send().await;
        let answer = answer.problem(400, "invalid-request");
        assert!(answer.str("/faults/0/pointer").starts_with("/arguments"), "{answer}");
        assert!(answer.text.len() < 4_000, "a refusal is short: {} bytes", answer.text.len());
    }
    assert_nothing_stored(&api, &[TOOL]).await;
    for (place, arguments) in [nested_arrays(64), nested_objects(64)].iter().enumerate() {
        let text = with(arguments).replace(r#""op""#, &format!(r#""op-{place}""#));
        api.call("POST", "/api/intents").text(&text).send().await.expect(201);
    }
}

async fn leases_are_bounded(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let with = |lease: u64| bodies::set(body(), "/claim/lease_seconds", json!(lease));
    for lease in [0, 3601, u64::from(u32::MAX)] {
        refused(&api, &with(lease).to_string(), &["/claim/lease_seconds"]).await;
    }
    refused(&api, &with(1 << 32).to_string(), &["/claim/lease_seconds"]).await;
    assert_nothing_stored(&api, &[TOOL]).await;
    for lease in [1, 3600] {
        let body = bodies::set(with(lease), "/operation_id", json!(format!("lease-{lease}")));
        let body = bodies::set(body, "/target", json!(lease.to_string()));
        api.intent(&body).await.expect(201).directive("dispatch");
    }
    let claim = json!({ "worker": "w", "lease_seconds": 0 });
    api.intent(&bodies::intent("later", TOOL)).await.expect(201);
    api.dispatch("later", &claim).await.problem(400, "invalid-request").faults_at(&["/lease_seconds"]);
    api.dispatch("later", &json!({ "worker": "" })).await.problem(400, "invalid-request").faults_at(&["/worker"]);
    assert_eq!(api.get("later").await.expect(200).directive("claim").revision(), 1);
}

async fn all_faults_are_told_at_once(store: StoreUnderTest) {
    let api = store.tenant();
    let body = json!({
        "operation_id": "", "tool": " x", "target": "a\nb", "arguments": "\0", "run_id": "", "session_id": "",
        "call_id": "", "profile_id": "", "claim": { "worker": "", "claim_id": "", "lease_seconds": 0 },
    });
    let pointers = [&NAMES[..], &["/claim/lease_seconds", "/arguments"]].concat();
    refused(&api, &body.to_string(), &pointers).await;
    assert_nothing_stored(&api, &[]).await;
}

async fn headers_are_pointed_at(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let post = || api.call("POST", "/api/intents").json(&bodies::without(body(), "operation_id"));
    for key in ["", "\"\"", " ", "\" x\"", &"x".repeat(257)] {
        let answer = post().header("idempotency-key", key).send().await;
        answer.problem(400, "invalid-request").faults_at(&["header:Idempotency-Key"]);
    }
    for wait in ["wait=61", "wait=-1", "wait=x", "wait=", "wait=1.5", "respond-async, wait=4000"] {
        let answer = api.call("POST", "/api/intents").header("prefer", wait).json(&body()).send().await;
        answer.problem(400, "invalid-request").faults_at(&["header:Prefer"]);
    }
    assert_nothing_stored(&api, &[TOOL]).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    for tag in ["1", "\"x\"", "W/\"1\"", "\"\"", "\"1", "\"-1\"", "\"99999999999\""] {
        for call in [
            api.call("POST", "/api/effects/op/dispatch").json(&bodies::claim()),
            api.call("POST", "/api/effects/op/cancel"),
            api.call("PUT", "/api/tools/payments.refund").json(&json!({ "effect": "none" })),
            api.call("DELETE", "/api/tools/payments.refund"),
        ] {
            let answer = call.header("if-match", tag).send().await;
            answer.problem(400, "invalid-request").faults_at(&["header:If-Match"]);
        }
    }
    assert_eq!(api.get("op").await.directive("claim").revision(), 1);
    assert_eq!(api.tool(TOOL).await.revision(), 1);
}
