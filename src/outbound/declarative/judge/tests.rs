use reqwest::header::{HeaderName, HeaderValue};
use serde_json::json;

use super::super::render::subject_for_tests as subject;
use super::*;

fn response(status: u16, body: &str) -> FetchResponse {
    FetchResponse {
        status,
        headers: HeaderMap::new(),
        body: body.as_bytes().to_vec(),
        asked_at: Timestamp::from_micros(1_767_225_700_000_000),
    }
}

fn answer(status: u16, body: &str) -> Result<Answer, NoAnswer> {
    Answer::of(&response(status, body), Name::new("GET api.example.org").unwrap())
}

fn lookup(rules: &Value, body: &Value) -> Result<Judgement, NoAnswer> {
    let inquiry: Inquiry = serde_json::from_value(json!({ "url": "https://a/", "rules": rules })).unwrap();
    judge(&inquiry, Question::Lookup, &subject("op", "order-1"), &answer(200, &body.to_string())?, Arc::default())
}

fn completing(binds: &str) -> Value {
    json!({ "when": "body.done", "verdict": "completed", "binds": binds, "verified": "body.fresh",
        "receipt": { "receipt_id": "body.id", "message": "'done'", "structured": { "n": "body.n" }, "integrity": { "i": "body.id" } } })
}

#[test]
fn the_first_rule_that_holds_decides() {
    let rules = json!([
        { "when": "body.n == 1", "verdict": "pending" },
        { "when": "body.n > 0", "verdict": "not_found", "consistency": "authoritative", "final": true },
        { "when": "body.n > 1", "verdict": "multiple" },
    ]);
    let found = |n: u32| lookup(&rules, &json!({ "n": n })).map(|found| (found.rule, found.answer.verdict));
    assert_eq!(found(1), Ok((0, Verdict::Pending)));
    assert_eq!(found(2), Ok((1, Verdict::NotFound)));
    assert_eq!(found(0), Err(NoAnswer::Contract("no rule matches")));
    let absent = lookup(&rules, &json!({ "n": 2 })).unwrap().answer;
    assert!(absent.authoritative && absent.is_final && absent.receipt.is_none());
    let pending = lookup(&rules, &json!({ "n": 1 })).unwrap().answer;
    assert!(!pending.authoritative && !pending.is_final);
}

#[test]
fn a_rule_that_fails_decides_nothing_and_lets_no_other_decide() {
    let rules = json!([
        { "when": "body.missing == 1", "verdict": "pending" },
        { "when": "true", "verdict": "not_found", "consistency": "authoritative" },
    ]);
    assert_eq!(lookup(&rules, &json!({})).map(drop), Err(NoAnswer::Contract("a rule failed")));
    for body in [json!({ "done": 1 }), json!({ "done": "true" }), json!({ "done": null }), json!([])] {
        let found = lookup(&json!([completing("body.op == effect.operation_id")]), &body);
        assert_eq!(found.map(drop), Err(NoAnswer::Contract("a rule failed")), "{body}");
    }
}

#[test]
fn a_receipt_is_made_for_this_effect_alone() {
    let rules = json!([completing("body.op == effect.operation_id")]);
    let good = json!({ "done": true, "op": "op", "id": "re_1", "n": 7, "fresh": true });
    let found = lookup(&rules, &good).unwrap().answer;
    assert_eq!(found.verdict, Verdict::Completed);
    let receipt = found.receipt.unwrap().receipt;
    assert_eq!((receipt.operation_id.as_str(), receipt.target.as_str()), ("op", "order-1"));
    assert_eq!((receipt.receipt_id.as_str(), receipt.structured.get()), ("re_1", r#"{"n":7}"#));
    assert_eq!((receipt.source.as_str(), receipt.integrity["i"].as_str()), ("GET api.example.org", "re_1"));
    let verification = found.verification.unwrap();
    assert!(verification.verified && verification.observed_at == receipt.observed_at);
    // Of another operation.
    let foreign = lookup(&rules, &json!({ "done": true, "op": "other", "id": "re_1", "n": 7, "fresh": true })).unwrap();
    assert_eq!(foreign.answer.verdict, Verdict::IdentityMismatch);
    assert!(foreign.answer.receipt.is_none() && foreign.answer.verification.is_none());
    // Whose operation can't be told.
    let unknown = json!({ "done": true, "id": "re_1", "n": 7, "fresh": true });
    assert_eq!(lookup(&rules, &unknown).map(drop), Err(NoAnswer::Contract("a rule failed")));
    // Without a proof there is no receipt, even if a registration without one came to be.
    let mut unproven = completing("true");
    unproven["binds"] = Value::Null;
    assert!(lookup(&json!([unproven]), &good).is_err());
}

#[test]
fn a_receipt_of_bad_form_is_no_answer() {
    let rules = json!([completing("body.op == effect.operation_id")]);
    for (id, n) in
        [(json!(""), json!(1)), (json!(7), json!(1)), (json!("x".repeat(257)), json!(1)), (json!("a\nb"), json!(1))]
    {
        let body = json!({ "done": true, "op": "op", "id": id, "n": n, "fresh": true });
        assert!(matches!(lookup(&rules, &body), Err(NoAnswer::Contract(_))), "{body}");
    }
    let unsure = json!({ "done": true, "op": "op", "id": "re_1", "n": 1, "fresh": "yes" });
    assert!(lookup(&rules, &unsure).is_err(), "a verification is true or false");
}

#[test]
fn statuses_that_do_not_speak_of_the_effect_reach_no_rule() {
    for status in [100, 199, 301, 302, 304, 401, 403, 407, 408, 425, 429, 500, 502, 503, 504, 599] {
        assert_eq!(answer(status, "{}").map(drop), Err(NoAnswer::Status), "{status}");
    }
    for status in [200, 201, 204, 206, 400, 404, 409, 410, 422] {
        assert_eq!(answer(status, "{}").map(|answer| answer.status), Ok(status));
    }
}

#[test]
fn a_body_is_read_alike_by_everybody_or_not_at_all() {
    assert_eq!(answer(200, "").map(|answer| answer.body), Ok(Value::Null));
    assert_eq!(answer(200, " \n").map(|answer| answer.body), Ok(Value::Null));
    for wrong in [
        "<html>",
        "{",
        r#"{"status":"failed","status":"succeeded"}"#,
        r#"{"a":"\u0000"}"#,
        r#"{"a":"\ud800"}"#,
        "{} {}",
        &"[".repeat(70),
        &format!("{}{}", "[".repeat(65), "]".repeat(65)),
    ] {
        assert!(matches!(answer(200, wrong), Err(NoAnswer::Contract(_))), "{wrong}");
    }
    let large = format!("\"{}\"", "x".repeat(limits::ADAPTER_ANSWER_BYTES));
    assert!(matches!(answer(200, &large), Err(NoAnswer::Contract(_))));
    let rules = json!([{ "when": "body.n == 18446744073709551616.0", "verdict": "pending" }]);
    let inexact = lookup(&rules, &serde_json::from_str(r#"{"n":18446744073709551617}"#).unwrap());
    assert!(matches!(inexact, Err(NoAnswer::Contract(_))));
}

#[test]
fn headers_are_joined_and_bounded() {
    let mut given = HeaderMap::new();
    given.append("ETag", HeaderValue::from_static("\"a\""));
    given.append("x-a", HeaderValue::from_static("1"));
    given.append("x-a", HeaderValue::from_static("2"));
    given.append("x-b", HeaderValue::from_bytes(b"\xff").unwrap());
    let found = headers(&given).unwrap();
    assert_eq!((found["etag"].as_str(), found["x-a"].as_str(), found.get("x-b")), ("\"a\"", "1, 2", None));
    for n in 0..200 {
        given.append(HeaderName::from_bytes(format!("x-{n}").as_bytes()).unwrap(), HeaderValue::from_static("1"));
    }
    assert!(headers(&given).is_err());
}

/// The receipt that was asked about comes back, and none that says otherwise.
#[test]
fn verifications_and_validations_speak_of_the_receipt_that_was_asked_about() {
    let rules = json!([completing("body.op == effect.operation_id")]);
    let body = json!({ "done": true, "op": "op", "id": "re_1", "n": 7, "fresh": false });
    let made = lookup(&rules, &body).unwrap().answer.receipt.unwrap();
    let mut asked = subject("op", "order-1");
    let judged = |subject: &Subject, verdict: &str| {
        let mut rule = json!({ "when": "true", "verdict": verdict, "binds": "body.op == effect.operation_id && body.id == receipt.receipt_id" });
        if verdict == "completed" {
            rule["verified"] = json!("body.fresh");
        }
        let inquiry: Inquiry = serde_json::from_value(json!({ "url": "https://a/", "rules": [rule] })).unwrap();
        judge(&inquiry, Question::Verify, subject, &answer(200, &body.to_string())?, Arc::default())
    };
    assert!(judged(&asked, "completed").is_err(), "there is no receipt");
    asked.receipt = Some(made.clone());
    let found = judged(&asked, "completed").unwrap().answer;
    assert_eq!(found.receipt.unwrap().digest, made.digest);
    assert!(!found.verification.unwrap().verified);
    assert_eq!(judged(&asked, "failed").unwrap().answer.verdict, Verdict::Conflict);
}
