//! A vendor's secret in its own delivery never comes to rest in an effect.

use serde_json::json;

use super::{SECRET, doubtful, event, reasons, vendor};
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(a_secret_of_the_source_is_masked_in_what_it_settles);

async fn a_secret_of_the_source_is_masked_in_what_it_settles(store: StoreUnderTest) {
    let api = store.tenant();
    let vendor = vendor(&api, &json!({ "structured": { "note": "/data/note" } })).await;
    doubtful(&api, "op").await;
    let body = bodies::set(event("op", "re_1", "succeeded"), "/data/note", json!(format!("signed by {SECRET}.")));
    vendor.told(&body, "settled").await;
    let settled = api.get("op").await.state("completed");
    assert_eq!(settled.str("/receipt/structured/note"), "signed by [masked].");
    vendor.told(&body, "known").await;
    // An id is never masked, so it is not taken with a secret in it.
    doubtful(&api, "op-2").await;
    vendor.told(&event("op-2", SECRET, "succeeded"), "quarantined").await;
    api.get("op-2").await.state("outcome_unknown");
    assert_eq!(reasons(&api).await, ["does_not_bind"]);
}
