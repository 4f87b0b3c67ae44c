//! Registration of sources.

use serde_json::{Value, json};

use super::{SECRET, put, spec};
use crate::http::TOOL;
use crate::support::{Answer, Api, Options, StoreUnderTest, bodies, both_stores, unique};

both_stores!(
    a_registration_comes_back_without_its_secrets,
    faults_are_pointed_at_and_nothing_is_stored,
    changes_are_compared_and_set,
    sources_are_bounded,
    the_configuration_may_have_the_secret,
);

async fn register(api: &Api, name: &str, spec: &Value) -> Answer {
    api.call("PUT", &format!("/api/receipt-sources/{name}")).json(spec).send().await
}

async fn a_registration_comes_back_without_its_secrets(store: StoreUnderTest) {
    let api = store.tenant();
    let changes = json!({ "description": "refunds", "observed_at": { "pointer": "/at", "format": "unix_seconds" },
        "filter": { "pointer": "/type", "values": ["a"] }, "resource_versions": { "order": "/v" },
        "structured": { "status": "/data/status" } });
    let sent = spec(&changes);
    let created = register(&api, "vendor", &sent).await.expect(201);
    assert_eq!((created.at("/revision"), created.header("etag")), (&json!(1), Some("\"1\"")));
    assert!(created.str("/url_path").starts_with("/api/receipts/rs_"));
    for (name, value) in sent.as_object().unwrap() {
        match name.as_str() {
            "secrets" => assert!(created.json.get("secrets").is_none()),
            "outcome" => assert_eq!(created.at("/outcome/values"), &value["values"]),
            _ => assert_eq!(&created.json[name], value, "{name}"),
        }
    }
    let again = register(&api, "vendor", &sent).await.expect(200);
    assert_eq!(again.json, created.json, "an equal registration changes nothing");
    let read = api.read("/api/receipt-sources/vendor").await.expect(200);
    assert_eq!(read.json, created.json);
    // Every source has an address of its own, also after its name was free.
    let other = put(&api, "other", &changes).await;
    assert_ne!(other.str("/url_path"), created.str("/url_path"));
    api.call("DELETE", "/api/receipt-sources/vendor").send().await.expect(204);
    api.read("/api/receipt-sources/vendor").await.problem(404, "not-found");
    let anew = register(&api, "vendor", &sent).await.expect(201);
    assert_ne!(anew.str("/url_path"), created.str("/url_path"));
    let listed = api.pages("/api/receipt-sources?limit=1").await;
    let names: Vec<_> = listed.iter().map(|item| item["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["other", "vendor"]);
}

async fn faults_are_pointed_at_and_nothing_is_stored(store: StoreUnderTest) {
    let api = store.tenant();
    for (changes, pointers) in [
        (json!({ "secrets": null }), vec!["/secrets"]),
        (json!({ "secrets": ["whsec_dG9vIHNob3J0", SECRET] }), vec!["/secrets/0"]),
        (json!({ "secrets": [SECRET, SECRET, SECRET] }), vec!["/secrets"]),
        (json!({ "secret_ref": "none" }), vec!["/secrets"]),
        (json!({ "secrets": null, "secret_ref": "none" }), vec!["/secret_ref"]),
        (json!({ "tools": [], "target": "x" }), vec!["/tools", "/target"]),
        (json!({ "operation_id": null }), vec!["/operation_id"]),
        (json!({ "marker": "/m" }), vec!["/operation_id"]),
        (json!({ "scheme": { "kind": "hmac", "tolerance_seconds": 9 } }), vec!["/scheme/tolerance_seconds"]),
        (
            json!({ "scheme": { "kind": "timestamped_hmac" } }),
            vec!["/scheme/signature_header", "/scheme/timestamp_header"],
        ),
        (json!({ "receipt_id": "data" }), vec!["/receipt_id"]),
        (json!({ "receipt_id": format!("/{}", "a/".repeat(20)) }), vec!["/receipt_id"]),
        (json!({ "description": "x".repeat(3_000) }), vec!["/description"]),
    ] {
        let answer = register(&api, "vendor", &spec(&changes)).await;
        answer.problem(400, "invalid-request").faults_at(&pointers);
    }
    for (changes, pointer) in [
        (json!({ "scheme": { "kind": "rot13" } }), "/scheme/kind"),
        (json!({ "scheme": ["hmac"] }), "/scheme"),
        (json!({ "unknown": 1 }), ""),
        (json!({ "outcome": { "pointer": "/s", "values": { "x": "maybe" } } }), "/outcome/values/x"),
    ] {
        let answer = register(&api, "vendor", &spec(&changes)).await.problem(400, "invalid-request");
        assert!(answer.str("/faults/0/pointer").starts_with(pointer), "{answer}");
        assert!(!answer.text.contains(&SECRET[6..]), "{answer}");
    }
    register(&api, &"n".repeat(129), &spec(&json!({}))).await.problem(400, "invalid-request").faults_at(&["path:name"]);
    assert!(api.pages("/api/receipt-sources?limit=9").await.is_empty());
}

async fn changes_are_compared_and_set(store: StoreUnderTest) {
    let api = store.tenant();
    put(&api, "vendor", &json!({})).await;
    let change = |revision: &str, text: &str| {
        let body = spec(&json!({ "description": text }));
        api.call("PUT", "/api/receipt-sources/vendor").header("if-match", revision).json(&body)
    };
    change("\"1\"", "one").send().await.expect(200);
    let stale = change("\"1\"", "two").send().await.problem(412, "stale-revision");
    assert_eq!(stale.at("/found/revision"), &json!(2));
    let delete = |revision: &str| api.call("DELETE", "/api/receipt-sources/vendor").header("if-match", revision);
    delete("\"1\"").send().await.problem(412, "stale-revision");
    // Of many at once each makes a revision, or none.
    let writes = (0..8).map(|number| {
        let api = api.clone();
        async move { put(&api, "vendor", &json!({ "description": format!("n{number}") })).await.at("/revision").clone() }
    });
    let mut revisions: Vec<u64> =
        futures_util::future::join_all(writes).await.iter().map(|revision| revision.as_u64().unwrap()).collect();
    revisions.sort_unstable();
    assert_eq!(revisions, (3..=10).collect::<Vec<_>>());
    delete("\"10\"").send().await.expect(204);
    delete("\"10\"").send().await.problem(404, "not-found");
}

async fn sources_are_bounded(store: StoreUnderTest) {
    let api = store.tenant();
    for number in 0..100 {
        put(&api, &format!("vendor-{number:03}"), &json!({})).await;
    }
    register(&api, "one-more", &spec(&json!({}))).await.problem(409, "state-conflict");
    put(&api, "vendor-000", &json!({ "description": "may change" })).await;
}

async fn the_configuration_may_have_the_secret(store: StoreUnderTest) {
    let file = std::env::temp_dir().join(unique("actonce-secrets"));
    std::fs::write(&file, format!("[secrets]\nvendor = \"{SECRET}\"\nshort = \"x\"\n")).unwrap();
    let server = store.server(Options::default().arg("--config").arg(file.to_str().unwrap()));
    std::fs::remove_file(&file).unwrap();
    let api = Api::of(&server, "t");
    crate::http::tool(&api, json!({ "effect": "external", "verification": "waived" })).await;
    let named = |name: &str| spec(&json!({ "secrets": null, "secret_ref": name }));
    register(&api, "vendor", &named("short")).await.problem(400, "invalid-request").faults_at(&["/secret_ref"]);
    let source = register(&api, "vendor", &named("vendor")).await.expect(201);
    assert_eq!((source.at("/secret_ref"), source.at("/secret_count")), (&json!("vendor"), &json!(0)));
    let vendor = super::Vendor::new(&api, &source);
    super::doubtful(&api, "op").await;
    vendor.told(&super::event("op", "re_1", "succeeded"), "settled").await;
    let done = api.get("op").await.state("completed");
    assert_eq!((done.str("/tool"), done.str("/target")), (TOOL, bodies::TARGET));
}
