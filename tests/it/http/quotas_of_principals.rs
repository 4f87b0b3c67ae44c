//! Quotas of what one principal has proposed: it is held to its own bound, whoever settles.

use serde_json::{Value, json};

use super::quotas::{refused_by, until_made};
use crate::http::{TOOL, external};
use crate::scenarios::sql;
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_principal_at_its_bound_is_refused_new_effects_and_nobody_else,
    whoever_settles_frees_the_place_of_who_proposed,
    of_two_bounds_the_one_that_is_passed_is_said,
    after_a_restart_what_a_principal_has_open_still_counts,
    principals_of_one_tenant_may_have_a_quota_of_their_own,
    intents_at_once_of_one_principal_take_no_more_places_than_there_are,
);

const QUOTA: &str = "principal_open_effects";

fn bounded(most: u32) -> Options {
    Options::default().env("ACTONCE_QUOTA_PRINCIPAL_OPEN_EFFECTS", &most.to_string())
}

/// A client of tenant `t` with all scopes, by its subject.
fn of(server: &Server, subject: &str) -> Api {
    Api::of(server, "t").with_token(Some(server.token("t", subject, "all")))
}

async fn make(api: &Api, operation: &str) -> Answer {
    api.intent(&bodies::claiming(operation, TOOL)).await.expect(201).directive("dispatch")
}

fn proposal(operation: &str) -> Value {
    bodies::intent(operation, TOOL)
}

#[track_caller]
fn refused(answer: Answer, most: u32) -> Answer {
    refused_by(answer, QUOTA, most)
}

async fn a_principal_at_its_bound_is_refused_new_effects_and_nobody_else(store: StoreUnderTest) {
    let server = store.server(bounded(2));
    let (one, two) = (of(&server, "one"), of(&server, "two"));
    // A principal of that name of another tenant is somebody else.
    let foreign = Api::of(&server, "u").with_token(Some(server.token("u", "one", "all")));
    external(&one).await;
    external(&foreign).await;
    let granted = [make(&one, "one-0").await, make(&one, "one-1").await];
    refused(one.intent(&proposal("more")).await, 2);
    one.get("more").await.problem(404, "not-found");
    foreign.intent(&proposal("one-0")).await.expect(201);
    two.intent(&proposal("two-0")).await.expect(201);

    // Each item by itself: the one that is there already, the new one of the principal at its bound, and of the other.
    let items = json!({ "items": [proposal("two-0"), proposal("more")] });
    let batch = one.post("/api/intents/batch", &items).await.expect(200);
    assert_eq!((batch.at("/items/0/status"), batch.at("/items/1/status")), (&json!(200), &json!(429)), "{batch}");
    let items = json!({ "items": [proposal("two-1"), proposal("two-2"), proposal("one-0")] });
    let batch = two.post("/api/intents/batch", &items).await.expect(200);
    let mut statuses: Vec<i64> = (0..3).map(|n| batch.at(&format!("/items/{n}/status")).as_i64().unwrap()).collect();
    assert_eq!(statuses.pop(), Some(200), "{batch}");
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 429], "one place was left: {batch}");
    let metrics = one.read("/metrics").await.expect(200).text;
    assert!(metrics.contains("actonce_quota_refused_total{quota=\"principal_open_effects\"} 3"), "{metrics}");

    // Everything that goes on with what is there, and everything that settles.
    one.intent(&bodies::claiming("one-0", TOOL)).await.expect(200).directive("wait");
    one.heartbeat("one-0", &bodies::heartbeat(&granted[0])).await.expect(200);
    one.outcome("one-1", &bodies::unknown(&granted[1])).await.expect(200).state("outcome_unknown");
    // What is in doubt is open.
    refused(one.intent(&proposal("more")).await, 2);
    one.outcome("one-0", &bodies::succeeded(&granted[0])).await.expect(200).state("completed");
    until_made(&one, &proposal("more")).await;
    refused(one.intent(&proposal("more-2")).await, 2);
}

async fn whoever_settles_frees_the_place_of_who_proposed(store: StoreUnderTest) {
    let server = store.server(bounded(1));
    let (one, two) = (of(&server, "one"), of(&server, "two"));
    external(&one).await;
    for round in 0..6 {
        // Proposed by one, carried out by two: never more than one is open of each, so nobody is refused.
        let (of_one, of_two) = (format!("one-{round}"), format!("two-{round}"));
        one.intent(&proposal(&of_one)).await.expect(201);
        two.intent(&proposal(&of_two)).await.expect(201);
        refused(two.intent(&proposal("more")).await, 1);
        let granted = two.dispatch(&of_one, &bodies::claim()).await.expect(200).directive("dispatch");
        refused(one.intent(&proposal("more")).await, 1);
        two.outcome(&of_one, &bodies::succeeded(&granted)).await.expect(200).state("completed");
        // That was the place of one, and not of two.
        refused(two.intent(&proposal("more")).await, 1);
        one.cancel(&of_two).await.expect(200);
    }
}

async fn of_two_bounds_the_one_that_is_passed_is_said(store: StoreUnderTest) {
    let server = store.server(bounded(2).env("ACTONCE_QUOTA_TENANT_OPEN_EFFECTS", "3"));
    let (one, two) = (of(&server, "one"), of(&server, "two"));
    external(&one).await;
    for n in 0..2 {
        one.intent(&proposal(&format!("one-{n}"))).await.expect(201);
    }
    refused(one.intent(&proposal("more")).await, 2);
    two.intent(&proposal("two-0")).await.expect(201);
    refused_by(two.intent(&proposal("two-1")).await, "tenant_open_effects", 3);
    refused(one.intent(&proposal("more")).await, 2);
    one.cancel("one-0").await.expect(200);
    until_made(&two, &proposal("two-1")).await;
    refused_by(one.intent(&proposal("more")).await, "tenant_open_effects", 3);
}

async fn after_a_restart_what_a_principal_has_open_still_counts(store: StoreUnderTest) {
    let server = store.server(bounded(2));
    let (one, two) = (of(&server, "one"), of(&server, "two"));
    external(&one).await;
    make(&one, "op-0").await;
    one.intent(&proposal("op-1")).await.expect(201);
    // As a later revision leaves it.
    two.dispatch("op-1", &bodies::claim()).await.expect(200).directive("dispatch");
    server.kill9();
    server.restart();
    let (one, two) = (one.at(&server), two.at(&server));
    refused(one.intent(&proposal("more")).await, 2);
    two.intent(&proposal("of-two")).await.expect(201);
    one.intent(&bodies::claiming("op-0", TOOL)).await.expect(200);
    // What was open before the migration names nobody, and counts for nobody.
    server.kill9();
    sql(
        &server,
        "ALTER TABLE open_effects DROP COLUMN proposed_by; DELETE FROM _sqlx_migrations WHERE description = 'expand_proposer'",
    );
    server.restart();
    let one = one.at(&server);
    for n in 0..2 {
        one.intent(&proposal(&format!("more-{n}"))).await.expect(201);
    }
    refused(one.intent(&proposal("more")).await, 2);
}

async fn principals_of_one_tenant_may_have_a_quota_of_their_own(store: StoreUnderTest) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("actonce.toml");
    std::fs::write(&file, "quota_principal_open_effects = 2\n[quotas.principals]\nsmall = 1\nfree = 0\n").unwrap();
    let server = store.server(Options::default().env("ACTONCE_CONFIG", file.to_str().unwrap()));
    for (tenant, most) in [("small", Some(1)), ("other", Some(2)), ("free", None)] {
        external(&Api::of(&server, tenant)).await;
        for subject in ["a", "b"] {
            let api = Api::of(&server, tenant).with_token(Some(server.token(tenant, subject, "all")));
            for n in 0..most.unwrap_or(5) {
                api.intent(&proposal(&format!("{subject}-{n}"))).await.expect(201);
            }
            if let Some(most) = most {
                refused(api.intent(&proposal("more")).await, most);
            }
        }
    }
}

async fn intents_at_once_of_one_principal_take_no_more_places_than_there_are(store: StoreUnderTest) {
    let server = store.server(bounded(3));
    let apis = [of(&server, "one"), of(&server, "two")];
    external(&apis[0]).await;
    let bodies: Vec<Value> = (0..12).map(|n| proposal(&format!("op-{n}"))).collect();
    let answers = bodies.iter().enumerate().map(|(n, body)| apis[n % 2].intent(body));
    let answers = futures_util::future::join_all(answers).await;
    for of_one in [0, 1] {
        let made = answers.iter().skip(of_one).step_by(2).filter(|answer| answer.status == 201).count();
        assert_eq!(made, 3);
    }
}

/// Each replica counts what all have made before it makes its first, and what one settles makes room at the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_agree_about_a_principal_after_a_count() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let server = StoreUnderTest::Postgres.server(bounded(2));
    let beside = server.replica();
    let (here, there) = (of(&server, "one"), of(&beside, "one"));
    external(&here).await;
    for n in 0..2 {
        here.intent(&proposal(&format!("op-{n}"))).await.expect(201);
    }
    refused(there.intent(&proposal("more")).await, 2);
    of(&beside, "two").intent(&proposal("of-two")).await.expect(201);
    of(&beside, "two").cancel("op-0").await.expect(200);
    until_made(&here, &proposal("op-2")).await;
    refused(here.intent(&proposal("more")).await, 2);
}
