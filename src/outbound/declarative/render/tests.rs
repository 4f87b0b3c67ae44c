//! No value breaks out of its place. The oracle is another reader: the URL library of the HTTP client,
//! and serde for bodies.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use reqwest::Url;
use serde_json::json;

use super::*;
use crate::domain::canonical::{ALGORITHM, Sha256Digest};
use crate::domain::receipt::{CheckedReceipt, Receipt, ReceiptOutcome};
use crate::domain::record::Intent;
use crate::domain::state::EffectClass;
use crate::domain::time::Timestamp;
use crate::domain::tool::{Tool, ToolSpec};

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn receipt(id: &str, structured: &Value) -> CheckedReceipt {
    Receipt {
        receipt_id: name(id),
        schema: name("generic"),
        schema_version: 1,
        operation_id: name("op"),
        target: name("target"),
        outcome: ReceiptOutcome::Completed,
        message: String::new(),
        structured: serde_json::value::to_raw_value(structured).unwrap(),
        artifacts: Vec::new(),
        resource_versions: BTreeMap::new(),
        integrity: BTreeMap::new(),
        observed_at: Timestamp::from_micros(0),
        source: name("test"),
    }
    .check()
    .unwrap()
}

pub(in crate::outbound::declarative) fn subject(operation_id: &str, target: &str) -> Subject {
    let at = Timestamp::from_micros(1_767_225_600_000_000);
    let tool = Tool::new(name("payments.refund"), 1, ToolSpec::ad_hoc(), false, 1, at);
    let intent = Intent {
        operation_id: name(operation_id),
        tool: name("payments.refund"),
        tool_revision: 1,
        class: EffectClass::External,
        target: name(target),
        arguments_digest: Sha256Digest::of(b"{}"),
        digest_algorithm: ALGORITHM.into(),
        identity: None,
        run_id: None,
        session_id: None,
        call_id: None,
        profile_id: None,
        proposer: name("tester"),
        created_at: at,
        idempotency_key: "key-1".into(),
    };
    Subject {
        intent: Arc::new(intent),
        tool,
        marker: crate::service::keys::marker("key-1"),
        attempt: 1,
        dispatched_at: Some(at),
        receipt: None,
    }
}

fn inquiry(spec: &Value) -> Inquiry {
    let mut spec = spec.clone();
    spec["rules"] = json!([]);
    serde_json::from_value(spec).unwrap()
}

fn rendered(spec: &Value, subject: &Subject) -> Result<Filled, NoAnswer> {
    let mut reveal =
        |host: &str, name: &str| (host == "api.example.org" && name == "key").then(|| Secret::new("s3cr3t".to_owned()));
    render(&inquiry(spec), subject, &mut reveal)
}

fn url_of(template: &str, subject: &Subject) -> Result<String, NoAnswer> {
    rendered(&json!({ "url": template }), subject).map(|filled| filled.url)
}

/// Names such as callers choose to hurt: pieces of other languages between pieces of text.
fn nasty() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("..".to_owned()),
        Just("/".to_owned()),
        Just("\\".to_owned()),
        Just("?".to_owned()),
        Just("#".to_owned()),
        Just("&".to_owned()),
        Just("=".to_owned()),
        Just("%2e%2e".to_owned()),
        Just("%2F".to_owned()),
        Just("%".to_owned()),
        Just("\"".to_owned()),
        Just("'".to_owned()),
        Just("}".to_owned()),
        Just("{{secret.key}}".to_owned()),
        Just("@evil.example".to_owned()),
        Just(":".to_owned()),
        Just(";".to_owned()),
        Just(" ".to_owned()),
        Just("\u{202e}".to_owned()),
        Just("\u{ff0f}".to_owned()),
        Just("\u{2028}".to_owned()),
        Just("ä".to_owned()),
        Just("\u{ff0e}\u{ff0e}".to_owned()),
        Just("\u{1F4A3}".to_owned()),
        Just("+".to_owned()),
        Just("*".to_owned()),
        Just(".".to_owned()),
        "[a-zA-Z0-9]{1,6}",
        any::<char>().prop_map(|c| c.to_string()),
    ];
    let texts = prop::collection::vec(piece, 1..8).prop_map(|pieces| pieces.concat());
    texts.prop_filter("is a name", |text| Name::new(text).is_ok())
}

/// Texts of receipts may have what names can't.
fn wild() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("\r\n".to_owned()),
        Just("\r\nx-evil: 1".to_owned()),
        Just("\n".to_owned()),
        Just("\t".to_owned()),
        Just("..".to_owned()),
        Just("/".to_owned()),
        Just("\"".to_owned()),
        Just("\u{7f}".to_owned()),
        Just("\u{85}".to_owned()),
        nasty(),
    ];
    prop::collection::vec(piece, 0..4).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn a_url_goes_where_it_was_registered_to_go(operation in nasty(), target in nasty(), value in wild()) {
        let mut subject = subject(&operation, &target);
        subject.receipt = Some(receipt("re_1", &json!({ "v": value })));
        let template = "https://api.example.org:8443/v1/{{target}}/x/{{receipt.structured.v}}?op={{operation_id}}&m[{]=1&v={{receipt.structured.v}}&t={{target}}".replace("[{]", "[a]");
        match url_of(&template, &subject) {
            Err(reason) => {
                // Refused, never bent: only for values that no path segment can hold, or that are not there.
                prop_assert!(reason == NOT_HERE || reason == ABSENT);
                prop_assert!(["", ".", ".."].contains(&target.as_str()) || ["", ".", ".."].contains(&value.as_str()));
            }
            Ok(text) => {
                let url = Url::parse(&text).unwrap();
                // The reader changes nothing, so what was rendered is what is sent.
                prop_assert_eq!(url.as_str(), text.as_str());
                prop_assert_eq!((url.scheme(), url.host_str(), url.port()), ("https", Some("api.example.org"), Some(8443)));
                prop_assert!(url.username().is_empty() && url.password().is_none() && url.fragment().is_none());
                let segments: Vec<String> = url.path_segments().unwrap()
                    .map(|segment| percent_encoding::percent_decode_str(segment).decode_utf8().unwrap().into_owned()).collect();
                prop_assert_eq!(segments, vec!["v1".to_owned(), target.clone(), "x".to_owned(), value.clone()]);
                let query: Vec<(String, String)> = url.query_pairs().into_owned().collect();
                let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
                prop_assert_eq!(query, vec![pair("op", &operation), pair("m[a]", "1"), pair("v", &value), pair("t", &target)]);
                prop_assert!(text.bytes().all(|byte| byte.is_ascii_graphic()));
            }
        }
    }

    #[test]
    fn a_path_has_the_segments_of_its_value(target in nasty()) {
        let result = url_of("https://api.example.org/b/{{target|path}}?x=1", &subject("op", &target));
        let wanted: Vec<&str> = target.split('/').collect();
        if wanted.iter().any(|segment| ["", ".", ".."].contains(segment)) {
            prop_assert_eq!(result, Err(NOT_HERE));
        } else {
            let text = result.unwrap();
            let url = Url::parse(&text).unwrap();
            prop_assert_eq!(url.as_str(), text.as_str());
            let found: Vec<String> = url.path_segments().unwrap().skip(1)
                .map(|segment| percent_encoding::percent_decode_str(segment).decode_utf8().unwrap().into_owned()).collect();
            prop_assert_eq!(found, wanted);
            prop_assert_eq!(url.query(), Some("x=1"));
        }
    }

    #[test]
    fn a_body_keeps_its_form(operation in nasty(), value in wild()) {
        let mut subject = subject(&operation, "t");
        subject.receipt = Some(receipt("re_1", &json!({ "v": value })));
        let body = json!({ "query": "q($id)", "variables": { "id": "{{operation_id}}", "all": ["{{receipt.structured.v}}", 7] } });
        let spec = json!({ "method": "POST", "url": "https://api.example.org/", "body": body });
        match rendered(&spec, &subject) {
            Err(reason) => prop_assert!(value.is_empty() && reason == ABSENT),
            Ok(filled) => {
                let text = filled.body.unwrap();
                let read: Value = serde_json::from_str(&text).unwrap();
                prop_assert_eq!(read, json!({ "query": "q($id)", "variables": { "id": operation, "all": [value, 7] } }));
            }
        }
    }

    #[test]
    fn a_header_stays_one_line(operation in nasty(), value in wild()) {
        let mut subject = subject(&operation, "t");
        subject.receipt = Some(receipt("re_1", &json!({ "v": value })));
        for (template, value) in [("{{operation_id}}", &operation), ("{{receipt.structured.v}}", &value)] {
            let headers = json!({ "x-id": template, "authorization": "Bearer {{secret.key}}" });
            match rendered(&json!({ "url": "https://api.example.org/", "headers": headers }), &subject) {
                Err(reason) => prop_assert!(reason == NOT_HERE || value.is_empty()),
                Ok(filled) => {
                    prop_assert_eq!(filled.headers.len(), 2);
                    let line = &filled.headers[1].1;
                    prop_assert_eq!(line, value);
                    prop_assert!(line.bytes().all(|byte| (0x20..=0x7e).contains(&byte)));
                    prop_assert!(reqwest::header::HeaderValue::from_str(line).is_ok());
                    prop_assert_eq!(filled.headers[0].1.as_str(), "Bearer s3cr3t");
                }
            }
        }
    }

    #[test]
    fn inside_other_text_only_plain_values_stand(operation in nasty(), target in "[a-z0-9][a-zA-Z0-9_.-]{0,20}") {
        let url = |subject: &Subject| url_of("https://api.example.org/Items('{{operation_id}}')?q=in:body+\"", subject);
        prop_assert!(url(&subject("op", "t")).is_err(), "the template itself is faulty");
        let url = |subject: &Subject| url_of("https://api.example.org/Items('{{operation_id}}')?q=id:{{operation_id}}", subject);
        let found = url(&subject(&operation, "t"));
        if is_plain(&operation) {
            prop_assert_eq!(found, Ok(format!("https://api.example.org/Items('{operation}')?q=id:{operation}")));
        } else {
            prop_assert_eq!(found, Err(NOT_PLAIN));
        }
        let header = json!({ "url": "https://api.example.org/", "headers": { "if-match": "\"{{target}}\"" } });
        prop_assert_eq!(rendered(&header, &subject("op", &target)).unwrap().headers[0].1.clone(), format!("\"{target}\""));
    }
}

#[test]
fn placeholders_in_values_are_text() {
    let filled = rendered(
        &json!({ "url": "https://api.example.org/{{target}}", "headers": { "x": "{{operation_id}}" } }),
        &subject("{{secret.key}}", "{{secret.key}}"),
    )
    .unwrap();
    assert!(!filled.url.contains("s3cr3t"));
    assert_eq!(filled.headers[0].1, "{{secret.key}}");
}

#[test]
fn a_secret_goes_to_its_host_alone_and_is_never_shown() {
    let spec = |host: &str, name: &str| json!({ "url": format!("https://{host}/"), "headers": { "authorization": format!("Bearer {{{{secret.{name}}}}}") } });
    let subject = subject("op", "t");
    let filled = rendered(&spec("api.example.org", "key"), &subject).unwrap();
    assert_eq!(filled.headers, [("authorization".to_owned(), "Bearer s3cr3t".to_owned())]);
    let request = filled.into_request(Duration::from_secs(1));
    assert!(!format!("{request:?}").contains("s3cr3t"));
    for (host, name) in [("evil.example", "key"), ("api.example.org.evil.example", "key"), ("api.example.org", "other")]
    {
        assert_eq!(
            rendered(&spec(host, name), &subject).map(|filled| filled.url),
            Err(NoAnswer::NoSecret),
            "{host} {name}"
        );
    }
    // One that can't stand in a header is as good as none.
    let mut broken = |_: &str, _: &str| Some(Secret::new("a\r\nb".to_owned()));
    let result = render(&inquiry(&spec("api.example.org", "key")), &subject, &mut broken);
    assert_eq!(result.map(|filled| filled.url), Err(NoAnswer::NoSecret));
}

#[test]
fn what_an_effect_does_not_have_is_not_asked_for() {
    let subject = subject("op", "t");
    for template in ["{{run_id}}", "{{receipt.receipt_id}}", "{{receipt.structured.a}}"] {
        assert_eq!(url_of(&format!("https://api.example.org/x?a={template}"), &subject), Err(ABSENT), "{template}");
    }
    let mut with = subject.clone();
    with.receipt = Some(receipt("re_1", &json!({ "a": { "b": 7, "c": 1.5, "d": [], "e": "" } })));
    let value = |path: &str| url_of(&format!("https://api.example.org/x?a={{{{receipt.structured.{path}}}}}"), &with);
    assert_eq!(value("a.b"), Ok("https://api.example.org/x?a=7".to_owned()));
    for absent in ["a", "a.c", "a.d", "a.e", "a.b.c", "x"] {
        assert_eq!(value(absent), Err(ABSENT), "{absent}");
    }
}

#[test]
fn what_is_filled_in_is_bounded() {
    let subject = subject(&"ä".repeat(128), "t");
    let many = "&a={{operation_id}}".repeat(20);
    assert_eq!(url_of(&format!("https://api.example.org/x?b=1{many}"), &subject), Err(TOO_LARGE));
    let body = vec!["{{operation_id}}"; 400];
    let spec = json!({ "method": "POST", "url": "https://api.example.org/", "body": body });
    assert_eq!(rendered(&spec, &subject).map(|filled| filled.url), Err(TOO_LARGE));
}
