//! Receipts and verifications: what binds, what is refused, and what completes (laws 4, 5, 9, 11).

use serde_json::{Value, json};

use super::commands::{RECORDED, completed, failed, failure, outcome, read, receipt_with, report, result, succeeded};
use super::laws::SECRET;
use super::scene::{START, Scene, digest, events, name, refused, replayed, spec, spec_with};
use crate::domain::command::{Command, Outcome, Report, ResultDocument};
use crate::domain::decide::{Change, Decision};
use crate::domain::receipt::{Receipt, Verification};
use crate::domain::record::{FailureClass, FailureEvidence, FailurePhase};
use crate::domain::refusal::Refusal;
use crate::domain::state::{EffectClass, State};
use crate::limits;

fn parse(changes: &Value) -> Result<Receipt, serde_json::Error> {
    let mut receipt: Value = serde_json::from_str(&completed(RECORDED).text).unwrap();
    for (member, value) in changes.as_object().unwrap() {
        receipt[member] = value.clone();
    }
    serde_json::from_str(&receipt.to_string())
}

/// Where the faults of a refused receipt lie.
fn faults(decision: &Decision) -> Vec<String> {
    match refused(decision) {
        Refusal::ReceiptRejected(faults) => faults.iter().map(|fault| fault.pointer.clone()).collect(),
        other => panic!("refused as {other:?}"),
    }
}

fn settled(scene: &mut Scene, verification: Option<Verification>) -> Decision {
    let owner = scene.owner();
    scene.apply(&report(owner, Report::Succeeded { receipt: completed(RECORDED), verification }))
}

#[test]
fn a_receipt_binds_by_operation_target_schema_and_version_or_changes_nothing() {
    let registered = json!({"receipt": {
        "schema": "refund", "schema_version": 2,
        "structured_schema": {"type": "object", "required": ["amount"], "properties": {"amount": {"type": "integer"}}},
        "integrity_fields": ["sha"], "resource_version_fields": ["order"],
    }});
    let scene = Scene::dispatched(spec_with(EffectClass::External, &registered));
    let good = json!({
        "schema": "refund", "schema_version": 2, "structured": {"amount": 1},
        "integrity": {"sha": "a"}, "resource_versions": {"order": "7"},
    });
    let with = |member: &str, value: Value| {
        let mut receipt = good.clone();
        receipt[member] = value;
        receipt_with(&receipt)
    };
    let report_of = |receipt| report(scene.owner(), succeeded(receipt));
    assert!(scene.decide(&report_of(receipt_with(&good))).answer.is_ok());
    for (member, value, pointer) in [
        ("operation_id", json!("run-2:refund"), "/receipt/operation_id"),
        ("target", json!("order-2"), "/receipt/target"),
        ("schema", json!("generic"), "/receipt/schema"),
        ("schema_version", json!(1), "/receipt/schema_version"),
        ("schema_version", json!(3), "/receipt/schema_version"),
        ("structured", json!({}), "/receipt/structured"),
        ("structured", json!({"amount": "1"}), "/receipt/structured"),
        ("integrity", json!({"md5": "a"}), "/receipt/integrity"),
        ("resource_versions", json!({"customer": "7"}), "/receipt/resource_versions"),
        ("outcome", json!("failed"), "/receipt/outcome"),
    ] {
        assert_eq!(faults(&scene.decide(&report_of(with(member, value)))), [pointer], "{member}");
    }
    let all = receipt_with(&json!({"operation_id": "x", "target": "x"}));
    assert_eq!(faults(&scene.decide(&report_of(all))).len(), 5, "every fault is named at once");
}

#[test]
fn a_failure_needs_a_receipt_that_says_so() {
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    let forged = Report::Failed { receipt: Some(completed(RECORDED)), failure: None };
    assert_eq!(faults(&scene.apply(&report(scene.owner(), forged))), ["/receipt/outcome"]);
    assert_eq!(scene.state(), State::Dispatched);
}

#[test]
fn receipts_of_another_form_are_not_read_and_their_text_is_not_echoed() {
    for (member, value) in [
        ("schema_version", json!(true)),
        ("schema_version", json!(1.0)),
        ("schema_version", json!("1")),
        ("schema_version", json!(-1)),
        (SECRET, json!(1)),
        ("outcome", json!("partial")),
        ("observed_at", json!("2026-01-01T00:00:00")),
        ("observed_at", json!(1_767_225_600)),
        ("receipt_id", json!("")),
        ("receipt_id", json!(format!(" {SECRET}"))),
        ("receipt_id", json!(format!("{SECRET}\n"))),
        ("receipt_id", json!(format!("{SECRET}{}", "x".repeat(limits::NAME_BYTES)))),
        ("receipt_id", json!("é".repeat(limits::NAME_BYTES / 2 + 1))),
        ("source", json!(null)),
        ("artifacts", json!({})),
        ("message", json!([SECRET])),
        ("integrity", json!({"sha": 1})),
    ] {
        let error = parse(&json!({ member: value })).expect_err(member).to_string();
        assert!(member == SECRET || !error.contains(SECRET), "{error}");
    }
    assert!(parse(&json!({"receipt_id": "é".repeat(limits::NAME_BYTES / 2)})).is_ok());
    let text = completed(RECORDED).text.replace("order-1", "\\ud800");
    assert!(serde_json::from_str::<Receipt>(&text).is_err(), "a lone surrogate");
    assert!(serde_json::from_str::<Receipt>("{}").is_err());
}

#[test]
fn receipts_are_taken_to_the_last_byte_of_their_limits_and_never_cut() {
    let entries = |count: usize| -> Value {
        (0..count).map(|index| (format!("k{index}"), json!("v"))).collect::<serde_json::Map<_, _>>().into()
    };
    // A JSON text of so many bytes.
    let text = |bytes: usize| json!("x".repeat(bytes - 2));
    let full = |bytes: usize| {
        let rest = parse(&json!({"structured": {"a": ""}})).unwrap().check().unwrap().text.len();
        json!({"structured": {"a": "x".repeat(bytes - rest)}})
    };
    for (fits, exceeds, pointer) in [
        (json!({"message": "x".repeat(4096)}), json!({"message": "x".repeat(4097)}), "/message"),
        (json!({"artifacts": [text(65_535), 1]}), json!({"artifacts": [text(65_535), 12]}), "/artifacts"),
        (json!({"integrity": entries(16)}), json!({"integrity": entries(17)}), "/integrity"),
        (json!({"resource_versions": entries(32)}), json!({"resource_versions": entries(33)}), "/resource_versions"),
        (json!({"integrity": {"a": "x".repeat(256)}}), json!({"integrity": {"a": "x".repeat(257)}}), "/integrity"),
        (full(512 * 1024), full(512 * 1024 + 1), ""),
    ] {
        let checked = parse(&fits).unwrap().check().unwrap();
        let stored: Value = serde_json::from_str(&checked.text).unwrap();
        for (member, value) in fits.as_object().unwrap() {
            assert_eq!(stored[member], *value);
        }
        let found = parse(&exceeds).unwrap().check().unwrap_err();
        assert_eq!(found.iter().map(|fault| fault.pointer.as_str()).collect::<Vec<_>>(), [pointer]);
    }
    // Each within its bound and too much together.
    let together = json!({"artifacts": [text(65_000)], "structured": {"a": "x".repeat(460 * 1024)}});
    assert!(parse(&together).unwrap().check().is_err());
}

#[test]
fn what_no_two_readers_agree_on_is_refused() {
    let raw = |structured: &str| {
        let text = completed(RECORDED).text.replace(r#""structured":{}"#, &format!(r#""structured":{structured}"#));
        serde_json::from_str::<Receipt>(&text).unwrap().check().map(drop).map_err(|faults| faults[0].pointer.clone())
    };
    assert_eq!(raw(r#"{"a":{"b":1,"b":2}}"#), Err("/structured/a/b".to_owned()));
    assert_eq!(raw(r#"{"a":"\u0000"}"#), Err("/structured/a".to_owned()));
    assert_eq!(raw(r#"{"a":["\udc00"]}"#), Err("/structured/a/0".to_owned()));
    assert_eq!(raw("[]"), Err("/structured".to_owned()));
    let deep = |levels: usize| format!("{}1{}", r#"{"a":"#.repeat(levels), "}".repeat(levels));
    assert_eq!(raw(&deep(limits::JSON_DEPTH)), Ok(()));
    assert!(raw(&deep(limits::JSON_DEPTH + 1)).is_err());
}

#[test]
fn an_absent_list_of_artifacts_and_an_empty_one_are_one_receipt() {
    let absent = completed(RECORDED).text.replace(r#""artifacts":[],"#, "");
    assert_ne!(*absent, *completed(RECORDED).text);
    let absent: Receipt = serde_json::from_str(&absent).unwrap();
    assert_eq!(absent.check().unwrap().digest, completed(RECORDED).digest);
}

#[test]
fn external_effects_are_completed_by_a_receipt_and_a_fresh_read() {
    let default = json!({"verification": null});
    let mut scene = Scene::dispatched(spec_with(EffectClass::External, &default));
    let decision = settled(&mut scene, None);
    assert_eq!((events(&decision), scene.state()), (vec!["receipt.validated".to_owned()], State::Verifying));
    assert!(scene.life().due_at().is_some());
    scene.apply(&Command::Verify(read(true, "GET"))).answer.unwrap();
    assert_eq!(scene.state(), State::Completed);
    for (class, changes) in [
        (EffectClass::None, &default),
        (EffectClass::Idempotent, &default),
        (EffectClass::External, &json!({"verification": "waived"})),
    ] {
        let mut scene = Scene::dispatched(spec_with(class, changes));
        assert_eq!(events(&settled(&mut scene, None)), ["receipt.validated", "completed"]);
    }
}

#[test]
fn a_waived_verification_still_counts_when_it_says_no() {
    let mut scene = Scene::dispatched(spec_with(EffectClass::External, &json!({"verification": "waived"})));
    settled(&mut scene, Some(read(false, "GET"))).answer.unwrap();
    assert_eq!(scene.state(), State::ManualReview);
}

#[test]
fn a_verification_is_a_read_of_the_target_after_the_receipt() {
    let owner = Scene::dispatched(spec(EffectClass::External));
    let mut waiting = owner.clone();
    settled(&mut waiting, None).answer.unwrap();
    let stale = Verification { observed_at: START.plus_micros(-1), ..read(true, "GET") };
    let foreign = Verification { target: name("order-2"), ..read(true, "GET") };
    for (verification, pointer) in [(stale, "/observed_at"), (foreign, "/target")] {
        assert_eq!(faults(&waiting.decide(&Command::Verify(verification.clone()))), [pointer]);
        let beside = settled(&mut owner.clone(), Some(verification));
        assert_eq!(faults(&beside), [format!("/verification{pointer}")]);
    }
    let at_once = Verification { observed_at: START, ..read(true, "GET") };
    assert!(waiting.decide(&Command::Verify(at_once)).answer.is_ok());
}

#[test]
fn a_verification_is_recorded_once_and_a_later_no_is_a_contradiction() {
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    settled(&mut scene, None).answer.unwrap();
    scene.apply(&Command::Verify(read(true, "GET"))).answer.unwrap();
    replayed(&scene.apply(&Command::Verify(read(true, "GET"))));
    let no = Command::Verify(read(false, "GET later"));
    let first = scene.apply(&no);
    assert_eq!((events(&first), scene.life().contradicted), (vec!["late_report".to_owned()], true));
    let again = scene.apply(&no);
    assert!(again.change.is_none());
    assert_eq!(first.answer, again.answer);
    assert_eq!(scene.state(), State::Completed, "a settled outcome is write-once");
    assert!(scene.life().verification.as_ref().unwrap().verified);
}

#[test]
fn no_failure_without_a_receipt_settles_anything_for_any_class() {
    for class in [EffectClass::None, EffectClass::Idempotent, EffectClass::External] {
        for (evidence, word) in [
            (FailureClass::Timeout, "timeout"),
            (FailureClass::Deadline, "deadline"),
            (FailureClass::Disconnect, "disconnect"),
            (FailureClass::Cancelled, "cancelled"),
            (FailureClass::Crash, "crash"),
            (FailureClass::Exception, "exception"),
            (FailureClass::InvalidResult, "invalid_result"),
        ] {
            let failed = Report::Failed { receipt: None, failure: Some(failure(evidence)) };
            for report_of in [failed, Report::Unknown(failure(evidence))] {
                let mut scene = Scene::dispatched(spec(class));
                let decision = scene.apply(&report(scene.owner(), report_of));
                assert_eq!(scene.state(), State::OutcomeUnknown);
                let Some(Change::Revise(revision)) = &decision.change else { panic!("nothing written") };
                let event = serde_json::to_value(&revision.events[0]).unwrap();
                assert_eq!(event["classification"], word);
                assert_eq!(event["phase"], "in_flight");
            }
        }
    }
}

#[test]
fn a_terminal_receipt_outweighs_the_failure_evidence_beside_it() {
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    let forged = failure(FailureClass::Timeout);
    let report_of = Report::Failed { receipt: Some(failed(RECORDED)), failure: Some(forged) };
    let decision = scene.apply(&report(scene.owner(), report_of));
    assert_eq!(events(&decision), ["receipt.validated", "failed"]);
    assert_eq!((scene.life().executed, scene.life().failure.clone()), (Some(true), None));
}

#[test]
fn not_sent_is_evidence_only_where_the_tool_trusts_it() {
    for (rule, state) in [("accept", State::SafeToRetry), ("doubt", State::OutcomeUnknown)] {
        let mut scene = Scene::dispatched(spec_with(EffectClass::External, &json!({ "not_sent": rule })));
        let failure = FailureEvidence { phase: FailurePhase::BeforeSend, ..failure(FailureClass::Exception) };
        scene.apply(&report(scene.owner(), Report::NotSent(Some(failure.clone())))).answer.unwrap();
        assert_eq!(scene.state(), state);
        assert_eq!(scene.life().failure, Some(failure));
    }
}

fn with_result(scene: &Scene, document: ResultDocument) -> Command {
    let outcome = Outcome {
        digest: digest(document.digest.as_str()),
        result: Some(document),
        ..outcome(scene.owner(), succeeded(completed(RECORDED)))
    };
    Command::Outcome(Box::new(outcome))
}

#[test]
fn results_are_kept_byte_for_byte_and_never_replaced() {
    for text in ["null", "{}", "\"\"", "{\"b\": 1.0, \"a\":1e3}"] {
        let mut scene = Scene::dispatched(spec(EffectClass::External));
        let first = with_result(&scene, result(text));
        scene.apply(&first).answer.unwrap();
        assert_eq!(scene.record().result.as_deref(), Some(text));
        replayed(&scene.apply(&first));
        assert!(scene.apply(&with_result(&scene, result("\"another\""))).answer.is_err());
        scene.apply(&Command::Verify(read(true, "GET"))).answer.unwrap();
        assert!(scene.apply(&with_result(&scene, result("\"a third\""))).answer.is_err());
        assert_eq!(scene.record().result.as_deref(), Some(text));
        assert_eq!(scene.record().receipt.as_deref(), Some(&*completed(RECORDED).text));
    }
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    settled(&mut scene, None).answer.unwrap();
    assert_eq!((scene.record().result.clone(), scene.life().result.clone()), (None, None), "absent stays absent");
}

#[test]
fn a_result_that_is_too_large_leaves_its_digest_and_the_completion_stands() {
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    let document = ResultDocument { text: None, digest: digest("large"), size_bytes: 1 << 20 };
    scene.apply(&with_result(&scene, document)).answer.unwrap();
    assert_eq!(scene.state(), State::Verifying);
    let kept = scene.life().result.as_ref().unwrap();
    assert_eq!((kept.truncated, kept.size_bytes, kept.digest.clone()), (true, 1 << 20, digest("large")));
    assert_eq!(scene.record().result, None);
}

#[test]
fn the_journal_names_the_receipt_and_not_its_content() {
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    let receipt = receipt_with(&json!({
        "message": SECRET, "structured": {"a": SECRET}, "artifacts": [SECRET],
        "integrity": {"sha": "abc"}, "resource_versions": {"order": "7"},
    }));
    let digest = receipt.digest.clone();
    let decision = scene.apply(&report(scene.owner(), succeeded(receipt)));
    let Some(Change::Revise(revision)) = &decision.change else { panic!("nothing written") };
    let event = serde_json::to_value(&revision.events[0]).unwrap();
    assert_eq!(
        event,
        json!({
            "type": "effect.receipt.validated", "schema_version": 1, "receipt_id": RECORDED,
            "receipt_schema": "generic", "receipt_schema_version": 1, "outcome": "completed", "source": "downstream",
            "observed_at": START, "receipt_digest": digest, "integrity": {"sha": "abc"},
            "resource_versions": {"order": "7"},
        })
    );
}
