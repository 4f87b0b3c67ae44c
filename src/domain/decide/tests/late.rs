//! Late truth is kept (law 7), and the contradictions it shows.

use super::commands::{RECORDED, completed, failed, failure, not_sent, outcome, read, report, succeeded, unknown};
use super::scene::{LEASE, Scene, digest, events, refused, replayed, spec, wish};
use super::starts::{Kind, start};
use crate::domain::command::{Command, Outcome, Report, ResolvedOutcome};
use crate::domain::decide::{Change, Decision};
use crate::domain::record::{FailureClass, FailureEvidence, ReviewReason};
use crate::domain::refusal::Refusal;
use crate::domain::state::{EffectClass, State};
use crate::limits;

type Says = fn((uuid::Uuid, u32)) -> Command;

fn external() -> Scene {
    Scene::dispatched(spec(EffectClass::External))
}

fn kept(decision: &Decision) -> bool {
    match &decision.answer {
        Err(Refusal::StaleFence { evidence_recorded, .. } | Refusal::StateConflict { evidence_recorded, .. }) => {
            *evidence_recorded
        }
        other => panic!("answered {other:?}"),
    }
}

/// A different report each time.
fn numbered(who: (uuid::Uuid, u32), number: usize) -> Command {
    let detail = number.to_string();
    report(who, Report::Unknown(FailureEvidence { detail, ..failure(FailureClass::Timeout) }))
}

#[test]
fn the_owner_s_receipt_settles_after_its_lease_ran_out_and_is_marked_late() {
    for swept in [false, true] {
        let mut scene = external();
        let owner = scene.owner();
        let end = scene.life().lease_end();
        scene.after(10 * LEASE);
        if swept {
            scene.expire().answer.unwrap();
        }
        let decision = scene.apply(&report(owner, succeeded(completed(RECORDED))));
        assert!(decision.answer.unwrap().owns_dispatch);
        assert_eq!(scene.state(), State::Verifying);
        assert!(scene.life().dispatch.as_ref().unwrap().late);
        let Some(Change::Revise(revision)) = &decision.change else { panic!("nothing written") };
        assert_eq!(revision.lease_seen, end.filter(|_| !swept), "decided on silence: the commit repeats it");
    }
}

#[test]
fn an_older_attempt_decides_nothing_and_its_report_stays() {
    let mut scene = external();
    let first = scene.owner();
    scene.apply(&not_sent(first)).answer.unwrap();
    scene.claim("two").answer.unwrap();
    scene.apply(&report(scene.owner(), succeeded(completed(RECORDED)))).answer.unwrap();
    let late = report(first, Report::Failed { receipt: Some(failed("re_9")), failure: None });
    let (before, answer) = (scene.life().receipt.clone(), scene.apply(&late));
    assert!(kept(&answer));
    assert_eq!(events(&answer), ["late_report", "manual_review"], "two receipts that exclude each other");
    assert_eq!(scene.life().receipt, before, "the accepted receipt stays the accepted one");
    assert!(scene.life().contradicted);
    let again = scene.apply(&late);
    assert!(again.change.is_none());
    assert_eq!(again.answer, answer.answer);
}

#[test]
fn the_evidence_itself_is_stored_beside_its_entry() {
    let mut scene = external();
    scene.apply(&report(scene.owner(), succeeded(completed(RECORDED)))).answer.unwrap();
    let stranger = (uuid::Uuid::from_u128(5), 1);
    let decision = scene.apply(&report(stranger, succeeded(completed("re_9"))));
    let Some(Change::Revise(revision)) = &decision.change else { panic!("nothing written") };
    assert_eq!(revision.receipt.as_deref(), Some(&*completed("re_9").text));
    let event = serde_json::to_value(&revision.events[0]).unwrap();
    assert_eq!(event["receipt_digest"], completed("re_9").digest.as_str());
    assert_eq!((&event["fence"], &event["outcome"]), (&1.into(), &"succeeded".into()));
    assert_eq!(scene.record().receipt.as_deref(), Some(&*completed(RECORDED).text), "readers get the accepted one");
}

#[test]
fn the_owner_s_repeat_is_no_late_report() {
    let mut scene = external();
    let owner = scene.owner();
    let first = report(owner, succeeded(completed(RECORDED)));
    scene.apply(&first).answer.unwrap();
    replayed(&scene.apply(&first));
    scene.apply(&Command::Verify(read(true, "GET"))).answer.unwrap();
    replayed(&scene.apply(&first));
    let mut scene = external();
    scene.apply(&unknown(owner)).answer.unwrap_err();
    let first = unknown(scene.owner());
    scene.apply(&first).answer.unwrap();
    replayed(&scene.apply(&first));
    scene.after(1_000_000).expire().answer.unwrap();
    replayed(&scene.apply(&first));
}

#[test]
fn what_the_owner_adds_to_a_doubt_is_taken_and_so_is_its_repeat() {
    for report_of in [
        Report::Unknown(failure(FailureClass::Disconnect)),
        Report::NotSent(None),
        Report::Failed { receipt: None, failure: None },
    ] {
        let mut scene = external();
        let late = report(scene.owner(), report_of);
        scene.after(LEASE);
        let first = scene.apply(&late);
        assert_eq!(events(&first), ["lease_expired", "outcome_unknown", "late_report"]);
        assert_eq!(scene.state(), State::OutcomeUnknown, "evidence of a failure takes no doubt away");
        assert!(first.answer.is_ok());
        replayed(&scene.apply(&late));
    }
}

#[test]
fn a_dispatch_that_is_not_on_record_is_heard_and_decides_nothing() {
    let mut scene = external();
    let (dispatch_id, fence) = scene.owner();
    for who in [(uuid::Uuid::from_u128(5), fence), (dispatch_id, fence + 1), (uuid::Uuid::from_u128(5), 99)] {
        let decision = scene.apply(&numbered(who, 1));
        assert!(matches!(decision.answer, Err(Refusal::StaleFence { newest: 1, evidence_recorded: true })));
        assert_eq!(scene.state(), State::Dispatched);
    }
}

#[test]
fn evidence_is_bounded_and_the_refusal_says_so() {
    let mut scene = external();
    let stranger = (uuid::Uuid::from_u128(5), 1);
    for number in 0..limits::LATE_REPORTS {
        assert!(kept(&scene.apply(&numbered(stranger, number))));
    }
    let over = scene.apply(&numbered(stranger, limits::LATE_REPORTS));
    assert!(!kept(&over));
    refused(&over);
    assert!(kept(&scene.apply(&numbered(stranger, 0))), "what was kept is still known");
    // Neither the owner's outcome nor his doubt needs that room; more evidence for the doubt does.
    let owner = scene.owner();
    scene.apply(&numbered(owner, 1_000)).answer.unwrap();
    let over = scene.apply(&numbered(owner, 1_001));
    assert!(matches!(
        refused(&over),
        Refusal::StateConflict { state: State::OutcomeUnknown, evidence_recorded: false, .. }
    ));
    scene.apply(&report(owner, succeeded(completed(RECORDED)))).answer.unwrap();
    let over = scene.apply(&Command::Verify(read(false, "GET")));
    assert!(over.answer.is_ok(), "a verification that is waited for is no evidence beside the point");
}

#[test]
fn verifications_beside_the_point_are_bounded_too() {
    let mut scene = start("completed", Kind::External).unwrap();
    for number in 0..=limits::LATE_REPORTS {
        let late = Command::Verify(read(true, &format!("GET {number}")));
        assert_eq!(kept(&scene.apply(&late)), number < limits::LATE_REPORTS);
    }
}

#[test]
fn a_receipt_that_refutes_the_proof_of_absence_stops_the_retry() {
    for kind in Kind::ALL {
        let mut scene = start("safe_to_retry", kind).unwrap();
        let decision = scene.apply(&report(scene.owner(), succeeded(completed(RECORDED))));
        assert!(kept(&decision));
        assert_eq!((scene.state(), scene.life().review), (State::ManualReview, Some(ReviewReason::Contradiction)));
        assert!(scene.life().contradicted);
        assert!(scene.claim("three").change.is_none(), "nobody acts again");
    }
}

#[test]
fn a_settled_outcome_that_is_contradicted_stays_and_is_listed() {
    let says_done = |who| report(who, succeeded(completed("re_9")));
    let says_failed = |who| report(who, Report::Failed { receipt: Some(failed("re_9")), failure: None });
    let cases: [(&str, Says); 5] = [
        ("completed", says_failed),
        ("completed", says_done),
        ("failed", says_done),
        ("failed-unsent", says_done),
        ("refused", says_done),
    ];
    for (state, contradiction) in cases {
        let mut scene = start(state, Kind::External).unwrap();
        let before = scene.clone();
        assert!(!scene.life().is_open());
        assert!(kept(&scene.apply(&contradiction((uuid::Uuid::from_u128(5), 1)))));
        assert!(scene.life().contradicted && scene.life().is_open(), "{state} is listed");
        assert_eq!(scene.state(), before.state());
        assert_eq!(scene.record().receipt, before.record().receipt);
        assert_eq!(scene.life().executed, before.life().executed);
        // The same receipt again says nothing new.
        assert!(scene.apply(&contradiction((uuid::Uuid::from_u128(5), 1))).change.is_none());
    }
    let mut scene = start("completed", Kind::External).unwrap();
    assert!(kept(&scene.apply(&report((uuid::Uuid::from_u128(5), 1), succeeded(completed(RECORDED))))));
    assert!(!scene.life().contradicted, "the same receipt from another reporter");
}

#[test]
fn an_earlier_commit_beside_a_live_dispatch_is_flagged_and_goes_with_it() {
    let mut scene = external();
    let first = scene.owner();
    scene.apply(&not_sent(first)).answer.unwrap();
    scene.claim("two").answer.unwrap();
    assert!(kept(&scene.apply(&report(first, succeeded(completed("re_9"))))));
    assert_eq!((scene.state(), scene.life().contradicted), (State::Dispatched, true));
    let outcome = Report::Succeeded { receipt: completed(RECORDED), verification: Some(read(true, "GET")) };
    scene.apply(&report(scene.owner(), outcome)).answer.unwrap();
    assert_eq!(scene.state(), State::Completed);
    assert!(scene.life().contradicted && scene.life().is_open(), "it may have happened twice");
}

#[test]
fn only_a_person_takes_a_contradiction_away() {
    let mut scene = start("completed-flagged", Kind::External).unwrap();
    let resolve = scene.resolve("d-1", ResolvedOutcome::Failed);
    assert_eq!(events(&scene.apply(&resolve)), ["resolved"]);
    assert!(!scene.life().contradicted && !scene.life().is_open());
    assert_eq!(scene.state(), State::Completed, "a settled outcome is write-once");
    replayed(&scene.apply(&resolve));
    let other = scene.resolve("d-2", ResolvedOutcome::Failed);
    assert!(matches!(refused(&scene.apply(&other)), Refusal::StateConflict { .. }));
}

#[test]
fn a_claim_between_two_equal_reports_does_not_change_what_the_first_was_told() {
    let mut scene = Scene::dispatched(spec(EffectClass::None));
    let owner = scene.owner();
    let report_of = Outcome { digest: digest("one report"), ..outcome(owner, Report::NotSent(None)) };
    let report_of = Command::Outcome(Box::new(report_of));
    scene.apply(&report_of).answer.unwrap();
    scene.claim_with(wish("two")).answer.unwrap();
    replayed(&scene.apply(&report_of));
    assert_eq!((scene.state(), scene.life().fence), (State::Dispatched, 2));
}
