//! Secrets that an adapter knows never come to rest: masked in free text, and no answer where they can't be.

use std::fs;

use serde_json::{Value, json};

use super::{TOOL, asking, doubtful, lookup, open, reconciled, register, served};
use crate::scenarios::count;
use crate::support::adapter::{FakeAdapter, Reply, answers, secret};
use crate::support::api::Api;
use crate::support::{Server, StoreUnderTest, bodies, both_stores, unique};

both_stores!(
    a_secret_in_free_text_is_masked,
    a_secret_in_what_must_stay_exact_is_a_broken_answer,
    a_masked_receipt_has_to_keep_the_contract,
    words_that_are_secrets_leave_enumerations_alone,
    a_supplied_receipt_is_masked_too,
);

/// Neither the database nor the log has it.
fn is_nowhere(server: &Server, text: &str) {
    let columns = ["entry", "life", "intent", "receipt", "result"].map(|column| format!("coalesce({column}, '')"));
    let found = format!("SELECT count(*) FROM entries WHERE {} LIKE '%{text}%'", columns.join(" || "));
    assert_eq!(count(server, &found), 0, "{text} is stored");
    assert!(!server.log().contains(text), "{text} is in the log");
}

fn bare(number: u8) -> String {
    secret(number).trim_start_matches("whsec_").trim_end_matches('=').to_owned()
}

fn with(id: &str, changes: &Value) -> Reply {
    Reply::Json(answers::settled(&bodies::with(bodies::receipt(id), changes)))
}

async fn a_secret_in_free_text_is_masked(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let (server, api) = served(store, &adapter, json!({})).await;
    let found = doubtful(&api, "op").await;
    let changes = json!({
        "message": format!("signed with {} and found", secret(1)),
        "structured": { "deep": [{ "header": format!("key={}", bare(1)) }], bare(1): 12_345_678_901_234_567_u64 },
        "artifacts": [{ "url": format!("https://x/?s={}", secret(1)) }],
    });
    adapter.set(with("op", &changes));
    let answer = reconciled(&api, "op", &lookup(&found)).await.expect(200);
    assert_eq!(answer.str("/status"), "settled");
    let receipt = api.get("op").await.state("completed").at("/receipt").clone();
    assert_eq!(receipt["message"], "signed with [masked] and found");
    let structured = json!({ "deep": [{ "header": "key=[masked]" }], "[masked]": 12_345_678_901_234_567_u64 });
    let shown = receipt["structured"].to_string().replace("[masked]=", "[masked]");
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap(), structured);
    assert_eq!(receipt["artifacts"], json!([{ "url": "https://x/?s=[masked]" }]));
    assert_eq!(receipt["receipt_id"], "re_77");
    is_nowhere(&server, &bare(1));
    // The former secret signs beside the new one, and is known as well.
    register(&api, &adapter, json!({ "adapter": bodies::with(adapter.spec(), &json!({ "secret": secret(2) })) })).await;
    let found = doubtful(&api, "op-2").await;
    adapter.set(with("op-2", &json!({ "message": format!("{} {}", secret(1), secret(2)) })));
    reconciled(&api, "op-2", &lookup(&found)).await.expect(200);
    assert_eq!(api.get("op-2").await.str("/receipt/message"), "[masked] [masked]");
    is_nowhere(&server, &bare(2));
}

async fn a_secret_in_what_must_stay_exact_is_a_broken_answer(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let (server, api) = served(store, &adapter, json!({})).await;
    for (n, changes) in [
        json!({ "receipt_id": format!("re-{}", bare(1)) }),
        json!({ "source": secret(1) }),
        json!({ "integrity": { "digest": secret(1) } }),
        json!({ "resource_versions": { bare(1): "7" } }),
    ]
    .into_iter()
    .enumerate()
    {
        let id = format!("op-{n}");
        let found = doubtful(&api, &id).await;
        adapter.set(with(&id, &changes));
        asking(&api, &id, &lookup(&found)).header("prefer", "wait=20").send().await.expect(202);
        let effect = api.get(&id).await.state("outcome_unknown");
        assert!(effect.json.get("receipt").is_none_or(Value::is_null), "{effect}");
        let entries = api.journal(&id).await;
        let event = &entries.last().unwrap()["events"][0];
        assert_eq!((event["reason"].as_str(), event["clause"].as_str()), (Some("contract_break"), Some("secret")));
        is_nowhere(&server, &bare(1));
    }
}

async fn a_masked_receipt_has_to_keep_the_contract(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let (server, api) = served(store, &adapter, json!({})).await;
    let schema = json!({ "type": "object", "properties": { "key": { "type": "string", "minLength": 20 } } });
    let receipts = json!({ "schema": "generic", "schema_version": 1, "structured_schema": schema });
    let adapter_spec = bodies::with(adapter.spec(), &json!({ "verify": false }));
    register(&api, &adapter, json!({ "receipt": receipts, "adapter": adapter_spec })).await;
    for (id, changes) in [
        ("schema", json!({ "structured": { "key": secret(1) } })),
        ("keys", json!({ "structured": { bare(1): 1, "[masked]": 2 } })),
    ] {
        let found = doubtful(&api, id).await;
        adapter.set(with(id, &changes));
        asking(&api, id, &lookup(&found)).header("prefer", "wait=20").send().await.expect(202);
        api.get(id).await.state("outcome_unknown");
        let entries = api.journal(id).await;
        assert_eq!(entries.last().unwrap()["events"][0]["clause"], "redacted", "{entries:?}");
        is_nowhere(&server, &bare(1));
    }
    // The same answer without the secret settles: it is the masking that broke it.
    let found = doubtful(&api, "good").await;
    adapter.set(with("good", &json!({ "structured": { "key": "twenty bytes and more" } })));
    reconciled(&api, "good", &lookup(&found)).await.expect(200);
    api.get("good").await.state("completed");
}

async fn words_that_are_secrets_leave_enumerations_alone(store: StoreUnderTest) {
    let downstream = FakeAdapter::start(|_| {
        Reply::Json(
            json!({ "id": "re_1", "state": "completed", "note": "completed by operator 1, uncompleted", "pin": "4711",
            "order": bodies::TARGET }),
        )
    })
    .await;
    let directory = std::env::temp_dir().join(unique("secrets"));
    fs::create_dir_all(&directory).unwrap();
    for (name, value) in [("word", "completed"), ("role", "operator"), ("pin", "4711")] {
        fs::write(directory.join(name), format!("{value}\n@127.0.0.1\n")).unwrap();
    }
    let server = store.server(open().env("ACTONCE_SECRETS_DIR", directory.to_str().unwrap()));
    let api = Api::of(&server, "t");
    let request = json!({ "lookup": {
        "url": format!("http://{}/refunds", downstream.address),
        "headers": { "x-a": "{{secret.word}}", "x-b": "{{secret.role}}", "x-c": "{{secret.pin}}" },
        "rules": [{ "when": "body.state == 'completed'", "verdict": "completed", "binds": "body.order == effect.target",
            "receipt": { "receipt_id": "body.id", "message": "body.note",
                "structured": { "pin": "body.pin", "text": "'no 4711'" } } }],
    } });
    let spec = json!({ "effect": "external", "verification": "waived", "settle_window_seconds": 0,
        "adapter": { "lookup": true, "request": request } });
    api.put_tool(TOOL, &spec).await.expect(201);
    let found = doubtful(&api, "op").await;
    let answer = reconciled(&api, "op", &lookup(&found)).await.expect(200);
    assert_eq!((answer.str("/status"), answer.str("/observation")), ("settled", "completed"), "{answer}");
    let effect = api.get("op").await.state("completed");
    assert_eq!(effect.str("/receipt/outcome"), "completed", "an enumeration is no text");
    assert_eq!(effect.str("/receipt/message"), "[masked] by [masked] 1, uncompleted");
    assert_eq!(effect.at("/receipt/structured"), &json!({ "pin": "[masked]", "text": "no 4711" }), "a short one");
    fs::remove_dir_all(&directory).unwrap();
}

async fn a_supplied_receipt_is_masked_too(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let silent = bodies::with(adapter.spec(), &json!({ "verify": false, "validate": false }));
    let (server, api) = served(store, &adapter, json!({ "adapter": silent })).await;
    let found = doubtful(&api, "op").await;
    let body = |changes: &Value| {
        let receipt = bodies::with(bodies::receipt("op"), changes);
        json!({ "expected_revision": found.at("/revision"), "receipt": receipt })
    };
    let exact = reconciled(&api, "op", &body(&json!({ "receipt_id": bare(1) }))).await;
    assert!(!exact.json.to_string().contains(&bare(1)), "{exact}");
    exact.problem(422, "receipt-rejected").faults_at(&["/receipt"]);
    assert_eq!(api.get("op").await.revision(), found.revision(), "nothing was admitted");
    let supplied = body(&json!({ "message": format!("it was {}", secret(1)) }));
    let settled = reconciled(&api, "op", &supplied).await.expect(200);
    assert_eq!(api.get("op").await.state("completed").str("/receipt/message"), "it was [masked]");
    assert_eq!(reconciled(&api, "op", &supplied).await.expect(200).json, settled.json, "the same request is a replay");
    is_nowhere(&server, &bare(1));
}
