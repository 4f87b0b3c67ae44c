//! Bypass reports: what a vendor has and nobody recorded, what it lacks, and what it has twice.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::http::{TOOL, external, granted, in_review};
use crate::scenarios::sql as spoil;
use crate::support::api::{Answer, segment};
use crate::support::server::Options;
use crate::support::{Api, StoreUnderTest, bodies, both_stores, raw};

both_stores!(
    each_difference_has_its_line,
    lines_name_effects_by_downstream_key_or_marker_too,
    json_lines_are_read_by_pointer,
    faulty_lines_are_told_by_number_and_never_shown,
    faulty_requests_are_refused,
    tenants_see_their_own_alone,
    only_the_window_is_missed,
    a_downstream_key_is_compared_with_the_one_that_is_kept,
    a_large_export_is_read_as_it_comes,
    an_export_that_breaks_off_is_no_report,
);

const CSV: &str = "text/csv";
const JSONL: &str = "application/jsonl";
const ALWAYS: &str = "from=2020-01-01T00:00:00Z&until=2200-01-01T00:00:00Z";

async fn send(api: &Api, query: &str, form: &str, export: &str) -> Answer {
    let path = format!("/api/reports/bypass?tool={TOOL}&{query}");
    api.call("POST", &path).header("content-type", form).bytes(export.as_bytes()).send().await
}

/// The lines of a report, and its summary.
fn lines(answer: Answer) -> (Vec<Value>, Value) {
    let answer = answer.expect(200);
    assert_eq!(answer.header("content-type"), Some("application/jsonl"));
    let mut lines: Vec<Value> = answer.text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let summary = lines.pop().unwrap();
    assert_eq!(summary["type"], "summary", "{summary}");
    (lines, summary)
}

async fn report(api: &Api, query: &str, form: &str, export: &str) -> (Vec<Value>, Value) {
    lines(send(api, &format!("{ALWAYS}&{query}"), form, export).await)
}

/// Completes an effect; its downstream key and its marker.
async fn completed(api: &Api, operation: &str) -> (String, String) {
    let granted = granted(api, operation).await;
    let told = (granted.str("/dispatch/idempotency_key").to_owned(), granted.str("/dispatch/marker").to_owned());
    api.outcome(operation, &bodies::succeeded(&granted)).await.expect(200).state("completed");
    told
}

async fn each_difference_has_its_line(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for operation in ["a", "b, with a comma", "forgotten"] {
        completed(&api, operation).await;
    }
    in_review(&api, "doubted").await;
    api.put_tool("another", &json!({ "effect": "external" })).await.expect(201);
    api.intent(&bodies::intent("elsewhere", "another")).await.expect(201);
    let export = "amount,operation\n1,a\n2,\"b, with a comma\"\n3,unheard of\n4,\n5,a\n6,doubted\n7,elsewhere\n\
                  8,unheard of\n9,\"\"\n";
    let (lines, summary) = report(&api, "key=operation", CSV, export).await;
    assert_eq!(
        lines,
        [
            json!({ "type": "bypassed", "line": 4, "reason": "unknown" }),
            json!({ "type": "bypassed", "line": 5, "reason": "no_key" }),
            json!({ "type": "double", "line": 6, "first_line": 2 }),
            json!({ "type": "not_completed", "line": 7, "state": "manual_review" }),
            json!({ "type": "other_tool", "line": 8 }),
            json!({ "type": "double", "line": 9, "first_line": 4 }),
            json!({ "type": "bypassed", "line": 10, "reason": "no_key" }),
            json!({ "type": "missing", "operation_id": "forgotten" }),
        ]
    );
    assert_eq!(
        summary,
        json!({ "type": "summary", "lines": 9, "matched": 2, "bypassed": 3, "doubles": 2,
        "not_completed": 1, "other_tool": 1, "unreadable": 0, "faults": 0, "missing": 1 })
    );
    // Nothing is stored, and the same export comes to the same.
    assert_eq!(report(&api, "key=operation", CSV, export).await, (lines, summary));
    // An export without lines lacks everything.
    let (lines, summary) = report(&api, "key=operation", CSV, "amount,operation\n").await;
    assert_eq!((lines.len(), &summary["missing"]), (3, &json!(3)));
}

async fn lines_name_effects_by_downstream_key_or_marker_too(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let (key, marker) = completed(&api, "a").await;
    completed(&api, "forgotten").await;
    // A key with the right effect in it that was never given out.
    let other = |at: usize| if key.as_bytes()[at] == b'A' { 'B' } else { 'A' };
    let near = format!("{}{}{}", &key[..20], other(20), &key[21..]);
    let tag = format!("{}{}", &key[..key.len() - 1], other(key.len() - 1));
    let missing = json!({ "type": "missing", "operation_id": "forgotten" });
    let unknown = |line: u32| json!({ "type": "bypassed", "line": line, "reason": "unknown" });
    let export = format!("key\n{key}\n{near}\n{tag}\nnonsense\n{key}\n");
    let (found, _) = report(&api, "key=key&by=idempotency_key", CSV, &export).await;
    let double = json!({ "type": "double", "line": 6, "first_line": 2 });
    assert_eq!(found, [unknown(3), unknown(4), unknown(5), double, missing.clone()]);
    let text = json!({ "body": format!("Refunded.\n{marker}") });
    let bare = json!({ "body": "Refunded." });
    let (found, summary) = report(&api, "key=/body&by=marker", JSONL, &format!("{text}\n{bare}\n{text}")).await;
    let no_key = json!({ "type": "bypassed", "line": 2, "reason": "no_key" });
    let double = json!({ "type": "double", "line": 3, "first_line": 1 });
    assert_eq!((found, &summary["matched"]), (vec![no_key, double, missing], &json!(1)));
}

/// A key leads to where its effect would be; that is a hint, as the effect may keep another key.
async fn a_downstream_key_is_compared_with_the_one_that_is_kept(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "tenant");
    external(&api).await;
    let (key, _) = completed(&api, "a").await;
    let query = format!("{ALWAYS}&key=key&by=idempotency_key");
    let export = format!("key\n{key}\n");
    assert_eq!(lines(send(&api, &query, CSV, &export).await).0, Vec::<Value>::new());
    spoil(&server, &format!("UPDATE entries SET intent = replace(intent, '{key}', 'another')"));
    let (found, _) = lines(send(&api, &query, CSV, &export).await);
    let unknown = json!({ "type": "bypassed", "line": 2, "reason": "unknown" });
    assert_eq!(found, [unknown, json!({ "type": "missing", "operation_id": "a" })]);
    spoil(&server, "UPDATE entries SET intent = '{}' WHERE revision = 1");
    assert_eq!(lines(send(&api, &query, CSV, &export).await).0, [json!({ "type": "unreadable", "line": 2 })]);
}

async fn json_lines_are_read_by_pointer(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for operation in ["a", "7"] {
        completed(&api, operation).await;
    }
    let export = "{\"metadata\":{\"ids\":[\"a\"]}}\r\n\n{\"metadata\":{\"ids\":[7]}}\n{\"metadata\":{}}";
    let (lines, summary) = report(&api, "key=/metadata/ids/0", JSONL, export).await;
    assert_eq!(lines, [json!({ "type": "bypassed", "line": 4, "reason": "no_key" })]);
    assert_eq!((&summary["matched"], &summary["lines"]), (&json!(2), &json!(3)));
    // A pointer that leads nowhere: every line is without a key, and everything is missing.
    let (lines, summary) = report(&api, "key=/elsewhere", JSONL, export).await;
    assert_eq!((lines.len(), &summary["matched"], &summary["bypassed"]), (5, &json!(0), &json!(3)));
}

async fn faulty_lines_are_told_by_number_and_never_shown(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    completed(&api, "a").await;
    let long = "hunter2".repeat(40_000);
    let export = format!(
        "{{\"id\":\"a\"}}\nhunter2\n[\"hunter2\"]\n{{\"id\":{{\"hunter2\":1}}}}\n{{\"id\":\"{long}\"}}\n{{\"id\":\"a\"}}"
    );
    let answer = send(&api, &format!("{ALWAYS}&key=/id"), JSONL, &export).await;
    assert!(!answer.text.contains("hunter2"));
    let (found, summary) = lines(answer);
    let fault = |line: u32, reason: &str| json!({ "type": "fault", "line": line, "reason": reason });
    let double = json!({ "type": "double", "line": 6, "first_line": 1 });
    let expected = [fault(2, "malformed"), fault(3, "malformed"), fault(4, "not_text"), fault(5, "too_long"), double];
    assert_eq!((found, &summary["faults"]), (expected.to_vec(), &json!(4)));
    let path = format!("/api/reports/bypass?tool={TOOL}&{ALWAYS}&key=id");
    let bytes = b"x,id\nhunter2\n1,\xff\xfe\n2,a\n";
    let (found, _) = lines(api.call("POST", &path).header("content-type", CSV).bytes(bytes).send().await);
    assert_eq!(found, [fault(2, "column_missing"), fault(3, "not_utf8")]);
}

async fn faulty_requests_are_refused(store: StoreUnderTest) {
    let api = store.tenant();
    let big = "x".repeat(300_000);
    for (query, form, export, pointers) in [
        ("key=other", CSV, "id\na\n", vec!["query:key"]),
        ("key=id", CSV, "", vec!["query:key"]),
        ("key=id", CSV, "id,id\na,b\n", vec!["query:key"]),
        ("key=id", CSV, &big, vec!["query:key"]),
        ("key=id", JSONL, "{}", vec!["query:key"]),
        ("key=", CSV, "id\n", vec!["query:key"]),
        ("key=id&by=name", CSV, "id\n", vec!["query:by"]),
        ("key=id&more=1", CSV, "id\n", vec!["query:more"]),
        ("", CSV, "id\n", vec!["query:key"]),
    ] {
        let answer = send(&api, &format!("{ALWAYS}&{query}"), form, export).await;
        answer.problem(400, "invalid-request").faults_at(&pointers);
    }
    let window = |from: &str, until: &str| format!("key=id&from={from}&until={until}");
    for (query, pointer) in [
        (window("yesterday", "2026-01-01T00:00:00Z"), "query:from"),
        (window("2026-01-01T00:00:00Z", "2026-01-01"), "query:until"),
        (window("2026-01-01T00:00:00Z", "2026-01-01T00:00:00Z"), "query:until"),
    ] {
        send(&api, &query, CSV, "id\n").await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    for form in ["application/json", "application/x-www-form-urlencoded"] {
        send(&api, &format!("{ALWAYS}&key=id"), form, "id\n").await.problem(415, "unsupported-media-type");
    }
}

async fn tenants_see_their_own_alone(store: StoreUnderTest) {
    let (one, other) = (store.tenant(), store.tenant());
    for api in [&one, &other] {
        external(api).await;
    }
    let (key, marker) = completed(&one, "theirs").await;
    completed(&other, "own").await;
    for (query, export) in [
        ("key=id", "id\ntheirs\n".to_owned()),
        ("key=id&by=idempotency_key", format!("id\n{key}\n")),
        ("key=id&by=marker", format!("id\n{marker}\n")),
    ] {
        let (lines, _) = report(&other, query, CSV, &export).await;
        let unknown = json!({ "type": "bypassed", "line": 2, "reason": "unknown" });
        assert_eq!(lines, [unknown, json!({ "type": "missing", "operation_id": "own" })], "{query}");
    }
}

async fn only_the_window_is_missed(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    completed(&api, "before").await;
    completed(&api, "in it").await;
    let created = async |operation: &str| api.get(operation).await.str("/created_at").to_owned();
    completed(&api, "after").await;
    let (from, until) = (created("in it").await, created("after").await);
    let (lines, _) = lines(send(&api, &format!("key=id&from={from}&until={until}"), CSV, "id\nbefore\n").await);
    assert_eq!(
        lines,
        [json!({ "type": "missing", "operation_id": "in it" })],
        "the line before it is known all the same"
    );
}

async fn a_large_export_is_read_as_it_comes(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for operation in ["a", "b"] {
        completed(&api, operation).await;
    }
    // Four times the largest body of other routes.
    let mut export = "id,filler\na,x\n".to_owned();
    for number in 0..20_000 {
        writeln!(export, "unheard {number},{}", "x".repeat(200)).unwrap();
    }
    export.push_str("b,x\na,x\n");
    assert!(export.len() > 4 * 1024 * 1024);
    let (lines, summary) = report(&api, "key=id", CSV, &export).await;
    assert_eq!(lines.len(), 20_001);
    assert_eq!(lines[20_000], json!({ "type": "double", "line": 20_004, "first_line": 2 }));
    assert_eq!(
        (&summary["lines"], &summary["matched"], &summary["bypassed"]),
        (&json!(20_003), &json!(2), &json!(20_000))
    );
}

async fn an_export_that_breaks_off_is_no_report(store: StoreUnderTest) {
    use tokio::io::AsyncWriteExt as _;
    let api = store.tenant();
    let (server, token) = (store.shared(), store.shared().token(&api.tenant, "me", "all"));
    let path = format!("/api/reports/bypass?tool={}&{ALWAYS}&key=id", segment(TOOL));
    let mut stream = raw::connect(&server.url()).await;
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\ncontent-type: text/csv\r\n\
         content-length: 1000\r\n\r\nid\na\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = raw::rest(&mut stream).await;
    assert!(!answer.contains("summary"), "{answer}");
    // What it held is free again.
    for _ in 0..3 {
        report(&api, "key=id", CSV, "id\n").await;
    }
}
