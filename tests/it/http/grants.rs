//! Standing grants: approvals made in advance (protocol §8).

use serde_json::{Value, json};

use crate::http::approvals::{approve, person};
use crate::http::{TOOL, tool};
use crate::scenarios::count;
use crate::support::downstream::{Downstream, Mode};
use crate::support::{Answer, Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_grant_authorizes_at_once_and_names_itself,
    a_grant_covers_what_it_says_and_nothing_more,
    nobody_grants_to_themselves,
    a_grant_is_used_no_more_often_than_granted,
    what_is_revoked_expired_or_stale_authorizes_nothing_new,
    a_revocation_during_a_crowd_stops_it,
    a_retry_of_a_granted_effect_asks_people,
    a_granted_effect_goes_stale_with_its_tool,
    a_suspicion_is_not_answered_by_a_grant,
    the_same_request_makes_one_grant,
    grants_are_checked,
    grants_stay_within_their_tenant_and_outlive_a_kill,
);

async fn guarded(store: StoreUnderTest) -> (Api, Api) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "authorization": { "mode": "approval" } })).await;
    let ann = person(store, &api, "ann");
    (api, ann)
}

fn terms(more: &Value) -> Value {
    let body = json!({ "tool": TOOL, "max_uses": 100, "expires_after_seconds": 600, "reason": "a routine" });
    bodies::with(body, more)
}

async fn grant(who: &Api, more: &Value) -> Answer {
    who.post("/api/grants", &terms(more)).await.expect(201)
}

async fn read(who: &Api, grant: &Answer) -> Answer {
    who.read(&format!("/api/grants/{}", grant.str("/grant_id"))).await.expect(200)
}

async fn a_grant_authorizes_at_once_and_names_itself(store: StoreUnderTest) {
    let (api, ann) = guarded(store).await;
    let granted = grant(&ann, &json!({ "target": bodies::TARGET })).await;
    assert_eq!(
        (granted.at("/state"), granted.at("/uses"), granted.at("/author")),
        (&json!("live"), &json!(0), &json!("ann"))
    );
    let body = bodies::claiming("op", TOOL);
    let dispatched = api.intent(&body).await.expect(201).directive("dispatch");
    let entry = &api.journal("op").await[0];
    let names: Vec<_> = entry["events"].as_array().unwrap().iter().map(|event| event["type"].clone()).collect();
    assert_eq!(names, ["effect.proposed", "effect.authorized", "effect.intent_recorded", "effect.dispatched"]);
    assert_eq!(entry["events"][1]["grant_id"], *granted.at("/grant_id"));
    // A repeat uses nothing more.
    assert_eq!(api.intent(&body).await.expect(200).json["dispatch"], dispatched.json["dispatch"]);
    api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("wait");
    assert_eq!(read(&ann, &granted).await.at("/uses"), 1);
    let approval = ann.read("/api/approvals/op").await.expect(200);
    assert_eq!((approval.at("/state"), approval.at("/grant_id")), (&json!("used"), granted.at("/grant_id")));
    // Without a claim it may be claimed later, once.
    api.intent(&bodies::intent("later", TOOL)).await.expect(201).directive("claim");
    assert_eq!(ann.read("/api/approvals/later").await.expect(200).at("/state"), "approved");
    api.dispatch("later", &bodies::claim()).await.expect(200).directive("dispatch");
    assert_eq!(read(&ann, &granted).await.at("/uses"), 2);
    // The reason is a person's text: it goes into no event.
    assert!(!json!(api.journal("op").await).to_string().contains("routine"));
}

async fn a_grant_covers_what_it_says_and_nothing_more(store: StoreUnderTest) {
    let (api, ann) = guarded(store).await;
    api.put_tool("other", &json!({ "effect": "external", "authorization": { "mode": "approval" } })).await.expect(201);
    let arguments = json!({ "amount": 1200, "currency": "EUR" });
    let base = json!({ "target": "order-7", "arguments": arguments, "run_id": "run", "session_id": "session" });
    for (number, (term, misfit)) in [
        (json!({ "target": "order-7" }), json!({ "target": "order-77" })),
        (json!({ "target_prefix": "order-" }), json!({ "target": "orde" })),
        (json!({ "arguments": { "currency": "EUR", "amount": 1200.0 } }), json!({ "arguments": { "amount": 1201 } })),
        (json!({ "run_id": "run" }), json!({ "run_id": "run-2" })),
        (json!({ "session_id": "session" }), json!({ "session_id": "other" })),
        (json!({}), json!({ "tool": "other" })),
    ]
    .into_iter()
    .enumerate()
    {
        let granted = grant(&ann, &bodies::with(term.clone(), &json!({ "max_uses": 1 }))).await;
        // Targets of their own, so that nothing is suspected to be something again.
        let unlike =
            |operation: &str, more: &Value| bodies::with(bodies::with(bodies::intent(operation, TOOL), &base), more);
        let misfit = unlike(&format!("misfit-{number}"), &misfit);
        let refused = api.intent(&misfit).await.expect(201).state("proposed");
        assert_eq!(read(&ann, &granted).await.at("/uses"), 0, "{term} {refused}");
        api.cancel(refused.str("/operation_id")).await.expect(200);
        let fits = api.intent(&unlike(&format!("fits-{number}"), &json!({}))).await.expect(201);
        assert_eq!(fits.json["state"], "intent_recorded", "{term} {fits}");
        assert_eq!(read(&ann, &granted).await.at("/state"), "used_up", "{term}");
        api.cancel(fits.str("/operation_id")).await.expect(200);
    }
}

async fn nobody_grants_to_themselves(store: StoreUnderTest) {
    let (api, ann) = guarded(store).await;
    grant(&api, &json!({})).await;
    api.intent(&bodies::intent("own", TOOL)).await.expect(201).state("proposed");
    // A grant by somebody else covers it; the order of grants does not matter.
    grant(&ann, &json!({})).await;
    api.intent(&bodies::intent("other", TOOL)).await.expect(201).state("intent_recorded");
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "authorization": { "mode": "approval", "four_eyes": false } })).await;
    grant(&api, &json!({})).await;
    api.intent(&bodies::intent("own", TOOL)).await.expect(201).state("intent_recorded");
}

async fn a_grant_is_used_no_more_often_than_granted(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let replica = server.replica();
    let (one, two) = (Api::of(&server, "t"), Api::of(&replica, "t"));
    let policy =
        json!({ "effect": "external", "authorization": { "mode": "approval" }, "on_suspected_duplicate": "allow" });
    tool(&one, policy).await;
    let ann = one.with_token(Some(server.token("t", "ann", "effects:approve")));
    let granted = grant(&ann, &json!({ "max_uses": 7 })).await;
    let downstream = Downstream::start(Mode::Normal).await;
    let crowd = (0..60).map(|number| {
        let (api, downstream) = (if number % 2 == 0 { &one } else { &two }, &downstream);
        async move {
            let answer = api.intent(&bodies::claiming(&format!("op-{number}"), TOOL)).await.expect(201);
            if answer.json["directive"] == "dispatch" {
                downstream.act(answer.str("/dispatch/idempotency_key")).await.unwrap();
            } else {
                answer.state("proposed").directive("authorize");
            }
        }
    });
    futures_util::future::join_all(crowd).await;
    assert_eq!(downstream.total(), 7);
    let read = read(&ann, &granted).await;
    assert_eq!((read.at("/uses"), read.at("/state")), (&json!(7), &json!("used_up")));
    assert_eq!(count(&server, "SELECT count(*) FROM grant_uses"), 7);
    let unused = "SELECT count(*) FROM grant_uses u WHERE NOT EXISTS \
                  (SELECT 1 FROM entries e WHERE e.tenant = u.tenant AND e.effect = u.effect)";
    assert_eq!(count(&server, unused), 0, "a use without an effect");
    assert_eq!(one.pages("/api/effects?state=proposed&limit=200").await.len(), 53);
}

async fn what_is_revoked_expired_or_stale_authorizes_nothing_new(store: StoreUnderTest) {
    let (api, ann) = guarded(store).await;
    let revoked = grant(&ann, &json!({})).await;
    let kept = api.intent(&bodies::intent("kept", TOOL)).await.expect(201).state("intent_recorded");
    let path = format!("/api/grants/{}/revoke", revoked.str("/grant_id"));
    let first = ann.call("POST", &path).send().await.expect(200);
    assert_eq!((first.at("/state"), first.at("/revoked_by")), (&json!("revoked"), &json!("ann")));
    let ben = person(store, &api, "ben");
    assert_eq!(ben.call("POST", &path).send().await.expect(200).json, first.json, "the first one is on record");
    api.intent(&bodies::intent("revoked", TOOL)).await.expect(201).state("proposed");
    // What was authorized stays so.
    api.dispatch(kept.str("/operation_id"), &bodies::claim()).await.expect(200).directive("dispatch");
    let brief = grant(&ann, &json!({ "expires_after_seconds": 1 })).await;
    for _ in 0..100 {
        if read(&ann, &brief).await.at("/state") == "expired" {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    api.intent(&bodies::intent("expired", TOOL)).await.expect(201).state("proposed");
    let stale = grant(&ann, &json!({})).await;
    let changed = json!({ "effect": "external", "lease_seconds": 61, "authorization": { "mode": "approval" } });
    api.put_tool(TOOL, &changed).await.expect(200);
    api.intent(&bodies::intent("stale", TOOL)).await.expect(201).state("proposed");
    assert_eq!(read(&ann, &stale).await.at("/state"), "stale");
    // A pause is no change.
    grant(&ann, &json!({})).await;
    api.pause(TOOL).await.expect(200);
    api.intent(&bodies::claiming("paused", TOOL)).await.expect(201).state("intent_recorded").directive("stop");
    api.resume(TOOL).await.expect(200);
    api.dispatch("paused", &bodies::claim()).await.expect(200).directive("dispatch");
}

/// Whatever was answered after the revocation was authorized by nobody.
async fn a_revocation_during_a_crowd_stops_it(store: StoreUnderTest) {
    let (api, ann) = guarded(store).await;
    let granted = grant(&ann, &json!({ "max_uses": 1000 })).await;
    let path = format!("/api/grants/{}/revoke", granted.str("/grant_id"));
    let crowd = |from: usize| {
        let api = &api;
        futures_util::future::join_all((from..from + 20).map(|number| async move {
            api.intent(&bodies::intent(&format!("op-{number}"), TOOL)).await.expect(201).json["state"].clone()
        }))
    };
    let (_, revoked) = tokio::join!(crowd(0), async { ann.call("POST", &path).send().await.expect(200) });
    let uses = revoked.at("/uses").as_u64().unwrap();
    assert!(crowd(20).await.iter().all(|state| *state == "proposed"));
    let found = read(&ann, &granted).await;
    assert_eq!(found.at("/uses").as_u64().unwrap(), uses, "nothing was used after it was revoked");
    let recorded = api.pages("/api/effects?state=intent_recorded&limit=200").await.len();
    assert_eq!(u64::try_from(recorded).unwrap(), uses);
}

async fn a_retry_of_a_granted_effect_asks_people(store: StoreUnderTest) {
    let (api, ann) = guarded(store).await;
    let granted = grant(&ann, &json!({})).await;
    let first = api.intent(&bodies::claiming("op", TOOL)).await.expect(201).directive("dispatch");
    api.outcome("op", &bodies::not_sent(&first)).await.expect(200).state("safe_to_retry");
    let asked = api.dispatch("op", &bodies::claim()).await.expect(200).state("proposed").directive("authorize");
    assert_eq!(read(&ann, &granted).await.at("/uses"), 1, "one use authorizes one dispatch");
    approve(&ann, &asked).await.expect(200).state("intent_recorded");
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
}

async fn a_granted_effect_goes_stale_with_its_tool(store: StoreUnderTest) {
    let (api, ann) = guarded(store).await;
    grant(&ann, &json!({})).await;
    api.intent(&bodies::intent("op", TOOL)).await.expect(201).state("intent_recorded");
    let changed = json!({ "effect": "external", "lease_seconds": 61, "authorization": { "mode": "approval" } });
    api.put_tool(TOOL, &changed).await.expect(200);
    api.dispatch("op", &bodies::claim()).await.problem(409, "approval-stale");
}

async fn a_suspicion_is_not_answered_by_a_grant(store: StoreUnderTest) {
    let api = store.tenant();
    let policy =
        json!({ "effect": "external", "authorization": { "mode": "approval" }, "on_suspected_duplicate": "hold" });
    tool(&api, policy).await;
    let ann = person(store, &api, "ann");
    let granted = grant(&ann, &json!({})).await;
    let body = json!({ "arguments": "the same" });
    api.intent(&bodies::with(bodies::intent("one", TOOL), &body)).await.expect(201).state("intent_recorded");
    let held = api.intent(&bodies::with(bodies::claiming("two", TOOL), &body)).await.expect(201).state("proposed");
    assert_eq!(held.at("/approval/held_for"), "one");
    assert_eq!(read(&ann, &granted).await.at("/uses"), 1);
}

async fn the_same_request_makes_one_grant(store: StoreUnderTest) {
    let (api, ann) = guarded(store).await;
    let body = terms(&json!({ "idempotency_key": "monday" }));
    let posts = (0..8).map(|_| ann.post("/api/grants", &body));
    let answers = futures_util::future::join_all(posts).await;
    assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 1, "{answers:#?}");
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 7, "{answers:#?}");
    assert!(answers.iter().all(|answer| answer.json == answers[0].json));
    let by_header = ann.call("POST", "/api/grants").header("idempotency-key", "monday").json(&terms(&json!({})));
    assert_eq!(by_header.send().await.expect(200).json, answers[0].json);
    ann.post("/api/grants", &bodies::with(body.clone(), &json!({ "max_uses": 5 })))
        .await
        .problem(422, "operation-reused");
    let both = ann.call("POST", "/api/grants").header("idempotency-key", "tuesday").json(&body).send().await;
    both.problem(400, "invalid-request").faults_at(&["/idempotency_key"]);
    // The key is its author's own.
    let ben = person(store, &api, "ben");
    ben.post("/api/grants", &body).await.expect(201);
    assert_eq!(ann.pages("/api/grants?limit=1").await.len(), 2);
}

async fn grants_are_checked(store: StoreUnderTest) {
    let (api, ann) = guarded(store).await;
    api.put_tool("free", &json!({ "effect": "none" })).await.expect(201);
    let quorum = json!({ "effect": "external", "authorization": { "mode": "approval", "approvals": 2 } });
    api.put_tool("quorum", &quorum).await.expect(201);
    let digest = format!("sha256:{}", "0".repeat(64));
    for (more, pointers) in [
        (json!({ "tool": "" }), &["/tool"][..]),
        (json!({ "tool": "absent" }), &["/tool"]),
        (json!({ "tool": "free" }), &["/tool"]),
        (json!({ "tool": "quorum" }), &["/tool"]),
        (json!({ "target": "" }), &["/target"]),
        (json!({ "target": "a", "target_prefix": "b" }), &["/target_prefix"]),
        (json!({ "target_prefix": "x".repeat(257) }), &["/target_prefix"]),
        (json!({ "arguments": "a\0b" }), &["/arguments"]),
        (json!({ "arguments": 1, "arguments_digest": digest }), &["/arguments_digest"]),
        (json!({ "arguments_digest": "sha256:x" }), &["/arguments_digest"]),
        (json!({ "run_id": " " }), &["/run_id"]),
        (json!({ "session_id": "a\n" }), &["/session_id"]),
        (json!({ "max_uses": 0 }), &["/max_uses"]),
        (json!({ "max_uses": 100_001 }), &["/max_uses"]),
        (json!({ "max_uses": -1 }), &["/max_uses"]),
        (json!({ "expires_after_seconds": 0 }), &["/expires_after_seconds"]),
        (json!({ "expires_after_seconds": 31_536_001 }), &["/expires_after_seconds"]),
        (json!({ "expires_at": "2020-01-01T00:00:00Z" }), &["/expires_after_seconds"]),
        (json!({ "expires_at": "2020-01-01T00:00:00Z", "expires_after_seconds": Value::Null }), &["/expires_at"]),
        (json!({ "expires_at": "2999-01-01T00:00:00Z", "expires_after_seconds": Value::Null }), &["/expires_at"]),
        (json!({ "expires_at": "soon", "expires_after_seconds": Value::Null }), &["/expires_at"]),
        (json!({ "expires_after_seconds": Value::Null }), &["/expires_at"]),
        (json!({ "reason": " " }), &["/reason"]),
        (json!({ "reason": "x".repeat(2049) }), &["/reason"]),
        (json!({ "idempotency_key": "" }), &["/idempotency_key"]),
        (json!({ "bogus": 1 }), &["/bogus"]),
    ] {
        let answer = ann.post("/api/grants", &terms(&more)).await;
        answer.problem(400, "invalid-request").faults_at(pointers);
    }
    assert_eq!(ann.pages("/api/grants?limit=10").await.len(), 0);
    for id in ["x", "00000000-0000-4000-8000-000000000000"] {
        ann.read(&format!("/api/grants/{id}")).await.problem(404, "not-found");
        ann.call("POST", &format!("/api/grants/{id}/revoke")).send().await.problem(404, "not-found");
    }
}

async fn grants_stay_within_their_tenant_and_outlive_a_kill(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let policy = json!({ "effect": "external", "authorization": { "mode": "approval" } });
    let (api, other) = (Api::of(&server, "t"), Api::of(&server, "u"));
    for api in [&api, &other] {
        tool(api, policy.clone()).await;
    }
    let approver = |tenant: &str| server.token(tenant, "ann", "effects:approve");
    let (ann, eve) = (api.with_token(Some(approver("t"))), other.with_token(Some(approver("u"))));
    let granted = grant(&ann, &json!({ "max_uses": 2 })).await;
    let path = format!("/api/grants/{}", granted.str("/grant_id"));
    eve.read(&path).await.problem(404, "not-found");
    eve.call("POST", &format!("{path}/revoke")).send().await.problem(404, "not-found");
    assert_eq!(eve.pages("/api/grants?limit=10").await.len(), 0);
    other.intent(&bodies::intent("op", TOOL)).await.expect(201).state("proposed");
    api.intent(&bodies::intent("one", TOOL)).await.expect(201).state("intent_recorded");
    server.kill9();
    server.restart();
    let (api, ann) = (api.at(&server), ann.at(&server));
    assert_eq!(ann.read(&path).await.expect(200).at("/uses"), 1);
    api.intent(&bodies::intent("two", TOOL)).await.expect(201).state("intent_recorded");
    api.intent(&bodies::intent("three", TOOL)).await.expect(201).state("proposed");
}
