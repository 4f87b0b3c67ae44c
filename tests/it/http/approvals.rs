//! Proposals and their approval (protocol §8).

use serde_json::{Value, json};

use crate::http::{TOOL, granted, tool};

use crate::support::downstream::{Downstream, Mode};
use crate::support::{Answer, Api, Options, Server, StoreUnderTest, bodies, both_stores};

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
    of_decisions_at_once_one_counts,
    an_approved_call_is_not_asked_about_again,
    an_approval_is_used_by_one_of_many_claims,
    a_replayed_prefix_acts_no_more,
    an_approval_outlives_a_kill_and_is_used_once,
    what_went_stale_is_stale_after_a_kill,
);

async fn guarded(store: StoreUnderTest, more: Value) -> Api {
    let api = store.tenant();
    let spec = json!({ "effect": "external", "authorization": bodies::with(json!({ "mode": "approval" }), &more) });
    tool(&api, spec).await;
    api
}

pub(super) fn person(store: StoreUnderTest, api: &Api, name: &str) -> Api {
    api.with_token(Some(store.shared().token(&api.tenant, name, "effects:approve")))
}

pub(super) async fn approve(who: &Api, answer: &Answer) -> Answer {
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

/// Two people answer the same question at the same time, in all ways.
async fn of_decisions_at_once_one_counts(store: StoreUnderTest) {
    let api = guarded(store, json!({})).await;
    let (ann, bob) = (person(store, &api, "ann"), person(store, &api, "bob"));
    for (round, other) in ["deny", "approve", "deny", "approve", "deny", "approve"].into_iter().enumerate() {
        let operation = format!("op-{round}");
        let proposed = api.intent(&bodies::intent(&operation, TOOL)).await.expect(201);
        let (yes, second) = (bodies::decision(&proposed, "approve"), bodies::decision(&proposed, other));
        let (first, second) = tokio::join!(ann.authorize(&operation, 1, &yes), bob.authorize(&operation, 1, &second));
        let answers =
            [("intent_recorded", first), (if other == "deny" { "refused" } else { "intent_recorded" }, second)];
        let won: Vec<_> = answers.iter().filter(|(_, answer)| answer.status == 200).collect();
        assert_eq!(won.len(), 1, "{answers:#?}");
        let lost = answers.iter().find(|(_, answer)| answer.status != 200).unwrap();
        assert!([409, 412].contains(&lost.1.status.as_u16()), "{answers:#?}");
        let found = api.get(&operation).await.state(won[0].0);
        assert_eq!((found.revision(), api.journal(&operation).await.len()), (2, 2), "one decision is on record");
        let approval = ann.read(&format!("/api/approvals/{operation}")).await.expect(200);
        assert_eq!(approval.at("/decisions").as_array().unwrap().len(), 1, "{approval}");
    }
}

/// A process that comes back after its call was approved gets on with it.
async fn an_approved_call_is_not_asked_about_again(store: StoreUnderTest) {
    let api = guarded(store, json!({})).await;
    let ann = person(store, &api, "ann");
    let body = bodies::claiming("op", TOOL);
    let proposed = api.intent(&body).await.expect(201).directive("authorize");
    api.intent(&body).await.expect(200).directive("authorize");
    approve(&ann, &proposed).await.expect(200);
    api.intent(&bodies::intent("op", TOOL)).await.expect(200).directive("claim");
    let granted = api.intent(&body).await.expect(200).directive("dispatch");
    let again = api.intent(&body).await.expect(200).directive("dispatch");
    assert_eq!(again.json["dispatch"], granted.json["dispatch"]);
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    api.intent(&body).await.expect(200).directive("replay");
    let asked = api.events("op").await.iter().filter(|event| *event == "effect.proposed").count();
    assert_eq!(asked, 1);
}

async fn an_approval_is_used_by_one_of_many_claims(store: StoreUnderTest) {
    let api = guarded(store, json!({})).await;
    let ann = person(store, &api, "ann");
    let downstream = Downstream::start(Mode::Normal).await;
    for round in 0..4 {
        let operation = format!("op-{round}");
        let proposed = api.intent(&bodies::intent(&operation, TOOL)).await.expect(201);
        approve(&ann, &proposed).await.expect(200);
        let claims = (0..8).map(|number| {
            let (api, operation, downstream) = (&api, &operation, &downstream);
            async move {
                let answer = if number % 2 == 0 {
                    api.dispatch(operation, &bodies::claim()).await
                } else {
                    api.intent(&bodies::claiming(operation, TOOL)).await
                };
                if answer.json["directive"] == "dispatch" {
                    downstream.act(answer.str("/dispatch/idempotency_key")).await.unwrap();
                }
            }
        });
        futures_util::future::join_all(claims).await;
        assert_eq!(downstream.total(), round + 1);
    }
}

/// An agent that replays its whole prefix after an approval: five acts, none of them twice.
async fn a_replayed_prefix_acts_no_more(store: StoreUnderTest) {
    let api = guarded(store, json!({})).await;
    let ann = person(store, &api, "ann");
    api.put_tool("plain", &json!({ "effect": "external" })).await.expect(201);
    let downstream = Downstream::start(Mode::Normal).await;
    let prefix: Vec<Value> = (0..5)
        .map(|n| bodies::with(bodies::claiming(&format!("step-{n}"), "plain"), &json!({ "run_id": "run" })))
        .collect();
    for (n, step) in prefix.iter().enumerate() {
        let granted = api.intent(step).await.expect(201).directive("dispatch");
        downstream.act(granted.str("/dispatch/idempotency_key")).await.unwrap();
        let report = bodies::with(bodies::succeeded(&granted), &json!({ "result": { "step": n } }));
        api.outcome(&format!("step-{n}"), &report).await.expect(200).state("completed");
    }
    let asked = bodies::with(bodies::claiming("asked", TOOL), &json!({ "run_id": "run" }));
    let proposed = api.intent(&asked).await.expect(201).directive("authorize");
    approve(&ann, &proposed).await.expect(200);
    let mut results = Vec::new();
    for (n, step) in prefix.iter().enumerate() {
        // The same run again: another process, and so another claim id.
        let step = bodies::set(step.clone(), "/claim/claim_id", json!(format!("again-{n}")));
        let replayed = api.intent(&step).await.expect(200).directive("replay");
        results.push(replayed.at("/result/step").clone());
    }
    assert_eq!(results, [json!(0), json!(1), json!(2), json!(3), json!(4)]);
    let granted = api.intent(&asked).await.expect(200).directive("dispatch");
    downstream.act(granted.str("/dispatch/idempotency_key")).await.unwrap();
    assert_eq!(downstream.total(), 6);
}

async fn an_approval_outlives_a_kill_and_is_used_once(store: StoreUnderTest) {
    let (server, api, ann) = alone(store).await;
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201).directive("authorize");
    approve(&ann, &proposed).await.expect(200).state("intent_recorded");
    let api = killed(&server, &api);
    let claims = (0..8).map(|_| async { api.dispatch("op", &bodies::claim()).await });
    let answers = futures_util::future::join_all(claims).await;
    let granted: Vec<&Answer> = answers.iter().filter(|answer| answer.json["directive"] == "dispatch").collect();
    assert_eq!(granted.len(), 1, "{answers:#?}");
    api.outcome("op", &bodies::not_sent(granted[0])).await.expect(200).state("safe_to_retry");
    // It is used up, before a kill and after it.
    let api = killed(&server, &api);
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("authorize");
    assert_eq!(api.get("op").await.at("/attempt"), 1);
}

async fn what_went_stale_is_stale_after_a_kill(store: StoreUnderTest) {
    let (server, api, ann) = alone(store).await;
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    approve(&ann, &proposed).await.expect(200);
    let changed = json!({ "effect": "external", "lease_seconds": 61, "authorization": { "mode": "approval" } });
    api.put_tool(TOOL, &changed).await.expect(200);
    let api = killed(&server, &api);
    api.dispatch("op", &bodies::claim()).await.problem(409, "approval-stale");
    let other = bodies::with(bodies::claiming("op", TOOL), &json!({ "arguments": { "amount": 1_000_000 } }));
    api.intent(&other).await.problem(422, "operation-reused");
    assert_eq!(api.get("op").await.at("/attempt"), 0);
}

/// A server of its own with [`TOOL`] under approval, its agent and its approver.
async fn alone(store: StoreUnderTest) -> (Server, Api, Api) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    tool(&api, json!({ "effect": "external", "authorization": { "mode": "approval" } })).await;
    let ann = api.with_token(Some(server.token("t", "ann", "effects:approve")));
    (server, api, ann)
}

fn killed(server: &Server, api: &Api) -> Api {
    server.kill9();
    server.restart();
    api.at(server)
}
