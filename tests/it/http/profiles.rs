//! Profiles: declared components, sessions bound to them, adoption (protocol §9).

use std::process::Command;

use serde_json::{Value, json};

use crate::http::approvals::{approve, person};
use crate::http::{TOOL, external, profile, tool};
use crate::support::server::program;
use crate::support::{Answer, Api, Options, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_profile_is_a_set_of_components,
    profiles_are_checked,
    a_profile_has_to_be_declared,
    the_first_intent_binds_its_session,
    of_first_intents_at_once_one_binds,
    adoption_is_explicit_and_waits_for_settlement,
    an_adoption_is_had_again_under_its_key,
    an_adoption_counts_on_every_replica_at_once,
    no_intent_slips_past_an_adoption,
    an_adoption_makes_proposals_stale,
    bindings_outlive_a_kill_and_stay_within_their_tenant,
    profiles_are_compared_by_class_alone,
);

fn in_session(operation: &str, session: &str, profile: &str) -> Value {
    bodies::with(bodies::intent(operation, TOOL), &json!({ "session_id": session, "profile_id": profile }))
}

async fn adopt(api: &Api, session: &str, profile: &str, key: &str) -> Answer {
    let body = json!({ "profile_id": profile, "idempotency_key": key, "reason": "an upgrade" });
    api.post(&format!("/api/sessions/{session}/profile"), &body).await
}

async fn put(api: &Api, components: &Value) -> Answer {
    api.call("PUT", "/api/profiles").json(&json!({ "components": components })).send().await
}

fn component(class: &str, name: &str, version: &str) -> Value {
    json!({ "class": class, "name": name, "behavior_version": version, "implementation_version": version })
}

async fn a_profile_is_a_set_of_components(store: StoreUnderTest) {
    let api = store.tenant();
    let (a, b) = (component("tool", "a", "1"), component("environment", "b", "é"));
    let first = put(&api, &json!([a, b])).await.expect(200);
    assert_eq!(put(&api, &json!([b, a])).await.expect(200).json, first.json);
    assert_ne!(put(&api, &json!([a])).await.expect(200).json, first.json);
    let id = first.str("/profile_id");
    let read = api.read(&format!("/api/profiles/{}", crate::support::api::segment(id))).await.expect(200);
    assert_eq!(read.at("/components"), &json!([a, b]));
    assert_eq!(read.at("/declared_by"), "tester");
    // Anybody can tell the id: it is the digest of canonical JSON.
    let canonical = serde_json_canonicalizer::to_string(&json!([a, b])).unwrap();
    assert_eq!(id, actonce::domain::canonical::Sha256Digest::of(canonical.as_bytes()).as_str());
    let other = store.tenant();
    other.read(&format!("/api/profiles/{}", crate::support::api::segment(id))).await.problem(404, "not-found");
}

async fn profiles_are_checked(store: StoreUnderTest) {
    let api = store.tenant();
    let good = component("tool", "a", "1");
    for (components, pointers) in [
        (json!([]), &["/components"][..]),
        (json!([good, good]), &["/components/1"]),
        (json!([component("tool", "", "1")]), &["/components/0/name"]),
        (
            json!([component("tool", "a", "x\n")]),
            &["/components/0/behavior_version", "/components/0/implementation_version"],
        ),
        (json!([component("tool", &"a".repeat(257), "1")]), &["/components/0/name"]),
        (json!([component("person", "a", "1")]), &["/components/0/class"]),
        (json!([{ "class": "tool", "name": "a" }]), &["/components/0"]),
        (json!([bodies::with(good.clone(), &json!({ "bogus": 1 }))]), &["/components/0/bogus"]),
        (Value::from((0..257).map(|n| component("tool", &n.to_string(), "1")).collect::<Vec<_>>()), &["/components"]),
    ] {
        put(&api, &components).await.problem(400, "invalid-request").faults_at(pointers);
    }
}

async fn a_profile_has_to_be_declared(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let undeclared = format!("sha256:{}", "0".repeat(64));
    for body in [
        in_session("op", "s", &undeclared),
        bodies::with(bodies::intent("op", TOOL), &json!({ "profile_id": undeclared })),
        in_session("op", "s", &profile(&store.tenant(), "1").await),
    ] {
        api.intent(&body).await.problem(400, "invalid-request").faults_at(&["/profile_id"]);
    }
    api.get("op").await.problem(404, "not-found");
    api.read("/api/sessions/s/profile").await.problem(404, "not-found");
    adopt(&api, "s", &undeclared, "k").await.problem(404, "not-found");
}

async fn the_first_intent_binds_its_session(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let (one, two) = (profile(&api, "private-version-1").await, profile(&api, "private-version-2").await);
    // A refused intent binds nothing.
    api.intent(&bodies::with(in_session("bad", "s", &one), &json!({ "effect": "none" })))
        .await
        .problem(400, "invalid-request");
    api.read("/api/sessions/s/profile").await.problem(404, "not-found");
    api.intent(&in_session("first", "s", &one)).await.expect(201);
    let bound = api.read("/api/sessions/s/profile").await.expect(200);
    assert_eq!((bound.at("/profile_id"), bound.at("/bound_by")), (&json!(one), &json!("tester")));
    let refused = api.intent(&in_session("second", "s", &two)).await.problem(409, "profile-mismatch");
    assert_eq!(refused.at("/differences"), &json!([{ "class": "tool", "category": "opaque_identity" }]));
    for content in ["private-version", TOOL, one.as_str(), two.as_str()] {
        assert!(!refused.text.contains(content), "{refused}");
    }
    api.get("second").await.problem(404, "not-found");
    let more =
        put(&api, &json!([component("tool", "another", "1"), component("policy", "limits", "1")])).await.expect(200);
    let refused = api.intent(&in_session("third", "s", more.str("/profile_id"))).await.problem(409, "profile-mismatch");
    assert_eq!(refused.at("/differences"), &json!([{ "class": "tool", "category": "other_or_unknown" }]));
    // An unsettled effect is not for another profile either; a settled one is had again by everybody.
    api.intent(&in_session("first", "s", &two)).await.problem(409, "profile-mismatch");
    let repeat = bodies::with(in_session("first", "s", &two), &json!({ "claim": bodies::claim() }));
    api.intent(&repeat).await.problem(409, "profile-mismatch");
    api.cancel("first").await.expect(200);
    api.intent(&in_session("first", "s", &two)).await.expect(200).directive("stop");
    // Without a profile, and in other sessions.
    api.intent(&bodies::with(bodies::intent("none", TOOL), &json!({ "session_id": "s" }))).await.expect(201);
    api.intent(&in_session("elsewhere", "s-2", &two)).await.expect(201);
    api.intent(&in_session("same", "s", &one)).await.expect(201);
    // In a batch, each item has its own answer.
    let items = json!({ "items": [in_session("b-1", "s", &one), in_session("b-2", "s", &two)] });
    let batch = api.post("/api/intents/batch", &items).await.expect(200);
    assert_eq!((batch.at("/items/0/status"), batch.at("/items/1/status")), (&json!(201), &json!(409)), "{batch}");
}

async fn of_first_intents_at_once_one_binds(store: StoreUnderTest) {
    let (server, tenant) = (store.server(Options::default()), "t");
    let replica = server.replica();
    let (a, b) = (Api::of(&server, tenant), Api::of(&replica, tenant));
    external(&a).await;
    let profiles = [profile(&a, "1").await, profile(&a, "2").await];
    for round in 0..5 {
        let session = format!("s-{round}");
        let work = (0..10).map(|number| {
            let (api, chosen) = (if number % 2 == 0 { &a } else { &b }, &profiles[number % 2]);
            let body = in_session(&format!("op-{round}-{number}"), &session, chosen);
            async move { (chosen, api.intent(&body).await) }
        });
        let answers = futures_util::future::join_all(work).await;
        let bound = a.read(&format!("/api/sessions/{session}/profile")).await.expect(200);
        for (chosen, answer) in answers {
            if bound.at("/profile_id") == chosen {
                answer.expect(201);
            } else {
                answer.problem(409, "profile-mismatch");
            }
        }
    }
}

async fn adoption_is_explicit_and_waits_for_settlement(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let (one, two) = (profile(&api, "1").await, profile(&api, "2").await);
    let claiming = bodies::with(in_session("live", "s", &one), &json!({ "claim": bodies::claim() }));
    let granted = api.intent(&claiming).await.expect(201).directive("dispatch");
    api.intent(&in_session("prepared", "s", &one)).await.expect(201);
    let refused = adopt(&api, "s", &two, "k").await.problem(409, "state-conflict");
    assert_eq!(refused.at("/unresolved"), &json!({ "dispatched": 1, "intent_recorded": 1 }));
    api.outcome("live", &bodies::unknown(&granted)).await.expect(200).state("outcome_unknown");
    api.cancel("prepared").await.expect(200);
    let refused = adopt(&api, "s", &two, "k").await.problem(409, "state-conflict");
    assert_eq!(refused.at("/unresolved"), &json!({ "outcome_unknown": 1 }));
    api.intent(&in_session("more", "s", &two)).await.problem(409, "profile-mismatch");
    api.outcome("live", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    // Another session's doubt is its own.
    api.intent(&in_session("other", "s-2", &one)).await.expect(201);
    let adopted = adopt(&api, "s", &two, "k").await.expect(200);
    assert_eq!((adopted.at("/previous_profile_id"), adopted.at("/profile_id")), (&json!(one), &json!(two)));
    assert_eq!(api.read("/api/sessions/s/profile").await.expect(200).at("/profile_id"), &json!(two));
    api.intent(&in_session("old", "s", &one)).await.problem(409, "profile-mismatch");
    api.intent(&in_session("new", "s", &two)).await.expect(201);
}

async fn an_adoption_is_had_again_under_its_key(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let (one, two) = (profile(&api, "1").await, profile(&api, "2").await);
    api.intent(&in_session("op", "s", &one)).await.expect(201);
    api.cancel("op").await.expect(200);
    let all = futures_util::future::join_all((0..6).map(|_| adopt(&api, "s", &two, "k"))).await;
    assert!(all.iter().all(|answer| answer.status == 200 && answer.json == all[0].json), "{all:#?}");
    // Also while something is unresolved, and after another adoption.
    api.intent(&in_session("next", "s", &two)).await.expect(201);
    assert_eq!(adopt(&api, "s", &two, "k").await.expect(200).json, all[0].json);
    api.cancel("next").await.expect(200);
    adopt(&api, "s", &one, "back").await.expect(200);
    assert_eq!(adopt(&api, "s", &two, "k").await.expect(200).json, all[0].json);
    assert_eq!(api.read("/api/sessions/s/profile").await.expect(200).at("/profile_id"), &json!(one));
    adopt(&api, "s", &one, "k").await.problem(422, "operation-reused");
    let body = json!({ "profile_id": two, "reason": "an upgrade" });
    let by_header = api.call("POST", "/api/sessions/s/profile").header("idempotency-key", "k").json(&body);
    assert_eq!(by_header.send().await.expect(200).json, all[0].json);
    api.post("/api/sessions/s/profile", &body).await.problem(400, "invalid-request").faults_at(&["/idempotency_key"]);
    let absent = adopt(&api, "absent", &two, "k").await.problem(404, "not-found");
    assert!(!absent.text.contains("absent"));
}

async fn an_adoption_counts_on_every_replica_at_once(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let replica = server.replica();
    let (here, there) = (Api::of(&server, "t"), Api::of(&replica, "t"));
    external(&here).await;
    let (one, two) = (profile(&here, "1").await, profile(&here, "2").await);
    for round in 0..4 {
        let session = format!("s-{round}");
        // Both know what the session is bound to.
        for (api, name) in [(&here, "here"), (&there, "there")] {
            let operation = format!("{name}-{round}");
            api.intent(&in_session(&operation, &session, &one)).await.expect(201);
            api.cancel(&operation).await.expect(200);
        }
        adopt(&here, &session, &two, "k").await.expect(200);
        there.intent(&in_session(&format!("old-{round}"), &session, &one)).await.problem(409, "profile-mismatch");
        there.intent(&in_session(&format!("new-{round}"), &session, &two)).await.expect(201);
    }
}

/// An adoption and intents under the old profile at the same time: one of them has to lose.
async fn no_intent_slips_past_an_adoption(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let replica = server.replica();
    let (here, there) = (Api::of(&server, "t"), Api::of(&replica, "t"));
    external(&here).await;
    let (one, two) = (profile(&here, "1").await, profile(&here, "2").await);
    let mut adopted = 0;
    for round in 0..12 {
        let session = format!("s-{round}");
        let first = format!("first-{round}");
        here.intent(&in_session(&first, &session, &one)).await.expect(201);
        here.cancel(&first).await.expect(200);
        let intents = (0..4).map(|number| {
            let api = if number % 2 == 0 { &here } else { &there };
            let body = in_session(&format!("op-{round}-{number}"), &session, &one);
            async move { api.intent(&body).await }
        });
        let (adoption, intents) =
            tokio::join!(adopt(&here, &session, &two, "k"), futures_util::future::join_all(intents));
        let made = intents.iter().filter(|answer| answer.status == 201).count();
        if adoption.status == 200 {
            assert_eq!(made, 0, "an intent under the old profile is open: {intents:#?}");
            adopted += 1;
        } else {
            adoption.problem(409, "state-conflict");
            assert!(made > 0, "{intents:#?}");
        }
    }
    assert!(adopted <= 12);
}

async fn an_adoption_makes_proposals_stale(store: StoreUnderTest) {
    let api = store.tenant();
    let policy = json!({ "mode": "approval", "approvals": 2 });
    tool(&api, json!({ "effect": "external", "authorization": policy })).await;
    let (one, two) = (profile(&api, "1").await, profile(&api, "2").await);
    let (ann, ben) = (person(store, &api, "ann"), person(store, &api, "ben"));
    let proposed = api.intent(&in_session("op", "s", &one)).await.expect(201).state("proposed");
    approve(&ann, &proposed).await.expect(200).state("proposed");
    assert_eq!(ann.read("/api/approvals/op").await.expect(200).at("/stale"), false);
    adopt(&api, "s", &two, "k").await.expect(200);
    let read = ann.read("/api/approvals/op").await.expect(200);
    assert_eq!((read.at("/stale"), read.at("/state")), (&json!(true), &json!("pending")));
    approve(&ben, &api.get("op").await).await.problem(409, "approval-stale");
    api.get("op").await.state("proposed");
    api.dispatch("op", &bodies::claim()).await.expect(200).directive("authorize");
    api.cancel("op").await.expect(200).state("refused");
    // Under the new profile people are asked anew.
    let proposed = api.intent(&in_session("next", "s", &two)).await.expect(201).state("proposed");
    approve(&ann, &proposed).await.expect(200);
    approve(&ben, &api.get("next").await).await.expect(200).state("intent_recorded");
    // What was approved has to be settled first.
    adopt(&api, "s", &one, "back").await.problem(409, "state-conflict");
}

async fn bindings_outlive_a_kill_and_stay_within_their_tenant(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let (api, other) = (Api::of(&server, "t"), Api::of(&server, "u"));
    for api in [&api, &other] {
        external(api).await;
    }
    let (one, two) = (profile(&api, "1").await, profile(&api, "2").await);
    api.intent(&in_session("op", "s", &one)).await.expect(201);
    profile(&other, "2").await;
    other.read("/api/sessions/s/profile").await.problem(404, "not-found");
    other.intent(&in_session("op", "s", &two)).await.expect(201);
    server.kill9();
    server.restart();
    let api = api.at(&server);
    api.intent(&in_session("next", "s", &two)).await.problem(409, "profile-mismatch");
    api.intent(&in_session("next", "s", &one)).await.expect(201);
}

async fn profiles_are_compared_by_class_alone(store: StoreUnderTest) {
    let server = store.server(Options::default());
    let api = Api::of(&server, "t");
    let (one, two) = (profile(&api, "secret-1").await, profile(&api, "secret-2").await);
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &Value| {
        let path = folder.path().join(name);
        std::fs::write(&path, content.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let listed = write("list", &json!([component("policy", "secret-p", "1")]));
    let object = write("object", &json!({ "components": [component("policy", "secret-p", "1")] }));
    let faulty = write("faulty", &json!({ "components": [{ "class": "tool" }] }));
    let run = |a: &str, b: &str, token: bool| {
        let mut command: Command = program();
        command.args(["profile", "compare", a, b, "--url", &api.url]);
        if token {
            command.args(["--token", api.token.as_deref().unwrap()]);
        }
        let output = command.output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("secret"), "{text}");
        (output.status.code(), serde_json::from_str::<Value>(&text).unwrap_or_default())
    };
    assert_eq!(run(&listed, &object, false), (Some(0), json!({ "equal": true, "differences": [] })));
    assert_eq!(run(&one, &one, true).0, Some(0));
    let newer = json!({ "equal": false, "differences": [{ "class": "tool", "category": "opaque_identity" }] });
    assert_eq!(run(&one, &two, true), (Some(3), newer));
    let (code, report) = run(&one, &listed, true);
    let categories = json!([{ "class": "tool", "category": "other_or_unknown" },
        { "class": "policy", "category": "other_or_unknown" }]);
    assert_eq!((code, &report["differences"]), (Some(3), &categories));
    for (a, b, token) in [
        (one.as_str(), two.as_str(), false),
        (&faulty, &listed, false),
        ("absent", &listed, false),
        (&format!("sha256:{}", "0".repeat(64)), &one, true),
    ] {
        assert_eq!(run(a, b, token).0, Some(2), "{a} {b}");
    }
    let usage = program().args(["profile", "compare", "one"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
}
