//! The command, and what works after it.

use serde_json::{Value, json};

use super::{id, keep, key, of_key, readable, ring, rotate, sealed, served, under, with_ring};
use crate::http::receipts::reasons;
use crate::scenarios::intact;
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::server::program;
use crate::support::{Api, Server, StoreUnderTest, blocking, both_stores};

both_stores!(
    what_two_former_keys_sealed_comes_under_the_active_one,
    a_missing_key_is_named_and_its_rows_stay,
    the_doctor_says_under_which_keys_rows_are,
);

/// Every journal, as it is answered and as it is hashed.
async fn journals(api: &Api, operations: &[String]) -> Vec<Vec<Value>> {
    let mut all = Vec::new();
    for operation in operations {
        all.push(api.journal(operation).await);
    }
    all
}

async fn what_two_former_keys_sealed_comes_under_the_active_one(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let endpoint = FakeAdapter::always(Reply::status("204 No Content")).await;
    let server = served(store, &[1]);
    let one = sealed(&Api::of(&server, "t"), "one", &adapter, &endpoint).await;
    let feed = Api::of(&server, "t").read("/api/events?limit=1").await.expect(200).str("/next_cursor").to_owned();
    server.stop();
    let server = with_ring(&server, &[2, 1]);
    let api = Api::of(&server, "t");
    let two = sealed(&api, "two", &adapter, &endpoint).await;
    one.works(&server, &adapter, &endpoint).await;
    let operations = ["kept-one", "kept-two", "doubt-one", "doubt-two"].map(str::to_owned);
    let (before, verified) = (journals(&api, &operations).await, intact(&server));
    server.stop();
    let (code, report, _) = rotate(&server, &[3, 2, 1], &["--dry-run"]).await;
    assert_eq!((code, &report["dry_run"], &report["complete"]), (0, &json!(true), &json!(false)), "{report:#}");
    // Replacing the answers of a doubt, `works` registers nothing: one of each under each key.
    for number in [1, 2] {
        assert_eq!(under(&report, &id(number)), [1, 1, 1, 1], "{report:#}");
        assert_eq!(of_key(&report, &id(number))["rows"], 4);
    }
    assert_eq!((under(&report, &id(3)), &report["resealed"]), (vec![0; 4], &json!(8)), "{report:#}");
    let (code, report, _) = rotate(&server, &[3, 2, 1], &["--batch", "1"]).await;
    assert_eq!((code, &report["complete"], &report["resealed"]), (0, &json!(true), &json!(8)), "{report:#}");
    assert_eq!(
        (under(&report, &id(3)), under(&report, &id(1)), under(&report, &id(2))),
        (vec![2; 4], vec![0; 4], vec![0; 4])
    );
    // Open effects carry downstream keys that the former keys made: vendors are understood by these alone.
    for number in [1, 2] {
        assert_eq!(of_key(&report, &id(number))["open_effects"], 2, "{report:#}");
    }
    assert_eq!(report["removable_keys"], json!([]), "{report:#}");
    let (code, report, text) = rotate(&server, &[3, 2, 1], &["--format", "text"]).await;
    assert_eq!((code, report), (0, Value::Null));
    assert!(text.contains("0 rows sealed anew") && text.contains(&format!("key {}: active, 8 rows", id(3))), "{text}");
    let server = with_ring(&server, &[3, 2, 1]);
    let api = Api::of(&server, "t");
    assert_eq!(journals(&api, &operations).await, before, "no entry changed");
    assert_eq!(intact(&server)["entries"], verified["entries"]);
    one.settles_by_key(&api).await;
    two.settles_by_key(&api).await;
    api.read(&format!("/api/events?limit=200&after={feed}")).await.expect(200);
    server.stop();
    let (_, report, _) = rotate(&server, &[3, 2, 1], &[]).await;
    for number in [1, 2] {
        assert_eq!(of_key(&report, &id(number))["open_effects"], 1, "the proposal is open: {report:#}");
    }
    // The former keys are gone: what is sealed does not need them.
    let server = with_ring(&server, &[3]);
    let api = Api::of(&server, "t");
    one.works(&server, &adapter, &endpoint).await;
    two.works(&server, &adapter, &endpoint).await;
    for name in ["kept-one", "kept-two"] {
        api.cancel(name).await.expect(200).state("refused");
    }
    assert!(reasons(&api).await.is_empty());
    server.stop();
    let (code, report, _) = rotate(&server, &[3, 2, 1], &[]).await;
    assert_eq!((code, &report["removable_keys"]), (0, &json!([id(2), id(1)])), "{report:#}");
    intact(&server);
}

async fn a_missing_key_is_named_and_its_rows_stay(store: StoreUnderTest) {
    let server = served(store, &[1]);
    keep(&Api::of(&server, "t"), "x", &["one", "two"]).await;
    server.stop();
    let server = with_ring(&server, &[2, 1]);
    keep(&Api::of(&server, "t"), "x", &["three"]).await;
    server.stop();
    let (code, report, _) = rotate(&server, &[3, 2], &["--dry-run"]).await;
    assert_eq!((code, &report["missing_keys"]), (1, &json!({ id(1): 2 })), "{report:#}");
    let (code, report, _) = rotate(&server, &[3, 2], &[]).await;
    let expected = (1, &json!({ id(1): 2 }), &json!(1), &json!(false));
    assert_eq!((code, &report["missing_keys"], &report["resealed"], &report["complete"]), expected, "{report:#}");
    assert_eq!(report["open_effects_of_no_key"], 2, "{report:#}");
    let (_, _, text) = rotate(&server, &[3, 2], &["--format", "text"]).await;
    assert!(text.contains(&format!("key {}: not in the ring, 2 rows were left alone", id(1))), "{text}");
    // Nothing was changed for those rows: with the key they are read, and come along.
    let (code, report, _) = rotate(&server, &[3, 1], &[]).await;
    assert_eq!((code, &report["resealed"], &report["complete"]), (0, &json!(2), &json!(true)), "{report:#}");
    let server = with_ring(&server, &[3]);
    for operation in ["one", "two", "three"] {
        readable(&server, operation).await;
    }
    server.stop();
    // Damage is told and left alone, whatever key it names.
    crate::scenarios::sql(&server, "UPDATE retained_arguments SET sealed = substr(sealed, 1, 20)");
    let (code, report, _) = rotate(&server, &[4, 3], &[]).await;
    assert_eq!((code, &report["unreadable"], &report["resealed"]), (1, &json!(3), &json!(0)), "{report:#}");
    assert_eq!((report["removable_keys"].clone(), under(&report, &id(3))), (json!([]), vec![0, 3, 0, 0]), "{report:#}");
}

async fn doctor(server: &Server, keys: &[u8]) -> Vec<Value> {
    let mut command = program();
    command.args(["doctor", "--json", "--dev", "--max-connections", "10", "--data-dir"]).arg(server.data_dir());
    command.env("ACTONCE_DATA_KEY", ring(keys));
    if let Some(url) = server.database_url() {
        command.env("DATABASE_URL", url);
    }
    let output = blocking(move || command.output().unwrap()).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert!((1..=4).all(|number| !text.contains(&key(number))), "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    let all = document["findings"].as_array().unwrap();
    all.iter().filter(|finding| finding["check"] == "data_key").cloned().collect()
}

async fn the_doctor_says_under_which_keys_rows_are(store: StoreUnderTest) {
    let endpoint = FakeAdapter::always(Reply::status("204 No Content")).await;
    let server = served(store, &[1]);
    let api = Api::of(&server, "t");
    sealed(&api, "one", &endpoint, &endpoint).await;
    let says = |findings: &[Value], level: &str, said: &str| {
        assert!(findings.len() == 1 && findings[0]["level"] == level, "{findings:?}");
        assert!(findings[0]["finding"].as_str().unwrap().contains(said), "{findings:?}");
    };
    says(&doctor(&server, &[1]).await, "ok", &format!("4 sealed rows under {}", id(1)));
    says(&doctor(&server, &[2, 1]).await, "warn", &format!("4 under {}", id(1)));
    says(&doctor(&server, &[2]).await, "fail", &format!("4 under {}", id(1)));
}
