//! Elapsed limits (protocol §8).

use serde_json::{Value, json};

use super::scene::{APPROVAL, LEASE, Scene, name, refused, spec, spec_with};
use crate::domain::command::{Command, Propose};
use crate::domain::elapsed::{ElapsedLimit, ElapsedScope, human_wait};
use crate::domain::refusal::Refusal;
use crate::domain::state::{EffectClass, State};

const LIMIT_US: i64 = 600_000_000;

fn limited(scope: &str, more: &Value) -> Scene {
    let mut changes = json!({ "elapsed_limit": { "scope": scope, "max_elapsed_seconds": 600 } });
    for (member, value) in more.as_object().unwrap() {
        changes[member] = value.clone();
    }
    Scene::empty(spec_with(EffectClass::External, &changes))
}

fn in_run(scene: &Scene) -> Propose {
    Propose { run_id: Some(name("run")), session_id: Some(name("session")), ..scene.intent() }
}

fn over() -> Refusal {
    let limit = ElapsedLimit { scope: ElapsedScope::Run, max_elapsed_seconds: 600 };
    Refusal::ElapsedLimit { limit, elapsed_us: Some(LIMIT_US + 1) }
}

#[test]
fn a_dispatch_begins_at_the_limit_and_not_a_microsecond_after_it() {
    for (elapsed_us, begins) in [(Some(0), true), (Some(LIMIT_US), true), (Some(LIMIT_US + 1), false), (None, false)] {
        let mut scene = limited("run", &json!({}));
        scene.elapsed_us = elapsed_us;
        let proposal = Propose { claim: Some(super::scene::wish("one")), ..in_run(&scene) };
        let decision = scene.propose(&proposal);
        assert_eq!((decision.answer.is_ok(), scene.record.is_some()), (begins, begins), "at once, {elapsed_us:?}");

        let mut scene = limited("run", &json!({}));
        scene.elapsed_us = Some(0);
        scene.propose(&in_run(&scene)).answer.unwrap();
        scene.elapsed_us = elapsed_us;
        let decision = scene.claim("one");
        assert_eq!(decision.answer.is_ok(), begins, "later, {elapsed_us:?}");
        assert_eq!(scene.state(), if begins { State::Dispatched } else { State::IntentRecorded });
    }
}

#[test]
fn nothing_new_is_recorded_after_the_limit() {
    let mut scene = limited("run", &json!({}));
    scene.elapsed_us = Some(LIMIT_US + 1);
    let proposal = in_run(&scene);
    assert_eq!(*refused(&scene.propose(&proposal)), over());
}

#[test]
fn what_is_counted_has_to_be_named() {
    for (scope, pointer) in [("run", "/run_id"), ("session", "/session_id")] {
        let mut scene = limited(scope, &json!({}));
        scene.elapsed_us = Some(0);
        let mut proposal = in_run(&scene);
        if scope == "run" {
            proposal.run_id = None;
        } else {
            proposal.session_id = None;
        }
        let decision = scene.propose(&proposal);
        let Refusal::Invalid(faults) = refused(&decision) else { panic!("{decision:?}") };
        assert_eq!(faults[0].pointer, pointer);
    }
}

#[test]
fn what_is_in_flight_goes_on() {
    let mut scene = limited("run", &json!({ "verification": "waived" }));
    scene.elapsed_us = Some(LIMIT_US);
    scene.propose(&in_run(&scene)).answer.unwrap();
    scene.claim("one").answer.unwrap();
    scene.elapsed_us = Some(LIMIT_US + 1);
    let (dispatch_id, fence) = scene.owner();
    assert!(scene.claim("one").answer.unwrap().owns_dispatch, "a lost answer is had again");
    scene.after(1).apply(&Command::Heartbeat { dispatch_id, fence }).answer.unwrap();
    let done = super::commands::succeeded(super::commands::completed("re_1"));
    scene.apply(&super::commands::report(scene.owner(), done)).answer.unwrap();
    assert_eq!(scene.state(), State::Completed);
}

#[test]
fn another_try_begins_under_the_limit_too_and_nobody_is_asked_in_vain() {
    let policy = json!({ "mode": "approval", "expires_after_seconds": APPROVAL });
    let mut scene = limited("run", &json!({ "authorization": policy }));
    scene.elapsed_us = Some(0);
    scene.propose(&in_run(&scene)).answer.unwrap();
    super::approvals::decide_as(&mut scene, "ann", true).answer.unwrap();
    scene.by("agent").claim("one").answer.unwrap();
    scene.apply(&super::commands::not_sent(scene.owner())).answer.unwrap();
    assert_eq!(scene.state(), State::SafeToRetry);
    scene.elapsed_us = Some(LIMIT_US + 1);
    assert_eq!(*refused(&scene.claim("two")), over());
    assert_eq!(scene.state(), State::SafeToRetry);
}

#[test]
fn a_lapse_that_a_refused_claim_finds_is_written() {
    let mut scene = limited("run", &json!({}));
    scene.elapsed_us = Some(0);
    scene.tool = super::scene::tool(
        1,
        spec_with(EffectClass::None, &json!({"elapsed_limit": {"scope": "run", "max_elapsed_seconds": 600}})),
    );
    scene.current = Some(std::sync::Arc::clone(&scene.tool));
    scene.propose(&in_run(&scene)).answer.unwrap();
    scene.claim("one").answer.unwrap();
    scene.elapsed_us = Some(LIMIT_US + 1);
    let decision = scene.after(LEASE).claim("two");
    assert_eq!(decision.answer.unwrap_err(), over());
    assert_eq!(scene.state(), State::OutcomeUnknown, "time has decided that, whatever was asked");
}

#[test]
fn the_limit_is_the_one_that_is_registered_now() {
    let mut scene = limited("run", &json!({}));
    scene.elapsed_us = Some(0);
    scene.propose(&in_run(&scene)).answer.unwrap();
    scene.elapsed_us = Some(LIMIT_US + 1);
    assert_eq!(*refused(&scene.claim("one")), over());
    let mut lifted = scene.clone();
    lifted.register(spec(EffectClass::External));
    lifted.elapsed_us = None;
    lifted.claim("one").answer.unwrap();
    let raised = json!({ "elapsed_limit": { "scope": "run", "max_elapsed_seconds": 601 } });
    scene.register(spec_with(EffectClass::External, &raised));
    scene.claim("one").answer.unwrap();
}

#[test]
fn people_are_waited_for_in_proposals_in_reviews_and_while_another_try_is_asked_for() {
    let policy = json!({ "mode": "approval", "expires_after_seconds": APPROVAL });
    let mut scene = Scene::empty(spec_with(EffectClass::Idempotent, &json!({ "authorization": policy })));
    scene.propose(&scene.intent()).answer.unwrap();
    let asked = human_wait(scene.life()).expect("an approver is waited for");
    assert_eq!(asked.until, Some(scene.now.plus_seconds(APPROVAL)));
    super::approvals::decide_as(&mut scene, "ann", true).answer.unwrap();
    assert_eq!(human_wait(scene.life()), None);
    scene.by("agent").claim("one").answer.unwrap();
    assert_eq!(human_wait(scene.life()), None);
    scene.apply(&super::commands::unknown(scene.owner())).answer.unwrap();
    assert_eq!(human_wait(scene.life()), None, "nobody was asked");
    scene.claim("two").answer.unwrap();
    assert_eq!(scene.state(), State::OutcomeUnknown);
    assert!(human_wait(scene.life()).is_some_and(|wait| wait.until.is_some()));
    super::approvals::decide_as(&mut scene, "ben", false).answer.unwrap();
    assert_eq!(human_wait(scene.life()), None, "denied");
    scene.after(super::scene::RECONCILE).expire().answer.unwrap();
    assert_eq!(scene.state(), State::ManualReview);
    assert!(human_wait(scene.life()).is_some_and(|wait| wait.until.is_none()));
}
