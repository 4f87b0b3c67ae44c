//! The quarantine is bounded, paged, brought on by itself, and shown to nobody else.

use serde_json::json;

use super::{event, reasons, until_state, vendor, waiting};
use crate::scenarios::sql;
use crate::support::{Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_full_quarantine_lets_the_vendor_come_again,
    a_receipt_that_came_too_early_finds_its_effect,
    pages_are_in_order_and_bound_to_their_list,
    what_is_delivered_stands_in_no_log,
);

/// Rows as they are when they wait for people, so many more of them.
fn fill(rows: u32, tenant: &str) -> String {
    format!(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows})
         INSERT INTO quarantine (tenant, id, source, status, reason, body, body_digest, facts, attempts, received_us,
           expires_us)
         SELECT '{tenant}', ID, 'vendor', 1, 'no_operation', '{{}}', 'sha256:0', '{{}}', 0, i, 9000000000000000
         FROM n"
    )
}

async fn a_full_quarantine_lets_the_vendor_come_again(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let (api, other) = (Api::of(&server, "full"), Api::of(&server, "other"));
    let (ours, theirs) = (vendor(&api, &json!({})).await, vendor(&other, &json!({})).await);
    let id = if store == StoreUnderTest::Sqlite { "randomblob(16)" } else { "gen_random_uuid()" };
    let statement = fill(999, "full").replace("ID,", &format!("{id},"));
    sql(&server, &statement);
    let (first, second) = (event("a", "re_1", "succeeded"), event("b", "re_1", "succeeded"));
    ours.told(&first, "quarantined").await;
    let full = ours.deliver(&second).await.problem(503, "capacity");
    assert!(full.header("retry-after").is_some());
    // A repeat is known, full or not; another tenant has room of its own.
    ours.told(&first, "quarantined").await;
    theirs.told(&second, "quarantined").await;
    let rows = waiting(&api).await;
    assert_eq!(rows.len(), 1_000);
    let path = format!("/api/quarantine/{}", rows[0]["id"].as_str().unwrap());
    api.call("DELETE", &path).json(&json!({ "reason": "old" })).send().await.expect(204);
    ours.told(&second, "quarantined").await;
    let metrics = api.with_token(None).read("/metrics").await.expect(200);
    assert!(metrics.text.contains("actonce_quarantine_full_total 1"), "{metrics}");
}

async fn a_receipt_that_came_too_early_finds_its_effect(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    vendor.told(&event("op", "re_1", "succeeded"), "quarantined").await;
    let row = waiting(&api).await.remove(0);
    assert_eq!((&row["reason"], &row["operation_id"]), (&json!("unmatched"), &json!("op")));
    assert!(row["next_try_at"].is_string());
    super::doubtful(&api, "op").await;
    until_state(&api, "op", "completed").await;
    super::eventually("nothing waits", || async { waiting(&api).await.is_empty() }).await;
    assert_eq!(api.journal("op").await.last().unwrap()["by"], "source:vendor");
}

async fn pages_are_in_order_and_bound_to_their_list(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    for number in 0..5 {
        vendor.told(&event(&format!("absent-{number}"), "re_1", "succeeded"), "quarantined").await;
    }
    let listed = api.pages("/api/quarantine?limit=2").await;
    let names: Vec<_> = listed.iter().map(|item| item["operation_id"].as_str().unwrap()).collect();
    assert_eq!(names, ["absent-0", "absent-1", "absent-2", "absent-3", "absent-4"]);
    let page = api.read("/api/quarantine?limit=1").await.expect(200);
    let cursor = crate::support::api::segment(page.str("/next_cursor"));
    let foreign = store.tenant();
    for (api, path) in [(&foreign, "/api/quarantine?limit=1"), (&api, "/api/quarantine?limit=1&status=discarded")] {
        let answer = api.read(&format!("{path}&cursor={cursor}")).await;
        answer.problem(400, "invalid-request").faults_at(&["query:cursor"]);
    }
    api.read("/api/quarantine?limit=0").await.problem(400, "invalid-request").faults_at(&["query:limit"]);
    api.read("/api/quarantine?status=gone").await.problem(400, "invalid-request");
    let deleted = api.call("DELETE", "/api/receipt-sources/vendor").send().await;
    deleted.problem(409, "state-conflict");
}

async fn what_is_delivered_stands_in_no_log(store: StoreUnderTest) {
    let server = store.server(Options::default().env("ACTONCE_LOG", "trace"));
    let api = Api::of(&server, "t");
    let vendor = vendor(&api, &json!({ "structured": { "note": "/data/note" } })).await;
    super::doubtful(&api, "op").await;
    let with_note = |body| bodies::set(body, "/data/note", json!("hunter2-content"));
    vendor.told(&with_note(event("op", "re_1", "succeeded")), "settled").await;
    vendor.told(&with_note(event("absent", "re_1", "succeeded")), "quarantined").await;
    vendor.told(&with_note(event("op", "re_1", "failed")), "evidence").await;
    let broken = with_note(event("op", "re_1", "succeeded")).to_string().replace("\"note\"", "\"note");
    vendor.send(&broken).await.problem(400, "invalid-request");
    assert_eq!(reasons(&api).await, ["unmatched"]);
    let settled = api.get("op").await;
    assert_eq!(settled.str("/receipt/structured/note"), "hunter2-content");
    for entry in api.journal("op").await {
        assert!(!entry.to_string().contains("hunter2"), "{entry}");
    }
    let metrics = api.with_token(None).read("/metrics").await.expect(200);
    let log = server.log();
    assert!(log.contains("a receipt came in"), "the log is on");
    for text in [&log, &metrics.text] {
        for secret in ["hunter2", "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"] {
            assert!(!text.contains(secret), "{secret} in a log or metric");
        }
    }
}
