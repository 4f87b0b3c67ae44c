//! Quotas of open effects: new ones beyond the bound are refused, and nothing else ever is.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::http::{TOOL, external};
use crate::support::{Answer, Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    beyond_the_quota_new_effects_are_refused_and_nothing_else,
    after_a_restart_what_is_open_still_counts,
    a_tenant_may_have_a_quota_of_its_own,
    what_quickly_settles_takes_no_room,
);

const VARIABLE: &str = "ACTONCE_QUOTA_TENANT_OPEN_EFFECTS";

fn bounded(most: u32) -> Options {
    Options::default().env(VARIABLE, &most.to_string())
}

#[track_caller]
fn refused(answer: Answer, most: u32) -> Answer {
    refused_by(answer, "tenant_open_effects", most)
}

/// The refusal, in full.
#[track_caller]
pub(super) fn refused_by(answer: Answer, quota: &str, most: u32) -> Answer {
    let answer = answer.problem(429, "quota-exceeded");
    assert_eq!((answer.str("/quota"), answer.at("/limit")), (quota, &json!(most)), "{answer}");
    let whose = if quota == "tenant_open_effects" { "This tenant has" } else { "This principal has proposed" };
    assert!(answer.str("/detail").starts_with(whose), "{answer}");
    assert_eq!(answer.header("retry-after"), Some(answer.at("/retry_after_seconds").to_string().as_str()), "{answer}");
    answer
}

/// Until there is room for this one.
pub(super) async fn until_made(api: &Api, body: &Value) -> Answer {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        let answer = api.intent(body).await;
        if answer.status == 201 {
            return answer;
        }
        assert!(Instant::now() < until, "{answer}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn beyond_the_quota_new_effects_are_refused_and_nothing_else(store: StoreUnderTest) {
    let server = store.server(bounded(4));
    let (api, foreign) = (Api::of(&server, "t"), Api::of(&server, "u"));
    external(&api).await;
    external(&foreign).await;
    let (mut granted, mut asked) = (Vec::new(), Vec::new());
    for n in 0..4 {
        asked.push(bodies::claiming(&format!("op-{n}"), TOOL));
        granted.push(api.intent(&asked[n]).await.expect(201).directive("dispatch"));
    }
    let more = bodies::claiming("more", TOOL);
    refused(api.intent(&more).await, 4);
    api.get("more").await.problem(404, "not-found");
    foreign.intent(&bodies::claiming("op-0", TOOL)).await.expect(201);
    // In a batch, what is there already is answered as ever.
    let batch = json!({ "items": [bodies::intent("op-1", TOOL), bodies::intent("more-2", TOOL)] });
    let batch = api.post("/api/intents/batch", &batch).await.expect(200);
    assert_eq!((batch.at("/items/0/status"), batch.at("/items/1/status")), (&json!(200), &json!(429)), "{batch}");
    let metrics = api.read("/metrics").await.expect(200).text;
    assert!(metrics.contains("actonce_quota_refused_total{quota=\"tenant_open_effects\"} 2"), "{metrics}");

    // Everything that goes on with what is there, and everything that settles.
    api.intent(&asked[0]).await.expect(200).directive("dispatch");
    api.heartbeat("op-0", &bodies::heartbeat(&granted[0])).await.expect(200);
    api.outcome("op-1", &bodies::unknown(&granted[1])).await.expect(200).state("outcome_unknown");
    let found = api.get("op-1").await;
    let target = json!({ "operation_id": "op-1", "tool": TOOL, "expected_revision": found.at("/revision"),
        "receipt": bodies::receipt("op-1") });
    let asked = api.call("POST", "/api/effects/op-1/reconciliations").header("prefer", "wait=10").json(&target);
    assert!(asked.send().await.status.is_success());
    api.get("op-1").await.state("verifying");
    api.verify("op-1", &bodies::verification()).await.expect(200).state("completed");
    api.outcome("op-2", &bodies::not_sent(&granted[2])).await.expect(200).state("safe_to_retry");
    api.dispatch("op-2", &bodies::claim()).await.expect(200).directive("dispatch");
    api.outcome("op-0", &bodies::succeeded(&granted[0])).await.expect(200).state("completed");
    // Two have settled, so two more may come; not a third.
    until_made(&api, &more).await.directive("dispatch");
    until_made(&api, &bodies::intent("more-2", TOOL)).await;
    refused(api.intent(&bodies::intent("more-3", TOOL)).await, 4);
    api.cancel("more-2").await.expect(200);
    until_made(&api, &bodies::intent("more-3", TOOL)).await;
}

async fn after_a_restart_what_is_open_still_counts(store: StoreUnderTest) {
    let server = store.server(bounded(3));
    let api = Api::of(&server, "t");
    external(&api).await;
    for n in 0..3 {
        api.intent(&bodies::intent(&format!("op-{n}"), TOOL)).await.expect(201);
    }
    server.kill9();
    server.restart();
    let api = api.at(&server);
    refused(api.intent(&bodies::intent("more", TOOL)).await, 3);
    // A repeat needs no room, also where this process has never seen the effect.
    let granted = api.intent(&bodies::claiming("op-0", TOOL)).await.expect(200).directive("dispatch");
    api.outcome("op-0", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    until_made(&api, &bodies::intent("more", TOOL)).await;
}

async fn a_tenant_may_have_a_quota_of_its_own(store: StoreUnderTest) {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("actonce.toml");
    std::fs::write(&file, "quota_tenant_open_effects = 2\n[quotas.tenants]\nsmall = 1\nfree = 0\n").unwrap();
    let server = store.server(Options::default().env("ACTONCE_CONFIG", file.to_str().unwrap()));
    for (tenant, most) in [("small", Some(1)), ("other", Some(2)), ("free", None)] {
        let api = Api::of(&server, tenant);
        external(&api).await;
        for n in 0..most.unwrap_or(10) {
            api.intent(&bodies::intent(&format!("op-{n}"), TOOL)).await.expect(201);
        }
        if let Some(most) = most {
            refused(api.intent(&bodies::intent("more", TOOL)).await, most);
        }
    }
}

/// One after the other, far more than the quota, and never more than one at once: none is refused.
async fn what_quickly_settles_takes_no_room(store: StoreUnderTest) {
    let server = store.server(bounded(2));
    let api = Api::of(&server, "t");
    external(&api).await;
    for n in 0..40 {
        let operation = format!("op-{n}");
        let granted = api.intent(&bodies::claiming(&operation, TOOL)).await.expect(201).directive("dispatch");
        api.outcome(&operation, &bodies::succeeded(&granted)).await.expect(200).state("completed");
    }
}

/// Replicas do not see what the others take between two counts: together they pass the bound by that much, and no
/// further.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_pass_the_bound_by_what_they_take_between_two_counts() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let one = StoreUnderTest::Postgres.server(bounded(10));
    let two = one.replica();
    let apis = [Api::of(&one, "t"), Api::of(&two, "t")];
    external(&apis[0]).await;
    // Each knows of the tenant, and that there is room.
    for (n, api) in apis.iter().enumerate() {
        api.intent(&bodies::intent(&format!("first-{n}"), TOOL)).await.expect(201);
    }
    let mut made = 2;
    for n in 0..60 {
        made += u32::from(apis[n % 2].intent(&bodies::intent(&format!("op-{n}"), TOOL)).await.status == 201);
    }
    assert!((10..=19).contains(&made), "{made}");
    tokio::time::sleep(Duration::from_millis(1_100)).await;
    for api in &apis {
        refused(api.intent(&bodies::intent("more", TOOL)).await, 10);
    }
    // What is settled by one makes room for the other.
    for n in 0..made {
        let listed = apis[0].list("state=intent_recorded&limit=200").await.expect(200);
        if listed.json["items"].as_array().unwrap().len() < 10 {
            break;
        }
        apis[0].cancel(listed.str("/items/0/operation_id")).await.expect(200);
        assert!(n < 19);
    }
    until_made(&apis[1], &bodies::intent("more", TOOL)).await;
}
