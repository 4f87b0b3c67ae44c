//! Every clause of the contract of protocol §7, broken over real HTTP: each break has its own name, and
//! none is mistaken for an answer.

use actonce::domain::adapter::{NoAnswer, Verdict};
use actonce::limits;
use serde_json::{Value, json};

use super::Asker;
use crate::support::adapter::{FakeAdapter, Reply, answers, secret};
use crate::support::bodies::{set, with, without};

/// A caller for a tool whose receipts have a schema and registered keys; its breaker is new.
fn strict_for(fake: &FakeAdapter) -> Asker {
    let receipts = json!({
        "schema": "refund", "schema_version": 2, "integrity_fields": ["sha256"], "resource_version_fields": ["order"],
        "structured_schema": { "type": "object", "required": ["amount"] },
    });
    Asker::new(&fake.spec(), &receipts, &[secret(1)])
}

async fn strict() -> (FakeAdapter, Asker) {
    let fake = FakeAdapter::always(Reply::Close).await;
    let asker = strict_for(&fake);
    (fake, asker)
}

fn good(asker: &Asker) -> Value {
    let receipt = json!({
        "schema": "refund", "schema_version": 2, "structured": { "amount": 1200 },
        "integrity": { "sha256": "abc" }, "resource_versions": { "order": "7" },
    });
    let verification = json!({
        "verified": true, "observed_at": "2026-01-01T00:00:01Z", "source": "GET /refunds/re_1",
        "target": "target of op/1 ä",
    });
    with(
        answers::settled(&asker.receipt(&receipt)),
        &json!({ "verification": verification, "resource_versions": { "order": "7" }, "final": true }),
    )
}

async fn expect(fake: &FakeAdapter, reply: Reply, clause: &str) {
    fake.set(reply.clone());
    let answer = strict_for(fake).lookup().await;
    assert_eq!(answer.err().and_then(NoAnswer::clause), Some(clause), "{reply:?}");
}

#[tokio::test]
async fn what_keeps_the_contract_is_understood() {
    let (fake, asker) = strict().await;
    fake.set(Reply::Json(good(&asker)));
    let answer = asker.lookup().await.unwrap();
    assert_eq!((answer.verdict, answer.authoritative, answer.is_final), (Verdict::Completed, true, true));
    let receipt = answer.receipt.expect("a receipt");
    assert_eq!(receipt.receipt.receipt_id.as_str(), "re_1");
    assert!(answer.verification.expect("a verification").verified);
    for (body, verdict, authoritative) in [
        (answers::absent(), Verdict::NotFound, true),
        (answers::not_seen(), Verdict::NotFound, false),
        (answers::other("not_sent"), Verdict::NotSent, true),
        (answers::other("pending"), Verdict::Pending, true),
        (answers::other("unsupported"), Verdict::Unsupported, true),
        (answers::other("conflict"), Verdict::Conflict, true),
        (answers::other("multiple"), Verdict::Multiple, true),
        (answers::other("partial"), Verdict::Partial, true),
        (answers::other("identity_mismatch"), Verdict::IdentityMismatch, true),
        (without(answers::other("pending"), "consistency"), Verdict::Pending, false),
        (
            with(answers::absent(), &json!({ "receipt": null, "verification": null, "final": null })),
            Verdict::NotFound,
            true,
        ),
    ] {
        fake.set(Reply::Json(body.clone()));
        let answer = asker.lookup().await.unwrap_or_else(|no| panic!("{body}: {no:?}"));
        assert_eq!((answer.verdict, answer.authoritative), (verdict, authoritative), "{body}");
        assert!(answer.receipt.is_none() && answer.verification.is_none() && !answer.is_final);
    }
    let failed = asker.receipt(&json!({ "schema": "refund", "schema_version": 2, "outcome": "failed",
        "structured": { "amount": 0 } }));
    fake.set(Reply::Json(answers::settled(&failed)));
    assert_eq!(asker.lookup().await.unwrap().verdict, Verdict::Failed);
    for header in ["Content-Type: application/json; charset=UTF-8", "content-type: application/problem+json"] {
        fake.set(Reply::with_header(header, &answers::absent().to_string()));
        assert_eq!(asker.lookup().await.unwrap().verdict, Verdict::NotFound, "{header}");
    }
}

#[tokio::test]
async fn each_broken_member_has_its_name() {
    let (fake, asker) = strict().await;
    let good = good(&asker);
    for (pointer, value, clause) in [
        ("/outcome", json!("done"), "outcome"),
        ("/outcome", json!(1), "outcome"),
        ("/outcome", json!(null), "outcome"),
        ("/observation", json!("seen"), "observation"),
        ("/consistency", json!("strong"), "consistency"),
        ("/retryable", json!("no"), "retryable"),
        ("/final", json!("yes"), "final"),
        ("/extra", json!(1), "unknown_member"),
        ("/arguments", json!({}), "unknown_member"),
        ("/observation", json!("partial"), "observation_contradicts"),
        ("/observation", json!("not_sent"), "observation_contradicts"),
        ("/observation", json!("outcome_unknown"), "observation_contradicts"),
        ("/outcome", json!("failed"), "receipt_outcome"),
        ("/receipt", json!(null), "receipt_missing"),
        ("/receipt", json!("re_1"), "receipt_form"),
        ("/receipt/extra", json!(1), "receipt_form"),
        ("/receipt/receipt_id", json!(""), "receipt_form"),
        ("/receipt/observed_at", json!("yesterday"), "receipt_form"),
        ("/receipt/message", json!("x".repeat(limits::MESSAGE_BYTES + 1)), "receipt_form"),
        ("/receipt/operation_id", json!("another"), "receipt_operation_id"),
        ("/receipt/schema", json!("generic"), "receipt_schema"),
        ("/receipt/schema_version", json!(1), "receipt_schema"),
        ("/receipt/structured", json!({}), "receipt_structured"),
        ("/receipt/structured", json!([]), "receipt_form"),
        ("/receipt/integrity/md5", json!("x"), "receipt_integrity"),
        ("/receipt/resource_versions/stranger", json!("1"), "receipt_resource_versions"),
        ("/resource_versions/stranger", json!("1"), "resource_versions"),
        ("/resource_versions/order", json!(7), "resource_versions"),
        ("/resource_versions/order", json!("x".repeat(257)), "resource_versions"),
        ("/verification", json!(true), "verification_form"),
        ("/verification/extra", json!(1), "verification_form"),
        ("/verification/target", json!(""), "verification_form"),
    ] {
        expect(&fake, Reply::Json(set(good.clone(), pointer, value)), clause).await;
    }
    for member in ["outcome", "observation", "retryable"] {
        expect(&fake, Reply::Json(without(good.clone(), member)), member).await;
    }
    // Another target is a finding, which the domain judges.
    fake.set(Reply::Json(set(good, "/receipt/target", json!("another"))));
    assert!(asker.lookup().await.is_ok());
}

#[tokio::test]
async fn an_absence_has_to_say_how_it_was_read_and_fit_what_was_seen() {
    let (fake, asker) = strict().await;
    let receipt = asker.receipt(&json!({ "schema": "refund", "schema_version": 2, "structured": { "amount": 1 } }));
    for (body, clause) in [
        (without(answers::absent(), "consistency"), "consistency"),
        (set(answers::absent(), "/consistency", json!(null)), "consistency"),
        (without(answers::other("not_sent"), "consistency"), "consistency"),
        (set(answers::absent(), "/observation", json!("sent")), "observation_contradicts"),
        (set(answers::absent(), "/observation", json!("outcome_unknown")), "observation_contradicts"),
        (set(answers::other("not_sent"), "/observation", json!("sent")), "observation_contradicts"),
        (set(answers::other("not_sent"), "/observation", json!("outcome_unknown")), "observation_contradicts"),
        (set(answers::other("pending"), "/observation", json!("not_sent")), "observation_contradicts"),
        (set(answers::other("multiple"), "/observation", json!("not_sent")), "observation_contradicts"),
        (set(answers::other("partial"), "/observation", json!("sent")), "observation_contradicts"),
        (set(answers::other("conflict"), "/observation", json!("partial")), "observation_contradicts"),
        (set(answers::absent(), "/receipt", receipt.clone()), "receipt_unexpected"),
        (set(answers::other("pending"), "/receipt", receipt), "receipt_unexpected"),
    ] {
        expect(&fake, Reply::Json(body), clause).await;
    }
}

#[tokio::test]
async fn what_is_no_plain_json_is_refused() {
    let (fake, asker) = strict().await;
    let good = good(&asker).to_string();
    let deep = format!("{}1{}", "[".repeat(70), "]".repeat(70));
    for (text, clause) in [
        (String::new(), "json"),
        ("{".to_owned(), "json"),
        (format!("{good} {good}"), "json"),
        (format!("\u{feff}{good}"), "json"),
        ("[]".to_owned(), "json_object"),
        ("null".to_owned(), "json_object"),
        (good.replacen('{', r#"{"outcome":"failed","#, 1), "json_ambiguous"),
        (good.replacen('{', &format!(r#"{{"x":{deep},"#), 1), "json_ambiguous"),
        (good.replacen("re_1", "\\ud800", 1), "json_ambiguous"),
        (good.replacen("re_1", "\\u0000", 1), "json_ambiguous"),
        (format!("{good}{}", " ".repeat(limits::ADAPTER_ANSWER_BYTES)), "size"),
    ] {
        expect(&fake, Reply::Text(text), clause).await;
    }
    let mut bad = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 3\r\n\r\n".to_vec();
    bad.extend_from_slice(b"\"\xff\"");
    expect(&fake, Reply::Raw(bad), "json").await;
    for header in [
        "x: y",
        "content-type: text/html",
        "content-type: text/json",
        "content-type: application/json; charset=utf-16",
        "content-type: application/json\r\ncontent-encoding: gzip",
    ] {
        expect(&fake, Reply::with_header(header, &good), "content_type").await;
    }
}

#[tokio::test]
async fn another_status_is_no_answer_whatever_it_says() {
    let (fake, asker) = strict().await;
    let good = good(&asker).to_string();
    for line in [
        "201 Created",
        "202 Accepted",
        "204 No Content",
        "400 Bad Request",
        "401 Unauthorized",
        "404 Not Found",
        "410 Gone",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "503 Service Unavailable",
    ] {
        let body = if line.starts_with("204") { "" } else { good.as_str() };
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {line}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
        );
        fake.set(Reply::Raw(text.into_bytes()));
        assert_eq!(strict_for(&fake).lookup().await.unwrap_err(), NoAnswer::Status, "{line}");
    }
}
