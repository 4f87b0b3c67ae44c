//! Proposals, claims, heartbeats, withdrawals: one identity, one owner (laws 1, 2, 3, 6).

use std::sync::Arc;

use serde_json::json;
use uuid::Uuid;

use super::commands::{cancel, not_sent, unknown};
use super::scene::{LEASE, START, Scene, digest, events, name, refused, replayed, spec, spec_with, wish};
use crate::domain::canonical::Canonical;
use crate::domain::command::{Claim, Command, Propose};
use crate::domain::decide::{Change, directive};
use crate::domain::refusal::Refusal;
use crate::domain::state::{Directive, EffectClass, State};
use crate::domain::tool::{Tool, ToolSpec};
use crate::limits;

fn external() -> ToolSpec {
    spec(EffectClass::External)
}

fn settle_undispatched(expected_revision: u32) -> Command {
    Command::SettleUndispatched { expected_revision }
}

#[test]
fn the_same_intent_twice_is_one_effect() {
    let mut scene = Scene::recorded(external());
    assert_eq!(scene.life().revision, 1);
    scene.after(5).by("somebody else");
    let again = scene.propose(&scene.intent());
    assert!(again.change.is_none() && again.answer.is_ok());
    assert_eq!(scene.record().intent.proposer, name("agent"));
}

#[test]
fn other_content_under_the_same_id_is_refused_and_writes_nothing() {
    type Change = (&'static str, fn(&mut Propose));
    let changes: [Change; 4] = [
        ("tool", |intent| intent.tool = name("payments.charge")),
        ("effect", |intent| intent.class = Some(EffectClass::Idempotent)),
        ("target", |intent| intent.target = name("order-2")),
        ("arguments", |intent| intent.arguments_digest = digest("other arguments")),
    ];
    for state in super::starts::STARTS {
        let mut scene = super::starts::start(state, super::starts::Kind::None).unwrap();
        for (part, change) in changes {
            let mut intent = Propose { claim: Some(wish("five")), ..scene.intent() };
            change(&mut intent);
            let decision = scene.propose(&intent);
            assert_eq!(*refused(&decision), Refusal::OperationReused(vec![part]), "{state}");
        }
    }
}

#[test]
fn correlation_may_differ_from_try_to_try() {
    let mut scene = Scene::recorded(external());
    let intent = Propose {
        class: Some(EffectClass::External),
        run_id: Some(name("run-2")),
        session_id: Some(name("session-2")),
        call_id: Some(name("call-2")),
        profile_id: Some(name("profile-2")),
        idempotency_key: "key-2".into(),
        ..scene.intent()
    };
    assert!(scene.propose(&intent).change.is_none());
    assert_eq!(&*scene.record().intent.idempotency_key, "key-1", "the key is kept with the effect");
    assert_eq!(scene.record().intent.run_id, None);
}

#[test]
fn a_class_may_be_stronger_than_registered_and_never_weaker() {
    let mut scene = Scene::empty(spec(EffectClass::Idempotent));
    let weaker = Propose { class: Some(EffectClass::None), ..scene.intent() };
    let decision = scene.propose(&weaker);
    assert!(matches!(refused(&decision), Refusal::Invalid(faults) if faults[0].pointer == "/effect"));
    let stronger = Propose { class: Some(EffectClass::External), ..scene.intent() };
    scene.propose(&stronger).answer.unwrap();
    assert_eq!(scene.record().intent.class, EffectClass::External);
}

#[test]
fn identity_fields_count_as_they_were_registered_when_the_effect_was_made() {
    let arguments = |text: &str| {
        let canonical = Canonical::of(&serde_json::from_str::<Box<_>>(text).unwrap()).unwrap();
        (canonical.digest(), Some(Arc::new(canonical)))
    };
    let intent = |scene: &Scene, text: &str| {
        let (arguments_digest, arguments) = arguments(text);
        Propose { arguments_digest, arguments, ..scene.intent() }
    };
    let mut scene = Scene::empty(spec_with(EffectClass::External, &json!({"identity_fields": ["amount"]})));
    let first = intent(&scene, r#"{"amount": 1, "asked_at": "noon"}"#);
    scene.propose(&first).answer.unwrap();
    for _ in 0..2 {
        let later = intent(&scene, r#"{"asked_at": "evening", "amount": 1.0}"#);
        assert!(scene.propose(&later).answer.is_ok());
        let other = intent(&scene, r#"{"amount": 2, "asked_at": "noon"}"#);
        assert_eq!(*refused(&scene.propose(&other)), Refusal::OperationReused(vec!["arguments"]));
        let digest_alone = Propose { arguments: None, ..later };
        assert!(scene.propose(&digest_alone).answer.is_err(), "a digest can't show which fields differ");
        scene.register(spec_with(EffectClass::External, &json!({"identity_fields": ["asked_at"]})));
    }
}

#[test]
fn intent_and_grant_are_one_revision_in_that_order() {
    let mut scene = Scene::empty(external());
    let decision = scene.propose(&Propose { claim: Some(wish("one")), ..scene.intent() });
    assert_eq!(events(&decision), ["proposed", "authorized", "intent_recorded", "dispatched"]);
    let Some(Change::Revise(revision)) = &decision.change else { panic!("nothing to write") };
    assert!(revision.intent.is_some());
    assert_eq!((scene.life().revision, scene.life().fence, scene.life().attempt), (1, 1, 1));
    assert!(decision.answer.unwrap().owns_dispatch);
}

#[test]
fn of_two_claims_one_acts_and_the_other_waits() {
    let mut scene = Scene::recorded(external());
    let before = scene.clone();
    let first = scene.claim("one");
    assert!(first.answer.unwrap().owns_dispatch);
    // Decided on the same revision it is granted too, under the revision that the first one took.
    let rival = before.clone().claim("two");
    let revision = |decision: &crate::domain::decide::Decision| match &decision.change {
        Some(Change::Revise(revision)) => revision.life.revision,
        _ => 0,
    };
    assert_eq!(revision(&rival), scene.life().revision);
    // Decided again it finds the first one.
    let again = scene.claim("two");
    assert!(again.change.is_none());
    assert_eq!(directive(scene.record(), &scene.context(), again.answer.unwrap().owns_dispatch), Directive::Wait);
}

#[test]
fn only_the_claim_id_in_memory_gets_a_lost_grant_again() {
    let mut scene = Scene::recorded(external());
    scene.claim("one").answer.unwrap();
    let granted = scene.owner();
    let replay = replayed(&scene.claim("one"));
    assert!(replay.owns_dispatch);
    assert_eq!(scene.owner(), granted, "no second dispatch id");
    // Another process of the same worker, and one that sends no claim id.
    let restarted = Claim { claim: Some(Claim::digest(&name("one"), "another value")), ..wish("one") };
    let silent = Claim { claim: None, ..wish("one") };
    let thief = Claim { claim: Some(Claim::digest(&name("two"), "one")), ..wish("two") };
    for claim in [restarted, silent, thief] {
        let decision = scene.claim_with(claim);
        assert!(decision.change.is_none());
        assert!(!decision.answer.unwrap().owns_dispatch);
    }
}

#[test]
fn without_a_claim_id_a_lost_grant_ends_in_doubt() {
    let mut scene = Scene::recorded(external());
    let silent = || Claim { claim: None, ..wish("one") };
    scene.claim_with(silent()).answer.unwrap();
    assert!(!scene.claim_with(silent()).answer.unwrap().owns_dispatch);
    scene.after(LEASE);
    assert!(!scene.claim_with(silent()).answer.unwrap().owns_dispatch);
    assert_eq!(scene.state(), State::OutcomeUnknown);
}

#[test]
fn the_service_s_own_repeat_of_a_commit_finds_its_grant() {
    let mut scene = Scene::recorded(external());
    let claim = Claim { claim: None, ..wish("one") };
    scene.claim_with(claim.clone()).answer.unwrap();
    assert!(replayed(&scene.claim_with(claim)).owns_dispatch);
}

#[test]
fn who_acted_under_a_claim_id_never_acts_under_it_again() {
    for class in [EffectClass::None, EffectClass::Idempotent, EffectClass::External] {
        for end in [not_sent, unknown] {
            let mut scene = Scene::dispatched(spec(class));
            scene.apply(&end(scene.owner())).answer.unwrap();
            let again = scene.claim("one");
            assert!(again.change.is_none() && !again.answer.unwrap().owns_dispatch);
        }
    }
    // Nor after others have acted.
    let mut scene = Scene::dispatched(external());
    for worker in ["two", "three", "four"] {
        scene.apply(&not_sent(scene.owner())).answer.unwrap();
        assert!(scene.claim(worker).answer.unwrap().owns_dispatch);
    }
    scene.apply(&not_sent(scene.owner())).answer.unwrap();
    for worker in ["one", "two", "three", "four"] {
        assert!(scene.claim(worker).change.is_none(), "{worker}");
    }
}

#[test]
fn a_claim_that_names_another_revision_changes_nothing() {
    let mut scene = Scene::recorded(external());
    for expected in [0, 2] {
        let claim = Command::Claim { claim: wish("one"), expected_revision: Some(expected), hold_released: false };
        let found = Refusal::StaleRevision { found: 1, state: State::IntentRecorded };
        assert_eq!(*refused(&scene.apply(&claim)), found);
    }
    let claim = Command::Claim { claim: wish("one"), expected_revision: Some(1), hold_released: false };
    assert!(scene.apply(&claim).answer.unwrap().owns_dispatch);
    assert!(replayed(&scene.apply(&claim)).owns_dispatch, "its repeat names the revision before the grant");
}

#[test]
fn a_heartbeat_moves_the_lease_and_makes_no_revision() {
    let mut scene = Scene::dispatched(external());
    let (dispatch_id, fence) = scene.owner();
    let beat = Command::Heartbeat { dispatch_id, fence };
    let end = |scene: &Scene| scene.life().lease_end().unwrap();
    scene.after(LEASE - 1);
    scene.apply(&beat).answer.unwrap();
    assert_eq!(end(&scene), START.plus_seconds(2 * LEASE - 1));
    assert_eq!(scene.life().revision, 2);
    // Never shorter, even if the clock of a decision lies behind.
    scene.now = START;
    scene.apply(&beat).answer.unwrap();
    assert_eq!(end(&scene), START.plus_seconds(2 * LEASE - 1));
    // Alive ten times as long as the lease, by beats alone.
    for _ in 0..20 {
        scene.after(LEASE / 2);
        scene.apply(&beat).answer.unwrap();
    }
    // Lost at the very end, not a moment before.
    scene.now = end(&scene).plus_micros(-1);
    assert!(scene.decide(&beat).answer.is_ok());
    scene.now = end(&scene);
    assert_eq!(*refused(&scene.decide(&beat)), Refusal::LeaseLost);
}

#[test]
fn a_lease_lasts_as_long_as_wished_or_registered() {
    let mut scene = Scene::recorded(external());
    scene.claim_with(Claim { lease_seconds: Some(7), ..wish("one") }).answer.unwrap();
    assert_eq!(scene.life().lease_end(), Some(START.plus_seconds(7)));
    assert_eq!(Scene::dispatched(external()).life().lease_end(), Some(START.plus_seconds(LEASE)));
}

#[test]
fn a_lapsed_external_dispatch_is_never_given_to_another() {
    let mut scene = Scene::dispatched(external());
    scene.after(LEASE);
    for worker in ["two", "three"] {
        let claim = scene.claim(worker);
        assert!(!claim.answer.unwrap().owns_dispatch);
        assert_eq!((scene.state(), scene.life().fence), (State::OutcomeUnknown, 1));
        assert_eq!(directive(scene.record(), &scene.context(), false), Directive::Reconcile);
    }
}

#[test]
fn a_safe_replay_goes_to_another_with_the_same_key_until_the_downstream_forgets_it() {
    let ttl = 100;
    let mut scene = Scene::dispatched(spec_with(EffectClass::Idempotent, &json!({"downstream_key_ttl_seconds": ttl})));
    let key = scene.record().intent.idempotency_key.clone();
    scene.after(LEASE);
    assert!(scene.claim("two").answer.unwrap().owns_dispatch);
    assert_eq!((scene.life().attempt, scene.life().fence), (2, 2));
    assert_eq!(scene.record().intent.idempotency_key, key);
    scene.apply(&unknown(scene.owner())).answer.unwrap();
    // Counted from the first dispatch.
    scene.now = START.plus_seconds(ttl).plus_micros(-1);
    assert!(scene.clone().claim("three").answer.unwrap().owns_dispatch);
    scene.now = START.plus_seconds(ttl);
    assert!(!scene.claim("three").answer.unwrap().owns_dispatch);
    assert_eq!(directive(scene.record(), &scene.context(), false), Directive::Reconcile);
}

#[test]
fn a_paused_tool_grants_nothing_and_lets_finish_what_is_in_flight() {
    let mut scene = Scene::empty(external());
    scene.pause(true);
    let proposed = scene.propose(&Propose { claim: Some(wish("one")), ..scene.intent() });
    assert!(!proposed.answer.unwrap().owns_dispatch);
    assert_eq!(scene.state(), State::IntentRecorded, "the intent is taken");
    assert!(scene.claim("one").change.is_none());
    assert_eq!(directive(scene.record(), &scene.context(), false), Directive::Stop);
    scene.pause(false);
    scene.claim("one").answer.unwrap();
    scene.pause(true);
    let (dispatch_id, fence) = scene.owner();
    assert!(scene.apply(&Command::Heartbeat { dispatch_id, fence }).answer.is_ok());
    scene.apply(&not_sent((dispatch_id, fence))).answer.unwrap();
    assert_eq!(directive(scene.record(), &scene.context(), false), Directive::Stop);
    scene.current = None;
    assert!(scene.claim("two").change.is_none(), "a deleted tool grants nothing either");
    scene.current = Some(Arc::clone(&scene.tool));
    scene.pause(false);
    assert!(scene.claim("two").answer.unwrap().owns_dispatch);
}

#[test]
fn a_grant_is_bound_to_the_tool_as_it_was_seen() {
    let stamp = |decision: &crate::domain::decide::Decision| match &decision.change {
        Some(Change::Revise(revision)) => revision.tool_stamp,
        _ => panic!("nothing to write"),
    };
    let mut scene = Scene::recorded(external());
    scene.pause(true);
    scene.pause(false);
    assert_eq!(stamp(&scene.claim("one")), Some(3));
    // A tool that nobody registered has no row to compare with.
    let mut scene = Scene::empty(external());
    scene.tool = Tool::new(name("payments.refund"), 0, ToolSpec::ad_hoc(), false, 0, START);
    scene.current = Some(Arc::clone(&scene.tool));
    assert_eq!(stamp(&scene.propose(&Propose { claim: Some(wish("one")), ..scene.intent() })), None);
}

#[test]
fn dispatches_run_out_and_a_person_decides() {
    let mut scene = Scene::dispatched(spec(EffectClass::None));
    scene.record.as_mut().unwrap().life.attempt = limits::ATTEMPTS;
    scene.after(LEASE);
    let claim = scene.claim("two");
    assert_eq!(events(&claim), ["lease_expired", "outcome_unknown", "manual_review"]);
}

#[test]
fn an_effect_that_nobody_dispatched_is_settled_without_a_trace_of_one() {
    let mut scene = Scene::recorded(external());
    let decision = scene.apply(&settle_undispatched(1));
    assert_eq!(events(&decision), ["failed"]);
    let life = scene.life();
    assert_eq!((life.state, life.executed, life.revision), (State::Failed, Some(false), 2));
    assert!(life.dispatch.is_none() && life.receipt.is_none() && life.failure.is_none());
    // The answer was lost.
    replayed(&scene.apply(&settle_undispatched(1)));
    // The old worker comes back.
    let late = scene.claim("one");
    assert!(late.change.is_none() && !late.answer.unwrap().owns_dispatch);
    assert_eq!(scene.state(), State::Failed);
}

#[test]
fn recovery_settles_only_what_was_never_dispatched_at_the_revision_it_planned_for() {
    let mut scene = Scene::recorded(external());
    for expected in [0, 2] {
        assert!(matches!(refused(&scene.apply(&settle_undispatched(expected))), Refusal::StaleRevision { .. }));
    }
    scene.claim("one").answer.unwrap();
    assert!(matches!(refused(&scene.apply(&settle_undispatched(1))), Refusal::StaleRevision { .. }));
    assert!(matches!(refused(&scene.apply(&settle_undispatched(2))), Refusal::StateConflict { .. }));
    let mut scene = Scene::recorded(spec_with(EffectClass::External, &json!({"authorization": {"mode": "approval"}})));
    assert!(matches!(refused(&scene.apply(&settle_undispatched(1))), Refusal::StateConflict { .. }));
}

#[test]
fn a_cancellation_says_no_more_than_is_known() {
    let mut scene = Scene::dispatched(external());
    let decision = scene.apply(&cancel());
    assert_eq!((scene.state(), events(&decision)), (State::OutcomeUnknown, vec!["outcome_unknown".to_owned()]));
    assert_eq!(scene.life().executed, None);
    replayed(&scene.apply(&cancel()));
    let (dispatch_id, fence) = scene.owner();
    let beat = Command::Heartbeat { dispatch_id, fence };
    assert_eq!(*refused(&scene.apply(&beat)), Refusal::LeaseLost, "the owner is told to stop");
    let mut scene = Scene::recorded(external());
    let stale = Command::Cancel { expected_revision: Some(9) };
    assert!(matches!(refused(&scene.apply(&stale)), Refusal::StaleRevision { found: 1, .. }));
    scene.apply(&Command::Cancel { expected_revision: Some(1) }).answer.unwrap();
    replayed(&scene.apply(&Command::Cancel { expected_revision: Some(1) }));
    assert_eq!((scene.state(), scene.life().executed), (State::Failed, Some(false)));
}

#[test]
fn a_stranger_s_heartbeat_is_lost() {
    let mut scene = Scene::dispatched(external());
    let (dispatch_id, fence) = scene.owner();
    for (dispatch_id, fence) in [(Uuid::from_u128(9), fence), (dispatch_id, fence + 1), (dispatch_id, 0)] {
        assert_eq!(*refused(&scene.apply(&Command::Heartbeat { dispatch_id, fence })), Refusal::LeaseLost);
    }
}
