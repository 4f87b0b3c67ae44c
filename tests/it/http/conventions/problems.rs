//! What every answer carries, and the pages of the problem types.

use std::collections::BTreeSet;

use crate::http::{external, granted};
use crate::support::contract::DOCUMENT;
use crate::support::{Api, Options, StoreUnderTest, both_stores};

both_stores!(
    every_answer_carries_trace_and_timing,
    capacity_says_when_to_come_back,
    a_problem_type_is_a_page,
    the_reference_is_served_from_here
);

async fn every_answer_carries_trace_and_timing(store: StoreUnderTest) {
    let api = store.tenant();
    let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    for path in ["/api/effects", "/api/effects/absent", "/api/nope", "/livez"] {
        let answer = api.call("GET", path).header("traceparent", sent).send().await;
        let trace = answer.header("traceparent").expect("a trace");
        assert!(trace.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && trace.ends_with("-01"), "{trace}");
        assert_ne!(trace, sent, "the span is the service's own");
        assert!(answer.header("server-timing").is_some_and(|timing| timing.contains("dur=")), "{answer}");
        for bad in ["x", "00-00000000000000000000000000000000-00f067aa0ba902b7-01", &sent.to_uppercase()] {
            let answer = api.call("GET", path).header("traceparent", bad).send().await;
            let trace = answer.header("traceparent").expect("a new trace");
            assert!(trace.len() == 55 && !trace.contains("0000000000000000"), "{trace}");
            assert!(!trace.contains("4bf92f3577b34da6a3ce929d0e0e4736"), "{trace}");
        }
    }
}

async fn capacity_says_when_to_come_back(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_MAX_IN_FLIGHT", "1"));
    let api = Api::of(&server, "t");
    external(&api).await;
    granted(&api, "op").await;
    // Each of the two may come first; both ask until they got what they are about.
    let holding = async {
        loop {
            let answer = api.call("GET", "/api/effects/op").header("prefer", "wait=2").send().await;
            if answer.status == 200 {
                break answer;
            }
        }
    };
    let refused = async {
        loop {
            let answer = api.get("op").await;
            if answer.status == 503 {
                break answer;
            }
        }
    };
    let (held, refused) = tokio::join!(holding, refused);
    held.directive("wait");
    let refused = refused.problem(503, "capacity");
    assert_eq!(refused.header("retry-after"), Some("1"), "{refused}");
    api.get("op").await.expect(200);
}

async fn a_problem_type_is_a_page(store: StoreUnderTest) {
    let api = store.tenant().with_token(None);
    let mut named = BTreeSet::new();
    for response in DOCUMENT["components"]["responses"].as_object().unwrap().values() {
        let text = response["description"].as_str().unwrap();
        named
            .extend(text.split('`').skip(1).step_by(2).filter(|word| !word.contains("Retry") && !word.contains("If-")));
    }
    assert!(named.len() > 15, "{named:?}");
    for slug in named {
        let page = api.read(&format!("/docs/errors/{slug}")).await.expect(200);
        assert_eq!(page.header("content-type"), Some("text/markdown; charset=utf-8"));
        assert!(page.text.contains(&format!("`/docs/errors/{slug}`")), "{slug}");
    }
}

/// The browsable reference loads nothing from elsewhere, and all that it loads is there.
async fn the_reference_is_served_from_here(store: StoreUnderTest) {
    let api = store.tenant().with_token(None);
    let page = api.read("/docs").await.expect(200);
    assert!(page.header("content-type").is_some_and(|media| media.starts_with("text/html")), "{page}");
    let attributes = ["src=\"", "href=\""].into_iter().flat_map(|name| page.text.split(name).skip(1));
    let parts: Vec<&str> = attributes.map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(parts.len() >= 4, "{parts:?}");
    for part in parts {
        assert!(!part.contains("//"), "loaded from elsewhere: {part}");
        api.read(&format!("/docs/{}", part.trim_start_matches("./"))).await.expect(200);
    }
    let start = api.read("/docs/swagger-initializer.js").await.expect(200);
    assert!(start.text.contains("\"/api/openapi.json\""), "{start}");
}
