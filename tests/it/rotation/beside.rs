//! Beside running replicas, and interrupted.

use std::time::Duration;

use serde_json::{Value, json};

use super::{id, keep, of_key, readable, ring, rotate, sealed, served, under, with_ring};
use crate::scenarios::{count, crowd, intact};
use crate::support::adapter::{FakeAdapter, Reply, answers, secret};
use crate::support::server::program;
use crate::support::{Api, StoreUnderTest, both_stores};

both_stores!(
    replicas_write_while_it_runs_and_nothing_is_lost,
    a_run_that_is_killed_is_gone_on_with,
    a_replica_that_still_seals_under_the_former_key_is_noticed,
    what_is_written_again_is_under_the_active_key,
);

async fn replicas_write_while_it_runs_and_nothing_is_lost(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Json(answers::absent())).await;
    let endpoint = FakeAdapter::always(Reply::status("204 No Content")).await;
    let first = served(store, &[1]);
    let api = Api::of(&first, "t");
    let one = sealed(&api, "one", &adapter, &endpoint).await;
    let names: Vec<String> = (0..30).map(|number| format!("early-{number}")).collect();
    keep(&api, "x", &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    first.stop();
    let server = with_ring(&first, &[2, 1]);
    let api = Api::of(&server, "t");
    let writing = async {
        // New ones come, old ones settle, secrets are replaced.
        crowd(
            4,
            (0..30).map(|number| {
                let api = &api;
                async move {
                    keep(api, &format!("y-{number}"), &[&format!("late-{number}")]).await;
                    if number % 2 == 0 {
                        api.cancel(&format!("kept-early-{number}")).await.expect(200).state("refused");
                    }
                }
            }),
        )
        .await;
        for number in 10..14 {
            let path = format!("/api/subscriptions/{}/secret", one.subscription);
            let again = api.post(&path, &json!({ "secret": secret(number) })).await;
            assert!(again.status.is_success(), "{again}");
        }
    };
    let rotating = async {
        let mut codes = Vec::new();
        for _ in 0..4 {
            codes.push(rotate(&server, &[2, 1], &["--batch", "2"]).await.0);
        }
        codes
    };
    let ((), codes) = tokio::join!(writing, rotating);
    assert_eq!(codes, [0; 4], "who has the active key seals under it");
    let (code, report, _) = rotate(&server, &[2, 1], &[]).await;
    assert_eq!((code, &report["resealed"], under(&report, &id(1))), (0, &json!(0), vec![0; 4]), "{report:#}");
    server.stop();
    let alone = with_ring(&server, &[2]);
    for number in 0..30 {
        readable(&alone, &format!("late-{number}")).await;
        if number % 2 == 1 {
            readable(&alone, &format!("early-{number}")).await;
        }
    }
    assert_eq!(count(&alone, "SELECT count(*) FROM retained_arguments"), 46);
    intact(&alone);
}

async fn a_run_that_is_killed_is_gone_on_with(store: StoreUnderTest) {
    let server = served(store, &[1]);
    let api = Api::of(&server, "t");
    let names: Vec<String> = (0..60).map(|number| number.to_string()).collect();
    keep(&api, "x", &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let first_byte =
        if server.database_url().is_some() { "get_byte(sealed, 1)" } else { "CAST(hex(substr(sealed, 2, 1)) AS TEXT)" };
    let moved = || {
        let want = actonce::domain::data_key::key_id(&[2; 32]);
        let value = if server.database_url().is_some() { want.to_string() } else { format!("'{want:02X}'") };
        count(&server, &format!("SELECT count(*) FROM retained_arguments WHERE {first_byte} = {value}"))
    };
    let mut run = program();
    run.args(["rotate-data-key", "--batch", "1", "--data-dir"]).arg(server.data_dir());
    run.env("ACTONCE_DATA_KEY", ring(&[2, 1]));
    if let Some(url) = server.database_url() {
        run.env("DATABASE_URL", url);
    }
    let mut child = run.stdout(std::process::Stdio::null()).spawn().unwrap();
    while moved() == 0 && child.try_wait().unwrap().is_none() {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let done = moved();
    assert!(done > 0);
    // Each row is whole under the one or the other.
    let both = with_ring(&server, &[2, 1]);
    for name in &names {
        readable(&both, name).await;
    }
    let (code, report, _) = rotate(&server, &[2, 1], &[]).await;
    assert_eq!((code, report["resealed"].as_i64()), (0, Some(60 - done)), "{report:#}");
    assert_eq!(moved(), 60);
}

/// A replica that was forgotten: what it seals comes again, and its key is not said to be of no use.
async fn a_replica_that_still_seals_under_the_former_key_is_noticed(store: StoreUnderTest) {
    let server = served(store, &[1]);
    let api = Api::of(&server, "t");
    keep(&api, "x", &["one"]).await;
    assert_eq!(rotate(&server, &[2, 1], &[]).await.0, 0);
    keep(&api, "x", &["two"]).await;
    let (_, report, _) = rotate(&server, &[2, 1], &["--dry-run"]).await;
    assert_eq!((&of_key(&report, &id(1))["rows"], &report["removable_keys"]), (&json!(1), &json!([])), "{report:#}");
    assert_ne!(report["complete"], Value::Bool(true));
}

/// A change that read a row before it was sealed anew, and writes it after, brings nothing back.
async fn what_is_written_again_is_under_the_active_key(store: StoreUnderTest) {
    let endpoint = FakeAdapter::always(Reply::status("204 No Content")).await;
    let server = served(store, &[1]);
    let one = sealed(&Api::of(&server, "t"), "one", &endpoint, &endpoint).await;
    server.stop();
    let server = with_ring(&server, &[2, 1]);
    let api = Api::of(&server, "t");
    let changed = json!({ "url": endpoint.url(), "tools": ["called-one"], "events": ["effect.completed"] });
    api.call("PUT", &format!("/api/subscriptions/{}", one.subscription)).json(&changed).send().await.expect(200);
    let source = json!({ "tools": ["called-one"], "secrets": null, "target": "/data/other" });
    crate::http::receipts::put(&api, "vendor-one", &source).await;
    let (_, report, _) = rotate(&server, &[2, 1], &["--dry-run"]).await;
    assert_eq!((under(&report, &id(1)), under(&report, &id(2))), (vec![1, 1, 0, 0], vec![0, 0, 1, 1]), "{report:#}");
}
