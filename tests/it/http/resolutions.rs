//! Operators decide (protocol §6), and what they look at (law 7).

use futures_util::future::join;
use serde_json::{Value, json};

use crate::http::{TOOL, external, granted, in_review, tool};
use crate::support::downstream::{Downstream, Mode};
use crate::support::{Api, StoreUnderTest, bodies, both_stores};

both_stores!(
    a_person_decides_with_evidence,
    a_decision_is_told_again_and_made_once,
    what_is_not_a_decision_is_refused,
    only_what_is_with_a_person_is_resolved,
    of_two_operators_one_decides,
    four_eyes_decide_where_the_tool_asks,
    a_retry_by_decision_needs_a_new_approval,
    a_settled_outcome_stays_and_its_flag_goes,
    late_reports_are_listed_with_their_receipts,
    a_late_failure_of_an_earlier_attempt_changes_nothing,
    resolved_effects_act_no_more_than_was_decided,
);

async fn a_person_decides_with_evidence(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let cases = [
        ("completed", "completed", "replay", "effect.completed"),
        ("failed", "failed", "stop", "effect.failed"),
        ("safe_to_retry", "safe_to_retry", "claim", "effect.safe_to_retry"),
        ("outcome_unknown", "outcome_unknown", "reconcile", "effect.outcome_unknown"),
    ];
    for (outcome, state, directive, event) in cases {
        in_review(&api, outcome).await;
        // Odd writing, which has to come back as it was.
        let evidence = "{ \"ticket\":\"hunter2\",\"n\":1.0 }";
        let reason = "hunter3";
        let body = format!(
            "{{\"decision_id\":\"d-1\",\"outcome\":\"{outcome}\",\"reason\":\"{reason}\",\"evidence\":{evidence}}}"
        );
        let path = format!("/api/effects/{outcome}/resolution");
        let answer = api.call("POST", &path).header("if-match", "\"3\"").text(&body).send().await;
        let answer = answer.expect(200).state(state).directive(directive);
        assert_eq!((answer.revision(), answer.at("/replayed")), (4, &json!(false)));
        assert_eq!((answer.str("/resolution/decision_id"), answer.str("/resolution/by")), ("d-1", "tester"));
        assert!(answer.json.get("contradicted").is_none(), "{answer}");
        let entry = api.journal(outcome).await.pop().unwrap();
        let events: Vec<&str> =
            entry["events"].as_array().unwrap().iter().map(|e| e["type"].as_str().unwrap()).collect();
        assert_eq!(events, ["effect.resolved", event]);
        for text in [answer.text.clone(), entry.to_string(), api.get(outcome).await.text] {
            assert!(!text.contains("hunter"), "law 11: {text}");
        }
        let list = api.read(&format!("/api/effects/{outcome}/resolutions")).await.expect(200);
        assert!(list.text.contains(&format!("\"evidence\":{evidence}")), "byte for byte: {list}");
        let made = list.at("/items/0");
        assert_eq!((&made["reason"], &made["revision"]), (&json!(reason), &json!(4)));
        assert_eq!(made["evidence_digest"], entry["events"][0]["evidence_digest"]);
        assert_eq!(made["decision_digest"], entry["events"][0]["decision_digest"]);
    }
    let reader = api.with_token(Some(store.shared().token(&api.tenant, "reader", "effects:read")));
    reader.read("/api/effects/completed/resolutions").await.problem(403, "insufficient-scope");
    let log = store.shared().log();
    assert!(!log.contains("hunter2") && !log.contains("hunter3"), "law 11");
}

async fn a_decision_is_told_again_and_made_once(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    in_review(&api, "op").await;
    let first = bodies::resolution("d-1", "outcome_unknown");
    api.resolve("op", 3, &first).await.expect(200).state("outcome_unknown");
    for revision in [3, 4, 9] {
        let again = api.resolve("op", revision, &first).await.expect(200);
        assert_eq!((again.at("/replayed"), again.revision()), (&json!(true), 4));
    }
    for other in [
        bodies::resolution("d-1", "completed"),
        bodies::with(first.clone(), &json!({ "reason": "another" })),
        bodies::with(first.clone(), &json!({ "evidence": { "ticket": "OPS-8" } })),
    ] {
        let answer = api.resolve("op", 4, &other).await.problem(409, "state-conflict");
        assert!(answer.str("/detail").contains("decision id"), "{answer}");
    }
    // Evidence of another act brings it back, and the next decision does not make the first forgotten.
    let stray = bodies::succeeded(&granted(&api, "stray").await);
    let stray = bodies::set(stray, "/receipt/operation_id", json!("op"));
    api.outcome("op", &stray).await.problem(409, "stale-fence");
    api.get("op").await.state("manual_review");
    api.resolve("op", 5, &bodies::resolution("d-2", "failed")).await.expect(200).state("failed");
    let again = api.resolve("op", 3, &first).await.expect(200).state("failed");
    assert_eq!((again.at("/replayed"), again.revision()), (&json!(true), 6));
    let made = api.read("/api/effects/op/resolutions?limit=1").await.expect(200);
    assert_eq!(made.at("/items/0/decision_id"), "d-1");
    let all = api.pages("/api/effects/op/resolutions?limit=1").await;
    assert_eq!(all.iter().map(|made| made["decision_id"].as_str().unwrap()).collect::<Vec<_>>(), ["d-1", "d-2"]);
    let events = api.events("op").await;
    assert_eq!(events.iter().filter(|event| *event == "effect.resolved").count(), 2, "{events:?}");
}

async fn what_is_not_a_decision_is_refused(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    in_review(&api, "op").await;
    let good = bodies::resolution("d-1", "completed");
    api.act("op", "resolution", &good).await.problem(428, "precondition-required");
    for stale in [1, 2, 4] {
        let answer = api.resolve("op", stale, &good).await.problem(412, "stale-revision");
        assert_eq!(answer.at("/found"), &json!({ "revision": 3, "state": "manual_review" }));
    }
    let deep = format!("{}1{}", "[".repeat(70), "]".repeat(70));
    let faults: [(&str, Value, &str); 9] = [
        ("/decision_id", json!(""), "/decision_id"),
        ("/decision_id", json!("x".repeat(257)), "/decision_id"),
        ("/reason", json!("  "), "/reason"),
        ("/reason", json!("x".repeat(2049)), "/reason"),
        ("/reason", json!("a\u{0}"), "/reason"),
        ("/evidence", json!({}), "/evidence"),
        ("/evidence", json!(["ticket"]), "/evidence"),
        ("/evidence", json!({ "a": "\u{0}" }), "/evidence/a"),
        ("/evidence", json!({ "a": serde_json::from_str::<Value>(&deep).unwrap() }), ""),
    ];
    for (pointer, value, at) in faults {
        let answer = api.resolve("op", 3, &bodies::set(good.clone(), pointer, value)).await;
        let answer = answer.problem(400, "invalid-request");
        assert!(answer.str("/faults/0/pointer").starts_with(at), "{answer}");
    }
    for (name, value) in [("outcome", json!("refused")), ("more", json!(1))] {
        let body = bodies::with(good.clone(), &json!({ name: value }));
        api.resolve("op", 3, &body).await.problem(400, "invalid-request");
    }
    for missing in ["decision_id", "outcome", "reason", "evidence"] {
        api.resolve("op", 3, &bodies::without(good.clone(), missing)).await.problem(400, "invalid-request");
    }
    let of_size = |bytes: usize| bodies::set(good.clone(), "/evidence", json!({ "a": "x".repeat(bytes - 8) }));
    let answer = api.resolve("op", 3, &of_size(16_385)).await.problem(413, "too-large").faults_at(&["/evidence"]);
    assert_eq!(answer.at("/limit_bytes"), 16_384);
    assert_eq!(api.get("op").await.revision(), 3, "nothing of these was stored");
    api.resolve("op", 3, &of_size(16_384)).await.expect(200).state("completed");
    api.resolve("absent", 3, &good).await.problem(404, "not-found");
}

async fn only_what_is_with_a_person_is_resolved(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let decision = bodies::resolution("d-1", "completed");
    api.intent(&bodies::intent("intent_recorded", TOOL)).await.expect(201);
    granted(&api, "dispatched").await;
    let doubt = granted(&api, "outcome_unknown").await;
    api.outcome("outcome_unknown", &bodies::unknown(&doubt)).await.expect(200);
    let receipted = granted(&api, "verifying").await;
    api.outcome("verifying", &bodies::receipted(&receipted)).await.expect(200);
    let retry = granted(&api, "safe_to_retry").await;
    api.outcome("safe_to_retry", &bodies::not_sent(&retry)).await.expect(200);
    let done = granted(&api, "completed").await;
    api.outcome("completed", &bodies::succeeded(&done)).await.expect(200);
    for (id, hint) in [
        ("intent_recorded", "claim"),
        ("dispatched", "cancel"),
        ("outcome_unknown", "reconcile"),
        ("verifying", "verification"),
        ("safe_to_retry", "claim"),
        ("completed", "settled"),
    ] {
        let found = api.get(id).await.state(id);
        let answer = api.resolve(id, found.revision(), &decision).await.problem(409, "state-conflict");
        assert_eq!(answer.str("/state"), id);
        assert!(answer.str("/detail").contains(hint), "says what would help: {answer}");
        assert_eq!(api.get(id).await.revision(), found.revision());
    }
}

/// Two at the same revision: one wins, the other learns what was found.
async fn of_two_operators_one_decides(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let person = |name: &str| api.with_token(Some(store.shared().token(&api.tenant, name, "effects:resolve")));
    let (ann, bob) = (person("ann"), person("bob"));
    for round in 0..10 {
        let id = format!("op-{round}");
        in_review(&api, &id).await;
        let (of_ann, of_bob) = (bodies::resolution("d-ann", "completed"), bodies::resolution("d-bob", "failed"));
        let (first, second) = join(ann.resolve(&id, 3, &of_ann), bob.resolve(&id, 3, &of_bob)).await;
        let found = api.get(&id).await;
        assert_eq!(found.revision(), 4);
        let winner = found.str("/resolution/by").to_owned();
        let (won, lost, state) = if winner == "ann" { (first, second, "completed") } else { (second, first, "failed") };
        won.expect(200).state(state);
        let lost = lost.problem(412, "stale-revision");
        assert_eq!(lost.at("/found"), &json!({ "revision": 4, "state": state }));
        found.state(state);
    }
}

async fn four_eyes_decide_where_the_tool_asks(store: StoreUnderTest) {
    let api = store.tenant();
    let authorization = json!({ "mode": "approval", "four_eyes": true });
    tool(&api, json!({ "effect": "external", "authorization": authorization })).await;
    let person = |name: &str| api.with_token(Some(store.shared().token(&api.tenant, name, "all")));
    let (agent, ann, bob, carl) = (person("agent"), person("ann"), person("bob"), person("carl"));
    let approve = async |who: &Api| {
        let answer = api.get("op").await.state("proposed");
        let body = bodies::decision(&answer, "approve");
        who.authorize("op", answer.revision(), &body).await.expect(200);
    };
    agent.intent(&bodies::intent("op", TOOL)).await.expect(201).state("proposed");
    approve(&ann).await;
    let first = agent.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
    agent.outcome("op", &bodies::not_sent(&first)).await.expect(200).state("safe_to_retry");
    agent.dispatch("op", &bodies::claim()).await.expect(200).directive("authorize");
    approve(&bob).await;
    agent.outcome("op", &bodies::succeeded(&first)).await.problem(409, "state-conflict");
    let review = api.get("op").await.state("manual_review");
    // Who proposed, who approved, and who approved an earlier dispatch.
    for who in [&agent, &bob, &ann] {
        let answer = who.resolve("op", review.revision(), &bodies::resolution("d-1", "completed")).await;
        answer.problem(403, "insufficient-scope");
        assert_eq!(api.get("op").await.revision(), review.revision());
    }
    carl.resolve("op", review.revision(), &bodies::resolution("d-1", "completed")).await.expect(200).state("completed");
    // Other tools do not ask.
    api.put_tool("free", &json!({ "effect": "external" })).await.expect(201);
    let granted = agent.intent(&bodies::claiming("free", "free")).await.expect(201);
    agent.outcome("free", &bodies::not_sent(&granted)).await.expect(200);
    agent.outcome("free", &bodies::succeeded(&granted)).await.problem(409, "state-conflict");
    agent.resolve("free", 3, &bodies::resolution("d-1", "failed")).await.expect(200).state("failed");
}

async fn a_retry_by_decision_needs_a_new_approval(store: StoreUnderTest) {
    let api = store.tenant();
    let authorization = json!({ "mode": "approval", "four_eyes": false });
    tool(&api, json!({ "effect": "external", "authorization": authorization })).await;
    // Approved and not yet dispatched when somebody says that it happened already.
    let proposed = api.intent(&bodies::intent("op", TOOL)).await.expect(201);
    let body = bodies::decision(&proposed, "approve");
    api.authorize("op", proposed.revision(), &body).await.expect(200).state("intent_recorded");
    api.put_tool("free", &json!({ "effect": "external" })).await.expect(201);
    let other = api.intent(&bodies::claiming("other", "free")).await.expect(201);
    let stray = bodies::set(bodies::succeeded(&other), "/receipt/operation_id", json!("op"));
    api.outcome("op", &stray).await.problem(409, "stale-fence");
    let review = api.get("op").await.state("manual_review");
    let decided = api.resolve("op", review.revision(), &bodies::resolution("d-1", "safe_to_retry")).await;
    decided.expect(200).state("safe_to_retry");
    let asked = api.dispatch("op", &bodies::claim()).await.expect(200).state("proposed").directive("authorize");
    assert_eq!(asked.at("/approval/approvals"), 0);
}

async fn a_settled_outcome_stays_and_its_flag_goes(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    api.outcome("op", &bodies::failed(&granted)).await.problem(409, "state-conflict");
    let flagged = api.get("op").await.state("completed");
    assert_eq!(flagged.at("/contradicted"), true);
    for outcome in ["safe_to_retry", "outcome_unknown"] {
        let answer = api.resolve("op", flagged.revision(), &bodies::resolution("d-0", outcome)).await;
        assert!(answer.problem(409, "state-conflict").str("/detail").contains("settled outcome stays"));
    }
    let decided = api.resolve("op", flagged.revision(), &bodies::resolution("d-1", "failed")).await.expect(200);
    let decided = decided.state("completed").directive("replay");
    assert!(decided.json.get("contradicted").is_none(), "{decided}");
    assert_eq!(decided.at("/receipt"), flagged.at("/receipt"));
    assert_eq!(decided.at("/resolution/outcome"), "failed", "what the person said is on record");
    api.resolve("op", decided.revision(), &bodies::resolution("d-2", "failed")).await.problem(409, "state-conflict");
}

async fn late_reports_are_listed_with_their_receipts(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    assert!(api.read("/api/effects/op/reports").await.expect(200).at("/items").as_array().unwrap().is_empty());
    api.outcome("op", &bodies::succeeded(&granted)).await.expect(200).state("completed");
    // Members in another order, odd numbers: what was recorded is the receipt as the service writes it.
    let failed = bodies::set(bodies::failed(&granted), "/receipt/structured", json!({ "z": 1.50, "a": "ä" }));
    api.outcome("op", &failed).await.problem(409, "state-conflict");
    api.outcome("op", &bodies::unknown(&granted)).await.problem(409, "state-conflict");
    let denied = bodies::set(bodies::verification(), "/verified", json!(false));
    api.verify("op", &denied).await.problem(409, "state-conflict");
    let found = api.get("op").await.state("completed");
    assert_eq!(found.at("/late_reports"), 3);
    let all = api.pages("/api/effects/op/reports?limit=2").await;
    assert_eq!(all.len(), 3);
    assert_eq!(all, api.pages("/api/effects/op/reports?limit=200").await);
    assert_eq!(
        (&all[0]["outcome"], &all[0]["contradicts"], &all[0]["by"]),
        (&json!("failed"), &json!(true), &json!("tester"))
    );
    assert_eq!(all[0]["receipt"]["structured"], json!({ "z": 1.50, "a": "ä" }));
    let text = api.read("/api/effects/op/reports?limit=1").await.text;
    let (_, receipt) = text.split_once("\"receipt\":").unwrap();
    let receipt = receipt.strip_suffix(&text[text.find("}],\"next_cursor\"").unwrap()..]).unwrap();
    let digest = actonce::domain::canonical::Sha256Digest::of(receipt.as_bytes());
    assert_eq!(all[0]["receipt_digest"], digest.as_str(), "the bytes that were hashed");
    assert_eq!((&all[1]["outcome"], &all[1]["classification"]), (&json!("unknown"), &json!("timeout")));
    assert!(all[1].get("receipt").is_none() && !all[1].to_string().contains("no answer"), "no failure detail");
    assert_eq!((&all[2]["verified"], &all[2]["contradicts"]), (&json!(false), &json!(true)));
    let journal = api.journal("op").await;
    assert!(journal[2..].iter().all(|entry| entry["events"][0]["type"] == "effect.late_report"));
    api.read("/api/effects/absent/reports").await.problem(404, "not-found");
    api.read("/api/effects/op/reports?limit=0").await.problem(400, "invalid-request");
}

/// Two attempts are alive; the later one settles, and then the earlier one reports a failure.
async fn a_late_failure_of_an_earlier_attempt_changes_nothing(store: StoreUnderTest) {
    let api = store.tenant();
    let contract = json!({ "effect": "idempotent", "replay_contract": "the key is honoured",
        "downstream_key_ttl_seconds": 3600, "verification": "required" });
    tool(&api, contract).await;
    let downstream = Downstream::idempotent(Mode::Normal).await;
    let first = granted(&api, "op").await;
    let key = first.str("/dispatch/idempotency_key").to_owned();
    downstream.act(&key).await.unwrap();
    api.outcome("op", &bodies::unknown(&first)).await.expect(200).directive("claim");
    let second = api.dispatch("op", &bodies::claim()).await.expect(200).directive("dispatch");
    downstream.act(&key).await.unwrap();
    let settled = api.outcome("op", &bodies::succeeded(&second)).await.expect(200).state("completed");
    let late = bodies::failed(&first);
    for _ in 0..2 {
        let answer = api.outcome("op", &late).await.problem(409, "stale-fence");
        assert_eq!(answer.at("/evidence_recorded"), true);
    }
    let found = api.get("op").await.state("completed").directive("replay");
    assert_eq!(found.at("/receipt"), settled.at("/receipt"));
    let reports = api.pages("/api/effects/op/reports?limit=9").await;
    assert_eq!((reports.len(), &reports[0]["fence"]), (1, &json!(1)));
    assert_eq!(downstream.commits(&key), 1);
}

/// The downstream's own count says whether a decision let anybody act twice.
async fn resolved_effects_act_no_more_than_was_decided(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let downstream = Downstream::start(Mode::Normal).await;
    for (outcome, acts) in [("completed", 1), ("failed", 1), ("outcome_unknown", 1), ("safe_to_retry", 2)] {
        let granted = granted(&api, outcome).await;
        let key = granted.str("/dispatch/idempotency_key").to_owned();
        // It acts and says that it did not; then the receipt shows it.
        downstream.act(&key).await.unwrap();
        api.outcome(outcome, &bodies::not_sent(&granted)).await.expect(200);
        api.outcome(outcome, &bodies::succeeded(&granted)).await.problem(409, "state-conflict");
        for _ in 0..3 {
            api.dispatch(outcome, &bodies::claim()).await.expect(200).directive("review");
        }
        api.resolve(outcome, 3, &bodies::resolution("d-1", outcome)).await.expect(200).state(outcome);
        for _ in 0..3 {
            let claimed = api.dispatch(outcome, &bodies::claim()).await.expect(200);
            if claimed.json["directive"] == "dispatch" {
                downstream.act(claimed.str("/dispatch/idempotency_key")).await.unwrap();
            }
        }
        assert_eq!(downstream.commits(&key), acts, "{outcome}: only the decision to retry lets it act again");
    }
}
