//! Leases and what their end means, by class (laws 4, 10, 13).

use serde_json::json;

use crate::http::{TOOL, external, granted, granted_briefly, tool, until_decided};
use crate::support::api::segment;
use crate::support::{Answer, Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    heartbeats_renew_and_write_nothing,
    a_lost_lease_tells_to_stop,
    silence_of_an_external_tool_is_doubt,
    silence_of_a_harmless_tool_may_be_tried_again,
    an_idempotent_tool_decays_with_its_key,
    leases_come_from_claim_or_tool,
    heartbeats_keep_a_dispatch_beyond_its_first_lease,
    doubt_and_verification_have_deadlines,
);

async fn heartbeats_renew_and_write_nothing(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let beat = bodies::heartbeat(&granted);
    let mut end = granted.str("/dispatch/lease_expires_at").to_owned();
    for _ in 0..3 {
        let answer = api.heartbeat("op", &beat).await.expect(200);
        let renewed = answer.str("/lease_expires_at").to_owned();
        assert!(renewed > end, "{renewed} after {end}");
        assert_eq!((answer.at("/fence"), answer.at("/revision")), (&json!(1), &json!(1)));
        end = renewed;
        let read = api.get("op").await.directive("wait");
        assert_eq!((read.revision(), read.str("/dispatch/lease_expires_at")), (1, end.as_str()));
    }
    assert_eq!(api.journal("op").await.len(), 1);
    let answers = futures_util::future::join_all((0..8).map(|_| api.heartbeat("op", &beat))).await;
    assert!(answers.iter().all(|answer| answer.status == 200), "{answers:#?}");
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
}

async fn a_lost_lease_tells_to_stop(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let lost = |answer: Answer| {
        assert_eq!(answer.problem(409, "lease-lost").at("/directive"), "stop");
    };
    let granted = granted(&api, "op").await;
    let (dispatch_id, _) = granted.dispatch();
    let other = "00000000-0000-4000-8000-000000000000";
    for beat in [
        json!({ "dispatch_id": other, "fence": 1 }),
        json!({ "dispatch_id": dispatch_id, "fence": 2 }),
        json!({ "dispatch_id": dispatch_id, "fence": 0 }),
    ] {
        lost(api.heartbeat("op", &beat).await);
    }
    api.heartbeat("absent", &bodies::heartbeat(&granted)).await.problem(404, "not-found");
    api.outcome("op", &bodies::not_sent(&granted)).await.expect(200).state("safe_to_retry");
    lost(api.heartbeat("op", &bodies::heartbeat(&granted)).await);
    let second = api.dispatch("op", &bodies::claim()).await.directive("dispatch");
    lost(api.heartbeat("op", &bodies::heartbeat(&granted)).await);
    api.heartbeat("op", &bodies::heartbeat(&second)).await.expect(200);
    api.outcome("op", &bodies::succeeded(&second)).await.expect(200).state("completed");
    lost(api.heartbeat("op", &bodies::heartbeat(&second)).await);
    let brief = granted_briefly(&api, "brief").await;
    until_decided(&api, "brief").await.state("outcome_unknown");
    lost(api.heartbeat("brief", &bodies::heartbeat(&brief)).await);
    api.intent(&bodies::intent("prepared", TOOL)).await.expect(201);
    lost(api.heartbeat("prepared", &bodies::heartbeat(&brief)).await);
}

async fn silence_of_an_external_tool_is_doubt(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted_briefly(&api, "op").await;
    let doubt = until_decided(&api, "op").await.state("outcome_unknown").directive("reconcile");
    assert_eq!(doubt.str("/failure_evidence/classification"), "lease_expired");
    assert!(doubt.str("/unknown_since") >= granted.str("/dispatch/lease_expires_at"), "{doubt}");
    assert!(doubt.str("/deadline_at") > doubt.str("/unknown_since"), "law 10: {doubt}");
    assert_eq!(api.events("op").await[4..], ["effect.lease_expired", "effect.outcome_unknown"]);
    // Nobody gets it again, also not who had it.
    for _ in 0..2 {
        api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("reconcile");
        api.dispatch("op", &bodies::claim()).await.expect(200).directive("reconcile");
    }
    assert_eq!(api.get("op").await.revision(), 2);
    assert_eq!(api.get("op").await.at("/attempt"), 1);
    // Its owner's receipt settles it, late.
    let settled = api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    assert_eq!(settled.at("/dispatch/late"), &json!(true));
    api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("replay");
}

async fn silence_of_a_harmless_tool_may_be_tried_again(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "none" })).await;
    let first = granted_briefly(&api, "op").await;
    until_decided(&api, "op").await.state("outcome_unknown").directive("claim");
    let second = api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("dispatch");
    assert_eq!((second.at("/dispatch/attempt"), second.at("/dispatch/fence")), (&json!(2), &json!(2)));
    assert_eq!(second.json["dispatch"]["idempotency_key"], first.json["dispatch"]["idempotency_key"]);
    // The first one is late and decides nothing; a plain receipt is all that this class needs.
    let late = api.outcome("op", &bodies::receipted(&first)).await.problem(409, "stale-fence");
    assert_eq!((late.at("/newest_fence"), late.at("/evidence_recorded")), (&json!(2), &json!(true)));
    api.outcome("op", &bodies::receipted(&second)).await.expect(200).state("completed").directive("replay");
}

async fn an_idempotent_tool_decays_with_its_key(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "idempotent", "replay_contract": "by key", "downstream_key_ttl_seconds": 3 })).await;
    let first = granted_briefly(&api, "op").await;
    until_decided(&api, "op").await.state("outcome_unknown").directive("claim");
    // Ends three seconds after the first dispatch or later: the key is forgotten by then.
    let claim = bodies::with(bodies::claim(), &json!({ "lease_seconds": 2 }));
    let second = api.dispatch("op", &claim).await.expect(200).directive("dispatch");
    assert_eq!(second.json["dispatch"]["idempotency_key"], first.json["dispatch"]["idempotency_key"]);
    until_decided(&api, "op").await.state("outcome_unknown").directive("reconcile");
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("reconcile");
    api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("reconcile");
    assert_eq!(api.get("op").await.at("/attempt"), 2);
}

async fn leases_come_from_claim_or_tool(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "lease_seconds": 600 })).await;
    let seconds = |answer: &Answer| {
        let parse = |name: &str| {
            let text = answer.str(&format!("/dispatch/{name}"));
            time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).unwrap()
        };
        (parse("lease_expires_at") - parse("dispatched_at")).whole_seconds()
    };
    assert_eq!(seconds(&granted(&api, "tool").await), 600);
    let own = bodies::set(bodies::claiming("own", TOOL), "/claim/lease_seconds", json!(7));
    let own = api.intent(&own).await.expect(201);
    assert_eq!(seconds(&own), 7);
    // A heartbeat renews for as long as was granted.
    let renewed = api.heartbeat("own", &bodies::heartbeat(&own)).await.expect(200);
    assert!(renewed.str("/lease_expires_at") < granted(&api, "later").await.str("/dispatch/lease_expires_at"));
    api.put_tool("plain", &json!({ "effect": "none" })).await.expect(201);
    assert_eq!(seconds(&api.intent(&bodies::claiming("plain", "plain")).await.expect(201)), 60);
}

async fn heartbeats_keep_a_dispatch_beyond_its_first_lease(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let body = bodies::set(bodies::claiming("op", TOOL), "/claim/lease_seconds", json!(2));
    let granted = api.intent(&body).await.expect(201).directive("dispatch");
    let first_end = granted.str("/dispatch/lease_expires_at").to_owned();
    loop {
        let renewed = api.heartbeat("op", &bodies::heartbeat(&granted)).await.expect(200);
        let read = api.get("op").await.state("dispatched");
        assert_eq!(read.revision(), 1);
        // The database's own time is past the first lease when a lease of 2 s ends 2 s after it.
        let parse =
            |text: &str| time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).unwrap();
        if parse(renewed.str("/lease_expires_at")) - parse(&first_end) > time::Duration::milliseconds(2_500) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    assert!(api.get("op").await.json["dispatch"].get("late").is_none());
}

async fn doubt_and_verification_have_deadlines(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "reconcile_deadline_seconds": 1, "verify_deadline_seconds": 1 })).await;
    let granted_ = granted(&api, "doubt").await;
    api.outcome("doubt", &bodies::unknown(&granted_)).await.expect(200).state("outcome_unknown");
    let verifying = granted(&api, "verifying").await;
    api.outcome("verifying", &bodies::receipted(&verifying)).await.expect(200).state("verifying");
    for (id, reason) in [("doubt", "reconcile_deadline"), ("verifying", "verify_deadline")] {
        let review = until_state(&api, id, "manual_review").await.directive("review");
        assert_eq!(review.str("/review_reason"), reason);
        assert_eq!(api.events(id).await.last().unwrap(), "effect.manual_review");
        api.dispatch(id, &bodies::claim()).await.expect(200).directive("review");
        let open = api.pages("/api/effects?state=manual_review&limit=50").await;
        assert!(open.iter().any(|item| item["operation_id"] == id), "law 10: it stands in the operators' list");
    }
}

/// Asks until an effect is in a state that only time brings.
async fn until_state(api: &Api, id: &str, state: &str) -> Answer {
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    loop {
        let answer = api.read(&format!("/api/effects/{}", segment(id))).await.expect(200);
        if answer.json["state"] == state {
            return answer;
        }
        assert!(std::time::Instant::now() < until, "still {answer}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
