//! What the contract asks for and the service does not do yet. Each test names what it expects; when
//! the service is mended, the test moves to the file of its subject.

use serde_json::{Value, json};

use crate::http::{TOOL, external, granted, tool};
use crate::support::{Answer, Api, Options, StoreUnderTest, bodies, both_stores, unique};

both_stores!(
    times_that_have_no_place_on_the_calendar_are_refused,
    a_known_intent_is_known_whatever_became_of_its_tool,
    a_known_intent_is_known_on_every_replica,
    arrays_are_no_objects,
    words_of_the_parser_do_not_let_values_through,
    bodies_over_1_mib_get_their_answer,
    a_held_effect_can_be_waited_for,
    headers_that_stand_twice_do_not_choose,
    a_claim_id_of_two_attempts_ago_is_not_granted_again,
    an_equal_registration_in_other_words_changes_nothing,
    any_known_revision_is_not_sent_again,
    faults_of_a_query_name_their_parameter,
);

/// RFC 3339 has years 0000 to 9999. Evidence beyond them is recorded with another time than was
/// sent: 1970, or a year of ours (laws 7, 9).
async fn times_that_have_no_place_on_the_calendar_are_refused(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for (n, time) in ["0000-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00"].into_iter().enumerate() {
        let id = format!("op-{n}");
        let granted = granted(&api, &id).await;
        let report = bodies::set(bodies::receipted(&granted), "/receipt/observed_at", json!(time));
        let answer = api.outcome(&id, &report).await;
        api.get(&id).await.state("dispatched");
        answer.problem(400, "invalid-request").faults_at(&["/receipt/observed_at"]);
    }
}

async fn asked(api: &Api, known: &[Value]) -> Vec<(u16, Value)> {
    let mut answers = Vec::new();
    for body in known {
        let answer = api.intent(body).await;
        answers.push((answer.status.as_u16(), answer.json));
    }
    answers
}

/// Intents of tools that were deleted or became stronger, and one that reuses a known id for an
/// unknown tool.
async fn known(api: &Api) -> Vec<Value> {
    tool(api, json!({ "effect": "none" })).await;
    let deleted = bodies::claiming("op", TOOL);
    let granted = api.intent(&deleted).await.expect(201).directive("dispatch");
    api.outcome("op", &bodies::receipted(&granted)).await.expect(200).state("completed");
    api.delete_tool(TOOL).await.expect(204);
    api.put_tool("stronger", &json!({ "effect": "none" })).await.expect(201);
    let stronger = bodies::with(bodies::intent("stronger", "stronger"), &json!({ "effect": "none" }));
    api.intent(&stronger).await.expect(201);
    api.put_tool("stronger", &json!({ "effect": "external" })).await.expect(200);
    let reused = bodies::with(deleted.clone(), &json!({ "tool": "unregistered" }));
    vec![deleted, stronger, reused]
}

fn assert_known(answers: &[(u16, Value)]) {
    let statuses: Vec<u16> = answers.iter().map(|(status, _)| *status).collect();
    assert_eq!(statuses, [200, 200, 422], "{answers:#?}");
    assert_eq!(answers[0].1["directive"], "replay");
}

/// The same question, the same answer, also after a restart (law 9): the effect is looked up before
/// its tool is.
async fn a_known_intent_is_known_whatever_became_of_its_tool(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    let known = known(&api).await;
    let before = asked(&api, &known).await;
    assert_known(&before);
    server.kill9();
    server.restart();
    assert_eq!(asked(&api.at(&server), &known).await, before);
}

/// And on another replica (law 9).
async fn a_known_intent_is_known_on_every_replica(store: StoreUnderTest) {
    let one = store.server(Options::default());
    let known = known(&Api::of(&one, "t")).await;
    let two = one.replica();
    assert_known(&asked(&Api::of(&two, "t"), &known).await);
}

/// The bodies are documented as objects; an array of values in some order is none.
async fn arrays_are_no_objects(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let refused = async |method: &str, path: &str, body: Value, pointer: &str| {
        let answer = api.call(method, path).json(&body).send().await;
        answer.problem(400, "invalid-request").faults_at(&[pointer]);
    };
    for claim in [json!(["worker", "claim", 60]), json!(["worker"])] {
        let body = bodies::set(bodies::claiming("new", TOOL), "/claim", claim.clone());
        refused("POST", "/api/intents", body, "/claim").await;
        refused("POST", "/api/effects/op/dispatch", claim, "").await;
    }
    let positional = json!(["new", TOOL, null, "target", {}, null, null, null, null, null, null]);
    refused("POST", "/api/intents", positional, "").await;
    refused("POST", "/api/effects/op/cancel", json!([]), "").await;
    refused("POST", "/api/tools/payments.refund/pause", json!([]), "").await;
    let authorization = json!({ "effect": "none", "authorization": ["automatic", 1, true, 60] });
    refused("PUT", "/api/tools/other", authorization, "/authorization").await;
    let granted = granted(&api, "granted").await;
    let (dispatch_id, fence) = granted.dispatch();
    refused("POST", "/api/effects/granted/heartbeat", json!([dispatch_id, fence]), "").await;
    let report = bodies::set(bodies::unknown(&granted), "/failure_evidence", json!(["timeout", "in_flight", ""]));
    refused("POST", "/api/effects/granted/outcome", report, "/failure_evidence").await;
    api.outcome("granted", &bodies::receipted(&granted)).await.expect(200);
    let verification = bodies::verification();
    let values: Vec<Value> =
        ["verified", "observed_at", "source", "target"].map(|name| verification[name].clone()).to_vec();
    refused("POST", "/api/effects/granted/verification", json!(values), "").await;
    api.get("granted").await.state("verifying");
    api.get("op").await.state("intent_recorded");
}

/// Refusals echo nothing of what was sent (law 11), whatever the value looks like.
async fn words_of_the_parser_do_not_let_values_through(store: StoreUnderTest) {
    let (api, marker) = (store.tenant(), unique("hunter2"));
    external(&api).await;
    let silent = |answer: Answer| {
        let answer = answer.problem(400, "invalid-request");
        assert!(!answer.text.contains(&marker), "echoed: {answer}");
    };
    for value in [format!("x, expected {marker}"), format!("must be {marker}"), format!("missing field `{marker}")] {
        for pointer in ["/effect", "/claim", "/claim/lease_seconds"] {
            let body = bodies::set(bodies::claiming("new", TOOL), pointer, json!(value));
            silent(api.intent(&body).await);
        }
        silent(api.put_tool("other", &json!({ "effect": "none", "lease_seconds": value })).await);
    }
    let granted = granted(&api, "op").await;
    for pointer in ["/outcome", "/receipt", "/receipt/outcome", "/verification", "/failure_evidence", "/fence"] {
        let report = bodies::set(bodies::succeeded(&granted), pointer, json!(format!("x, expected {marker}")));
        silent(api.outcome("op", &report).await);
    }
}

/// The refusal is clear (law 15): it reaches a client that is still sending.
async fn bodies_over_1_mib_get_their_answer(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    for bytes in [1024 * 1024 + 1, 8 * 1024 * 1024] {
        let body = bodies::intent("new", TOOL).to_string();
        let body = body.clone() + &" ".repeat(bytes - body.len());
        for path in ["/api/intents", "/api/effects/op/dispatch", "/api/effects/op/cancel"] {
            for _ in 0..10 {
                let answer = api.call("POST", path).text(&body).send().await.problem(413, "too-large");
                assert_eq!(answer.at("/limit_bytes"), 1024 * 1024);
            }
        }
        let answer = api.call("PUT", "/api/tools/other").text(&body).send().await.problem(413, "too-large");
        assert_eq!(answer.at("/limit_bytes"), 1024 * 1024);
    }
    api.get("new").await.problem(404, "not-found");
}

fn same(operation_id: &str) -> Value {
    bodies::with(bodies::claiming(operation_id, TOOL), &json!({ "arguments": { "amount": 1200 } }))
}

/// A hold ends when the first one settles (protocol §11), also for who reads and waits, and never
/// claims again: `authorize` tells it to wait for an approval that nobody needs any more, until the
/// proposal expires as `refused`.
async fn a_held_effect_can_be_waited_for(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "on_suspected_duplicate": "hold" })).await;
    let first = api.intent(&same("first")).await.expect(201).directive("dispatch");
    api.intent(&bodies::without(same("second"), "claim")).await.expect(201).directive("authorize");
    let waiting = api.call("GET", "/api/effects/second").header("prefer", "wait=10").send();
    let settle = async {
        api.outcome("first", &bodies::succeeded(&first)).await.expect(200).state("completed");
    };
    let (waited, ()) = tokio::join!(waiting, settle);
    waited.expect(200).state("intent_recorded").directive("claim");
}

/// Two different values of a header that decides something are no value to decide by (law 1).
async fn headers_that_stand_twice_do_not_choose(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let body = bodies::without(bodies::intent("op", TOOL), "operation_id");
    let call = api.call("POST", "/api/intents").header("idempotency-key", "one").header("idempotency-key", "two");
    call.json(&body).send().await.problem(400, "invalid-request").faults_at(&["header:Idempotency-Key"]);
    api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let call = api.call("POST", "/api/effects/op/cancel").header("if-match", "\"1\"").header("if-match", "\"2\"");
    call.send().await.problem(400, "invalid-request").faults_at(&["header:If-Match"]);
    assert_eq!(api.get("op").await.state("intent_recorded").revision(), 1);
}

/// A claim id is of one attempt. That of an attempt before the last comes from a request that was on
/// its way for long, or from a process that has acted: neither may act now.
async fn a_claim_id_of_two_attempts_ago_is_not_granted_again(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let first = bodies::claiming("op", TOOL);
    let granted = api.intent(&first).await.expect(201).directive("dispatch");
    api.outcome("op", &bodies::not_sent(&granted)).await.expect(200);
    let granted = api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
    api.outcome("op", &bodies::not_sent(&granted)).await.expect(200);
    let again = api.intent(&first).await.expect(200).state("safe_to_retry").directive("claim");
    assert_eq!(again.at("/attempt"), 2);
}

/// What a GET answers can be PUT again: defaults that are spelled out change nothing, and make no
/// approval stale.
async fn an_equal_registration_in_other_words_changes_nothing(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let mut back = api.tool(TOOL).await.expect(200).json;
    for member in ["name", "revision", "registered_at"] {
        back = bodies::without(back, member);
    }
    assert_eq!(api.put_tool(TOOL, &back).await.expect(200).revision(), 1);
}

/// `If-None-Match: *` is any representation that exists (RFC 9110, 13.1.2).
async fn any_known_revision_is_not_sent_again(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    granted(&api, "op").await;
    api.call("GET", "/api/effects/op").header("if-none-match", "*").send().await.expect(304);
}

/// The page of `invalid-request` promises `query:NAME`.
async fn faults_of_a_query_name_their_parameter(store: StoreUnderTest) {
    let api = store.tenant();
    for (query, pointer) in [
        ("limit=x", "query:limit"),
        ("limit=-1", "query:limit"),
        ("limit=1&limit=2", "query:limit"),
        ("bogus=1", "query:bogus"),
        ("state=done", "query:state"),
        ("contradicted=maybe", "query:contradicted"),
    ] {
        api.list(query).await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
}

/// A documented answer can exist: `allOf` with a closed object allows nothing beside it.
#[test]
fn documented_answers_can_exist() {
    let schemas = crate::support::contract::DOCUMENT["components"]["schemas"].as_object().unwrap();
    for (name, schema) in schemas {
        for part in schema["allOf"].as_array().into_iter().flatten() {
            let Some(base) = part["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()) else { continue };
            let is_closed = schemas[base]["additionalProperties"] == false;
            assert!(!is_closed, "{name} adds members to {base}, which allows no others");
        }
    }
}
