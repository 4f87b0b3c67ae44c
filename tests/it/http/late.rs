//! Late truth is kept and never decides alone (law 7).

use serde_json::json;

use crate::http::{TOOL, external, granted, granted_briefly, until_decided};
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    reports_of_an_old_fence_are_kept,
    reports_after_settlement_are_kept,
    contradictions_are_listed,
    late_verifications_are_kept,
    late_reports_are_bounded,
    reports_about_nothing_are_refused,
    late_reports_of_the_newest_fence_without_receipt_add_evidence,
);

async fn reports_of_an_old_fence_are_kept(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let first = granted(&api, "op").await;
    api.outcome("op", &bodies::not_sent(&first)).await.expect(200).state("safe_to_retry");
    let second = api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
    let late = bodies::unknown(&first);
    for _ in 0..2 {
        let answer = api.outcome("op", &late).await.problem(409, "stale-fence");
        assert_eq!((answer.at("/newest_fence"), answer.at("/evidence_recorded")), (&json!(2), &json!(true)));
        let found = api.get("op").await.state("dispatched");
        assert_eq!(found.revision(), 4, "an equal repeat is known again");
    }
    assert_eq!(api.events("op").await.last().unwrap(), "effect.late_report");
    let entry = api.journal("op").await.pop().unwrap();
    assert_eq!((&entry["events"][0]["fence"], &entry["events"][0]["outcome"]), (&json!(1), &json!("unknown")));
    // It took nothing from the owner.
    api.heartbeat("op", &bodies::heartbeat(&second)).await.expect(200);
    api.outcome("op", &bodies::succeeded(&second)).await.expect(200).state("completed");
    // A dispatch that nobody knows is as old.
    let nobody = bodies::set(bodies::unknown(&second), "/dispatch_id", json!("00000000-0000-4000-8000-000000000000"));
    api.outcome("op", &nobody).await.problem(409, "stale-fence");
    let ahead = bodies::set(bodies::unknown(&second), "/fence", json!(9));
    let answer = api.outcome("op", &ahead).await.problem(409, "stale-fence");
    assert_eq!(answer.at("/newest_fence"), 2);
}

async fn reports_after_settlement_are_kept(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let settled = api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    for (n, report) in
        [bodies::unknown(&granted), bodies::report(&granted, "failed"), bodies::not_sent(&granted)].iter().enumerate()
    {
        for _ in 0..2 {
            let answer = api.outcome("op", report).await.problem(409, "state-conflict");
            assert_eq!((answer.str("/state"), answer.at("/evidence_recorded")), ("completed", &json!(true)));
            assert_eq!(api.journal("op").await.len(), 3 + n);
        }
        assert_eq!(api.events("op").await.last().unwrap(), "effect.late_report");
    }
    let found = api.get("op").await.state("completed").directive("replay");
    assert!(found.json.get("contradicted").is_none(), "none of this excludes the outcome: {found}");
    assert_eq!(found.json["receipt"], settled.json["receipt"]);
}

async fn contradictions(api: &Api) -> Vec<String> {
    let items = api.pages("/api/effects?contradicted=true&limit=50").await;
    items.iter().map(|item| item["operation_id"].as_str().unwrap().to_owned()).collect()
}

async fn contradictions_are_listed(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let quiet = granted(&api, "quiet").await;
    api.outcome("quiet", &bodies::succeeded(&quiet)).await.expect(200);
    // Completed, and then its own worker says that the downstream refused.
    let completed = granted(&api, "completed").await;
    api.outcome("completed", &bodies::succeeded(&completed)).await.expect(200).state("completed");
    api.outcome("completed", &bodies::failed(&completed)).await.problem(409, "state-conflict");
    // Failed, and then there is a receipt of success.
    let failed = granted(&api, "failed").await;
    api.outcome("failed", &bodies::failed(&failed)).await.expect(200).state("failed");
    api.outcome("failed", &bodies::succeeded(&failed)).await.problem(409, "state-conflict");
    // Completed twice, by two receipts.
    let twice = granted(&api, "twice").await;
    api.outcome("twice", &bodies::succeeded(&twice)).await.expect(200).state("completed");
    let other = bodies::set(bodies::succeeded(&twice), "/receipt/receipt_id", json!("re_78"));
    api.outcome("twice", &other).await.problem(409, "state-conflict");
    for (id, state) in [("completed", "completed"), ("failed", "failed"), ("twice", "completed")] {
        let found = api.get(id).await.state(state);
        assert_eq!(found.at("/contradicted"), &json!(true), "{found}");
        assert_eq!(found.revision(), 3);
    }
    // What was said not to have been sent was: the retry stops until a person has looked.
    let sent = granted(&api, "sent").await;
    api.outcome("sent", &bodies::not_sent(&sent)).await.expect(200).state("safe_to_retry");
    let answer = api.outcome("sent", &bodies::succeeded(&sent)).await.problem(409, "state-conflict");
    assert_eq!(answer.at("/evidence_recorded"), &json!(true));
    let review = api.get("sent").await.state("manual_review").directive("review");
    assert_eq!((review.at("/contradicted"), review.str("/review_reason")), (&json!(true), "contradiction"));
    api.dispatch("sent", &bodies::claim()).await.expect(200).directive("review");
    assert_eq!(contradictions(&api).await, ["completed", "failed", "twice", "sent"]);
    let others = api.pages("/api/effects?contradicted=false&limit=50").await;
    assert_eq!(others.len(), 1);
    assert_eq!(others[0]["operation_id"], "quiet");
}

async fn late_verifications_are_kept(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    let again = bodies::set(bodies::verification(), "/source", json!("another read"));
    let answer = api.verify("op", &again).await.problem(409, "state-conflict");
    assert_eq!(answer.at("/evidence_recorded"), &json!(true));
    assert!(contradictions(&api).await.is_empty());
    let denied = bodies::set(bodies::verification(), "/verified", json!(false));
    for _ in 0..2 {
        api.verify("op", &denied).await.problem(409, "state-conflict");
        assert_eq!(api.get("op").await.state("completed").revision(), 4);
    }
    assert_eq!(contradictions(&api).await, ["op"]);
}

async fn late_reports_are_bounded(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    for n in 0..34_u64 {
        let report = bodies::set(bodies::unknown(&granted), "/failure_evidence/detail", json!(n.to_string()));
        let answer = api.outcome("op", &report).await.problem(409, "state-conflict");
        assert_eq!(answer.at("/evidence_recorded"), &json!(n < 32), "report {n}");
    }
    assert_eq!(api.get("op").await.state("completed").revision(), 2 + 32);
}

async fn reports_about_nothing_are_refused(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    api.outcome("absent", &bodies::unknown(&granted)).await.problem(404, "not-found");
    api.verify("absent", &bodies::verification()).await.problem(404, "not-found");
    // Before any dispatch there is nothing to report about; what is said is kept all the same.
    api.intent(&bodies::intent("prepared", TOOL)).await.expect(201);
    let answer = api.outcome("prepared", &bodies::unknown(&granted)).await.problem(409, "stale-fence");
    assert_eq!(answer.at("/evidence_recorded"), &json!(true));
    api.get("prepared").await.state("intent_recorded");
    api.verify("prepared", &bodies::verification()).await.problem(409, "state-conflict");
}

/// The lease ran out; the report adds to the doubt and takes nothing away.
async fn late_reports_of_the_newest_fence_without_receipt_add_evidence(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted_briefly(&api, "op").await;
    let doubt = until_decided(&api, "op").await.state("outcome_unknown");
    api.outcome("op", &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown").directive("reconcile");
    assert_eq!(api.get("op").await.revision(), doubt.revision() + 1);
    assert_eq!(api.events("op").await.last().unwrap(), "effect.late_report");
    let settled = api.outcome("op", &bodies::failed(&granted)).await.expect(200).state("failed");
    assert_eq!((settled.at("/executed"), settled.at("/dispatch/late")), (&json!(true), &json!(true)));
}
