//! `Prefer: wait=N`: callers with the same operation share one application (protocol §4).

use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::{TOOL, external, granted, tool};
use crate::support::api::{Answer, Call};
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    those_who_wait_get_the_owners_result,
    a_wait_ends_with_its_time,
    what_does_not_wait_is_answered_at_once,
    a_wait_ends_with_the_lease,
    a_waiting_claim_is_granted_in_its_turn,
    an_approval_is_waited_for,
    a_wait_holds_for_what_was_not_there_yet,
);

fn waiting(call: Call, seconds: u32) -> Call {
    call.header("prefer", &format!("wait={seconds}"))
}

fn read(api: &Api, id: &str) -> Call {
    api.call("GET", &format!("/api/effects/{id}"))
}

/// Resolves when at least so many requests wait on the shared server. Those of other tests count
/// too; then some of ours come later, and get their answer without waiting.
async fn until_waiting(api: &Api, at_least: u32) {
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let metrics = api.read("/metrics").await.expect(200).text;
        let line = metrics.lines().find(|line| line.starts_with("actonce_waiters ")).expect("a gauge of waiters");
        let count: f64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        if count >= f64::from(at_least) {
            return;
        }
        assert!(Instant::now() < until, "{line}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

async fn those_who_wait_get_the_owners_result(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let mut calls = Vec::new();
    for n in 0..8 {
        calls.push(match n % 3 {
            0 => waiting(read(&api, "op"), 30),
            1 => waiting(api.call("POST", "/api/intents").json(&bodies::claiming("op", TOOL)), 30),
            _ => waiting(api.call("POST", "/api/effects/op/dispatch").json(&bodies::claim()), 30),
        });
    }
    let waiters = futures_util::future::join_all(calls.into_iter().map(Call::send));
    let owner = async {
        until_waiting(&api, 8).await;
        let report = bodies::with(bodies::succeeded(&granted), &json!({ "result": { "refund": "re_77" } }));
        api.outcome("op", &report).await.expect(200).state("completed")
    };
    let started = Instant::now();
    let (answers, done) = tokio::join!(waiters, owner);
    assert!(started.elapsed() < Duration::from_secs(20), "nobody waits to the end");
    for answer in answers {
        let answer = answer.expect(200).directive("replay");
        assert_eq!(answer.json["result"], json!({ "refund": "re_77" }));
        assert_eq!(answer.revision(), done.revision());
    }
}

async fn a_wait_ends_with_its_time(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    granted(&api, "op").await;
    let started = Instant::now();
    let answer = waiting(read(&api, "op"), 1).send().await.expect(200).directive("wait");
    assert!((Duration::from_millis(900)..Duration::from_secs(10)).contains(&started.elapsed()), "{answer}");
    assert!(answer.at("/retry_after_seconds").as_u64().unwrap() >= 1);
    let started = Instant::now();
    read(&api, "op").header("prefer", "wait=0").send().await.expect(200).directive("wait");
    read(&api, "op").header("prefer", "return=minimal").send().await.expect(200).directive("wait");
    assert!(started.elapsed() < Duration::from_secs(5));
    waiting(read(&api, "op"), 61).send().await.problem(400, "invalid-request");
}

async fn what_does_not_wait_is_answered_at_once(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let started = Instant::now();
    let body = bodies::intent("op", TOOL);
    waiting(api.call("POST", "/api/intents").json(&body), 60).send().await.expect(201).directive("claim");
    waiting(read(&api, "op"), 60).send().await.expect(200).directive("claim");
    let claim = bodies::claim();
    let call = || waiting(api.call("POST", "/api/effects/op/dispatch").json(&claim), 60);
    let granted = call().send().await.expect(200).directive("dispatch");
    call().send().await.expect(200).directive("dispatch");
    api.outcome("op", &bodies::unknown(&granted)).await.expect(200);
    waiting(read(&api, "op"), 60).send().await.expect(200).directive("reconcile");
    waiting(read(&api, "absent"), 60).send().await.problem(404, "not-found");
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

async fn a_wait_ends_with_the_lease(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let body = bodies::set(bodies::claiming("op", TOOL), "/claim/lease_seconds", json!(1));
    api.intent(&body).await.expect(201).directive("dispatch");
    let started = Instant::now();
    let answers: [Answer; 2] = [
        waiting(read(&api, "op"), 30).send().await,
        waiting(api.call("POST", "/api/intents").json(&bodies::claiming("op", TOOL)), 30).send().await,
    ];
    for answer in answers {
        answer.expect(200).state("outcome_unknown").directive("reconcile");
    }
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
}

async fn a_waiting_claim_is_granted_in_its_turn(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "none" })).await;
    let body = bodies::set(bodies::claiming("op", TOOL), "/claim/lease_seconds", json!(1));
    api.intent(&body).await.expect(201).directive("dispatch");
    let claims =
        (0..4).map(|_| waiting(api.call("POST", "/api/intents").json(&bodies::claiming("op", TOOL)), 4).send());
    let answers = futures_util::future::join_all(claims).await;
    let won: Vec<&Answer> = answers.iter().filter(|answer| answer.json["directive"] == "dispatch").collect();
    assert_eq!(won.len(), 1, "one of those who waited, and no more: {answers:#?}");
    assert_eq!(won[0].at("/dispatch/attempt"), 2);
    assert_eq!(api.get("op").await.directive("wait").at("/attempt"), 2);
}

async fn an_approval_is_waited_for(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "authorization": { "mode": "approval" } })).await;
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201).directive("authorize");
    let ann = api.with_token(Some(store.shared().token(&api.tenant, "approver", "effects:approve")));
    let waiter = waiting(api.call("POST", "/api/intents").json(&bodies::claiming("op", TOOL)), 30).send();
    let approve = async {
        until_waiting(&api, 1).await;
        ann.authorize("op", 1, &bodies::decision(&proposed, "approve")).await.expect(200)
    };
    let (answer, _) = tokio::join!(waiter, approve);
    answer.expect(200).directive("dispatch");
}

async fn a_wait_holds_for_what_was_not_there_yet(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    // Two at once, both ready to wait: one acts, the other gets what came of it.
    let (one, two) = (bodies::claiming("op", TOOL), bodies::claiming("op", TOOL));
    let act = async |body: serde_json::Value| {
        let answer = waiting(api.call("POST", "/api/intents").json(&body), 30).send().await;
        if answer.json["directive"] == "dispatch" {
            let report = bodies::with(bodies::succeeded(&answer), &json!({ "result": 1 }));
            api.outcome("op", &report).await.expect(200);
            true
        } else {
            assert_eq!(answer.directive("replay").json["result"], 1);
            false
        }
    };
    let (first, second) = tokio::join!(act(one), act(two));
    assert!(first ^ second, "exactly one acts");
}
