//! Inspection: what a reconciliation names, with aliases in the place of private values.

use serde_json::json;

use super::{TOOL, doubtful, reconciled};
use crate::support::api::{Api, segment};
use crate::support::{Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    the_target_can_be_sent_back_as_it_is,
    aliases_rotate_and_retired_ones_never_come_back,
    without_a_keyring_nothing_is_answered,
);

const ONE: &str = "k1:1111111111111111111111111111111111111111111111111111111111111111";
const TWO: &str = "k2:2222222222222222222222222222222222222222222222222222222222222222";
const OTHER_ONE: &str = "k1:3333333333333333333333333333333333333333333333333333333333333333";

fn ring(keys: &[&str]) -> Options {
    Options::default().env("ACTONCE_ALIAS_KEYS", &keys.join(","))
}

async fn prepared(api: &Api) {
    api.put_tool(TOOL, &json!({ "effect": "external" })).await.expect(201);
}

async fn inspected(api: &Api, operation_id: &str) -> crate::support::Answer {
    api.read(&format!("/api/effects/{}/inspection", segment(operation_id))).await
}

async fn the_target_can_be_sent_back_as_it_is(store: StoreUnderTest) {
    let api = store.tenant();
    prepared(&api).await;
    doubtful(&api, "plain").await;
    let session = json!({ "session_id": "s-1" });
    let granted = api.intent(&bodies::with(bodies::claiming("op", TOOL), &session)).await.expect(201);
    api.outcome("op", &bodies::unknown(&granted)).await.expect(200);
    let target = inspected(&api, "op").await.expect(200);
    assert_eq!((target.str("/state"), target.str("/tool")), ("outcome_unknown", TOOL));
    assert!(target.at("/attempt").is_null());
    let key = granted.str("/dispatch/idempotency_key");
    assert!(!target.text.contains(key) && !target.text.contains("s-1"), "private values stay private: {target}");
    assert!(target.str("/session_instance_id").starts_with("actonce_v1."), "{target}");
    assert!(inspected(&api, "plain").await.at("/session_instance_id").is_null());
    assert_eq!(inspected(&api, "op").await.json, target.json, "reading changes nothing");
    // Aliases of another effect, of another session, of another field.
    let plain = inspected(&api, "plain").await;
    for (member, value) in [
        ("idempotency_key", plain.at("/idempotency_key")),
        ("idempotency_key", target.at("/session_instance_id")),
        ("session_instance_id", target.at("/idempotency_key")),
    ] {
        let body = bodies::with(target.json.clone(), &json!({ member: value, "lookup": true }));
        let pointer = format!("/{member}");
        reconciled(&api, "op", &body).await.problem(400, "invalid-request").faults_at(&[&pointer]);
    }
    let body = bodies::with(target.json.clone(), &json!({ "lookup": true }));
    reconciled(&api, "op", &body).await.expect(200);
    inspected(&api, "absent").await.problem(404, "not-found");
    let foreign = store.tenant();
    inspected(&foreign, "op").await.problem(404, "not-found");
}

async fn aliases_rotate_and_retired_ones_never_come_back(store: StoreUnderTest) {
    let server = store.server(ring(&[ONE]));
    let api = Api::of(&server, "t");
    prepared(&api).await;
    doubtful(&api, "op").await;
    let old = inspected(&api, "op").await.expect(200);
    let with = |keys: &[&str]| {
        let mut options = server.options().clone();
        options.env.insert("ACTONCE_ALIAS_KEYS".to_owned(), keys.join(","));
        options.data_dir(server.data_dir())
    };
    server.stop();
    // Added and made active: both are taken.
    let both = crate::support::Server::start(with(&[TWO, ONE]));
    let api = api.at(&both);
    let new = inspected(&api, "op").await.expect(200);
    assert!(new.str("/idempotency_key").starts_with("actonce_v1.k2."));
    let body = bodies::with(old.json.clone(), &json!({ "lookup": true }));
    reconciled(&api, "op", &body).await.expect(200);
    both.stop();
    // Retired: an old alias is refused.
    let retired = crate::support::Server::start(with(&[TWO]));
    let api = api.at(&retired);
    let current = inspected(&api, "op").await.expect(200);
    let body =
        bodies::with(current.json.clone(), &json!({ "lookup": true, "idempotency_key": old.at("/idempotency_key") }));
    reconciled(&api, "op", &body).await.problem(400, "invalid-request").faults_at(&["/idempotency_key"]);
    retired.stop();
    // A retired id never comes back, and an id never gets another key.
    let refused = crate::support::Server::try_start(with(&[TWO, ONE])).unwrap_err();
    assert!(refused.contains("k1") && !refused.contains("1111111111"), "{refused}");
    let changed = TWO.replace("2222", "4444");
    let refused = crate::support::Server::try_start(with(&[&changed])).unwrap_err();
    assert!(refused.contains("k2"), "{refused}");
    let refused = crate::support::Server::try_start(with(&[OTHER_ONE])).unwrap_err();
    assert!(refused.contains("k1"), "{refused}");
}

async fn without_a_keyring_nothing_is_answered(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    prepared(&api).await;
    let found = doubtful(&api, "op").await;
    let target = inspected(&api, "op").await.expect(200);
    server.stop();
    let bare = server.without_dev();
    let api = Api::new(&bare.url(), "t", Some(bare.token("t", "tester", "all")));
    let answer = inspected(&api, "op").await.problem(409, "aliases-unavailable");
    assert!(answer.str("/detail").contains("ACTONCE_ALIAS_KEYS"), "{answer}");
    let body = bodies::with(target.json.clone(), &json!({ "lookup": true }));
    reconciled(&api, "op", &body).await.problem(409, "aliases-unavailable");
    assert_eq!(api.get("op").await.revision(), found.revision());
    // Without aliases the target is named well enough.
    let body = json!({ "expected_revision": found.at("/revision"), "lookup": true });
    reconciled(&api, "op", &body).await.expect(200);
}
