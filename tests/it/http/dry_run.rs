//! Dry runs of declarative adapters: they show everything, ask nobody and store nothing.

use serde_json::{Value, json};

use crate::http::TOOL;
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_dry_run_shows_what_would_be_asked_and_understood,
    a_request_is_tried_before_it_is_registered,
    what_is_tried_is_checked,
    a_dry_run_stores_nothing,
    literal_secrets_are_not_registered,
    no_rule_takes_the_service_down,
);

fn request() -> Value {
    json!({ "lookup": {
        "method": "POST", "url": "https://api.example.org/search/{{target}}",
        "headers": { "authorization": "Bearer {{secret.key}}", "x-key": "{{idempotency_key}}" },
        "body": { "query": { "op": "{{operation_id}}" }, "marker": "{{marker}}" },
        "rules": [
            { "when": "size(body.items) == 0", "verdict": "not_found", "consistency": "authoritative", "final": true },
            { "when": "size(body.items) == 1", "verdict": "completed", "binds": "body.items[0].op == effect.operation_id",
              "verified": "body.items[0].done",
              "receipt": { "receipt_id": "body.items[0].id", "message": "'found'", "structured": { "n": "body.items[0].n" } } },
        ],
    } })
}

fn tool() -> Value {
    json!({ "effect": "external", "adapter": { "lookup": true, "authoritative": true, "request": request() } })
}

fn trying(items: &Value) -> Value {
    json!({
        "question": "lookup",
        "effect": { "operation_id": "op \"1\"/ä", "target": "a/b", "idempotency_key": "key-1" },
        "answer": { "status": 200, "body": { "items": items } },
    })
}

async fn dry_run(api: &Api, body: &Value) -> crate::support::Answer {
    api.post(&format!("/api/tools/{TOOL}/adapter/dry-run"), body).await
}

async fn a_dry_run_shows_what_would_be_asked_and_understood(store: StoreUnderTest) {
    let api = store.tenant();
    api.put_tool(TOOL, &tool()).await.expect(201);
    let item = json!({ "op": "op \"1\"/ä", "id": "re_1", "n": 7, "done": true });
    let found = dry_run(&api, &trying(&json!([item]))).await.expect(200);
    let body = json!({ "marker": "<!-- actonce:key-1 -->", "query": { "op": "op \"1\"/ä" } }).to_string();
    let expected = json!({
        "method": "POST", "url": "https://api.example.org/search/a%2Fb", "body": body,
        "headers": { "authorization": "Bearer [hidden]", "content-type": "application/json", "x-key": "key-1" },
    });
    assert_eq!(found.at("/request"), &expected);
    assert_eq!((found.at("/rule"), found.at("/verdict")), (&json!(1), &json!("completed")));
    assert_eq!((found.at("/no_answer"), found.at("/receipt/receipt_id")), (&Value::Null, &json!("re_1")));
    assert_eq!((found.at("/receipt/operation_id"), found.at("/receipt/target")), (&json!("op \"1\"/ä"), &json!("a/b")));
    assert_eq!(
        (found.at("/receipt/structured"), found.at("/verification/verified")),
        (&json!({ "n": 7 }), &json!(true))
    );
    let absent = dry_run(&api, &trying(&json!([]))).await.expect(200);
    assert_eq!(
        (absent.at("/rule"), absent.at("/verdict"), absent.at("/receipt")),
        (&json!(0), &json!("not_found"), &Value::Null)
    );
    assert_eq!((absent.at("/consistency"), absent.at("/final")), (&json!("authoritative"), &json!(true)));
    let foreign = json!({ "op": "other", "id": "re_1", "n": 7, "done": true });
    let foreign = dry_run(&api, &trying(&json!([foreign]))).await.expect(200);
    assert_eq!((foreign.at("/verdict"), foreign.at("/receipt")), (&json!("identity_mismatch"), &Value::Null));
    let none = dry_run(&api, &trying(&json!([1, 2]))).await.expect(200);
    assert_eq!(none.at("/no_answer"), &json!({ "reason": "contract_break", "detail": "no rule matches" }));
    assert_eq!((none.at("/rule"), none.at("/verdict")), (&Value::Null, &Value::Null));
    let failing = bodies::set(trying(&json!([])), "/answer/status", json!(503));
    let failing = dry_run(&api, &failing).await.expect(200);
    assert_eq!(failing.at("/no_answer/reason"), "bad_status", "an empty list of a failing server is no absence");
    // A target that can't be a path segment: nothing would be asked.
    let up = bodies::set(trying(&json!([])), "/effect/target", json!(".."));
    let up = dry_run(&api, &up).await.expect(200);
    assert_eq!((up.at("/request"), up.at("/no_answer/reason")), (&Value::Null, &json!("contract_break")));
}

async fn a_request_is_tried_before_it_is_registered(store: StoreUnderTest) {
    let api = store.tenant();
    let body = bodies::with(trying(&json!([])), &json!({ "request": request() }));
    assert_eq!(dry_run(&api, &body).await.expect(200).at("/verdict"), "not_found");
    api.tool(TOOL).await.problem(404, "not-found");
    dry_run(&api, &trying(&json!([]))).await.problem(404, "not-found");
    // Where the tool is registered, its receipts count.
    let receipt = json!({ "structured_schema": { "required": ["missing"] } });
    api.put_tool(TOOL, &json!({ "effect": "external", "receipt": receipt })).await.expect(201);
    let item = json!({ "op": "op \"1\"/ä", "id": "re_1", "n": 7, "done": true });
    let body = bodies::with(trying(&json!([item])), &json!({ "request": request() }));
    let found = dry_run(&api, &body).await.expect(200);
    assert_eq!(found.at("/no_answer/detail"), "the receipt that a rule makes is not as the tool registers it");
    dry_run(&api, &trying(&json!([]))).await.problem(400, "invalid-request").faults_at(&["/request"]);
}

async fn what_is_tried_is_checked(store: StoreUnderTest) {
    let api = store.tenant();
    let base = bodies::with(trying(&json!([])), &json!({ "request": request() }));
    for (pointer, value, fault) in [
        ("/question", json!("verify"), "/question"),
        ("/question", json!("guess"), "/question"),
        ("/effect/operation_id", json!("a\nb"), "/effect/operation_id"),
        ("/effect/arguments_digest", json!("x"), "/effect/arguments_digest"),
        ("/answer/status", json!(99), "/answer/status"),
        ("/answer/headers", json!({ "A": "1", "a": "2" }), "/answer/headers"),
        ("/answer/body", json!({ "a": "\0" }), "/answer/body/a"),
        ("/answer/body", json!("x".repeat(256 * 1024)), "/answer/body"),
        ("/receipt", json!({}), "/receipt"),
        ("/request/lookup/url", json!("https://{{target}}/"), "/request/lookup/url"),
        ("/request/lookup/url", json!("https://a/{{secret.key}}"), "/request/lookup/url"),
        ("/request/lookup/headers/host", json!("a"), "/request/lookup/headers/host"),
        ("/request/lookup/rules/0/when", json!("hunter2 =="), "/request/lookup/rules/0/when"),
        ("/request/lookup/rules/1/binds", json!("true"), "/request/lookup/rules/1/binds"),
        ("/request/lookup/rules/0/verdict", json!("hunter2"), "/request/lookup/rules/0/verdict"),
    ] {
        let answer = dry_run(&api, &bodies::set(base.clone(), pointer, value)).await;
        let answer = answer.problem(400, "invalid-request").faults_at(&[fault]);
        assert!(!answer.text.contains("hunter2"), "{answer}");
    }
    dry_run(&api, &json!({})).await.problem(400, "invalid-request");
}

async fn a_dry_run_stores_nothing(store: StoreUnderTest) {
    let api = store.tenant();
    let registered = api.put_tool(TOOL, &tool()).await.expect(201);
    dry_run(&api, &trying(&json!([]))).await.expect(200);
    dry_run(&api, &bodies::with(trying(&json!([])), &json!({ "request": request() }))).await.expect(200);
    assert_eq!(api.tool(TOOL).await.expect(200).json, registered.json);
    assert!(api.pages("/api/effects?limit=200").await.is_empty());
}

async fn literal_secrets_are_not_registered(store: StoreUnderTest) {
    let api = store.tenant();
    let pointer = "/adapter/request/lookup/headers/authorization";
    let spec = bodies::set(tool(), pointer, json!("Bearer hunter2"));
    let answer = api.put_tool(TOOL, &spec).await.problem(400, "invalid-request").faults_at(&[pointer]);
    assert!(!answer.text.contains("hunter2"), "{answer}");
    for (pointer, value, fault) in [
        ("/adapter/verify", json!(true), "/adapter/request/verify"),
        ("/adapter/authoritative", json!(false), "/adapter/request/lookup/rules/0/consistency"),
        ("/adapter/url", json!("https://a/"), "/adapter/request"),
        ("/adapter/secret", json!("whsec_hunter2"), "/adapter/secret"),
        ("/adapter/secret_ref", json!("hunter2"), "/adapter/secret_ref"),
    ] {
        let answer = api.put_tool(TOOL, &bodies::set(tool(), pointer, value)).await;
        answer.problem(400, "invalid-request").faults_at(&[fault]);
    }
    api.tool(TOOL).await.problem(404, "not-found");
}

async fn no_rule_takes_the_service_down(store: StoreUnderTest) {
    let api = store.tenant();
    let list: Vec<u8> = vec![0; 50_000];
    for (when, verdict, no_answer) in [
        // Parentheses and signs that say nothing are gone once it is read.
        (format!("{}true{}", "(".repeat(400), ")".repeat(400)), Some("pending"), None),
        (format!("{}1 == 1", "-".repeat(900)), Some("pending"), None),
        (format!("{}true{}", "!(".repeat(300), ")".repeat(300)), None, None),
        (format!("{}1{}", "[".repeat(400), "]".repeat(400)), None, None),
        (format!("{}1 == 1", "1+".repeat(400)), None, None),
        (
            "body.items.all(a, body.items.all(b, body.items.all(c, true))) || true".to_owned(),
            None,
            Some("the rules took too long"),
        ),
        (
            "body.items.filter(a, body.items.filter(b, true).size() > 0).size() > 0".to_owned(),
            None,
            Some("the rules took too long"),
        ),
        ("[body,body,body,body].filter(x, true).size() > 9".to_owned(), None, Some("no rule matches")),
    ] {
        let mut tried = bodies::with(trying(&json!(list)), &json!({ "request": request() }));
        tried["request"]["lookup"]["rules"] = json!([{ "when": when, "verdict": "pending" }]);
        let answer = dry_run(&api, &tried).await;
        if verdict.is_none() && no_answer.is_none() {
            answer.problem(400, "invalid-request").faults_at(&["/request/lookup/rules/0/when"]);
            continue;
        }
        let answer = answer.expect(200);
        assert_eq!(answer.json["verdict"].as_str(), verdict, "{when}: {answer}");
        assert_eq!(answer.json.pointer("/no_answer/detail").and_then(Value::as_str), no_answer, "{when}: {answer}");
    }
    api.with_token(None).read("/livez").await.expect(200);
}
