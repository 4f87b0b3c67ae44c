//! Single reads, journals and runs (protocol §5).

use serde_json::{Value, json};

use crate::http::{TOOL, external, granted};
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    a_known_revision_is_not_sent_again,
    a_journal_has_one_entry_for_each_revision,
    a_journal_is_paged,
    a_run_counts_its_effects,
    a_run_is_paged,
);

async fn a_known_revision_is_not_sent_again(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let read = |tag: &str| api.call("GET", "/api/effects/op").header("if-none-match", tag).send();
    for tag in ["\"1\"", "W/\"1\"", "\"7\", \"1\"", "\"7\",W/\"1\""] {
        let answer = read(tag).await.expect(304);
        assert_eq!((answer.text.as_str(), answer.header("etag")), ("", Some("\"1\"")), "{tag}");
    }
    for tag in ["\"2\"", "1", "\"11\"", "x"] {
        assert_eq!(read(tag).await.expect(200).revision(), 1, "{tag}");
    }
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200);
    assert_eq!(read("\"1\"").await.expect(200).revision(), 2);
    read("\"2\"").await.expect(304);
    let absent = api.call("GET", "/api/effects/absent").header("if-none-match", "\"1\"").send().await;
    absent.problem(404, "not-found");
}

async fn a_journal_has_one_entry_for_each_revision(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let first = granted(&api, "op").await;
    api.outcome("op", &bodies::not_sent(&first)).await.expect(200);
    let second = api.dispatch("op", &bodies::claim()).await.expect(200);
    api.outcome("op", &bodies::receipted(&second)).await.expect(200);
    let done = api.verify("op", &bodies::verification()).await.expect(200);
    let entries = api.journal("op").await;
    let revisions: Vec<u64> = entries.iter().map(|entry| entry["revision"].as_u64().unwrap()).collect();
    assert_eq!(revisions, (1..=done.revision()).collect::<Vec<_>>());
    let states: Vec<&str> = entries.iter().map(|entry| entry["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["dispatched", "safe_to_retry", "dispatched", "verifying", "completed"]);
    let mut previous = "0".repeat(64);
    let mut at = String::new();
    for entry in &entries {
        assert_eq!(entry["prev_hash"], previous.as_str());
        previous = entry["hash"].as_str().unwrap().to_owned();
        assert!(previous.len() == 64 && entry["by"] == "tester", "{entry}");
        assert!(entry["at"].as_str().unwrap() >= at.as_str(), "time never runs backwards: {entry}");
        entry["at"].as_str().unwrap().clone_into(&mut at);
    }
    assert_eq!(entries[4]["at"], done.json["updated_at"]);
    assert_eq!(
        api.events("op").await,
        [
            "effect.proposed",
            "effect.authorized",
            "effect.intent_recorded",
            "effect.dispatched",
            "effect.safe_to_retry",
            "effect.dispatched",
            "effect.receipt.validated",
            "effect.verified",
            "effect.completed",
        ]
    );
    let hashes: std::collections::BTreeSet<&str> =
        entries.iter().map(|entry| entry["hash"].as_str().unwrap()).collect();
    assert_eq!(hashes.len(), entries.len());
}

async fn a_journal_is_paged(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200);
    for n in 0..5 {
        let report = bodies::set(bodies::unknown(&granted), "/failure_evidence/detail", json!(n.to_string()));
        api.outcome("op", &report).await.problem(409, "state-conflict");
    }
    let all = api.journal("op").await;
    assert_eq!(all.len(), 7);
    for limit in [1, 2, 3, 6, 7, 8] {
        assert_eq!(api.pages(&format!("/api/effects/op/journal?limit={limit}")).await, all, "limit {limit}");
        let page = api.read(&format!("/api/effects/op/journal?limit={limit}")).await.expect(200);
        assert_eq!(page.at("/items").as_array().unwrap().len(), limit.min(7));
        assert_eq!(page.json["next_cursor"].is_null(), limit >= 7, "no cursor to an empty page");
    }
    // A cursor belongs to its list.
    let page = api.read("/api/effects/op/journal?limit=1").await;
    let cursor = page.str("/next_cursor");
    crate::http::granted(&api, "other").await;
    let elsewhere = api.read(&format!("/api/effects/other/journal?cursor={cursor}")).await;
    elsewhere.problem(400, "invalid-request").faults_at(&["query:cursor"]);
}

async fn a_run_counts_its_effects(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let in_run = |id: &str| bodies::with(bodies::claiming(id, TOOL), &json!({ "run_id": "run/1" }));
    let done = api.intent(&in_run("done")).await.expect(201);
    let safe = api.intent(&in_run("safe")).await.expect(201);
    api.intent(&in_run("live")).await.expect(201);
    api.intent(&bodies::without(in_run("prepared"), "claim")).await.expect(201);
    api.intent(&bodies::with(in_run("elsewhere"), &json!({ "run_id": "run/2" }))).await.expect(201);
    granted(&api, "alone").await;
    api.outcome("done", &bodies::succeeded(&done)).await.expect(200);
    api.outcome("safe", &bodies::not_sent(&safe)).await.expect(200);
    let run = api.run("run/1").await.expect(200);
    assert_eq!(run.str("/run_id"), "run/1");
    assert_eq!(run.at("/total"), 4);
    assert_eq!(
        run.at("/counts"),
        &json!({ "completed": 1, "safe_to_retry": 1, "dispatched": 1, "intent_recorded": 1 })
    );
    let ids: Vec<&Value> = run.at("/items").as_array().unwrap().iter().map(|item| &item["operation_id"]).collect();
    assert_eq!(ids, ["done", "safe", "live", "prepared"], "oldest first");
    for item in run.at("/items").as_array().unwrap() {
        let alone = api.get(item["operation_id"].as_str().unwrap()).await.expect(200);
        for member in ["state", "revision", "directive", "updated_at", "receipt", "dispatch"] {
            assert_eq!(item[member], alone.json[member], "{member}");
        }
    }
    assert_eq!(api.run("run/2").await.expect(200).at("/total"), 1);
    api.run("run/3").await.problem(404, "not-found");
}

async fn a_run_is_paged(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for n in 0..7 {
        let body = bodies::with(bodies::intent(&format!("op-{n}"), TOOL), &json!({ "run_id": "run" }));
        api.intent(&body).await.expect(201);
    }
    let ids = |items: Vec<Value>| -> Vec<String> {
        items.iter().map(|item| item["operation_id"].as_str().unwrap().to_owned()).collect()
    };
    let all: Vec<String> = (0..7).map(|n| format!("op-{n}")).collect();
    for limit in [1, 3, 6, 7, 8] {
        assert_eq!(ids(api.pages(&format!("/api/runs/run?limit={limit}")).await), all, "limit {limit}");
        let page = api.read(&format!("/api/runs/run?limit={limit}")).await.expect(200);
        assert_eq!(page.at("/total"), 7, "counts are over the whole run");
        assert_eq!(page.json["next_cursor"].is_null(), limit >= 7, "limit {limit}");
    }
}
