//! Outcomes: what settles, and what stays doubt (laws 4 to 6, 9).

use serde_json::json;

use crate::http::{TOOL, external, granted, granted_briefly, report, tool, until_decided};
use crate::support::{StoreUnderTest, bodies, both_stores, time};

both_stores!(
    completion_needs_receipt_and_verification,
    a_denied_verification_is_a_persons_work,
    a_verification_may_be_waived,
    evidence_that_does_not_bind_is_refused,
    receipts_satisfy_the_tools_schema,
    failure_needs_a_receipt,
    what_was_not_sent_is_safe,
    doubt_keeps_bounded_evidence,
    equal_reports_are_repeats,
    the_first_report_decides,
    concurrent_reports_decide_once,
);

async fn completion_needs_receipt_and_verification(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    // Both at once.
    let one = granted(&api, "one").await;
    let done = api.outcome("one", &bodies::succeeded(&one)).await.expect(200).state("completed").directive("replay");
    assert_eq!(done.revision(), 2);
    assert_eq!(done.at("/receipt/receipt_id"), "re_77");
    assert_eq!(done.at("/verification/verified"), &json!(true));
    assert_eq!(api.events("one").await[4..], ["effect.receipt.validated", "effect.verified", "effect.completed"]);
    // One after the other.
    let two = granted(&api, "two").await;
    let verifying =
        api.outcome("two", &bodies::receipted(&two)).await.expect(200).state("verifying").directive("verify");
    assert!(verifying.str("/deadline_at") > verifying.str("/updated_at"), "law 10: {verifying}");
    api.get("two").await.directive("verify");
    api.intent(&bodies::claiming("two", TOOL)).await.expect(200).directive("verify");
    let verification = bodies::verification();
    let done = api.verify("two", &verification).await.expect(200).state("completed").directive("replay");
    assert_eq!(done.revision(), 3);
    assert_eq!(api.verify("two", &verification).await.expect(200).revision(), 3);
    assert_eq!(api.journal("two").await.len(), 3);
    // A verification without a receipt verifies nothing.
    granted(&api, "three").await;
    api.verify("three", &bodies::verification()).await.problem(409, "state-conflict");
    assert_eq!(api.get("three").await.state("dispatched").revision(), 1);
}

async fn a_denied_verification_is_a_persons_work(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let one = granted(&api, "one").await;
    let report = bodies::set(bodies::succeeded(&one), "/verification/verified", json!(false));
    let review = api.outcome("one", &report).await.expect(200).state("manual_review").directive("review");
    assert_eq!(review.str("/review_reason"), "verification_failed");
    let two = granted(&api, "two").await;
    api.outcome("two", &bodies::receipted(&two)).await.expect(200).state("verifying");
    let denied = bodies::set(bodies::verification(), "/verified", json!(false));
    api.verify("two", &denied).await.expect(200).state("manual_review").directive("review");
    for id in ["one", "two"] {
        api.dispatch(id, &bodies::claim()).await.expect(200).directive("review");
        assert_eq!(api.get(id).await.at("/attempt"), 1);
    }
}

async fn a_verification_may_be_waived(store: StoreUnderTest) {
    let api = store.tenant();
    tool(&api, json!({ "effect": "external", "verification": "waived" })).await;
    let waived = granted(&api, "op").await;
    api.outcome("op", &bodies::receipted(&waived)).await.expect(200).state("completed").directive("replay");
    // And asked for where it is not by default.
    api.put_tool("strict", &json!({ "effect": "none", "verification": "required" })).await.expect(201);
    let strict = api.intent(&bodies::claiming("strict", "strict")).await.expect(201);
    api.outcome("strict", &bodies::receipted(&strict)).await.expect(200).state("verifying");
}

async fn evidence_that_does_not_bind_is_refused(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let good = bodies::succeeded(&granted);
    let past = time::ago(std::time::Duration::from_hours(1));
    for (pointer, value) in [
        ("/receipt/operation_id", json!("other")),
        ("/receipt/target", json!("order-1002")),
        ("/receipt/schema", json!("refund")),
        ("/receipt/schema_version", json!(2)),
        ("/receipt/outcome", json!("failed")),
        ("/verification/target", json!("order-1002")),
        ("/verification/observed_at", json!(past)),
    ] {
        let report = bodies::set(good.clone(), pointer, value);
        api.outcome("op", &report).await.problem(422, "receipt-rejected").faults_at(&[pointer]);
    }
    let all = bodies::set(bodies::set(good.clone(), "/receipt/target", json!("x")), "/receipt/schema", json!("x"));
    let answer = api.outcome("op", &all).await.problem(422, "receipt-rejected");
    answer.faults_at(&["/receipt/target", "/receipt/schema"]);
    let completed = bodies::with(bodies::failed(&granted), &json!({ "receipt": bodies::receipt("op") }));
    api.outcome("op", &completed).await.problem(422, "receipt-rejected").faults_at(&["/receipt/outcome"]);
    assert_eq!(api.get("op").await.state("dispatched").revision(), 1);
    assert_eq!(api.journal("op").await.len(), 1, "nothing of it is stored");
    api.outcome("op", &bodies::without(good, "verification")).await.expect(200).state("verifying");
    for (pointer, value) in [("/target", json!("order-1002")), ("/observed_at", json!(past))] {
        let late = bodies::set(bodies::verification(), pointer, value);
        api.verify("op", &late).await.problem(422, "receipt-rejected").faults_at(&[pointer]);
    }
    assert_eq!(api.get("op").await.state("verifying").revision(), 2);
}

async fn receipts_satisfy_the_tools_schema(store: StoreUnderTest) {
    let api = store.tenant();
    let schema = json!({
        "type": "object", "required": ["amount"], "additionalProperties": false,
        "properties": { "amount": { "type": "integer", "minimum": 1 } },
    });
    let receipt = json!({
        "schema": "refund", "schema_version": 3, "structured_schema": schema, "integrity_fields": ["sha256"],
        "resource_version_fields": ["order"],
    });
    tool(&api, json!({ "effect": "external", "receipt": receipt })).await;
    let granted = granted(&api, "op").await;
    let good = bodies::set(bodies::receipted(&granted), "/receipt/schema", json!("refund"));
    let good = bodies::set(good, "/receipt/schema_version", json!(3));
    let good = bodies::set(good, "/receipt/structured", json!({ "amount": 1200 }));
    let good = bodies::set(good, "/receipt/integrity", json!({ "sha256": "ab" }));
    let good = bodies::set(good, "/receipt/resource_versions", json!({ "order": "7" }));
    for (pointer, value) in [
        ("/receipt/schema", json!("generic")),
        ("/receipt/schema_version", json!(1)),
        ("/receipt/structured", json!({})),
        ("/receipt/structured", json!({ "amount": 0 })),
        ("/receipt/structured", json!({ "amount": "1200" })),
        ("/receipt/structured", json!({ "amount": 1, "more": 2 })),
        ("/receipt/integrity", json!({ "md5": "ab" })),
        ("/receipt/resource_versions", json!({ "refund": "1" })),
    ] {
        let report = bodies::set(good.clone(), pointer, value);
        api.outcome("op", &report).await.problem(422, "receipt-rejected").faults_at(&[pointer]);
    }
    api.outcome("op", &good).await.expect(200).state("verifying");
    // An effect keeps the registration that it was made under.
    api.put_tool(TOOL, &json!({ "effect": "external" })).await.expect(200);
    api.verify("op", &bodies::verification()).await.expect(200).state("completed");
}

async fn failure_needs_a_receipt(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let one = granted(&api, "one").await;
    let failed = api.outcome("one", &bodies::failed(&one)).await.expect(200).state("failed").directive("stop");
    assert_eq!((failed.at("/executed"), failed.at("/receipt/outcome")), (&json!(true), &json!("failed")));
    api.intent(&bodies::claiming("one", TOOL)).await.expect(200).directive("stop");
    // Without one nobody knows, whatever the reporter believes.
    for (id, tool_spec) in [("two", "external"), ("three", "none")] {
        api.put_tool(id, &json!({ "effect": tool_spec })).await.expect(201);
        let granted = api.intent(&bodies::claiming(id, id)).await.expect(201);
        let directive = if tool_spec == "none" { "claim" } else { "reconcile" };
        let doubt = api.outcome(id, &bodies::report(&granted, "failed")).await.expect(200);
        doubt.state("outcome_unknown").directive(directive);
    }
    let four = granted(&api, "four").await;
    let evidence = json!({ "failure_evidence": { "classification": "invalid_result", "phase": "after_send" } });
    let report = bodies::with(bodies::report(&four, "failed"), &evidence);
    let doubt = api.outcome("four", &report).await.expect(200).state("outcome_unknown").directive("reconcile");
    assert_eq!(doubt.at("/failure_evidence/classification"), "invalid_result");
}

async fn what_was_not_sent_is_safe(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let first = granted(&api, "op").await;
    let safe = api.outcome("op", &bodies::report(&first, "not_sent")).await.expect(200).state("safe_to_retry");
    safe.directive("claim");
    let second = api.intent(&bodies::claiming("op", TOOL)).await.expect(200).directive("dispatch");
    assert_eq!((second.at("/dispatch/fence"), second.at("/dispatch/attempt")), (&json!(2), &json!(2)));
    assert_eq!(second.json["dispatch"]["idempotency_key"], first.json["dispatch"]["idempotency_key"]);
    api.outcome("op", &bodies::succeeded(&second)).await.expect(200).state("completed");
    // Only the holder of a live lease knows that.
    let silent = granted_briefly(&api, "silent").await;
    until_decided(&api, "silent").await;
    api.outcome("silent", &bodies::not_sent(&silent)).await.expect(200).state("outcome_unknown").directive("reconcile");
    // And only where the tool trusts it.
    api.put_tool("doubting", &json!({ "effect": "external", "not_sent": "doubt" })).await.expect(201);
    let granted = api.intent(&bodies::claiming("doubting", "doubting")).await.expect(201);
    let doubt = api.outcome("doubting", &bodies::not_sent(&granted)).await.expect(200);
    assert_eq!(doubt.state("outcome_unknown").directive("reconcile").at("/failure_evidence/phase"), "before_send");
}

async fn doubt_keeps_bounded_evidence(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for class in
        ["timeout", "deadline", "disconnect", "cancelled", "crash", "exception", "invalid_result", "lease_expired"]
    {
        let granted = granted(&api, class).await;
        let mut report = bodies::unknown(&granted);
        report["failure_evidence"] = json!({
            "classification": class, "phase": "after_send", "detail": "GET /refunds failed with password=hunter2 sk_live_4242424242424242",
        });
        let doubt = api.outcome(class, &report).await.expect(200).state("outcome_unknown").directive("reconcile");
        assert_eq!(doubt.at("/failure_evidence/classification"), class);
        assert_eq!(doubt.at("/failure_evidence/phase"), "after_send");
        let detail = doubt.str("/failure_evidence/detail");
        assert!(detail.starts_with("GET /refunds failed with"), "{detail}");
        assert!(!doubt.text.contains("hunter2") && !doubt.text.contains("sk_live"), "{doubt}");
        let journal = json!(api.journal(class).await).to_string();
        assert!(!journal.contains("refunds") && journal.contains(class), "law 11: {journal}");
        api.dispatch(class, &bodies::claim()).await.expect(200).directive("reconcile");
    }
}

async fn equal_reports_are_repeats(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for (id, report) in [
        ("succeeded", report(bodies::succeeded)),
        ("receipted", report(bodies::receipted)),
        ("failed", report(bodies::failed)),
        ("unknown", report(bodies::unknown)),
        ("not-sent", report(bodies::not_sent)),
    ] {
        let report = report(&granted(&api, id).await);
        let first = api.outcome(id, &report).await.expect(200);
        assert_eq!(first.at("/replayed"), &json!(false));
        for _ in 0..2 {
            let again = api.outcome(id, &report).await.expect(200);
            assert_eq!(again.revision(), first.revision());
            assert_eq!(again.json["state"], first.json["state"]);
            assert_eq!(again.json["receipt"], first.json["receipt"]);
            assert_eq!(again.at("/replayed"), &json!(true), "{again}");
        }
        assert_eq!(api.journal(id).await.len(), 2, "{id}: a repeat writes nothing");
    }
    // A repeat is one also after the effect went on.
    let first = granted(&api, "on").await;
    let report = bodies::not_sent(&first);
    api.outcome("on", &report).await.expect(200).state("safe_to_retry");
    api.dispatch("on", &bodies::claim()).await.expect(200).directive("dispatch");
    let again = api.outcome("on", &report).await.expect(200).directive("wait");
    assert_eq!(again.revision(), 3);
}

async fn the_first_report_decides(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    let granted = granted(&api, "op").await;
    let report = bodies::with(bodies::succeeded(&granted), &json!({ "result": { "n": 1 } }));
    let first = api.outcome("op", &report).await.expect(200).state("completed");
    let other = bodies::with(report, &json!({ "result": { "n": 2 } }));
    let answer = api.outcome("op", &other).await.problem(409, "state-conflict");
    assert_eq!((answer.str("/state"), answer.at("/evidence_recorded")), ("completed", &json!(true)));
    let found = api.get("op").await.state("completed");
    for member in ["result", "result_digest", "receipt", "receipt_digest", "verification"] {
        assert_eq!(found.json[member], first.json[member], "{member} is write-once");
    }
}

async fn concurrent_reports_decide_once(store: StoreUnderTest) {
    let api = store.tenant();
    external(&api).await;
    for round in 0..5 {
        let id = format!("op-{round}");
        let granted = granted(&api, &id).await;
        let reports = (0..8).map(|n| {
            let report = match n % 4 {
                0 => bodies::succeeded(&granted),
                1 => bodies::failed(&granted),
                2 => bodies::not_sent(&granted),
                _ => bodies::unknown(&granted),
            };
            let (api, id) = (api.clone(), id.clone());
            async move { api.outcome(&id, &report).await }
        });
        let answers = futures_util::future::join_all(reports).await;
        for answer in &answers {
            assert!([200, 409].contains(&answer.status.as_u16()), "{answer}");
            assert!(answer.status == 200 || answer.json["evidence_recorded"] == true, "law 7: {answer}");
        }
        let entries = api.journal(&id).await;
        let found = api.get(&id).await;
        assert_eq!(u64::try_from(entries.len()).unwrap(), found.revision(), "one entry per revision");
        let settled = entries.iter().filter(|entry| {
            entry["events"]
                .as_array()
                .unwrap()
                .iter()
                .any(|event| ["effect.completed", "effect.failed"].contains(&event["type"].as_str().unwrap()))
        });
        assert!(settled.count() <= 1, "{entries:#?}");
    }
}
