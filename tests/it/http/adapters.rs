//! Registrations of adapters: what may be called, and secrets that never come back.

use std::fs;

use serde_json::{Value, json};

use crate::http::TOOL;
use crate::support::adapter::{OPEN, secret};
use crate::support::bodies::{set, with, without};
use crate::support::{Api, Options, StoreUnderTest, both_stores, unique};

both_stores!(
    a_secret_is_taken_and_never_shown,
    each_fault_of_an_adapter_is_pointed_at,
    addresses_inside_are_refused_unless_they_are_allowed,
    secrets_of_the_configuration_are_named,
);

fn adapter() -> Value {
    json!({ "url": "https://adapter.example/actonce", "secret": secret(1), "lookup": true })
}

fn tool(adapter: &Value) -> Value {
    json!({ "effect": "external", "adapter": adapter })
}

async fn a_secret_is_taken_and_never_shown(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, &unique("tenant"));
    let first = api.put_tool(TOOL, &tool(&adapter())).await.expect(201);
    let new = api.put_tool(TOOL, &tool(&set(adapter(), "/secret", json!(secret(2))))).await.expect(200);
    assert_eq!((new.revision(), &new.json), (1, &first.json), "a new secret makes no revision");
    let kept = api.put_tool(TOOL, &tool(&without(adapter(), "secret"))).await.expect(200);
    assert_eq!((kept.revision(), &kept.json), (1, &first.json), "what comes back can be sent again");
    let both = with(adapter(), &json!({ "secret_ref": "x" }));
    let refused = api.put_tool(TOOL, &tool(&both)).await.problem(400, "invalid-request");
    let mistyped = api.put_tool(TOOL, &tool(&set(adapter(), "/secret", json!([secret(3)])))).await;
    let texts = [
        first.text,
        new.text,
        kept.text,
        refused.text,
        mistyped.problem(400, "invalid-request").text.clone(),
        api.tool(TOOL).await.expect(200).text,
        api.read("/api/tools").await.expect(200).text,
        server.log(),
    ];
    for text in texts {
        assert!(!text.contains("whsec_"), "{text}");
        for number in 1..=3 {
            assert!(!text.contains(secret(number).trim_start_matches("whsec_")), "{text}");
        }
    }
    // A secret of another tool of the same name is none of this tenant's.
    let other = Api::of(&server, &unique("tenant"));
    let answer = other.put_tool(TOOL, &tool(&without(adapter(), "secret"))).await;
    answer.problem(400, "invalid-request").faults_at(&["/adapter/secret"]);
}

async fn each_fault_of_an_adapter_is_pointed_at(store: StoreUnderTest) {
    let api = store.tenant();
    for (change, value, pointer) in [
        ("/secret", json!("whsec_hunter2"), "/adapter/secret"),
        ("/secret", json!("hunter2hunter2hunter2hunter2hunter2"), "/adapter/secret"),
        ("/secret", json!(""), "/adapter/secret"),
        ("/secret", json!(null), "/adapter/secret"),
        ("/url", json!("http://adapter.example/"), "/adapter/url"),
        ("/url", json!("ftp://adapter.example/"), "/adapter/url"),
        ("/url", json!("adapter.example"), "/adapter/url"),
        ("/url", json!("https://hunter2@adapter.example/"), "/adapter/url"),
        ("/url", json!("https://a:hunter2@adapter.example/"), "/adapter/url"),
        ("/url", json!("https://adapter.example/#hunter2"), "/adapter/url"),
        ("/url", json!("https://adapter.example:0/"), "/adapter/url"),
        ("/url", json!(format!("https://adapter.example/{}", "x".repeat(2048))), "/adapter/url"),
        ("/lookup", json!(false), "/adapter/lookup"),
        ("/authoritative", json!("yes"), "/adapter/authoritative"),
        ("/timeout_seconds", json!(0), "/adapter/timeout_seconds"),
        ("/timeout_seconds", json!(301), "/adapter/timeout_seconds"),
        ("/arguments", json!({}), "/adapter/arguments"),
    ] {
        let answer = api.put_tool(TOOL, &tool(&set(adapter(), change, value))).await;
        let answer = answer.problem(400, "invalid-request").faults_at(&[pointer]);
        assert!(!answer.text.contains("hunter2"), "{answer}");
    }
    super::conventions::assert_nothing_stored(&api, &[]).await;
}

async fn addresses_inside_are_refused_unless_they_are_allowed(store: StoreUnderTest) {
    let api = store.tenant();
    let inside = [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "017700000001",
        "127.0.0.1.",
        "localhost",
        "[::1]",
        "[::ffff:127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "10.0.0.1",
        "192.168.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "[fd00:ec2::254]",
        "[fe80::1]",
        "0.0.0.0",
        "224.0.0.1",
        "[::]",
    ];
    for host in inside {
        let answer = api.put_tool(TOOL, &tool(&set(adapter(), "/url", json!(format!("https://{host}/"))))).await;
        answer.problem(400, "invalid-request").faults_at(&["/adapter/url"]);
    }
    let mut options = Options::default();
    for (name, value) in OPEN {
        options = options.env(name, value);
    }
    let server = store.server(options);
    let open = Api::of(&server, &unique("tenant"));
    for (number, host) in ["127.0.0.1:80", "localhost", "2130706433"].into_iter().enumerate() {
        let adapter = set(adapter(), "/url", json!(format!("http://{host}/")));
        open.put_tool(&format!("t{number}"), &tool(&adapter)).await.expect(201);
    }
    let answer = open.put_tool(TOOL, &tool(&set(adapter(), "/url", json!("http://10.0.0.1/")))).await;
    answer.problem(400, "invalid-request").faults_at(&["/adapter/url"]);
}

async fn secrets_of_the_configuration_are_named(store: StoreUnderTest) {
    let directory = tempfile::tempdir().unwrap();
    let tenant = unique("tenant");
    fs::create_dir(directory.path().join(&tenant)).unwrap();
    fs::create_dir(directory.path().join("..data")).unwrap();
    fs::write(directory.path().join("all"), format!("{}\n{}\n", secret(2), secret(1))).unwrap();
    fs::write(directory.path().join(&tenant).join("ours"), secret(3)).unwrap();
    let server = store.server(Options::default().env("ACTONCE_SECRETS_DIR", directory.path().to_str().unwrap()));
    let refer = |name: &str| tool(&set(without(adapter(), "secret"), "/secret_ref", json!(name)));
    let (ours, other) = (Api::of(&server, &tenant), Api::of(&server, &unique("tenant")));
    let put = ours.put_tool(TOOL, &refer("ours")).await.expect(201);
    assert_eq!(put.at("/adapter/secret_ref"), "ours");
    for api in [&ours, &other] {
        api.put_tool("shared", &refer("all")).await.expect(201);
        let answer = api.put_tool("absent", &refer("absent")).await;
        answer.problem(400, "invalid-request").faults_at(&["/adapter/secret_ref"]);
    }
    let answer = other.put_tool(TOOL, &refer("ours")).await;
    answer.problem(400, "invalid-request").faults_at(&["/adapter/secret_ref"]);
    assert!(!server.log().contains("whsec_"));
}
