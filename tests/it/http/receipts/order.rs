//! When a receipt comes: before the outcome, into the doubt, after settlement, after another one.

use serde_json::json;

use super::{doubtful, event, eventually, put, reasons, until_state, vendor, waiting};
use crate::http::{TOOL, external, granted, granted_briefly, report};
use crate::support::downstream::{Downstream, Mode};
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    a_receipt_ends_the_doubt_once,
    a_receipt_before_the_outcome_waits_for_the_owner,
    a_receipt_of_a_silent_owner_settles_when_the_lease_is_over,
    a_receipt_waits_for_the_verification_that_the_tool_asks_for,
    receipts_after_settlement_are_known_or_kept,
    a_receipt_about_what_was_never_dispatched_stops_it,
);

async fn a_receipt_ends_the_doubt_once(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({ "structured": { "state": "/data/status" } })).await;
    let downstream = Downstream::start(Mode::CommitThenDrop).await;
    let granted = granted(&api, "op").await;
    let key = granted.str("/dispatch/idempotency_key").to_owned();
    downstream.act(&key).await.unwrap_err();
    api.outcome("op", &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown");
    let body = event("op", "re_1", "succeeded");
    vendor.told(&body, "settled").await;
    let settled = api.get("op").await.state("completed").directive("replay");
    let names = ["effect.reconciliation.started", "effect.receipt.validated", "effect.completed"];
    assert!(api.events("op").await.ends_with(&names.map(str::to_owned)));
    let journal = api.journal("op").await;
    for entry in &journal[journal.len() - 2..] {
        assert_eq!(entry["by"], "source:vendor");
    }
    assert_eq!(settled.at("/receipt/structured"), &json!({ "state": "succeeded" }));
    assert_eq!((settled.str("/receipt/receipt_id"), settled.str("/receipt/target")), ("re_1", bodies::TARGET));
    // The same bytes, and the same word in another envelope, again and again.
    for _ in 0..3 {
        vendor.told(&body, "known").await;
        vendor.told(&event("op", "re_1", "succeeded"), "known").await;
    }
    let now = api.get("op").await;
    assert_eq!((now.revision(), &now.json["receipt"]), (settled.revision(), &settled.json["receipt"]));
    assert_eq!(api.journal("op").await.len(), journal.len());
    assert!(waiting(&api).await.is_empty());
    // Nobody acts again.
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("replay");
    assert_eq!(downstream.commits(&key), 1);
}

async fn a_receipt_before_the_outcome_waits_for_the_owner(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    let (reports, doubts, differs) =
        (granted(&api, "reports").await, granted(&api, "doubts").await, granted(&api, "differs").await);
    for id in ["reports", "doubts", "differs"] {
        // `re_77` is what the owner will report.
        let body = event(id, if id == "differs" { "re_9" } else { "re_77" }, "succeeded");
        vendor.told(&body, "quarantined").await;
        vendor.told(&body, "quarantined").await;
        let live = api.get(id).await.state("dispatched");
        assert_eq!(live.revision(), 1, "law 3: the owner alone decides");
    }
    assert_eq!(reasons(&api).await, ["live_dispatch"; 3]);
    api.outcome("reports", &bodies::succeeded(&reports)).await.expect(200).state("completed");
    api.outcome("doubts", &bodies::unknown(&doubts)).await.expect(200).state("outcome_unknown");
    api.outcome("differs", &bodies::succeeded(&differs)).await.expect(200).state("completed");
    until_state(&api, "doubts", "completed").await;
    eventually("nothing waits", || async { waiting(&api).await.is_empty() }).await;
    assert_eq!(api.get("reports").await.revision(), 2, "the receipt said what was known");
    let differs = api.get("differs").await.state("completed");
    assert_eq!(differs.at("/contradicted"), &json!(true), "two receipts exclude each other: {differs}");
    assert_eq!(differs.str("/receipt/receipt_id"), "re_77");
}

async fn a_receipt_of_a_silent_owner_settles_when_the_lease_is_over(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    granted_briefly(&api, "op").await;
    vendor.told(&event("op", "re_1", "failed"), "quarantined").await;
    until_state(&api, "op", "failed").await;
    let failed = api.get("op").await;
    assert_eq!((failed.at("/executed"), failed.str("/receipt/receipt_id")), (&json!(true), "re_1"));
    assert!(api.events("op").await.contains(&"effect.lease_expired".to_owned()));
}

async fn a_receipt_waits_for_the_verification_that_the_tool_asks_for(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let vendor = super::Vendor::new(&api, &put(&api, "vendor", &json!({})).await);
    doubtful(&api, "op").await;
    let body = event("op", "re_1", "succeeded");
    vendor.told(&body, "settled").await;
    api.get("op").await.state("verifying").directive("verify");
    vendor.told(&body, "known").await;
    // A read that denies it is for a person; the vendor's repeats don't start it over.
    let denied = bodies::set(bodies::verification(), "/verified", json!(false));
    let review = api.verify("op", &denied).await.expect(200).state("manual_review");
    vendor.told(&body, "known").await;
    assert_eq!(api.get("op").await.state("manual_review").revision(), review.revision());
    // Neither does another receipt decide over the first.
    vendor.told(&event("op", "re_2", "failed"), "evidence").await;
    api.get("op").await.state("manual_review");
}

async fn receipts_after_settlement_are_known_or_kept(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    let flagged = |answer: &crate::support::Answer| answer.json.get("contradicted") == Some(&json!(true));
    for (state, report) in [("completed", report(bodies::succeeded)), ("failed", report(bodies::failed))] {
        let (same, opposite) = if state == "completed" { ("succeeded", "failed") } else { ("failed", "succeeded") };
        let granted = granted(&api, state).await;
        let settled = api.outcome(state, &report(&granted)).await.expect(200).state(state);
        vendor.told(&event(state, "re_77", same), "known").await;
        assert_eq!(api.get(state).await.revision(), settled.revision());
        let body = event(state, "re_77", opposite);
        vendor.told(&body, "evidence").await;
        let after = api.get(state).await.state(state);
        assert!(flagged(&after), "law 7: {after}");
        assert_eq!(after.revision(), settled.revision() + 1);
        assert_eq!(after.json["receipt"], settled.json["receipt"], "law 9");
        let entry = api.journal(state).await.pop().unwrap();
        let late = &entry["events"][0];
        assert_eq!((&entry["by"], &late["type"]), (&json!("source:vendor"), &json!("effect.late_report")));
        assert_eq!((&late["receipt_id"], &late["contradicts"]), (&json!("re_77"), &json!(true)));
        vendor.told(&body, "known").await;
        assert_eq!(api.get(state).await.revision(), after.revision());
    }
    let listed = api.pages("/api/effects?contradicted=true&limit=50").await;
    assert_eq!(listed.len(), 2);
}

async fn a_receipt_about_what_was_never_dispatched_stops_it(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({})).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201).state("intent_recorded");
    vendor.told(&event("op", "re_1", "succeeded"), "evidence").await;
    let review = api.get("op").await.state("manual_review").directive("review");
    assert_eq!(review.str("/review_reason"), "contradiction");
    // Evidence that excludes itself is not outvoted by one more piece of it.
    for (receipt, status) in [("re_1", "succeeded"), ("re_2", "failed")] {
        let told = if receipt == "re_1" { "known" } else { "evidence" };
        vendor.told(&event("op", receipt, status), told).await;
        api.get("op").await.state("manual_review");
    }
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("review");
}
