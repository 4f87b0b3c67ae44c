//! Approvals and holds (protocol §8 and the suspected duplicates of §11).

use serde_json::{Value, json};

use super::commands::{not_sent, unknown};
use super::scene::{APPROVAL, LEASE, START, Scene, digest, events, name, refused, replayed, spec_with};
use crate::domain::command::{Command, Propose};
use crate::domain::decide::directive;
use crate::domain::refusal::Refusal;
use crate::domain::state::{Directive, EffectClass, State};

fn asked(policy: &Value) -> Scene {
    asked_of(EffectClass::External, policy)
}

fn asked_of(class: EffectClass, policy: &Value) -> Scene {
    let mut authorization = json!({"mode": "approval", "expires_after_seconds": APPROVAL});
    for (member, value) in policy.as_object().unwrap() {
        authorization[member] = value.clone();
    }
    Scene::recorded(spec_with(class, &json!({ "authorization": authorization })))
}

fn word(scene: &Scene) -> Directive {
    directive(scene.record(), &scene.context(), false)
}

pub(super) fn decide_as(scene: &mut Scene, principal: &str, approve: bool) -> crate::domain::decide::Decision {
    let command = scene.by(principal).approve(approve);
    scene.apply(&command)
}

#[test]
fn a_quorum_of_people_authorizes() {
    let mut scene = asked(&json!({"approvals": 2}));
    assert_eq!((scene.state(), word(&scene)), (State::Proposed, Directive::Authorize));
    let first = decide_as(&mut scene, "ann", true);
    assert_eq!((events(&first), scene.state()), (vec!["proposed".to_owned()], State::Proposed));
    assert!(!scene.life().approval.as_ref().unwrap().granted);
    let second = decide_as(&mut scene, "ben", true);
    assert_eq!(events(&second), ["authorized", "intent_recorded"]);
    assert_eq!((scene.state(), scene.life().fence), (State::IntentRecorded, 0), "people do not dispatch");
}

#[test]
fn one_denial_ends_it() {
    let mut scene = asked(&json!({"approvals": 2}));
    decide_as(&mut scene, "ann", true).answer.unwrap();
    decide_as(&mut scene, "ben", false).answer.unwrap();
    assert_eq!((scene.state(), word(&scene)), (State::Refused, Directive::Stop));
    assert!(matches!(refused(&decide_as(&mut scene, "cem", true)), Refusal::StateConflict { .. }));
}

#[test]
fn the_first_decision_of_a_principal_is_final() {
    let mut scene = asked(&json!({"approvals": 2}));
    decide_as(&mut scene, "ann", true).answer.unwrap();
    replayed(&decide_as(&mut scene, "ann", true));
    assert!(matches!(refused(&decide_as(&mut scene, "ann", false)), Refusal::StateConflict { .. }));
    let mut scene = asked(&json!({}));
    decide_as(&mut scene, "ann", false).answer.unwrap();
    assert!(matches!(refused(&decide_as(&mut scene, "ann", true)), Refusal::StateConflict { .. }));
    replayed(&decide_as(&mut scene, "ann", false));
    assert_eq!(scene.state(), State::Refused);
}

#[test]
fn of_two_racing_approvers_the_second_learns_what_was_found() {
    let mut scene = asked(&json!({"approvals": 2}));
    let before = scene.clone();
    decide_as(&mut scene, "ann", true).answer.unwrap();
    // Ben decides on what he read before.
    let stale = before.approve(false);
    scene.by("ben");
    assert_eq!(*refused(&scene.apply(&stale)), Refusal::StaleRevision { found: 2, state: State::Proposed });
}

#[test]
fn four_eyes_means_another_person() {
    let mut scene = asked(&json!({}));
    assert!(matches!(refused(&decide_as(&mut scene, "agent", true)), Refusal::Forbidden(_)));
    decide_as(&mut scene, "agent", false).answer.unwrap();
    assert_eq!(scene.state(), State::Refused, "who proposed may withdraw");
    let mut scene = asked(&json!({"four_eyes": false}));
    decide_as(&mut scene, "agent", true).answer.unwrap();
    assert_eq!(scene.state(), State::IntentRecorded);
}

#[test]
fn a_decision_is_bound_to_the_proposal_that_was_read() {
    let mut scene = asked(&json!({}));
    let other = Command::Authorize {
        expected_revision: 1,
        proposal_digest: digest("another proposal"),
        approve: true,
        reason: String::new(),
    };
    scene.by("ann");
    assert!(matches!(refused(&scene.apply(&other)), Refusal::ApprovalStale(_)));

    let digest_of = |change: fn(&mut Propose)| {
        let mut scene = asked(&json!({}));
        scene.record = None;
        let mut intent = scene.intent();
        change(&mut intent);
        scene.propose(&intent).answer.unwrap();
        scene.life().approval.as_ref().unwrap().proposal_digest.clone()
    };
    let same = digest_of(|_| {});
    assert_eq!(same, digest_of(|intent| intent.run_id = Some(name("run-2"))));
    let changes: [fn(&mut Propose); 4] = [
        |intent| intent.operation_id = name("other"),
        |intent| intent.target = name("order-2"),
        |intent| intent.arguments_digest = digest("other arguments"),
        |intent| intent.tool = name("payments.charge"),
    ];
    for change in changes {
        assert_ne!(same, digest_of(change));
    }
    let weaker = asked_of(EffectClass::None, &json!({}));
    assert_ne!(same, weaker.life().approval.as_ref().unwrap().proposal_digest);
    let mut newer = asked(&json!({}));
    newer.register(newer.tool.spec.clone());
    newer.tool = newer.current.clone().unwrap();
    newer.record = None;
    newer.propose(&newer.intent()).answer.unwrap();
    assert_ne!(same, newer.life().approval.as_ref().unwrap().proposal_digest);
}

#[test]
fn a_changed_tool_makes_an_approval_stale_and_a_pause_does_not() {
    let mut scene = asked(&json!({}));
    scene.pause(true);
    scene.pause(false);
    let mut changed = scene.clone();
    changed.register(changed.tool.spec.clone());
    assert!(matches!(refused(&decide_as(&mut changed, "ann", true)), Refusal::ApprovalStale(_)));
    decide_as(&mut scene, "ann", true).answer.unwrap();
    let mut changed = scene.clone();
    changed.register(changed.tool.spec.clone());
    assert!(matches!(refused(&changed.claim("one")), Refusal::ApprovalStale(_)));
    scene.pause(true);
    scene.pause(false);
    assert!(scene.claim("one").answer.unwrap().owns_dispatch);
}

#[test]
fn an_approval_expires_by_database_time() {
    let end = START.plus_seconds(APPROVAL);
    let mut scene = asked(&json!({}));
    scene.now = end.plus_micros(-1);
    assert!(decide_as(&mut scene.clone(), "ann", true).answer.is_ok());
    scene.now = end;
    assert!(matches!(
        refused(&decide_as(&mut scene, "ann", true)),
        Refusal::StateConflict { state: State::Refused, .. }
    ));
    assert_eq!(events(&scene.expire()), ["refused"]);
    assert_eq!(word(&scene), Directive::Stop);
}

#[test]
fn an_approval_is_consumed_by_exactly_one_dispatch() {
    let mut scene = asked(&json!({}));
    let waiting = scene.claim("one");
    assert!(waiting.change.is_none() && !waiting.answer.unwrap().owns_dispatch);
    decide_as(&mut scene, "ann", true).answer.unwrap();
    assert!(scene.by("agent").claim("one").answer.unwrap().owns_dispatch);
    assert!(
        replayed(&scene.claim("one")).owns_dispatch,
        "the lost answer comes again, the approval is not asked again"
    );
    scene.apply(&not_sent(scene.owner())).answer.unwrap();
    // Law 6: authorization is checked again before the next dispatch.
    let again = scene.claim("two");
    assert_eq!((events(&again), scene.state()), (vec!["proposed".to_owned()], State::Proposed));
    assert!(scene.claim("two").change.is_none(), "asked once");
    // The old approver decides anew; his old request is not his new decision.
    let old = Command::Authorize {
        expected_revision: 1,
        proposal_digest: scene.life().approval.as_ref().unwrap().proposal_digest.clone(),
        approve: true,
        reason: String::new(),
    };
    scene.by("ann");
    assert!(matches!(refused(&scene.apply(&old)), Refusal::StaleRevision { .. }));
    decide_as(&mut scene, "ann", true).answer.unwrap();
    assert!(scene.by("agent").claim("two").answer.unwrap().owns_dispatch);
    assert_eq!((scene.life().attempt, scene.life().fence), (2, 2));
}

#[test]
fn another_try_of_a_doubtful_effect_is_asked_for_and_the_doubt_stays() {
    let mut scene = asked_of(EffectClass::Idempotent, &json!({"expires_after_seconds": 30}));
    decide_as(&mut scene, "ann", true).answer.unwrap();
    scene.by("agent").claim("one").answer.unwrap();
    let deadline = scene.after(LEASE).expire().answer.map(|_| scene.life().due_at()).unwrap();
    assert_eq!(word(&scene), Directive::Claim);
    let claim = scene.claim("two");
    assert_eq!((events(&claim), word(&scene)), (vec!["proposed".to_owned()], Directive::Authorize));
    assert_eq!((scene.state(), scene.life().due_at()), (State::OutcomeUnknown, deadline), "nothing is postponed");
    assert!(scene.claim("two").change.is_none(), "asked once");

    // Nobody answers: it may be asked for again.
    let mut silent = scene.clone();
    silent.after(30);
    assert_eq!((word(&silent), silent.expire().change.is_none()), (Directive::Claim, true));
    assert!(matches!(refused(&decide_as(&mut silent, "ann", true)), Refusal::StateConflict { .. }));
    assert_eq!(events(&silent.claim("two")), ["proposed"]);

    // Somebody says no: what happened still has to be found out.
    let mut denied = scene.clone();
    decide_as(&mut denied, "ben", false).answer.unwrap();
    assert_eq!((denied.state(), word(&denied)), (State::OutcomeUnknown, Directive::Reconcile));
    assert!(denied.claim("two").change.is_none());

    // Somebody says yes, and it goes on.
    decide_as(&mut scene, "ann", true).answer.unwrap();
    assert_eq!(word(&scene), Directive::Claim);
    assert!(scene.by("agent").claim("two").answer.unwrap().owns_dispatch);
    assert_eq!(scene.life().fence, 2);
}

#[test]
fn an_approval_does_not_outlive_the_downstream_s_memory_of_the_key() {
    let policy = json!({"mode": "approval", "expires_after_seconds": APPROVAL});
    let spec = spec_with(EffectClass::Idempotent, &json!({"downstream_key_ttl_seconds": 100, "authorization": policy}));
    let mut scene = Scene::recorded(spec);
    decide_as(&mut scene, "ann", true).answer.unwrap();
    scene.by("agent").claim("one").answer.unwrap();
    scene.apply(&unknown(scene.owner())).answer.unwrap();
    scene.claim("two").answer.unwrap();
    scene.after(99);
    decide_as(&mut scene, "ann", true).answer.unwrap();
    assert!(scene.clone().claim("two").answer.unwrap().owns_dispatch);
    scene.after(1);
    assert!(!scene.claim("two").answer.unwrap().owns_dispatch, "the key is forgotten: it could act twice");
    assert_eq!((scene.state(), word(&scene)), (State::OutcomeUnknown, Directive::Reconcile));
}

fn suspected(class: EffectClass, rule: &Value, mode: &str) -> (Scene, crate::domain::decide::Decision) {
    let changes = json!({"on_suspected_duplicate": rule, "authorization": {"mode": mode}});
    let mut scene = Scene::empty(spec_with(class, &changes));
    let decision = scene.propose(&Propose { duplicate_of: Some(name("run-0:refund")), ..scene.intent() });
    (scene, decision)
}

#[test]
fn a_suspected_duplicate_is_refused_held_or_allowed_as_registered() {
    use EffectClass::{External, Idempotent, None};
    let first = name("run-0:refund");
    for (class, rule) in [(External, json!("refuse")), (External, Value::Null), (None, json!("refuse"))] {
        let (scene, decision) = suspected(class, &rule, "automatic");
        assert_eq!(*refused(&decision), Refusal::SuspectedDuplicate(first.clone()));
        assert!(scene.record.is_none(), "nothing of it is stored");
    }
    for (class, rule) in [(External, json!("allow")), (Idempotent, Value::Null), (None, Value::Null)] {
        assert_eq!(suspected(class, &rule, "automatic").0.state(), State::IntentRecorded);
    }
    let (scene, decision) = suspected(External, &json!("hold"), "automatic");
    assert_eq!((scene.state(), events(&decision)), (State::Proposed, vec!["proposed".to_owned()]));
    assert_eq!(scene.life().approval.as_ref().unwrap().held_for, Some(first));
    assert!(scene.life().due_at().is_some());
}

#[test]
fn a_hold_ends_when_the_first_one_settles() {
    let held = || suspected(EffectClass::External, &json!("hold"), "automatic").0;
    let mut scene = held();
    let still = Command::Claim { claim: super::scene::wish("one"), expected_revision: None, hold_released: false };
    assert!(scene.apply(&still).change.is_none());
    let claim = Command::Claim { claim: super::scene::wish("one"), expected_revision: None, hold_released: true };
    let decision = scene.apply(&claim);
    assert_eq!(events(&decision), ["authorized", "intent_recorded", "dispatched"]);
    assert!(decision.answer.unwrap().owns_dispatch);

    let mut scene = held();
    assert_eq!(events(&scene.apply(&Command::Expire { hold_released: true })), ["authorized", "intent_recorded"]);
    assert!(scene.life().approval.is_none());

    // A client that only asks again, without a claim.
    let mut scene = held();
    assert!(scene.propose(&Propose { duplicate_of: Some(name("run-0:refund")), ..scene.intent() }).change.is_none());
    assert_eq!(events(&scene.propose(&scene.intent())), ["authorized", "intent_recorded"]);
    assert_eq!(word(&scene), Directive::Claim);
}

#[test]
fn a_held_effect_of_an_approval_tool_still_needs_its_approval() {
    let (mut scene, _) = suspected(EffectClass::External, &json!("hold"), "approval");
    scene.apply(&Command::Expire { hold_released: true }).answer.unwrap();
    assert_eq!((scene.state(), word(&scene)), (State::Proposed, Directive::Authorize));
    assert_eq!(scene.life().approval.as_ref().unwrap().held_for, None);
    assert!(scene.apply(&Command::Expire { hold_released: true }).change.is_none());
    decide_as(&mut scene, "ann", true).answer.unwrap();
    assert!(scene.by("agent").claim("one").answer.unwrap().owns_dispatch);
}

#[test]
fn another_try_of_a_held_effect_takes_no_place_that_the_first_one_has() {
    let (mut scene, _) = suspected(EffectClass::External, &json!("hold"), "approval");
    decide_as(&mut scene, "ann", true).answer.unwrap();
    assert!(scene.by("agent").claim("one").answer.unwrap().owns_dispatch);
    scene.apply(&not_sent(scene.owner())).answer.unwrap();
    // While the first one is open, the next approval is asked for under the same suspicion.
    let mut free = scene.clone();
    free.apply(&Command::Claim { claim: super::scene::wish("two"), expected_revision: None, hold_released: true });
    assert_eq!(free.life().approval.as_ref().unwrap().held_for, None);
    scene.claim("two").answer.unwrap();
    assert_eq!(scene.state(), State::Proposed);
    assert_eq!(scene.life().approval.as_ref().unwrap().held_for, Some(name("run-0:refund")));
}

#[test]
fn an_approver_may_end_a_hold_before_the_first_one_settles() {
    let (mut scene, _) = suspected(EffectClass::External, &json!("hold"), "automatic");
    assert!(matches!(refused(&decide_as(&mut scene, "agent", true)), Refusal::Forbidden(_)));
    decide_as(&mut scene, "ann", true).answer.unwrap();
    assert!(scene.by("agent").claim("one").answer.unwrap().owns_dispatch);
    scene.apply(&not_sent(scene.owner())).answer.unwrap();
    assert!(scene.claim("two").answer.unwrap().owns_dispatch, "the suspicion was answered once");
}

#[test]
fn a_new_approval_is_not_for_the_process_that_has_acted_before() {
    let mut scene = asked(&json!({}));
    decide_as(&mut scene, "ann", true).answer.unwrap();
    scene.by("agent").claim("one").answer.unwrap();
    scene.apply(&not_sent(scene.owner())).answer.unwrap();
    scene.claim("two").answer.unwrap();
    decide_as(&mut scene, "ann", true).answer.unwrap();
    let again = scene.by("agent").claim("one");
    assert!(again.change.is_none() && !again.answer.unwrap().owns_dispatch, "a claim id is granted once");
    assert!(scene.claim("two").answer.unwrap().owns_dispatch);
}

fn is_lapse(decision: &crate::domain::decide::Decision) -> bool {
    match &decision.change {
        Some(crate::domain::decide::Change::Revise(revision)) => revision.is_lapse,
        _ => panic!("nothing was written: {decision:?}"),
    }
}

#[test]
fn an_expiry_is_the_service_s_own_whoever_finds_it() {
    let mut scene = asked(&json!({}));
    scene.after(APPROVAL);
    let claim = scene.by("agent").claim("one");
    assert_eq!((events(&claim), scene.state()), (vec!["refused".to_owned()], State::Refused));
    assert!(is_lapse(&claim));
    let mut scene = asked(&json!({}));
    scene.after(APPROVAL);
    assert!(is_lapse(&scene.expire()));
    // What somebody did is theirs, also where time did something before it.
    let mut scene = asked(&json!({}));
    assert!(!is_lapse(&decide_as(&mut scene, "ann", false)));
    let mut scene = Scene::dispatched(spec_with(EffectClass::None, &json!({})));
    scene.after(LEASE);
    let claim = scene.claim("two");
    assert_eq!(events(&claim)[0], "lease_expired");
    assert!(!is_lapse(&claim), "a dispatch was granted");
}

fn live_grant(terms: &Value) -> std::sync::Arc<crate::domain::grant::LiveGrant> {
    let mut all = json!({"tool": "payments.refund", "tool_revision": 1, "reason": "r", "author": "ann",
        "request_digest": digest("request").as_str()});
    for (member, value) in terms.as_object().unwrap() {
        all[member] = value.clone();
    }
    std::sync::Arc::new(crate::domain::grant::LiveGrant {
        id: uuid::Uuid::from_u128(7),
        terms: serde_json::from_value(all).unwrap(),
        expires_at: START.plus_seconds(APPROVAL),
    })
}

fn granted(policy: &Value, terms: &Value) -> (Scene, crate::domain::decide::Decision) {
    let mut scene = Scene::empty(spec_with(EffectClass::External, policy));
    let proposal = Propose { claim: Some(super::scene::wish("one")), grant: Some(live_grant(terms)), ..scene.intent() };
    let decision = scene.propose(&proposal);
    (scene, decision)
}

fn used(decision: &crate::domain::decide::Decision) -> Option<uuid::Uuid> {
    match &decision.change {
        Some(crate::domain::decide::Change::Revise(revision)) => revision.grant_use,
        _ => None,
    }
}

#[test]
fn a_live_grant_authorizes_what_it_covers_and_is_used_once() {
    let approval = json!({"authorization": {"mode": "approval"}});
    let (mut scene, decision) = granted(&approval, &json!({"target": "order-1"}));
    assert_eq!(events(&decision), ["proposed", "authorized", "intent_recorded", "dispatched"]);
    assert_eq!(used(&decision), Some(uuid::Uuid::from_u128(7)));
    assert!(decision.answer.unwrap().owns_dispatch);
    assert!(!scene.life().approval.as_ref().unwrap().granted, "consumed by this dispatch");
    // The retry is not covered: people are asked.
    scene.apply(&not_sent(scene.owner())).answer.unwrap();
    let again = scene.claim("two");
    assert_eq!((events(&again), scene.state(), used(&again)), (vec!["proposed".to_owned()], State::Proposed, None));

    for (policy, terms) in [
        (approval.clone(), json!({"target": "order-2"})),
        (approval.clone(), json!({"author": "agent"})),
        (approval.clone(), json!({"tool_revision": 2})),
        (json!({"authorization": {"mode": "approval", "approvals": 2}}), json!({})),
    ] {
        let (scene, decision) = granted(&policy, &terms);
        assert_eq!((scene.state(), used(&decision)), (State::Proposed, None), "{policy} {terms}");
    }
    let (scene, decision) = granted(&json!({"authorization": {"mode": "automatic"}}), &json!({}));
    assert_eq!((scene.state(), used(&decision)), (State::Dispatched, None), "nothing to be granted");
}

#[test]
fn a_grant_does_not_answer_a_suspicion_and_goes_stale_with_its_tool() {
    let policy = json!({"authorization": {"mode": "approval"}, "on_suspected_duplicate": "hold"});
    let mut scene = Scene::empty(spec_with(EffectClass::External, &policy));
    let first = Some(name("run-0:refund"));
    let held = scene.propose(&Propose { duplicate_of: first, grant: Some(live_grant(&json!({}))), ..scene.intent() });
    assert_eq!((scene.state(), used(&held)), (State::Proposed, None));

    let mut scene = Scene::empty(spec_with(EffectClass::External, &json!({"authorization": {"mode": "approval"}})));
    scene.propose(&Propose { grant: Some(live_grant(&json!({}))), ..scene.intent() }).answer.unwrap();
    assert_eq!((scene.state(), word(&scene)), (State::IntentRecorded, Directive::Claim));
    scene.register(scene.tool.spec.clone());
    assert!(matches!(refused(&scene.claim("one")), Refusal::ApprovalStale(_)));
}

#[test]
fn another_profile_makes_an_approval_stale() {
    let mut scene = asked(&json!({}));
    scene.profile_changed = true;
    for approve in [true, false] {
        assert!(matches!(refused(&decide_as(&mut scene.clone(), "ann", approve)), Refusal::ApprovalStale(_)));
    }
    assert!(scene.by("agent").claim("one").change.is_none(), "it waits until it expires or is withdrawn");
    let mut scene = asked(&json!({}));
    decide_as(&mut scene, "ann", true).answer.unwrap();
    scene.profile_changed = true;
    assert!(matches!(refused(&scene.by("agent").claim("one")), Refusal::ApprovalStale(_)));
    // A hold does not end by itself then.
    let (mut scene, _) = suspected(EffectClass::External, &json!("hold"), "automatic");
    scene.profile_changed = true;
    assert!(scene.apply(&Command::Expire { hold_released: true }).change.is_none());
}

#[test]
fn what_is_retained_has_to_be_sent() {
    let mut scene = Scene::empty(spec_with(EffectClass::External, &json!({"retain_arguments": "until_settled"})));
    let decision = scene.propose(&scene.intent());
    let Refusal::Invalid(faults) = refused(&decision) else { panic!("{decision:?}") };
    assert_eq!(faults[0].pointer, "/arguments");
    assert!(scene.record.is_none());
    scene.propose(&Propose { sent: Some("{}".into()), ..scene.intent() }).answer.unwrap();
    // A repeat may say it by digest.
    assert!(scene.propose(&scene.intent()).answer.is_ok());
}

#[test]
fn where_an_approval_stands_is_told() {
    use crate::domain::approval::{ApprovalState, approval_state, is_stale};
    let state = |scene: &Scene| approval_state(scene.record(), &scene.context());
    let mut scene = asked(&json!({"approvals": 2}));
    assert_eq!(state(&scene), Some(ApprovalState::Pending));
    let mut silent = scene.clone();
    silent.after(APPROVAL);
    assert_eq!(state(&silent), Some(ApprovalState::Expired), "also before anybody came by");
    silent.expire();
    assert_eq!(state(&silent), Some(ApprovalState::Expired));
    let mut denied = scene.clone();
    decide_as(&mut denied, "ann", false);
    assert_eq!(state(&denied), Some(ApprovalState::Denied));
    let mut withdrawn = scene.clone();
    withdrawn.by("agent").apply(&Command::Cancel { expected_revision: None });
    assert_eq!(state(&withdrawn), Some(ApprovalState::Withdrawn));
    decide_as(&mut scene, "ann", true);
    assert_eq!(state(&scene), Some(ApprovalState::Pending));
    decide_as(&mut scene, "ben", true);
    assert_eq!((state(&scene), is_stale(scene.record(), &scene.context())), (Some(ApprovalState::Approved), false));
    let mut changed = scene.clone();
    changed.register(changed.tool.spec.clone());
    assert!(is_stale(changed.record(), &changed.context()));
    let mut cancelled = scene.clone();
    cancelled.apply(&Command::Cancel { expected_revision: None });
    assert_eq!(state(&cancelled), Some(ApprovalState::Withdrawn));
    scene.by("agent").claim("one").answer.unwrap();
    assert_eq!(state(&scene), Some(ApprovalState::Used));
    let plain = Scene::recorded(spec_with(EffectClass::None, &json!({})));
    assert_eq!(state(&plain), None);
}
