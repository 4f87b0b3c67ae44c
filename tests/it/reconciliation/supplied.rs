//! Reconciliation by a supplied receipt, and by the client's own journal.

use serde_json::{Value, json};

use super::{TOOL, doubtful, reconciled, served};
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::api::Answer;
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(
    a_validator_has_the_word_about_a_receipt,
    without_a_validator_a_receipt_that_binds_settles,
    a_journal_settles_by_a_receipt_alone,
);

fn with_receipt(found: &Answer, receipt: &Value) -> Value {
    json!({ "expected_revision": found.at("/revision"), "receipt": receipt })
}

async fn a_validator_has_the_word_about_a_receipt(store: StoreUnderTest) {
    let adapter = FakeAdapter::always(Reply::Close).await;
    let (_server, api) = served(store, &adapter, json!({})).await;
    for (id, answer, state) in [
        ("genuine", answers::settled(&bodies::receipt("genuine")), "completed"),
        ("forged", answers::other("conflict"), "manual_review"),
        ("unseen", answers::absent(), "outcome_unknown"),
    ] {
        let found = doubtful(&api, id).await;
        adapter.set(Reply::Json(answer));
        let answer = reconciled(&api, id, &with_receipt(&found, &bodies::receipt(id))).await.expect(200);
        assert_eq!(answer.str("/effect/state"), state, "{id}: {answer}");
        let asked = adapter.last().json();
        assert_eq!(
            (asked["type"].as_str(), asked["receipt"]["receipt_id"].as_str()),
            (Some("receipt.validate"), Some("re_77"))
        );
    }
    // Another receipt than the one that was asked about is no answer.
    let found = doubtful(&api, "other").await;
    let other = bodies::with(bodies::receipt("other"), &json!({ "receipt_id": "re_78" }));
    adapter.set(Reply::Json(answers::settled(&other)));
    let answer = reconciled(&api, "other", &with_receipt(&found, &bodies::receipt("other"))).await.expect(202);
    assert_eq!(answer.str("/effect/state"), "outcome_unknown");
}

async fn without_a_validator_a_receipt_that_binds_settles(store: StoreUnderTest) {
    let api = store.tenant();
    api.put_tool(TOOL, &json!({ "effect": "external" })).await.expect(201);
    let found = doubtful(&api, "op").await;
    let revision = found.revision();
    for (member, value) in [("operation_id", "another"), ("target", "order-2"), ("schema", "refund")] {
        let receipt = bodies::with(bodies::receipt("op"), &json!({ member: value }));
        let answer = reconciled(&api, "op", &with_receipt(&found, &receipt)).await.problem(422, "receipt-rejected");
        answer.faults_at(&[&format!("/receipt/{member}")]);
    }
    assert_eq!(api.get("op").await.revision(), revision, "a mismatch changes nothing");
    let body = with_receipt(&found, &bodies::receipt("op"));
    let settled = reconciled(&api, "op", &body).await.expect(200);
    // External, verification required: a receipt alone does not complete (law 5).
    assert_eq!((settled.str("/status"), settled.str("/effect/state")), ("settled", "verifying"));
    assert_eq!(reconciled(&api, "op", &body).await.expect(200).json, settled.json);
    api.verify("op", &bodies::verification()).await.expect(200).state("completed");
    assert_eq!(reconciled(&api, "op", &body).await.expect(200).str("/status"), "settled");
}

async fn a_journal_settles_by_a_receipt_alone(store: StoreUnderTest) {
    let api = store.tenant();
    api.put_tool(TOOL, &json!({ "effect": "external", "verification": "waived" })).await.expect(201);
    let found = doubtful(&api, "op").await;
    let says =
        |found: &Answer, journal: Value| json!({ "expected_revision": found.at("/revision"), "journal": journal });
    for (journal, pointer) in [
        (json!({ "disposition": "confirmed" }), "/journal/receipt"),
        (json!({ "disposition": "not_started", "receipt": bodies::receipt("op") }), "/journal/receipt"),
    ] {
        reconciled(&api, "op", &says(&found, journal)).await.problem(400, "invalid-request").faults_at(&[pointer]);
    }
    for disposition in ["not_started", "unresolved"] {
        let found = api.get("op").await;
        let answer = reconciled(&api, "op", &says(&found, json!({ "disposition": disposition }))).await.expect(200);
        assert_eq!(answer.str("/observation"), format!("journal_{disposition}"));
        api.get("op").await.state("outcome_unknown").directive("reconcile");
        api.dispatch("op", &bodies::claim()).await.expect(200).directive("reconcile");
    }
    let found = api.get("op").await;
    let confirmed = json!({ "disposition": "confirmed", "receipt": bodies::receipt("op") });
    reconciled(&api, "op", &says(&found, confirmed)).await.expect(200);
    api.get("op").await.state("completed");
}
