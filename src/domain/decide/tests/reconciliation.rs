//! Reconciliation and resolution (protocol §6): revision-checked, superseded, replayed, earned.

use serde_json::json;

use super::commands::{
    RECORDED, completed, eventual_absence, failed, proven_absence, read, receipt_with, report, succeeded,
};
use super::scene::{RECONCILE, Scene, digest, events, refused, replayed, spec};
use super::starts::{Kind, start};
use crate::domain::adapter::{NoAnswer, Verdict};
use crate::domain::command::{Admission, Command, Finding, Resolve, ResolvedOutcome};
use crate::domain::decide::asking::{Agenda, agenda};
use crate::domain::decide::{Change, Decision, directive};
use crate::domain::record::ReviewReason;
use crate::domain::refusal::Refusal;
use crate::domain::state::{Directive, EffectClass, State};
use crate::domain::tool::{ReconciliationMode, ToolSpec};
use crate::limits;

fn doubt() -> Scene {
    start("outcome_unknown", Kind::External).unwrap()
}

fn asked() -> Scene {
    start("outcome_unknown+attempt", Kind::External).unwrap()
}

fn facts(decision: &Decision, index: usize) -> serde_json::Value {
    let Some(Change::Revise(revision)) = &decision.change else { panic!("nothing written") };
    serde_json::to_value(&revision.events[index]).unwrap()
}

#[test]
fn a_request_names_the_revision_it_was_made_for() {
    let scene = doubt();
    let found = scene.life().revision;
    for expected_revision in [found - 1, found + 1] {
        let stale = Admission { expected_revision, ..scene.admission("request") };
        let stale = Command::AdmitReconciliation(Box::new(stale));
        let expected = Refusal::StaleRevision { found, state: State::OutcomeUnknown };
        assert_eq!(*refused(&scene.decide(&stale)), expected);
    }
}

#[test]
fn the_same_request_again_finds_its_attempt() {
    let mut scene = doubt();
    let (request, source) = (scene.admit("request"), scene.life().revision);
    let first = scene.apply(&request);
    assert_eq!(
        facts(&first, 0),
        json!({"type": "effect.reconciliation.started", "request_digest": digest("request"),
            "source_revision": source, "lookup": true})
    );
    let open = scene.life().reconciliation.clone().unwrap();
    assert_eq!((open.source_revision, open.admitted_revision), (source, source + 1));
    replayed(&scene.apply(&request));
    replayed(&scene.apply(&scene.admit("request")));
    assert_eq!(scene.life().reconciliation, Some(open));
}

#[test]
fn a_newer_request_replaces_the_open_one_and_its_late_answer_settles_nothing() {
    let mut scene = asked();
    let late = scene.settle(Finding::Receipt { receipt: completed(RECORDED), verification: None });
    let newer = scene.admit("another request");
    let decision = scene.apply(&newer);
    assert_eq!(events(&decision), ["reconciliation.conflict", "reconciliation.started"]);
    assert_eq!(facts(&decision, 0)["kind"], "superseded");
    assert_eq!(facts(&decision, 0)["request_digest"], digest("request").as_str());
    assert_eq!(*refused(&scene.apply(&late)), Refusal::StaleRequest);
    assert_eq!(scene.state(), State::OutcomeUnknown);
}

#[test]
fn a_late_answer_is_for_its_own_attempt_and_not_for_a_later_one_of_the_same_request() {
    let mut scene = asked();
    let late = scene.settle(proven_absence());
    scene.apply(&scene.admit("another request")).answer.unwrap();
    scene.apply(&scene.admit("request")).answer.unwrap();
    assert_eq!(*refused(&scene.apply(&late)), Refusal::StaleRequest);
    assert_eq!(scene.state(), State::OutcomeUnknown);
    scene.apply(&scene.settle(proven_absence())).answer.unwrap();
    assert_eq!(scene.state(), State::SafeToRetry);
}

#[test]
fn of_two_settlements_of_one_attempt_the_second_is_stale() {
    let mut scene = asked();
    let receipt = Finding::Receipt { receipt: completed(RECORDED), verification: Some(read(true, "GET")) };
    let settlement = scene.settle(receipt);
    assert_eq!(events(&scene.apply(&settlement)), ["receipt.validated", "verified", "completed"]);
    assert_eq!(*refused(&scene.apply(&settlement)), Refusal::StaleRequest);
}

#[test]
fn the_owner_s_own_receipt_wins_over_a_lookup_in_flight() {
    let mut scene = asked();
    let settlement = scene.settle(Finding::Receipt { receipt: failed("re_9"), verification: None });
    let decision = scene.apply(&report(scene.owner(), succeeded(completed(RECORDED))));
    assert_eq!(events(&decision), ["reconciliation.conflict", "receipt.validated"]);
    assert_eq!(*refused(&scene.apply(&settlement)), Refusal::StaleRequest);
    assert_eq!(scene.state(), State::Verifying);
}

#[test]
fn an_observation_keeps_the_doubt_and_nobody_acts_again() {
    for (finding, word) in [
        (eventual_absence(), "not_found"),
        (Finding::Observed("pending"), "pending"),
        (Finding::Observed("unsupported"), "unsupported"),
    ] {
        let mut scene = asked();
        let deadline = scene.life().deadline_at;
        let decision = scene.apply(&scene.settle(finding));
        assert_eq!(facts(&decision, 0)["observation"], word);
        assert_eq!((scene.state(), scene.life().reconciliation.clone()), (State::OutcomeUnknown, None));
        assert_eq!(scene.life().due_at(), deadline, "asking postpones nothing");
        assert!(!scene.claim("three").answer.unwrap().owns_dispatch);
    }
}

#[test]
fn no_answer_is_on_record_and_leaves_the_attempt_to_be_continued() {
    let mut scene = asked();
    let attempt = scene.life().reconciliation.clone();
    let decision = scene.apply(&scene.settle(Finding::NoAnswer(NoAnswer::Status)));
    assert_eq!(
        (&facts(&decision, 0)["observation"], &facts(&decision, 0)["reason"]),
        (&json!("no_answer"), &json!("bad_status"))
    );
    assert_eq!((scene.state(), scene.life().reconciliation.clone()), (State::OutcomeUnknown, attempt));
    scene.apply(&scene.settle(Finding::Receipt { receipt: completed(RECORDED), verification: None })).answer.unwrap();
    assert_eq!(scene.state(), State::Verifying);
}

#[test]
fn a_receipt_that_does_not_bind_is_a_broken_contract_and_settles_nothing() {
    for wrong in [
        json!({"operation_id": "run-2:refund"}),
        json!({"target": "order-2"}),
        json!({"schema": "other"}),
        json!({"schema_version": 2}),
    ] {
        let mut scene = asked();
        let attempt = scene.life().reconciliation.clone();
        let finding = Finding::Receipt { receipt: receipt_with(&wrong), verification: None };
        let decision = scene.apply(&scene.settle(finding));
        assert_eq!(facts(&decision, 0)["reason"], "contract_break");
        assert_eq!((scene.state(), scene.life().reconciliation.clone()), (State::OutcomeUnknown, attempt));
        assert_eq!((scene.life().receipt.clone(), scene.life().breaks), (None, 1));
    }
}

#[test]
fn an_attempt_whose_answer_never_came_is_closed_and_its_repeat_is_told_so() {
    let mut scene = asked();
    let (request, settlement) = (scene.life().reconciliation.clone().unwrap(), scene.settle(proven_absence()));
    scene.until(request.closes_at());
    let decision = scene.expire();
    assert_eq!(facts(&decision, 0)["observation"], "abandoned");
    assert_eq!((scene.state(), scene.life().reconciliation.clone()), (State::OutcomeUnknown, None));
    assert_eq!(*refused(&scene.apply(&settlement)), Refusal::StaleRequest);
    let again = Admission { expected_revision: request.source_revision, ..scene.admission("request") };
    replayed(&scene.apply(&Command::AdmitReconciliation(Box::new(again))));
    let closed = scene.life().reconciled.clone().unwrap();
    assert_eq!((&*closed.observation, closed.admitted_revision), ("abandoned", request.admitted_revision));
}

#[test]
fn an_absence_counts_only_when_it_is_authoritative_declared_and_can_t_be_overtaken() {
    let window = 60; // the default of a tool
    let since = |scene: &Scene| scene.life().travelling_since.unwrap();
    let ask = |scene: &mut Scene, authoritative, is_final, seconds_after: i64| {
        let asked_at = since(scene).plus_micros(seconds_after * 1_000_000);
        let finding = Finding::Absent { verdict: Verdict::NotFound, authoritative, is_final, asked_at };
        scene.apply(&scene.settle(finding)).answer.unwrap();
        scene.state()
    };
    for (authoritative, is_final, seconds_after, becomes) in [
        (true, false, window, State::SafeToRetry),
        (true, true, 0, State::SafeToRetry),
        (true, false, window - 1, State::OutcomeUnknown),
        (false, false, window, State::OutcomeUnknown),
        (false, true, window, State::OutcomeUnknown),
    ] {
        let found = ask(&mut asked(), authoritative, is_final, seconds_after);
        assert_eq!(found, becomes, "{authoritative} {is_final} {seconds_after}");
    }
    // The tool has to declare it.
    let mut undeclared = spec(EffectClass::External);
    undeclared.adapter.as_mut().unwrap().authoritative = false;
    let mut scene = Scene::doubtful(undeclared);
    scene.apply(&scene.admit("request")).answer.unwrap();
    assert_eq!(ask(&mut scene, true, true, window), State::OutcomeUnknown);
}

#[test]
fn an_owner_who_reports_late_may_have_sent_until_then() {
    let mut scene = doubt();
    scene.after(30);
    scene.apply(&super::commands::not_sent(scene.owner())).answer.unwrap();
    assert_eq!(scene.life().travelling_since, Some(scene.now));
}

#[test]
fn a_changed_adapter_never_settles_by_accident() {
    let mut scene = asked();
    let settlement = scene.settle(proven_absence());
    let mut changed = spec(EffectClass::External);
    changed.adapter.as_mut().unwrap().url = Some("https://another.example/".to_owned());
    scene.register(changed.clone());
    assert!(matches!(refused(&scene.decide(&settlement)), Refusal::StateConflict { .. }));
    assert!(matches!(refused(&scene.decide(&scene.admit("another"))), Refusal::StateConflict { .. }));
    // A change of something else leaves the adapter what it was.
    scene.register(ToolSpec { description: "says more".to_owned(), ..spec(EffectClass::External) });
    assert_eq!(scene.decide(&settlement).answer, Ok(crate::domain::decide::Answer::default()));
    // And it may say that it settles what was made before.
    scene.register(ToolSpec { settles_revisions: vec![1], ..changed });
    scene.apply(&settlement).answer.unwrap();
    assert_eq!(scene.state(), State::SafeToRetry);
}

fn automatic() -> ToolSpec {
    ToolSpec { reconciliation: ReconciliationMode::Automatic, ..spec(EffectClass::External) }
}

#[test]
fn the_service_asks_by_itself_with_growing_pauses_and_never_past_the_deadline() {
    let mut scene = Scene::doubtful(automatic());
    assert_eq!(scene.life().ask_at, Some(scene.now), "at once");
    let mut pauses = Vec::new();
    loop {
        scene.until(scene.life().ask_at.unwrap());
        assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Lookup);
        let request = Admission { automatic: true, ..scene.admission(&format!("{}", scene.life().revision)) };
        scene.apply(&Command::AdmitReconciliation(Box::new(request))).answer.unwrap();
        assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Later(scene.life().due_at()), "not twice");
        scene.apply(&scene.settle(Finding::NoAnswer(NoAnswer::Timeout))).answer.unwrap();
        assert_eq!(scene.life().reconciliation, None);
        let next = scene.life().ask_at.unwrap();
        pauses.push(next.since(scene.now));
        if scene.life().due_at() == scene.life().deadline_at {
            break;
        }
    }
    assert!(pauses.iter().all(|pause| (1_000_000..=4_500_000_000).contains(pause)), "{pauses:?}");
    assert!(pauses.is_sorted(), "{pauses:?}");
    scene.until(scene.life().deadline_at.unwrap());
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Expire);
    scene.expire();
    assert_eq!((scene.state(), scene.life().ask_at), (State::ManualReview, None));
}

#[test]
fn the_registration_now_says_whether_the_service_asks() {
    let explicit = || spec(EffectClass::External);
    let mut scene = Scene::doubtful(explicit());
    let deadline = scene.life().deadline_at;
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Later(deadline), "nobody asks");
    scene.register(automatic());
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Lookup, "of a doubt that was open before");
    let request = Admission { automatic: true, ..scene.admission("first") };
    scene.apply(&Command::AdmitReconciliation(Box::new(request))).answer.unwrap();
    scene.apply(&scene.settle(Finding::Observed("pending"))).answer.unwrap();
    let next = scene.life().ask_at.unwrap();
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Later(Some(next)));
    scene.until(next);
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Lookup);
    scene.register(explicit());
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Later(deadline), "what was due has no time any more");
    // Whom it asks is bound to the revision: another adapter is not asked by accident.
    let mut changed = automatic();
    changed.adapter.as_mut().unwrap().url = Some("https://another.example/".to_owned());
    scene.register(changed.clone());
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Later(deadline));
    scene.register(ToolSpec { settles_revisions: vec![1], ..changed });
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Lookup);
    scene.until(deadline.unwrap());
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Expire);
}

#[test]
fn an_early_absence_is_asked_about_again_when_the_settle_window_has_passed() {
    let mut scene = Scene::doubtful(ToolSpec { settle_window_seconds: 50, ..automatic() });
    let request = Admission { automatic: true, ..scene.admission("first") };
    scene.apply(&Command::AdmitReconciliation(Box::new(request))).answer.unwrap();
    let since = scene.life().travelling_since.unwrap();
    let early =
        Finding::Absent { verdict: Verdict::NotFound, authoritative: true, is_final: false, asked_at: scene.now };
    scene.apply(&scene.settle(early)).answer.unwrap();
    assert_eq!(scene.life().ask_at, Some(since.plus_seconds(50)));
}

#[test]
fn an_adapter_that_keeps_breaking_its_contract_is_a_person_s_work() {
    let mut scene = Scene::doubtful(automatic());
    for round in 1..=limits::ADAPTER_BREAKS {
        assert_eq!(scene.state(), State::OutcomeUnknown);
        let request = Admission { automatic: true, ..scene.admission(&format!("round {round}")) };
        scene.apply(&Command::AdmitReconciliation(Box::new(request))).answer.unwrap();
        let decision = scene.apply(&scene.settle(Finding::NoAnswer(NoAnswer::Contract("the answer is JSON"))));
        assert_eq!(facts(&decision, 0)["clause"], "the answer is JSON");
    }
    assert_eq!((scene.state(), scene.life().review), (State::ManualReview, Some(ReviewReason::AdapterBroken)));
}

#[test]
fn an_adapter_that_verifies_is_asked_and_the_client_waits() {
    let mut verifying = spec(EffectClass::External);
    verifying.adapter.as_mut().unwrap().verify = true;
    let mut scene = Scene::doubtful(verifying);
    scene.apply(&report(scene.owner(), succeeded(completed(RECORDED)))).answer.unwrap();
    assert_eq!(scene.state(), State::Verifying);
    assert_eq!(agenda(scene.record(), &scene.context()), Agenda::Verify);
    assert_eq!(directive(scene.record(), &scene.context(), false), Directive::Wait);
    scene.apply(&Command::Verify(read(true, "adapter"))).answer.unwrap();
    assert_eq!((scene.state(), scene.life().ask_at), (State::Completed, None));
}

#[test]
fn a_rejection_is_on_record_before_a_person_gets_it() {
    let mut scene = asked();
    let decision = scene.apply(&scene.settle(Finding::Rejected(Verdict::Multiple)));
    assert_eq!(events(&decision), ["reconciliation.conflict", "manual_review"]);
    assert_eq!(facts(&decision, 0)["kind"], "validator_rejected");
    assert_eq!(scene.life().review, Some(ReviewReason::ValidatorRejected));
}

#[test]
fn only_proven_absence_earns_a_retry_under_the_next_fence() {
    let mut scene = asked();
    scene.apply(&scene.settle(proven_absence())).answer.unwrap();
    assert_eq!(scene.state(), State::SafeToRetry);
    let fence = scene.life().fence;
    assert!(scene.claim("three").answer.unwrap().owns_dispatch);
    assert_eq!(scene.life().fence, fence + 1);
    let late = scene.apply(&super::commands::unknown((super::starts::FIRST_DISPATCH, fence)));
    assert!(matches!(late.answer, Err(Refusal::StaleFence { .. })));
}

#[test]
fn the_deadline_brings_the_doubt_to_a_person_and_closes_the_attempt() {
    let mut scene = asked();
    let settlement = scene.settle(Finding::Receipt { receipt: completed(RECORDED), verification: None });
    scene.after(RECONCILE);
    assert_eq!(*refused(&scene.apply(&settlement)), Refusal::StaleRequest, "before a sweep");
    let decision = scene.expire();
    assert_eq!(events(&decision), ["reconciliation.conflict", "manual_review"]);
    assert_eq!(scene.life().review, Some(ReviewReason::ReconcileDeadline));
    assert_eq!(*refused(&scene.apply(&settlement)), Refusal::StaleRequest, "after it");
    // From there too a lookup settles.
    let again = scene.admit("request");
    scene.apply(&again).answer.unwrap();
    scene.apply(&scene.settle(Finding::Receipt { receipt: completed(RECORDED), verification: None })).answer.unwrap();
    assert_eq!(scene.state(), State::Verifying);
}

#[test]
fn settling_by_lookup_keeps_the_result_that_nobody_sent_absent() {
    let mut scene = asked();
    scene.apply(&scene.settle(Finding::Receipt { receipt: failed(RECORDED), verification: None })).answer.unwrap();
    assert_eq!((scene.state(), scene.life().executed), (State::Failed, Some(true)));
    assert_eq!(scene.record().receipt.as_deref(), Some(&*failed(RECORDED).text));
    assert_eq!(scene.life().result, None);
}

#[test]
fn a_decision_is_made_once_under_its_id() {
    let mut scene = start("manual_review", Kind::External).unwrap();
    let resolve = scene.resolve("d-1", ResolvedOutcome::SafeToRetry);
    assert_eq!(events(&scene.apply(&resolve)), ["resolved", "safe_to_retry"]);
    replayed(&scene.apply(&resolve));
    let Command::Resolve(same_id) = scene.resolve("d-1", ResolvedOutcome::Completed) else { unreachable!() };
    assert!(matches!(refused(&scene.apply(&Command::Resolve(same_id))), Refusal::StateConflict { .. }));
    assert_eq!(scene.state(), State::SafeToRetry);
}

#[test]
fn a_decision_on_another_revision_learns_what_was_found() {
    let mut scene = start("manual_review", Kind::External).unwrap();
    let Command::Resolve(resolve) = scene.resolve("d-1", ResolvedOutcome::Completed) else { unreachable!() };
    let found = scene.life().revision;
    let stale = Command::Resolve(Resolve { expected_revision: found - 1, ..resolve });
    let expected = Refusal::StaleRevision { found, state: State::ManualReview };
    assert_eq!(*refused(&scene.apply(&stale)), expected);
    assert_eq!(scene.life().resolution, None);
}

#[test]
fn a_person_decides_only_what_was_brought_to_a_person() {
    for state in ["outcome_unknown", "dispatched", "verifying", "completed", "failed", "intent_recorded"] {
        let scene = start(state, Kind::External).unwrap();
        let resolve = scene.resolve("d-1", ResolvedOutcome::Completed);
        assert!(matches!(refused(&scene.decide(&resolve)), Refusal::StateConflict { .. }), "{state}");
    }
}

#[test]
fn a_person_may_send_it_back_into_doubt_with_a_new_deadline() {
    let mut scene = start("manual_review", Kind::External).unwrap();
    scene.after(10_000);
    let resolve = scene.resolve("d-1", ResolvedOutcome::OutcomeUnknown);
    assert_eq!(events(&scene.apply(&resolve)), ["resolved", "outcome_unknown"]);
    assert_eq!(scene.life().due_at(), Some(scene.now.plus_seconds(RECONCILE)));
    assert_eq!(scene.life().unknown_since, Some(scene.now));
}

#[test]
fn a_failure_by_decision_says_whether_a_receipt_was_there() {
    let mut scene = start("manual_review", Kind::External).unwrap();
    let resolve = scene.resolve("d-1", ResolvedOutcome::Failed);
    scene.apply(&resolve).answer.unwrap();
    assert_eq!(scene.life().executed, Some(false));
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    scene.apply(&report(scene.owner(), succeeded(completed(RECORDED)))).answer.unwrap();
    scene.apply(&Command::Verify(read(false, "GET"))).answer.unwrap();
    assert_eq!(scene.life().review, Some(ReviewReason::VerificationFailed));
    let resolve = scene.resolve("d-1", ResolvedOutcome::Failed);
    scene.apply(&resolve).answer.unwrap();
    assert_eq!(scene.life().executed, Some(true));
}
