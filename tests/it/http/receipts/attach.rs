//! People decide about what waits in quarantine.

use serde_json::{Value, json};

use super::{Vendor, doubtful, event, put, vendor, waiting};
use crate::http::granted;
use crate::support::{Answer, Api, StoreUnderTest, bodies, both_stores, unique};

both_stores!(
    an_attached_delivery_settles_like_a_supplied_receipt,
    an_attachment_must_bind,
    an_attachment_to_what_is_settled_is_evidence,
    a_discarded_delivery_stays_discarded,
);

/// Delivers what names no operation, and tells its id in quarantine.
async fn nameless(api: &Api, vendor: &Vendor, receipt_id: &str, status: &str) -> String {
    let body = bodies::set(event("", receipt_id, status), "/data/metadata", json!({}));
    vendor.told(&body, "quarantined").await;
    let waits = waiting(api).await;
    waits.last().unwrap()["id"].as_str().unwrap().to_owned()
}

async fn attach(api: &Api, id: &str, operation_id: &str, revision: u64) -> Answer {
    let body = json!({ "operation_id": operation_id, "expected_revision": revision, "reason": "read the dashboard" });
    api.post(&format!("/api/quarantine/{id}/attach"), &body).await
}

async fn discard(api: &Api, id: &str, body: &Value) -> Answer {
    api.call("DELETE", &format!("/api/quarantine/{id}")).json(body).send().await
}

async fn an_attached_delivery_settles_like_a_supplied_receipt(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    let doubt = doubtful(&api, "op").await;
    doubtful(&api, "op-2").await;
    let id = nameless(&api, &vendor, "re_1", "succeeded").await;
    let read = api.read(&format!("/api/quarantine/{id}")).await.expect(200);
    assert_eq!((read.str("/status"), read.str("/reason")), ("waiting", "no_operation"));
    assert_eq!((read.str("/body/data/id"), read.str("/facts/authenticated_by")), ("re_1", "signature"));
    attach(&api, &id, "op", 1).await.problem(412, "stale-revision");
    attach(&api, &id, "absent", 1).await.problem(404, "not-found");
    attach(&api, &unique("absent"), "op", 1).await.problem(404, "not-found");
    let done = attach(&api, &id, "op", doubt.revision()).await.expect(200);
    assert_eq!((done.str("/status"), done.str("/decision/disposition")), ("attached", "settled"));
    assert_eq!((done.str("/decision/by"), done.str("/decision/operation_id")), ("tester", "op"));
    assert!(done.json.get("body").is_none());
    let settled = api.get("op").await.state("completed");
    assert_eq!(settled.str("/receipt/source"), "vendor");
    assert_eq!(api.journal("op").await.last().unwrap()["by"], "tester", "a person answers for it");
    // The same wish again is a replay; another one is not.
    let again = attach(&api, &id, "op", doubt.revision()).await.expect(200);
    assert_eq!(again.json, done.json);
    attach(&api, &id, "op-2", 2).await.problem(409, "state-conflict");
    discard(&api, &id, &json!({ "reason": "late" })).await.problem(409, "state-conflict");
    assert_eq!(api.get("op").await.revision(), settled.revision());
    let listed = api.pages("/api/quarantine?status=attached&limit=1").await;
    assert_eq!(listed.len(), 1);
    assert!(waiting(&api).await.is_empty());
}

async fn an_attachment_must_bind(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    let doubt = doubtful(&api, "op").await;
    let revision = doubt.revision();
    // It names another operation, or another target.
    vendor.told(&event("absent", "re_1", "succeeded"), "quarantined").await;
    let target = bodies::set(event("", "re_1", "succeeded"), "/data/order", json!("order-9"));
    vendor.told(&bodies::set(target, "/data/metadata", json!({})), "quarantined").await;
    vendor.told(&bodies::set(event("op", "re_1", "succeeded"), "/data/id", json!(null)), "quarantined").await;
    for item in waiting(&api).await {
        let refused = attach(&api, item["id"].as_str().unwrap(), "op", revision).await;
        refused.problem(422, "receipt-rejected");
    }
    assert_eq!(waiting(&api).await.len(), 3, "they wait on");
    let id = nameless(&api, &vendor, "re_1", "succeeded").await;
    let live = granted(&api, "live").await;
    let refused = attach(&api, &id, "live", live.revision()).await.problem(409, "state-conflict");
    assert_eq!(refused.str("/state"), "dispatched");
    for (pointer, value) in [("/reason", json!(" ")), ("/operation_id", json!(""))] {
        let body = json!({ "operation_id": "op", "expected_revision": revision, "reason": "r" });
        let answer = api.post(&format!("/api/quarantine/{id}/attach"), &bodies::set(body, pointer, value)).await;
        answer.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    assert_eq!(api.get("op").await.state("outcome_unknown").revision(), revision);
    // Another tenant has neither the delivery nor the effect.
    let foreign = store.tenant();
    attach(&foreign, &id, "op", revision).await.problem(404, "not-found");
    discard(&foreign, &id, &json!({ "reason": "r" })).await.problem(404, "not-found");
    assert!(waiting(&foreign).await.is_empty());
    attach(&api, &id, "op", revision).await.expect(200);
    api.get("op").await.state("completed");
}

async fn an_attachment_to_what_is_settled_is_evidence(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    let granted = granted(&api, "op").await;
    let settled = api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    let id = nameless(&api, &vendor, "re_1", "failed").await;
    let done = attach(&api, &id, "op", settled.revision()).await.expect(200);
    assert_eq!(done.str("/decision/disposition"), "evidence");
    let after = api.get("op").await.state("completed");
    assert_eq!((after.at("/contradicted"), after.revision()), (&json!(true), settled.revision() + 1));
}

async fn a_discarded_delivery_stays_discarded(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    let body = event("op", "re_1", "succeeded");
    vendor.told(&body, "quarantined").await;
    let id = waiting(&api).await[0]["id"].as_str().unwrap().to_owned();
    for faulty in [json!({}), json!({ "reason": "" })] {
        discard(&api, &id, &faulty).await.problem(400, "invalid-request");
    }
    for _ in 0..2 {
        discard(&api, &id, &json!({ "reason": "a test of theirs" })).await.expect(204);
    }
    let read = api.read(&format!("/api/quarantine/{id}")).await.expect(200);
    assert_eq!((read.str("/status"), read.str("/decision/reason")), ("discarded", "a test of theirs"));
    assert!(read.json.get("body").is_none());
    attach(&api, &id, "op", 1).await.problem(409, "state-conflict");
    // Its operation comes into doubt, and the vendor repeats itself: a person said no.
    doubtful(&api, "op").await;
    vendor.told(&body, "known").await;
    api.get("op").await.state("outcome_unknown");
    let deleted = api.call("DELETE", "/api/receipt-sources/vendor").send().await;
    deleted.expect(204);
    put(&api, "vendor", &json!({})).await;
}
