//! Connections that break or stall: what was carried out is known, and nothing is carried out twice.

use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use crate::http::{TOOL, external};
use crate::support::{StoreUnderTest, bodies, both_stores, raw};

both_stores!(a_dropped_request_is_carried_out_once_or_not_at_all, a_body_that_breaks_off_stores_nothing);

fn head(token: &str, path: &str, more: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         connection: close\r\n{more}\r\n"
    )
}

async fn a_dropped_request_is_carried_out_once_or_not_at_all(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let token = api.token.as_deref().unwrap();
    for round in 0..10 {
        let id = format!("op-{round}");
        let body = bodies::claiming(&id, TOOL);
        let text = body.to_string();
        let request = head(token, "/api/intents", &format!("content-length: {}\r\n", text.len())) + &text;
        for _ in 0..4 {
            let mut stream = raw::connect(&api.url).await;
            stream.write_all(request.as_bytes()).await.unwrap();
            // Gone before the answer.
            drop(stream);
        }
        let answer = api.intent(&body).await.directive("dispatch");
        assert_eq!((answer.at("/attempt"), answer.at("/dispatch/fence")), (&json!(1), &json!(1)));
        assert_eq!(answer.revision(), 1);
        let again = api.intent(&body).await.expect(200).directive("dispatch");
        assert_eq!(again.json["dispatch"], answer.json["dispatch"]);
        assert_eq!(api.journal(&id).await.len(), 1);
    }
}

async fn a_body_that_breaks_off_stores_nothing(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let text = bodies::intent("op", TOOL).to_string();
    let request = head(api.token.as_deref().unwrap(), "/api/intents", "content-length: 100000\r\n") + &text;
    let mut stream = raw::connect(&api.url).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let answer = raw::rest(&mut stream).await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 400"), "{answer}");
    api.get("op").await.problem(404, "not-found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_body_that_stalls_is_timed_out() {
    let api = StoreUnderTest::Sqlite.tenant();
    let request = head(api.token.as_deref().unwrap(), "/api/intents", "content-length: 100\r\n") + "{";
    let mut stream = raw::connect(&api.url).await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let answer = raw::rest(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("content-type: application/problem+json"), "{answer}");
    assert!(answer.contains("/docs/errors/request-timeout"), "{answer}");
}
