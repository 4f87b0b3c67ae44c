//! Bounds that answer 413, each at the bound and one over it.

use serde_json::json;

use super::assert_nothing_stored;
use crate::http::{TOOL, external};
use crate::support::{StoreUnderTest, bodies, both_stores, raw};

both_stores!(arguments_of_256_kib, bodies_of_1_mib, bodies_of_unknown_length);

const ARGUMENTS: usize = 256 * 1024;
const BODY: usize = 1024 * 1024;

async fn arguments_of_256_kib(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let with = |bytes: usize| bodies::with(bodies::intent("op", TOOL), &json!({ "arguments": "a".repeat(bytes - 2) }));
    let answer = api.intent(&with(ARGUMENTS + 1)).await.problem(413, "too-large");
    assert_eq!(answer.at("/limit_bytes"), ARGUMENTS, "{answer}");
    assert_nothing_stored(&api, &[TOOL]).await;
    api.intent(&with(ARGUMENTS)).await.expect(201);
    // The bound is one of bytes, not of characters.
    let text = json!({ "arguments": "é".repeat(ARGUMENTS / 2 - 1) });
    api.intent(&bodies::with(bodies::intent("bytes", TOOL), &text)).await.expect(201);
    let text = json!({ "arguments": "é".repeat(ARGUMENTS / 2) });
    api.intent(&bodies::with(bodies::intent("more", TOOL), &text)).await.problem(413, "too-large");
    api.get("more").await.problem(404, "not-found");
}

async fn bodies_of_1_mib(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let intent = bodies::intent("op", TOOL).to_string();
    let padded = intent.clone() + &" ".repeat(BODY - intent.len());
    api.call("POST", "/api/intents").text(&padded).send().await.expect(201);
}

async fn bodies_of_unknown_length(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let token = api.token.as_deref().unwrap();
    for (padding, expected) in [(0, "HTTP/1.1 201"), (BODY, "HTTP/1.1 413")] {
        let body = bodies::intent("op", TOOL).to_string() + &" ".repeat(padding);
        let head = format!(
            "POST /api/intents HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\nconnection: close\r\n\
             content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
        );
        let chunks = body.as_bytes().chunks(60_000);
        let chunks = chunks.map(|chunk| format!("{:x}\r\n{}\r\n", chunk.len(), str::from_utf8(chunk).unwrap()));
        let request = head + &chunks.collect::<String>() + "0\r\n\r\n";
        let answer = raw::exchange(&api.url, request.as_bytes()).await;
        assert!(answer.starts_with(expected), "{answer}");
    }
}
