//! Recovery (protocol §9): what is offered in which state, and that an execution does that or nothing.

use serde_json::json;

use super::commands::{RECORDED, completed, not_sent, report, succeeded, unknown};
use super::scene::{LEASE, Scene, digest, events, name, refused, replayed, spec, spec_with};
use super::starts::{Kind, STARTS, When, start};
use crate::domain::command::{Command, ResolvedOutcome};
use crate::domain::recovery::Action::{AutomaticRepair, LeaveIntact, MarkCompleted, MarkFailed};
use crate::domain::recovery::Blocker::{
    ActiveExecutionOwner, RegistrationIncompatible, RegistrationUnavailable, ToolApprovalRequired,
    ToolEffectContinuationRequired, ToolEffectOutcomeUnknown,
};
use crate::domain::recovery::{Action, Assessment, Blocker, Recover, assess};
use crate::domain::refusal::Refusal;
use crate::domain::state::{EffectClass, State};
use crate::domain::tool::{ReconciliationMode, ToolSpec};

impl Scene {
    fn assess(&self) -> Assessment {
        assess(self.record(), &self.context())
    }

    /// What an execution `execution` of a plan made now would send.
    fn recover(&self, execution: &str, action: Action) -> Command {
        Command::Recover(Box::new(Recover {
            expected_revision: self.life().revision,
            fingerprint: self.assess().fingerprint,
            execution_id: name(execution),
            plan_id: digest("plan"),
            action,
            digest: digest(&format!("{action:?}")),
        }))
    }
}

fn external() -> Scene {
    Scene::recorded(spec(EffectClass::External))
}

fn doubtful() -> Scene {
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    scene.apply(&unknown(scene.owner())).answer.unwrap();
    scene
}

/// What recovery says about each start when nothing is due, by the protocol.
fn expected(start: &str) -> (Vec<Blocker>, Vec<Action>) {
    let state = start.split(['-', '+']).next().unwrap();
    let marks = vec![MarkCompleted, MarkFailed, LeaveIntact];
    match (start, state) {
        (_, "proposed") => (vec![ToolApprovalRequired], vec![LeaveIntact]),
        (_, "intent_recorded") => (vec![], vec![AutomaticRepair, LeaveIntact]),
        (_, "dispatched") => (vec![ActiveExecutionOwner], vec![LeaveIntact]),
        (_, "outcome_unknown" | "manual_review") => (vec![ToolEffectOutcomeUnknown], marks),
        (_, "safe_to_retry" | "verifying") => (vec![ToolEffectContinuationRequired], vec![LeaveIntact]),
        _ => (vec![], vec![LeaveIntact]),
    }
}

/// Every state, class and time: what is not offered is refused, and what is offered settles.
#[test]
fn what_is_not_offered_is_refused_and_what_is_offered_settles() {
    let mut done = 0;
    for (state, kind, when) in STARTS
        .into_iter()
        .flat_map(|state| Kind::ALL.map(|kind| (state, kind)))
        .flat_map(|(state, kind)| When::ALL.map(|when| (state, kind, when)))
    {
        let Some(mut scene) = start(state, kind) else { continue };
        scene.at(when);
        let seen = scene.assess();
        if when == When::Fresh {
            assert_eq!((seen.blockers.clone(), seen.actions.clone()), expected(state), "{state} {kind:?}");
        }
        // What is due of an open attempt is its end, which moves no state.
        if when == When::Due && scene.life().due_at().is_some() && scene.life().reconciliation.is_none() {
            assert_ne!(seen.state, scene.state(), "{state}: time has decided, and nobody has written it");
            assert_eq!(seen.actions, [LeaveIntact], "{state}: what is about to move is left alone");
        }
        for action in [AutomaticRepair, MarkCompleted, MarkFailed, LeaveIntact] {
            let mut scene = scene.clone();
            let decision = scene.apply(&scene.recover("one", action));
            if !seen.actions.contains(&action) {
                assert!(matches!(refused(&decision), Refusal::StateConflict { .. }), "{state} {action:?}");
                continue;
            }
            decision.answer.as_ref().unwrap();
            let (becomes, executed) = match action {
                AutomaticRepair | MarkFailed => (State::Failed, Some(false)),
                MarkCompleted => (State::Completed, None),
                LeaveIntact => {
                    assert!(decision.change.is_none(), "{state}");
                    continue;
                }
            };
            done += 1;
            assert_eq!((scene.state(), scene.life().executed), (becomes, executed), "{state} {action:?}");
            assert_eq!(events(&decision).last().map(String::as_str), Some("recovery.item.executed"));
            assert!(scene.life().reconciliation.is_none(), "what was under way is closed: {state}");
        }
    }
    assert!(done > 40, "{done}");
}

#[test]
fn a_prepared_effect_is_settled_as_not_executed_with_no_dispatch_and_no_receipt() {
    let mut scene = external();
    let revision = scene.life().revision;
    let decision = scene.apply(&scene.recover("one", AutomaticRepair));
    assert_eq!(events(&decision), ["failed", "recovery.item.executed"]);
    let life = scene.life();
    assert_eq!((life.state, life.executed, life.revision), (State::Failed, Some(false), revision + 1));
    assert!(life.dispatch.is_none() && life.receipt.is_none() && life.failure.is_none());
    // The old worker comes back: it is never told to act.
    let claim = scene.claim("one");
    assert!(claim.change.is_none() && !claim.answer.unwrap().owns_dispatch);
    let again = scene.propose(&scene.intent());
    assert!(again.change.is_none());
}

#[test]
fn a_claim_and_a_repair_compete_and_one_of_them_wins() {
    let planned = external();
    let repair = planned.recover("one", AutomaticRepair);
    let mut claimed = planned.clone();
    claimed.claim("one").answer.unwrap();
    assert!(matches!(refused(&claimed.decide(&repair)), Refusal::StaleRevision { found: 2, .. }));
    let mut repaired = planned;
    repaired.apply(&repair).answer.unwrap();
    let claim = repaired.claim("one");
    assert!(claim.change.is_none() && !claim.answer.unwrap().owns_dispatch);
}

#[test]
fn a_repeat_finds_its_own_work_done_and_another_decision_does_not() {
    let mut scene = external();
    let repair = scene.recover("one", AutomaticRepair);
    scene.apply(&repair).answer.unwrap();
    replayed(&scene.decide(&repair));
    // Also after somebody else has written to it.
    let late = report((uuid::Uuid::from_u128(5), 1), succeeded(completed(RECORDED)));
    assert!(scene.apply(&late).change.is_some());
    replayed(&scene.decide(&repair));
    let Command::Recover(mut other) = repair else { unreachable!() };
    other.digest = digest("another decision");
    let decision = scene.decide(&Command::Recover(other.clone()));
    assert!(matches!(refused(&decision), Refusal::StateConflict { .. }));
    // Another execution of the same plan.
    other.execution_id = name("two");
    assert!(matches!(refused(&scene.decide(&Command::Recover(other))), Refusal::StaleRevision { .. }));
}

#[test]
fn a_doubt_goes_through_a_person_in_one_revision_and_closes_what_was_under_way() {
    for action in [MarkCompleted, MarkFailed] {
        let mut scene = doubtful();
        let admit = scene.admit("request");
        scene.apply(&admit).answer.unwrap();
        let revision = scene.life().revision;
        let decision = scene.apply(&scene.recover("one", action));
        let last = if action == MarkCompleted { "completed" } else { "failed" };
        let expected = ["reconciliation.conflict", "manual_review", "resolved", last, "recovery.item.executed"];
        assert_eq!(events(&decision), expected);
        assert_eq!(scene.life().revision, revision + 1);
        // The answer of the lookup comes too late, and decides nothing.
        let late = Command::SettleReconciliation {
            admitted_revision: revision,
            request_digest: digest("request"),
            finding: Box::new(super::commands::proven_absence()),
        };
        assert!(matches!(refused(&scene.decide(&late)), Refusal::StaleRequest));
    }
}

#[test]
fn nothing_is_marked_where_a_receipt_speaks() {
    // A receipt of an older dispatch, kept as evidence while the newer one is in doubt.
    let mut scene = Scene::dispatched(spec_with(EffectClass::Idempotent, &json!({})));
    let first = scene.owner();
    scene.apply(&not_sent(first)).answer.unwrap();
    scene.claim("two").answer.unwrap();
    scene.apply(&unknown(scene.owner())).answer.unwrap();
    assert_eq!(scene.assess().actions, [MarkCompleted, MarkFailed, LeaveIntact]);
    let mark = scene.recover("one", MarkFailed);
    assert!(scene.apply(&report(first, succeeded(completed(RECORDED)))).change.is_some());
    let seen = scene.assess();
    assert_eq!(seen.actions, [LeaveIntact], "{seen:?}");
    assert!(matches!(refused(&scene.decide(&mark)), Refusal::StaleRevision { .. }));
    assert!(matches!(refused(&scene.decide(&scene.recover("one", MarkFailed))), Refusal::StateConflict { .. }));
    // A receipt whose verification failed.
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    scene.apply(&report(scene.owner(), succeeded(completed(RECORDED)))).answer.unwrap();
    scene.after(super::scene::VERIFY).expire().answer.unwrap();
    assert_eq!((scene.state(), scene.assess().actions), (State::ManualReview, vec![LeaveIntact]));
}

#[test]
fn four_eyes_hold_for_marks_too() {
    let approval = spec_with(EffectClass::External, &json!({"authorization": {"mode": "approval"}}));
    let mut scene = Scene::recorded(approval);
    let approve = scene.by("approver").approve(true);
    scene.apply(&approve).answer.unwrap();
    scene.claim("one").answer.unwrap();
    scene.apply(&unknown(scene.owner())).answer.unwrap();
    scene.by("agent");
    for action in [MarkCompleted, MarkFailed] {
        assert!(matches!(refused(&scene.decide(&scene.recover("one", action))), Refusal::Forbidden(_)));
    }
    scene.by("operator");
    scene.apply(&scene.recover("one", MarkFailed)).answer.unwrap();
    // Where the tool does not ask for them, one person is enough.
    let mut scene = doubtful();
    scene.apply(&scene.recover("one", MarkFailed)).answer.unwrap();
}

#[test]
fn a_heartbeat_does_not_move_a_plan_and_everything_else_does() {
    let mut scene = Scene::dispatched(spec(EffectClass::External));
    let before = scene.assess().fingerprint;
    let (dispatch_id, fence) = scene.owner();
    scene.after(10).apply(&Command::Heartbeat { dispatch_id, fence }).answer.unwrap();
    assert_eq!(scene.assess().fingerprint, before);
    scene.after(10 * LEASE);
    let due = scene.assess();
    assert_eq!((due.state, &due.blockers[..]), (State::OutcomeUnknown, &[ToolEffectOutcomeUnknown][..]));
    assert_ne!(due.fingerprint, before, "time has decided");
    // Pausing is no other registration; a new revision is.
    let mut scene = external();
    let before = scene.assess().fingerprint;
    let repair = scene.recover("one", AutomaticRepair);
    scene.pause(true);
    assert_eq!(scene.assess().fingerprint, before);
    scene.register(spec_with(EffectClass::External, &json!({"description": "new words"})));
    assert_eq!(scene.assess().blockers, []);
    assert!(matches!(refused(&scene.decide(&repair)), Refusal::StaleRevision { .. }));
}

#[test]
fn a_question_that_is_due_is_no_deadline() {
    let asked = ToolSpec { reconciliation: ReconciliationMode::Automatic, ..spec(EffectClass::External) };
    let mut scene = Scene::doubtful(asked);
    let (due, deadline) = (scene.life().ask_at.unwrap(), scene.life().deadline_at.unwrap());
    assert_eq!(scene.until(due).assess().state, State::OutcomeUnknown, "nobody has been asked yet");
    assert_eq!(scene.until(deadline).assess().state, State::ManualReview);
}

#[test]
fn another_registration_blocks_the_repair_unless_it_settles_older_ones() {
    let other = |changes: serde_json::Value| spec_with(EffectClass::External, &changes);
    let component = |version: &str| json!({"component": {"name": "refunder", "behavior_version": version}});
    for (changes, blocked) in [
        (json!({"lease_seconds": 7}), false),
        (json!({"receipt": {"schema": "refund"}}), true),
        (json!({"receipt": {"schema_version": 2}}), true),
        (component("2"), true),
        (json!({"receipt": {"schema": "refund"}, "settles_revisions": [1]}), false),
    ] {
        let mut scene = external();
        scene.register(other(changes.clone()));
        let seen = scene.assess();
        let (blockers, actions) = if blocked {
            (vec![RegistrationIncompatible], vec![LeaveIntact])
        } else {
            (vec![], vec![AutomaticRepair, LeaveIntact])
        };
        assert_eq!((seen.blockers, seen.actions), (blockers, actions), "{changes}");
    }
    let mut scene = external();
    scene.register(spec(EffectClass::None));
    assert_eq!(scene.assess().blockers, [RegistrationIncompatible]);
    scene.current = None;
    let seen = scene.assess();
    assert_eq!((seen.blockers, seen.actions), (vec![RegistrationUnavailable], vec![LeaveIntact]));
    // What a person knows does not hang on a registration.
    let mut scene = doubtful();
    scene.current = None;
    assert_eq!(scene.assess().blockers, [RegistrationUnavailable, ToolEffectOutcomeUnknown]);
    assert_eq!(scene.assess().actions, [MarkCompleted, MarkFailed, LeaveIntact]);
}

#[test]
fn what_a_resolution_settled_is_not_recovered() {
    let mut scene = start("manual_review", Kind::External).unwrap();
    let mark = scene.recover("one", MarkCompleted);
    let resolve = scene.resolve("d-1", ResolvedOutcome::Failed);
    scene.apply(&resolve).answer.unwrap();
    assert!(matches!(refused(&scene.decide(&mark)), Refusal::StaleRevision { .. }));
    assert_eq!(scene.assess().actions, [LeaveIntact]);
}
