//! Paths, methods and queries.

use crate::http::{TOOL, external};
use crate::support::api::segment;
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    unknown_paths_and_absent_things_are_404,
    unknown_methods_are_405,
    names_in_paths_are_checked,
    names_in_paths_are_percent_encoded,
    queries_are_checked,
    a_base_path_stands_before_every_route,
);

async fn unknown_paths_and_absent_things_are_404(store: StoreUnderTest) {
    let api = store.tenant();
    for path in ["/api", "/api/", "/api/nope", "/api/effects/", "/api/effects/a/b", "/api/effects/a/journal/b", "/nope"]
    {
        api.read(path).await.problem(404, "not-found");
        api.call("POST", path).json(&bodies::claim()).send().await.problem(404, "not-found");
    }
    for path in ["/api/effects/absent", "/api/effects/absent/journal", "/api/runs/absent", "/api/tools/absent"] {
        api.read(path).await.problem(404, "not-found");
    }
    api.read("/docs/errors/absent").await.problem(404, "not-found");
}

async fn unknown_methods_are_405(store: StoreUnderTest) {
    let api = store.tenant();
    for (method, path) in [
        ("GET", "/api/intents"),
        ("DELETE", "/api/intents"),
        ("POST", "/api/effects"),
        ("PUT", "/api/effects/op"),
        ("PATCH", "/api/effects/op"),
        ("DELETE", "/api/effects/op"),
        ("GET", "/api/effects/op/outcome"),
        ("DELETE", "/api/effects/op/journal"),
        ("POST", "/api/runs/run"),
        ("POST", "/api/tools"),
        ("PATCH", "/api/tools/t"),
        ("GET", "/api/tools/t/pause"),
        ("POST", "/livez"),
    ] {
        let answer = api.call(method, path).send().await.problem(405, "method-not-allowed");
        assert!(answer.header("allow").is_some_and(|methods| !methods.is_empty()), "RFC 9110 asks for Allow: {answer}");
    }
}

async fn names_in_paths_are_checked(store: StoreUnderTest) {
    let api = store.tenant();
    for name in ["%00", "a%0Ab", "%20a", "a%20", "%ff", "%ed%a0%80", &"a".repeat(257), &"%C3%A9".repeat(129)] {
        for path in [
            format!("/api/effects/{name}"),
            format!("/api/effects/{name}/journal"),
            format!("/api/runs/{name}"),
            format!("/api/tools/{name}"),
        ] {
            let answer = api.read(&path).await.problem(400, "invalid-request");
            let pointer = answer.str("/faults/0/pointer");
            assert!(pointer.starts_with("path:"), "{answer}");
        }
        let path = format!("/api/effects/{name}/cancel");
        api.call("POST", &path).send().await.problem(400, "invalid-request");
        let path = format!("/api/tools/{name}");
        api.call("PUT", &path).text(r#"{"effect":"none"}"#).send().await.problem(400, "invalid-request");
    }
}

async fn names_in_paths_are_percent_encoded(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for name in ["a/b", "a:b?c#d", "100%", "%41", "a b", "ä€😀", "a+b", "\"q\"", "a\\b", "caf\u{e9}", "a%2Fb", "a;b=c"]
    {
        let answer = api.intent(&bodies::claiming(name, TOOL)).await.expect(201);
        assert_eq!(answer.str("/operation_id"), name);
        assert_eq!(api.get(name).await.expect(200).str("/operation_id"), name);
        let location = answer.header("location").unwrap();
        assert_eq!(api.read(location).await.expect(200).str("/operation_id"), name);
        api.heartbeat(name, &bodies::heartbeat(&answer)).await.expect(200);
        assert_eq!(api.journal(name).await.len(), 1);
        let found = api.list(&format!("tool={}&limit=200", segment(TOOL))).await;
        assert!(found.at("/items").as_array().unwrap().iter().any(|item| item["operation_id"] == name));
    }
    // Names are bytes: what looks alike is not the same.
    api.get("cafe\u{301}").await.problem(404, "not-found");
    api.get("A").await.problem(404, "not-found");
}

async fn queries_are_checked(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&bodies::with(bodies::intent("op", TOOL), &serde_json::json!({ "run_id": "run" }))).await.expect(201);
    let lists = ["/api/effects", "/api/effects/op/journal", "/api/runs/run", "/api/tools"];
    for list in lists {
        for (query, pointer) in [
            ("limit=0", "query:limit"),
            ("limit=201", "query:limit"),
            ("limit=4294967296", "query"),
            ("limit=-1", "query"),
            ("limit=x", "query"),
            ("limit=", "query"),
            ("limit=1&limit=1", "query"),
            ("bogus=1", "query"),
            ("cursor=x", "query:cursor"),
            ("cursor=", "query:cursor"),
        ] {
            let answer = api.read(&format!("{list}?{query}")).await.problem(400, "invalid-request");
            assert!(answer.str("/faults/0/pointer").starts_with(pointer), "{answer}");
        }
        api.read(&format!("{list}?limit=1")).await.expect(200);
        api.read(&format!("{list}?limit=200")).await.expect(200);
    }
    for (query, pointer) in [
        ("state=done", "query"),
        ("state=Completed", "query"),
        ("contradicted=maybe", "query"),
        ("updated_before=2026-01-01T00:00:00", "query:updated_before"),
        ("updated_before=yesterday", "query:updated_before"),
        ("tool=", "query:tool"),
        ("target=%00", "query:target"),
        ("run_id=%20x", "query:run_id"),
        ("session_id=", "query:session_id"),
        ("worker=%0A", "query:worker"),
    ] {
        let answer = api.list(query).await.problem(400, "invalid-request");
        assert!(answer.str("/faults/0/pointer").starts_with(pointer), "{answer}");
    }
}

async fn a_base_path_stands_before_every_route(store: StoreUnderTest) {
    let server = store.server(Options::default().arg("--base-path").arg("/actonce"));
    assert!(server.url().ends_with("/actonce"), "{}", server.url());
    let api = Api::of(&server, "t");
    external(&api).await;
    let answer = api.intent(&bodies::claiming("a:b", TOOL)).await.expect(201).directive("dispatch");
    let location = answer.header("location").unwrap();
    let path = location.strip_prefix("/actonce").expect("the prefix is in the location");
    api.read(path).await.expect(200);
    let document = api.read("/api/openapi.json").await.expect(200);
    assert_eq!(document.at("/servers/0/url"), "/actonce");
    api.read("/readyz").await.expect(200);
    api.read("/docs/errors/not-found").await.expect(200);
    api.read("/nope").await.problem(404, "not-found");
}
