//! Verification by the adapter: the fresh read of law 5 that nobody else has to make.

use serde_json::{Value, json};

use super::{TOOL, served, until};
use crate::support::adapter::{FakeAdapter, Reply, answers};
use crate::support::{StoreUnderTest, bodies, both_stores, time};

both_stores!(
    the_adapter_verifies_and_the_client_waits,
    a_denial_is_a_person_s_work,
    an_old_read_and_no_read_confirm_nothing,
);

fn verified(verified: bool, observed_at: &str) -> Value {
    bodies::with(
        answers::settled(&bodies::receipt("op")),
        &json!({ "verification": { "verified": verified, "observed_at": observed_at, "source": "adapter",
            "target": bodies::TARGET } }),
    )
}

async fn receipted(api: &crate::support::Api) -> crate::support::Answer {
    let granted = api.intent(&bodies::claiming("op", TOOL)).await.expect(201).directive("dispatch");
    api.outcome("op", &bodies::receipted(&granted)).await.expect(200).state("verifying").directive("wait")
}

fn verifying(adapter: &FakeAdapter) -> Value {
    json!({ "verification": "required", "adapter": bodies::with(adapter.spec(), &json!({ "verify": true })) })
}

async fn the_adapter_verifies_and_the_client_waits(store: StoreUnderTest) {
    let adapter = FakeAdapter::start(|_| Reply::Json(verified(true, &time::now()))).await;
    let (_server, api) = served(store, &adapter, verifying(&adapter)).await;
    receipted(&api).await;
    let found = until(&api, "op", "completed").await.directive("replay");
    assert_eq!(found.str("/verification/source"), "adapter");
    let asked = adapter.last().json();
    assert_eq!(
        (asked["type"].as_str(), asked["receipt"]["receipt_id"].as_str()),
        (Some("effect.verify"), Some("re_77"))
    );
    assert_eq!(adapter.calls(), 1);
}

async fn a_denial_is_a_person_s_work(store: StoreUnderTest) {
    let adapter = FakeAdapter::start(|_| Reply::Json(verified(false, &time::now()))).await;
    let (_server, api) = served(store, &adapter, verifying(&adapter)).await;
    receipted(&api).await;
    let found = until(&api, "op", "manual_review").await.directive("review");
    assert_eq!(found.str("/review_reason"), "verification_failed");
}

async fn an_old_read_and_no_read_confirm_nothing(store: StoreUnderTest) {
    let adapter = FakeAdapter::start(|_| Reply::Json(verified(true, "2020-01-01T00:00:00Z"))).await;
    let changes = bodies::with(verifying(&adapter), &json!({ "verify_deadline_seconds": 5 }));
    let changes = bodies::set(changes, "/adapter/timeout_seconds", json!(1));
    let (_server, api) = served(store, &adapter, changes).await;
    receipted(&api).await;
    let found = until(&api, "op", "manual_review").await;
    assert_eq!(found.str("/review_reason"), "verify_deadline");
    assert!((2..=6).contains(&adapter.calls()), "asked again, and not in a loop: {}", adapter.calls());
}
