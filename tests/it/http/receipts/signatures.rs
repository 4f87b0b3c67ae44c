//! Who may deliver: a good signature, and nothing near it.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::digest::KeyInit as _;
use hmac::{Hmac, Mac as _};
use serde_json::{Value, json};
use sha2::{Sha256, Sha512};

use super::{Vendor, doubtful, event, put, vendor};
use crate::support::api::Answer;
use crate::support::{Api, StoreUnderTest, both_stores, time, unique};

both_stores!(
    every_scheme_takes_its_own_signature_and_nothing_near_it,
    secrets_rotate_with_overlap_and_never_come_back,
    unknown_addresses_and_bad_signatures_are_refused_alike,
    a_token_brings_receipts_of_its_own_tenant,
);

const RAW: &str = "a secret of some length";

fn sha256(secret: &[u8], content: &str) -> Vec<u8> {
    Hmac::<Sha256>::new_from_slice(secret).unwrap().chain_update(content).finalize().into_bytes().to_vec()
}

fn sha512(secret: &[u8], content: &str) -> Vec<u8> {
    Hmac::<Sha512>::new_from_slice(secret).unwrap().chain_update(content).finalize().into_bytes().to_vec()
}

type Sign = fn(&str, i64, &str) -> Vec<(&'static str, String)>;

/// Headers and a body that must not do, and what is wrong with them.
type Bad<'a> = (Vec<(&'a str, String)>, String, &'a str);

/// A scheme, its secret, and how a vendor signs by it.
fn schemes() -> Vec<(Value, &'static str, Sign)> {
    vec![
        (json!({ "kind": "standard_webhooks" }), super::SECRET, |secret, at, body| {
            let secret = STANDARD.decode(secret.trim_start_matches("whsec_")).unwrap_or_else(|_| secret.into());
            let signature = STANDARD.encode(sha256(&secret, &format!("msg_1.{at}.{body}")));
            vec![
                ("webhook-id", "msg_1".to_owned()),
                ("webhook-timestamp", at.to_string()),
                ("webhook-signature", format!("v1,AAAA v1,{signature}")),
            ]
        }),
        (
            json!({ "kind": "timestamped_hmac", "signature_header": "X-Signed", "timestamp_key": "t",
                "signature_key": "v1" }),
            RAW,
            |secret, at, body| {
                let signature = hex::encode(sha256(secret.as_bytes(), &format!("{at}.{body}")));
                vec![("x-signed", format!("t={at},v1=00ff,v1={signature},v0=11"))]
            },
        ),
        (
            json!({ "kind": "timestamped_hmac", "signature_header": "x-signature", "timestamp_header": "x-time",
                "prefix": "v0=", "signed_content": "v0:{timestamp}:{body}", "tolerance_seconds": 60 }),
            RAW,
            |secret, at, body| {
                let signature = hex::encode(sha256(secret.as_bytes(), &format!("v0:{at}:{body}")));
                vec![("x-signature", format!("v0={signature}")), ("x-time", at.to_string())]
            },
        ),
        (
            json!({ "kind": "timestamped_hmac", "signature_header": "x-signature", "timestamp_header": "x-time",
                "signed_content": "{id}.{body}.{timestamp}", "delivery_header": "x-id", "algorithm": "sha512",
                "encoding": "base64" }),
            RAW,
            |secret, at, body| {
                let signature = STANDARD.encode(sha512(secret.as_bytes(), &format!("d-1.{body}.{at}")));
                vec![("x-signature", signature), ("x-time", at.to_string()), ("x-id", "d-1".to_owned())]
            },
        ),
        (json!({ "kind": "hmac" }), RAW, |secret, _, body| {
            vec![("x-hub-signature-256", format!("sha256={}", hex::encode(sha256(secret.as_bytes(), body))))]
        }),
        (
            json!({ "kind": "hmac", "signature_header": "x-mac", "prefix": "", "encoding": "base64",
                "algorithm": "sha512", "delivery_header": "x-id" }),
            RAW,
            |secret, _, body| vec![("x-mac", STANDARD.encode(sha512(secret.as_bytes(), body)))],
        ),
    ]
}

async fn send(api: &Api, path: &str, headers: &[(&str, String)], body: &str) -> Answer {
    let mut call = api.with_token(None).call("POST", path);
    for (name, value) in headers {
        call = call.header(name, value);
    }
    call.text(body).send().await
}

async fn every_scheme_takes_its_own_signature_and_nothing_near_it(store: StoreUnderTest) {
    let api = store.tenant();
    vendor(&api, &json!({})).await;
    for (number, (scheme, secret, sign)) in schemes().into_iter().enumerate() {
        let (name, operation) = (format!("source-{number}"), format!("op-{number}"));
        let changes = json!({ "scheme": scheme, "secrets": [secret] });
        let path = put(&api, &name, &changes).await.str("/url_path").to_owned();
        doubtful(&api, &operation).await;
        let before = api.journal(&operation).await;
        let (body, now) = (event(&operation, "re_1", "succeeded").to_string(), time::unix_seconds());
        let good = sign(secret, now, &body);
        let timed = scheme["kind"] != "hmac";
        let mut bad: Vec<Bad<'_>> = vec![
            (vec![], body.clone(), "no header"),
            (sign("another secret of some length", now, &body), body.clone(), "another secret"),
            (good.clone(), body.replace("re_1", "re_2"), "another body"),
            (good.clone(), format!("{body} "), "one byte more"),
        ];
        for (index, (header, value)) in good.iter().enumerate() {
            let mut without = good.clone();
            without.remove(index);
            bad.push((without, body.clone(), "a header less"));
            // Every character of what is sent counts, but those of other signatures in a list.
            let mut changed = good.clone();
            let last = value.len().saturating_sub(if value.ends_with("v0=11") { 10 } else { 4 });
            let other = if value.as_bytes()[last] == b'1' { "2" } else { "1" };
            changed[index].1.replace_range(last..=last, other);
            bad.push((changed, body.clone(), "a character changed"));
            let mut twice = good.clone();
            twice.push((*header, value.clone()));
            bad.push((twice, body.clone(), "a header twice"));
        }
        if timed {
            bad.push((sign(secret, now - 310, &body), body.clone(), "too old"));
            bad.push((sign(secret, now + 310, &body), body.clone(), "too new"));
        }
        // The id of a plain scheme is not signed, and so decides nothing.
        for (headers, body, what) in bad {
            let answer = send(&api, &path, &headers, &body).await;
            assert_eq!(answer.status.as_u16(), 401, "{scheme} {what}: {answer}");
        }
        assert_eq!(api.journal(&operation).await, before, "{scheme}");
        let answer = send(&api, &path, &good, &body).await.expect(200);
        assert_eq!(answer.json, json!({ "disposition": "settled" }), "{scheme}");
        api.get(&operation).await.state("completed");
        let again = send(&api, &path, &good, &body).await.expect(200);
        assert_eq!(again.json, json!({ "disposition": "known" }));
    }
}

async fn secrets_rotate_with_overlap_and_never_come_back(store: StoreUnderTest) {
    let api = store.tenant();
    let old = vendor(&api, &json!({})).await;
    let other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    let deliver = |body: Value| {
        let old = old.clone();
        async move { old.deliver(&body).await }
    };
    let both = put(&api, "vendor", &json!({ "secrets": [other, super::SECRET] })).await;
    assert_eq!((both.at("/secret_count"), both.at("/revision")), (&json!(2), &json!(2)));
    assert_eq!(both.str("/url_path"), old.path, "the address stays");
    deliver(event("absent", "re_1", "pending")).await.expect(200);
    // Other members change and the secrets stay.
    let kept = put(&api, "vendor", &json!({ "secrets": null, "description": "kept" })).await;
    assert_eq!(kept.at("/secret_count"), &json!(2));
    deliver(event("absent", "re_1", "pending")).await.expect(200);
    put(&api, "vendor", &json!({ "secrets": [other] })).await;
    deliver(event("absent", "re_1", "pending")).await.problem(401, "unauthenticated");
    let read = api.read("/api/receipt-sources/vendor").await.expect(200);
    let listed = api.read("/api/receipt-sources").await.expect(200);
    for answer in [&both, &kept, &read, &listed] {
        for secret in [super::SECRET, other] {
            assert!(!answer.text.contains(&secret[6..]), "{answer}");
        }
        assert!(!answer.text.contains("\"secrets\""), "{answer}");
    }
}

async fn unknown_addresses_and_bad_signatures_are_refused_alike(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    let body = event("op", "re_1", "succeeded").to_string();
    let bad = send(&api, &vendor.path, &[("webhook-signature", "v1,AAAA".to_owned())], &body).await;
    let bad = bad.problem(401, "unauthenticated");
    let names = |answer: &Answer| answer.headers.keys().map(|name| name.as_str().to_owned()).collect::<Vec<_>>();
    let unknown = format!("/api/receipts/rs_{}", actonce::support::random_id().simple());
    // The plain name of a source names no tenant, so it leads nowhere without a token.
    for path in [unknown.as_str(), "/api/receipts/vendor", "/api/receipts/rs_", "/api/receipts/x"] {
        let answer = send(&api, path, &[], &body).await.problem(401, "unauthenticated");
        assert_eq!((&answer.text, names(&answer)), (&bad.text, names(&bad)), "{path}");
    }
    let shouting = vendor.path.to_uppercase().replace("/API/RECEIPTS/RS_", "/api/receipts/rs_");
    let upper = Vendor { path: shouting, ..vendor.clone() };
    upper.send(&body).await.problem(401, "unauthenticated");
    vendor.send(&body).await.expect(200);
    // Whoever guesses can't tell by size or form either.
    for path in [unknown.as_str(), vendor.path.as_str()] {
        send(&api, path, &[], &"x".repeat(300 * 1024)).await.problem(413, "too-large");
        send(&api, path, &[], "{").await.problem(401, "unauthenticated");
    }
}

async fn a_token_brings_receipts_of_its_own_tenant(store: StoreUnderTest) {
    let (api, foreign) = (store.tenant(), store.tenant());
    let vendor = vendor(&api, &json!({})).await;
    doubtful(&api, "op").await;
    let body = event("op", "re_1", "succeeded");
    let server = store.shared();
    let scoped = |scopes: &str| api.with_token(Some(server.token(&api.tenant, "relay", scopes)));
    scoped("effects:write,tools:write").post("/api/receipts/vendor", &body).await.problem(403, "insufficient-scope");
    for path in ["/api/receipts/vendor", vendor.path.as_str()] {
        foreign.post(path, &body).await.problem(404, "not-found");
    }
    api.get("op").await.state("outcome_unknown");
    // A signature that is passed on has to be good.
    let bad = api.call("POST", "/api/receipts/vendor").header("webhook-signature", "v1,AAAA").json(&body);
    bad.send().await.problem(401, "unauthenticated");
    let told = scoped("receipts:write").post("/api/receipts/vendor", &body).await.expect(200);
    assert_eq!(told.json, json!({ "disposition": "settled" }));
    let settled = api.get("op").await.state("completed");
    assert_eq!(settled.str("/receipt/integrity/authenticated_by"), "token");
    assert_eq!(settled.str("/receipt/source"), "vendor");
    let told = api.post(&vendor.path, &body).await.expect(200);
    assert_eq!(told.json, json!({ "disposition": "known" }), "the address of an own source");
    api.post(&format!("/api/receipts/{}", unique("absent")), &body).await.problem(404, "not-found");
}
