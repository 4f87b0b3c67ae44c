//! Results and receipts come back as they were sent, to every reader (law 9).

use serde_json::json;
use sha2::{Digest as _, Sha256};

use crate::http::{TOOL, external, granted, tool};
use crate::support::api::{Answer, segment};
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    every_kind_of_result_comes_back,
    odd_text_comes_back_byte_for_byte,
    a_result_over_the_limit_is_kept_as_a_digest,
    what_fits_as_a_result_fits_as_a_receipt,
    receipts_have_one_text_and_one_digest,
);

/// A report of success with this text as its result.
fn with_result(granted: &Answer, result: Option<&str>) -> String {
    let body = bodies::receipted(granted).to_string();
    match result {
        Some(result) => format!("{},\"result\":{result}}}", &body[..body.len() - 1]),
        None => body,
    }
}

async fn complete(api: &Api, id: &str, result: Option<&str>) -> Answer {
    let granted = granted(api, id).await;
    let body = with_result(&granted, result);
    let path = format!("/api/effects/{}/outcome", segment(id));
    api.call("POST", &path).text(&body).send().await.expect(200).state("completed")
}

async fn waived(store: StoreUnderTest) -> Api {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "verification": "waived" })).await;
    api
}

/// Every way to read an effect.
async fn readers(api: &Api, id: &str) -> Vec<Answer> {
    vec![
        api.intent(&bodies::claiming(id, TOOL)).await.expect(200).directive("replay"),
        api.intent(&bodies::intent(id, TOOL)).await.expect(200).directive("replay"),
        api.dispatch(id, &bodies::claim()).await.expect(200).directive("replay"),
        api.get(id).await.expect(200).directive("replay"),
    ]
}

async fn every_kind_of_result_comes_back(store: StoreUnderTest) {
    let api = waived(store).await;
    for (place, result) in
        [None, Some("null"), Some("{}"), Some("[]"), Some("0"), Some("false"), Some("\"\""), Some("\"text\"")]
            .into_iter()
            .enumerate()
    {
        let id = format!("op-{place}");
        let first = complete(&api, &id, result).await;
        for answer in readers(&api, &id).await.into_iter().chain([first]) {
            let found = answer.json.get("result").map(ToString::to_string);
            assert_eq!(found.as_deref(), result, "absent is not null: {answer}");
            assert_eq!(answer.json.get("result_digest").is_some(), result.is_some(), "{answer}");
            if let Some(result) = result {
                let digest = format!("sha256:{}", hex::encode(Sha256::digest(result)));
                assert_eq!(answer.str("/result_digest"), digest);
            }
            assert!(answer.json.get("result_truncated").is_none(), "{answer}");
        }
    }
}

async fn odd_text_comes_back_byte_for_byte(store: StoreUnderTest) {
    let api = waived(store).await;
    for (place, result) in [
        r#"{ "b" :1.0,  "a": [ 1e2 , -0, 0.10 ] }"#,
        r#"{"escaped":"\u00e9\/\ud83d\ude00\t\u007f","plain":"é/😀"}"#,
        "{\"space\":\"\u{2028}\u{2029}\u{a0}\u{feff}\",\n\t\"line\": \r\n true}",
        "1.0",
        "12345678901234567890123456789.000",
        "\"\\u005c\\u0022\"",
        "[[],{},[{}]]",
        r#"{"z":{"y":{"x":null}},"":"","\u0061":1}"#,
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("op-{place}");
        let first = complete(&api, &id, Some(result)).await;
        let member = format!("\"result\":{result}}}");
        for answer in readers(&api, &id).await.into_iter().chain([first]) {
            assert!(answer.text.ends_with(&member), "not the same bytes: {answer}");
            let digest = format!("sha256:{}", hex::encode(Sha256::digest(result)));
            assert_eq!(answer.str("/result_digest"), digest);
        }
        let listed = api.list("limit=200").await.expect(200);
        assert!(listed.text.contains(&member), "{listed}");
    }
}

async fn a_result_over_the_limit_is_kept_as_a_digest(store: StoreUnderTest) {
    const LIMIT: usize = 256 * 1024;
    let api = waived(store).await;
    for (id, bytes, is_kept) in [("fits", LIMIT, true), ("over", LIMIT + 1, false), ("far", 900 * 1024, false)] {
        let result = format!("\"{}\"", "r".repeat(bytes - 2));
        let first = complete(&api, id, Some(&result)).await;
        let digest = format!("sha256:{}", hex::encode(Sha256::digest(&result)));
        for answer in readers(&api, id).await.into_iter().chain([first]) {
            assert_eq!(answer.str("/result_digest"), digest);
            assert_eq!(answer.json.get("result").is_some(), is_kept);
            assert_eq!(answer.json.get("result_truncated"), (!is_kept).then_some(&json!(true)));
        }
    }
}

async fn what_fits_as_a_result_fits_as_a_receipt(store: StoreUnderTest) {
    let api = waived(store).await;
    let granted = granted(&api, "op").await;
    let document = json!({ "text": "s".repeat(256 * 1024 - 11) });
    assert_eq!(document.to_string().len(), 256 * 1024);
    let report = bodies::set(bodies::receipted(&granted), "/receipt/structured", document.clone());
    let report = bodies::with(report, &json!({ "result": document }));
    let done = api.outcome("op", &report).await.expect(200).state("completed");
    for answer in readers(&api, "op").await.into_iter().chain([done]) {
        assert_eq!(answer.json["receipt"]["structured"], document);
        assert_eq!(answer.json["result"], document);
    }
}

async fn receipts_have_one_text_and_one_digest(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let body = bodies::set(bodies::receipted(&granted), "/receipt/structured", json!("PLACE"));
    let structured = r#"{ "b":1.0, "a":"\u00e9\/", "n":12345678901234567890123 }"#;
    let text = body.to_string().replace("\"PLACE\"", structured);
    let first = api.call("POST", "/api/effects/op/outcome").text(&text).send().await.expect(200).state("verifying");
    let receipt_of = |answer: &Answer| {
        let start = answer.text.find("\"receipt\":").expect("a receipt") + "\"receipt\":".len();
        answer.text[start..answer.text.len() - 1].to_owned()
    };
    let receipt = receipt_of(&first);
    assert!(receipt.contains(structured), "{receipt}");
    let digest = format!("sha256:{}", hex::encode(Sha256::digest(&receipt)));
    assert_eq!(first.str("/receipt_digest"), digest, "the digest is of the bytes that are answered");
    api.verify("op", &bodies::verification()).await.expect(200);
    for answer in readers(&api, "op").await {
        assert_eq!(receipt_of(&answer), receipt);
        assert_eq!(answer.str("/receipt_digest"), digest);
    }
    let entries = api.journal("op").await;
    assert_eq!(entries[1]["receipt_digest"], digest);
    let validated = &entries[1]["events"][0];
    assert_eq!(
        (&validated["type"], &validated["receipt_digest"]),
        (&json!("effect.receipt.validated"), &json!(digest))
    );
    for member in ["receipt_id", "receipt_schema", "receipt_schema_version", "outcome", "source", "observed_at"] {
        assert!(!validated[member].is_null(), "{member}: {validated}");
    }
}
