//! A worker that takes longer than its lease, and a process that begins again and again.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::http::{TOOL, external, until_decided};
use crate::support::downstream::{Downstream, Mode};
use crate::support::{StoreUnderTest, bodies, both_stores};

both_stores!(a_commit_after_the_lease_is_not_repeated, a_process_that_begins_again_repeats_nothing);

async fn a_commit_after_the_lease_is_not_repeated(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let downstream = Downstream::start(Mode::Normal).await;
    let body = bodies::set(bodies::claiming("op", TOOL), "/claim/lease_seconds", json!(1));
    let granted = api.intent(&body).await.expect(201).directive("dispatch");
    let started = Instant::now();
    let key = granted.str("/dispatch/idempotency_key").to_owned();
    let first = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        downstream.act(&key).await.unwrap();
    };
    let second = async {
        let other = json!({ "claim": { "worker": "worker-2", "claim_id": "other", "lease_seconds": 1 } });
        let mut told = 0;
        loop {
            let by_intent = api.intent(&bodies::with(bodies::intent("op", TOOL), &other)).await.expect(200);
            let by_dispatch = api.dispatch("op", &bodies::claim()).await.expect(200);
            for answer in [by_intent, by_dispatch] {
                let directive = answer.str("/directive").to_owned();
                assert!(["wait", "reconcile"].contains(&directive.as_str()), "{answer}");
                told += u32::from(directive == "reconcile");
            }
            if started.elapsed() > Duration::from_millis(2_500) {
                break told;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let ((), told) = tokio::join!(first, second);
    assert!(told > 0, "the lease has run out");
    until_decided(&api, "op").await.state("outcome_unknown").directive("reconcile");
    api.heartbeat("op", &bodies::heartbeat(&granted)).await.problem(409, "lease-lost");
    let done = api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    assert_eq!(done.json["dispatch"]["late"], true, "{done}");
    api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("replay");
    assert_eq!((downstream.commits(&key), downstream.total()), (1, 1));
}

async fn a_process_that_begins_again_repeats_nothing(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let downstream = Downstream::start(Mode::Normal).await;
    let step = |n: usize| {
        let body = bodies::with(bodies::claiming(&format!("step-{n}"), TOOL), &json!({ "run_id": "run-1" }));
        bodies::set(body, "/claim/lease_seconds", json!(1))
    };
    // Each life of the process gets one step further before it ends; the third one dies in the act.
    let mut dispatches = 0;
    for life in 0..=5 {
        for n in 0..=life.min(4) {
            let answer = api.intent(&step(n)).await;
            match answer.str("/directive") {
                "dispatch" => {
                    dispatches += 1;
                    assert_eq!(n, life, "a step that was taken before is not taken again: {answer}");
                    downstream.act(answer.str("/dispatch/idempotency_key")).await.unwrap();
                    if life != 2 {
                        let report = bodies::with(bodies::succeeded(&answer), &json!({ "result": { "step": n } }));
                        api.outcome(&format!("step-{n}"), &report).await.expect(200).state("completed");
                    }
                }
                "replay" => assert_eq!(answer.json["result"], json!({ "step": n })),
                directive => {
                    assert_eq!(n, 2, "{answer}");
                    assert!(["wait", "reconcile"].contains(&directive), "{answer}");
                }
            }
        }
    }
    assert_eq!(dispatches, 5);
    until_decided(&api, "step-2").await.directive("reconcile");
    for _ in 0..10 {
        for n in 0..5 {
            let expected = if n == 2 { "reconcile" } else { "replay" };
            let answer = api.intent(&step(n)).await.expect(200).directive(expected);
            assert!(n == 2 || answer.json["result"] == json!({ "step": n }), "{answer}");
        }
    }
    assert_eq!(downstream.total(), 5);
    for n in [0, 1, 3, 4] {
        assert_eq!(api.journal(&format!("step-{n}")).await.len(), 2, "what is repeated writes nothing");
    }
    assert_eq!(api.journal("step-2").await.len(), 2);
}
