//! Proposals and their approval (protocol §8).

use serde_json::{Value, json};

use crate::http::{TOOL, granted, tool};

use crate::support::{Answer, Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    an_approval_allows_one_dispatch,
    a_quorum_is_of_different_people,
    one_denial_refuses,
    a_proposer_does_not_approve_alone,
    a_decision_is_about_what_was_read,
    the_first_decision_is_final,
    a_proposal_expires,
    a_changed_tool_makes_it_stale,
    other_tools_ask_for_no_approval,
);

async fn guarded(store: StoreUnderTest, more: Value) -> Api {
    let api = store.tenant();
    let spec = json!({ "effect": "external", "authorization": bodies::with(json!({ "mode": "approval" }), &more) });
    tool(&api, spec).await;
    api
}

fn person(store: StoreUnderTest, api: &Api, name: &str) -> Api {
    api.with_token(Some(store.shared().token(&api.tenant, name, "effects:approve")))
}

async fn approve(who: &Api, answer: &Answer) -> Answer {
    who.authorize(answer.str("/operation_id"), answer.revision(), &bodies::decision(answer, "approve")).await
}

async fn an_approval_allows_one_dispatch(store: StoreUnderTest) {
    let api = guarded(store, json!({})).await;
    let ann = person(store, &api, "ann");
    let proposed = api.intent(&bodies::claiming("op", TOOL)).await.expect(201).state("proposed").directive("authorize");
    assert_eq!(proposed.at("/approval/approvals_needed"), 1);
    assert_eq!(proposed.at("/approval/approvals"), 0);
    assert_eq!(proposed.at("/approval/expires_at"), proposed.at("/deadline_at"), "law 10");
    assert!(proposed.json.get("dispatch").is_none());
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("authorize");
    let approved = approve(&ann, &proposed).await.expect(200).state("intent_recorded");
    assert_eq!(approved.revision(), 2);
    assert_eq!(api.events("op").await, ["effect.proposed", "effect.authorized", "effect.intent_recorded"]);
    let first = api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
    api.outcome("op", &bodies::not_sent(&first)).await.expect(200).state("safe_to_retry");
    // It is used up: the next dispatch needs another one.
    let again = api.dispatch("op", &bodies::claim()).await.expect(200).state("proposed").directive("authorize");
    approve(&ann, &api.get("op").await).await.expect(200).state("intent_recorded");
    let second = api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
    assert_eq!(second.at("/dispatch/fence"), 2);
    assert!(second.revision() > again.revision());
}

async fn a_quorum_is_of_different_people(store: StoreUnderTest) {
    let api = guarded(store, json!({ "approvals": 2 })).await;
    let (ann, bob) = (person(store, &api, "ann"), person(store, &api, "bob"));
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let once = approve(&ann, &proposed).await.expect(200).state("proposed").directive("authorize");
    assert_eq!((once.at("/approval/approvals"), once.at("/approval/approvals_needed")), (&json!(1), &json!(2)));
    let repeated = approve(&ann, &proposed).await.expect(200).state("proposed");
    assert_eq!(repeated.revision(), once.revision(), "a lost answer is had again");
    approve(&ann, &once).await.expect(200).state("proposed");
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("authorize");
    let stale = approve(&bob, &proposed).await.problem(412, "stale-revision");
    assert_eq!(stale.at("/found"), &json!({ "revision": 2, "state": "proposed" }));
    approve(&bob, &once).await.expect(200).state("intent_recorded");
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
}

async fn one_denial_refuses(store: StoreUnderTest) {
    let api = guarded(store, json!({ "approvals": 3 })).await;
    let (ann, bob) = (person(store, &api, "ann"), person(store, &api, "bob"));
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let once = approve(&ann, &proposed).await.expect(200);
    let denied = bob.authorize("op", once.revision(), &bodies::decision(&once, "deny")).await.expect(200);
    denied.state("refused").directive("stop");
    assert_eq!(api.events("op").await.last().unwrap(), "effect.refused");
    let cleo = person(store, &api, "cleo");
    cleo.authorize("op", 3, &bodies::decision(&once, "approve")).await.problem(409, "state-conflict");
    api.intent(&bodies::claiming("op", TOOL)).await.expect(200).state("refused").directive("stop");
    assert_eq!(api.get("op").await.revision(), 3);
    // The reason is a person's text: it goes into no event.
    let journal = json!(api.journal("op").await).to_string();
    assert!(!journal.contains("because"), "{journal}");
}

async fn a_proposer_does_not_approve_alone(store: StoreUnderTest) {
    let api = guarded(store, json!({})).await;
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    approve(&api, &proposed).await.problem(403, "insufficient-scope");
    assert_eq!(api.get("op").await.state("proposed").revision(), 1);
    // Denying one's own is no risk.
    api.authorize("op", 1, &bodies::decision(&proposed, "deny")).await.expect(200).state("refused");
    let api = guarded(store, json!({ "four_eyes": false })).await;
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    approve(&api, &proposed).await.expect(200).state("intent_recorded");
}

async fn a_decision_is_about_what_was_read(store: StoreUnderTest) {
    let api = guarded(store, json!({})).await;
    let ann = person(store, &api, "ann");
    let one = api.intent(&bodies::intent("one", TOOL)).await.expect(201);
    let two = api.intent(&bodies::intent("two", TOOL)).await.expect(201);
    assert_ne!(one.at("/approval/proposal_digest"), two.at("/approval/proposal_digest"));
    ann.authorize("one", 1, &bodies::decision(&two, "approve")).await.problem(409, "approval-stale");
    ann.authorize("absent", 1, &bodies::decision(&two, "approve")).await.problem(404, "not-found");
    assert_eq!(api.get("one").await.state("proposed").revision(), 1);
}

async fn the_first_decision_is_final(store: StoreUnderTest) {
    let api = guarded(store, json!({ "approvals": 2 })).await;
    let ann = person(store, &api, "ann");
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let once = approve(&ann, &proposed).await.expect(200);
    let changed = ann.authorize("op", once.revision(), &bodies::decision(&once, "deny")).await;
    changed.problem(409, "state-conflict");
    assert_eq!(api.get("op").await.state("proposed").at("/approval/approvals"), 1);
}

async fn a_proposal_expires(store: StoreUnderTest) {
    let api = guarded(store, json!({ "expires_after_seconds": 1 })).await;
    let ann = person(store, &api, "ann");
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201).directive("authorize");
    let waited = api.call("GET", "/api/effects/op").header("prefer", "wait=30").send().await.expect(200);
    waited.state("refused").directive("stop");
    approve(&ann, &proposed).await.problem(409, "state-conflict");
    assert_eq!(api.events("op").await, ["effect.proposed", "effect.refused"]);
    assert_eq!(api.journal("op").await[1]["by"], "actonce", "the service itself, by database time");
}

async fn a_changed_tool_makes_it_stale(store: StoreUnderTest) {
    let api = guarded(store, json!({})).await;
    let ann = person(store, &api, "ann");
    let (before, after) = (
        api.intent(&bodies::intent("before", TOOL)).await.expect(201),
        api.intent(&bodies::intent("after", TOOL)).await.expect(201),
    );
    approve(&ann, &after).await.expect(200).state("intent_recorded");
    let changed = json!({ "effect": "external", "lease_seconds": 61, "authorization": { "mode": "approval" } });
    api.put_tool(TOOL, &changed).await.expect(200);
    approve(&ann, &before).await.problem(409, "approval-stale");
    api.dispatch("after", &bodies::claim()).await.problem(409, "approval-stale");
    assert_eq!(api.get("after").await.at("/attempt"), 0);
    // A pause is no change.
    let third = api.intent(&bodies::intent("third", TOOL)).await.expect(201);
    api.pause(TOOL).await.expect(200);
    approve(&ann, &third).await.expect(200).state("intent_recorded").directive("stop");
    api.resume(TOOL).await.expect(200);
    api.dispatch("third", &bodies::claim()).await.expect(200).directive("dispatch");
}

async fn other_tools_ask_for_no_approval(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external" })).await;
    granted(&api, "op").await;
    let digest = format!("sha256:{}", "0".repeat(64));
    let body = json!({ "decision": "approve", "proposal_digest": digest, "reason": "x" });
    person(store, &api, "ann").authorize("op", 1, &body).await.problem(409, "state-conflict");
    assert_eq!(api.get("op").await.state("dispatched").revision(), 1);
}
