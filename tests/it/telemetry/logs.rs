//! Log lines: JSON or text, with the request that they are about.

use serde_json::{Value, json};

use crate::support::{Api, Options, StoreUnderTest, both_stores};

both_stores!(a_line_names_its_request, a_line_for_people_names_it_too);

const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// A request, and the span of its answer.
async fn request(api: &Api) -> String {
    let answer = api.call("GET", "/api/effects/absent").header("traceparent", SENT).send().await;
    answer.header("traceparent").expect("a traceparent").split('-').nth(2).expect("a span").to_owned()
}

async fn a_line_names_its_request(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_LOG_FORMAT", "json"));
    let api = Api::of(&server, "a \"tenant\"");
    let (known, stranger) = (request(&api).await, request(&api.with_token(None)).await);
    let log = server.log();
    // Hints of `--dev` and the start stand before.
    let lines: Vec<Value> = log
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| {
            let parsed = serde_json::from_str(line);
            (!line.contains("curl")).then(|| parsed.unwrap_or_else(|error| panic!("{error}: {line}")))
        })
        .collect();
    let of = |span: &str| {
        let found = lines.iter().find(|line| line["request_id"] == span && line["message"] == "request");
        found.unwrap_or_else(|| panic!("no line of {span} in {log}")).clone()
    };
    let (known, stranger) = (of(&known), of(&stranger));
    assert_eq!((&known["trace_id"], &known["tenant"]), (&json!(TRACE), &json!("a \"tenant\"")));
    assert_eq!((&known["status"], &known["path"]), (&json!(404), &json!("/api/effects/{operation_id}")));
    assert_eq!((&stranger["trace_id"], &stranger["tenant"]), (&json!(TRACE), &Value::Null), "nobody knows whose");
}

async fn a_line_for_people_names_it_too(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_LOG_FORMAT", "pretty"));
    let api = Api::of(&server, "t");
    let span = request(&api).await;
    let log = server.log();
    let expected = format!("request_id={span} trace_id={TRACE} tenant=\"t\"");
    assert!(log.lines().any(|line| line.contains("request") && line.ends_with(&expected)), "{log}");
}
