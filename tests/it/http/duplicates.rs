//! Suspected duplicates: the same act under another operation id (protocol §11).

use serde_json::{Value, json};

use crate::http::{TOOL, external, tool};
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_suspect_is_refused_and_named,
    what_differs_is_no_suspect,
    suspicion_ends_with_the_first,
    a_suspect_may_be_allowed,
    a_suspect_may_be_held_for_an_approver,
    a_hold_ends_when_the_first_settles,
    one_of_the_held_twins_is_released,
    one_of_many_twins_is_dispatched,
    twins_of_other_tenants_are_none,
);

fn same(operation_id: &str) -> Value {
    bodies::with(bodies::claiming(operation_id, TOOL), &json!({ "arguments": { "amount": 1200 } }))
}

async fn a_suspect_is_refused_and_named(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.intent(&same("first")).await.expect(201).directive("dispatch");
    for body in [same("second"), bodies::without(same("second"), "claim")] {
        let answer = api.intent(&body).await.problem(409, "suspected-duplicate");
        assert_eq!(answer.at("/operation_id"), "first", "{answer}");
        api.get("second").await.problem(404, "not-found");
        api.read("/api/effects/second/journal").await.problem(404, "not-found");
    }
    assert_eq!(api.journal("first").await.len(), 1);
    // The refused id is free.
    let other = bodies::with(same("second"), &json!({ "target": "order-1002" }));
    api.intent(&other).await.expect(201).directive("dispatch");
}

async fn what_differs_is_no_suspect(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    api.put_tool("other", &json!({ "effect": "external" })).await.expect(201);
    api.intent(&same("first")).await.expect(201);
    for (id, more) in [
        ("tool", json!({ "tool": "other" })),
        ("target", json!({ "target": "order-1002" })),
        ("arguments", json!({ "arguments": { "amount": 1201 } })),
    ] {
        api.intent(&bodies::with(same(id), &more)).await.expect(201).directive("dispatch");
    }
    // Another run or session does not make it another act.
    let elsewhere = bodies::with(same("run"), &json!({ "run_id": "r", "session_id": "s", "call_id": "c" }));
    api.intent(&elsewhere).await.problem(409, "suspected-duplicate");
}

async fn suspicion_ends_with_the_first(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let first = api.intent(&same("first")).await.expect(201).directive("dispatch");
    let suspect = async |state: &str| {
        api.get("first").await.state(state);
        api.intent(&same("second")).await.problem(409, "suspected-duplicate");
    };
    api.outcome("first", &bodies::unknown(&first)).await.expect(200);
    suspect("outcome_unknown").await;
    api.outcome("first", &bodies::receipted(&first)).await.expect(200);
    suspect("verifying").await;
    api.verify("first", &bodies::verification()).await.expect(200).state("completed");
    let second = api.intent(&same("second")).await.expect(201).directive("dispatch");
    api.outcome("second", &bodies::not_sent(&second)).await.expect(200).state("safe_to_retry");
    api.intent(&same("third")).await.problem(409, "suspected-duplicate");
    api.cancel("second").await.expect(200).state("failed");
    api.intent(&same("third")).await.expect(201).directive("dispatch");
}

async fn a_suspect_may_be_allowed(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "on_suspected_duplicate": "allow" })).await;
    for id in ["first", "second", "third"] {
        api.intent(&same(id)).await.expect(201).directive("dispatch");
    }
    // By default for whom a second act does no harm.
    let api = store.tenant();
    tool(&api, json!({ "effect": "none" })).await;
    for id in ["first", "second"] {
        api.intent(&same(id)).await.expect(201).directive("dispatch");
    }
    // The class counts, not the tool's.
    for (id, expected) in [("third", 201), ("fourth", 409)] {
        let body = bodies::with(same(id), &json!({ "effect": "external" }));
        assert_eq!(api.intent(&body).await.status, expected, "{id}");
    }
}

async fn hold(api: &Api) {
    tool(api, json!({ "effect": "external", "on_suspected_duplicate": "hold" })).await;
}

async fn a_suspect_may_be_held_for_an_approver(store: StoreUnderTest) {
    let api = store.tenant();
    hold(&api).await;
    api.intent(&same("first")).await.expect(201).directive("dispatch");
    let held = api.intent(&same("second")).await.expect(201).state("proposed").directive("authorize");
    assert_eq!(held.at("/approval/held_for"), "first", "{held}");
    api.intent(&same("second")).await.expect(200).state("proposed").directive("authorize");
    api.dispatch("second", &bodies::claim()).await.expect(200).directive("authorize");
    assert_eq!(api.get("second").await.revision(), 1);
    let ann = api.with_token(Some(store.shared().token(&api.tenant, "approver", "effects:approve")));
    let approved = ann.authorize("second", 1, &bodies::decision(&held, "approve")).await.expect(200);
    approved.state("intent_recorded");
    api.intent(&same("second")).await.expect(200).directive("dispatch");
    api.intent(&same("third")).await.expect(201).state("proposed");
    let held = api.get("third").await;
    ann.authorize("third", 1, &bodies::decision(&held, "deny")).await.expect(200).state("refused");
}

async fn a_hold_ends_when_the_first_settles(store: StoreUnderTest) {
    let api = store.tenant();
    hold(&api).await;
    let first = api.intent(&same("first")).await.expect(201).directive("dispatch");
    api.intent(&same("second")).await.expect(201).state("proposed");
    api.outcome("first", &bodies::unknown(&first)).await.expect(200);
    api.intent(&same("second")).await.expect(200).state("proposed").directive("authorize");
    api.outcome("first", &bodies::succeeded(&first)).await.expect(200).state("completed");
    api.intent(&same("second")).await.expect(200).directive("dispatch");
    let events = api.events("second").await;
    assert_eq!(events[1..], ["effect.authorized", "effect.intent_recorded", "effect.dispatched"]);
}

/// Two effects were held for the same first one. When it settles, one of them is let go; the other
/// repeats an unresolved act still.
async fn one_of_the_held_twins_is_released(store: StoreUnderTest) {
    let api = store.tenant();
    hold(&api).await;
    let first = api.intent(&same("first")).await.expect(201).directive("dispatch");
    api.intent(&same("second")).await.expect(201).directive("authorize");
    api.intent(&same("third")).await.expect(201).directive("authorize");
    api.outcome("first", &bodies::failed(&first)).await.expect(200).state("failed");
    api.intent(&same("second")).await.expect(200).directive("dispatch");
    api.intent(&same("third")).await.expect(200).directive("authorize");
}

async fn one_of_many_twins_is_dispatched(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for round in 0..5 {
        let posts = (0..8).map(|n| {
            let more = json!({ "arguments": { "round": round } });
            let (api, body) = (api.clone(), bodies::with(same(&format!("op-{round}-{n}")), &more));
            async move { api.intent(&body).await }
        });
        let answers = futures_util::future::join_all(posts).await;
        let won: Vec<_> = answers.iter().filter(|answer| answer.json["directive"] == "dispatch").collect();
        assert_eq!(won.len(), 1, "{answers:#?}");
        let winner = won[0].str("/operation_id").to_owned();
        for lost in answers.into_iter().filter(|answer| answer.status != 201) {
            assert_eq!(lost.problem(409, "suspected-duplicate").str("/operation_id"), winner);
        }
    }
    assert_eq!(api.pages("/api/effects?limit=200").await.len(), 5);
}

async fn twins_of_other_tenants_are_none(store: StoreUnderTest) {
    for api in [store.tenant(), store.tenant()] {
        external(&api).await;
        api.intent(&same("first")).await.expect(201).directive("dispatch");
    }
}
