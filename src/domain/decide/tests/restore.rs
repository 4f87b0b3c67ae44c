//! A restore to an earlier point: whatever may have been done since is in doubt, and nobody from before decides.

use super::commands::{RECORDED, completed, not_sent, report, succeeded};
use super::scene::{Scene, events, name, replayed, spec};
use super::starts::{Kind, STARTS, When, start};
use crate::domain::command::Command;
use crate::domain::refusal::Refusal;
use crate::domain::restore::{Restore, fence_base};
use crate::domain::state::{EffectClass, State};
use crate::limits;

fn epoch(number: u32) -> Command {
    Command::Restore(Restore { epoch: number, epoch_id: name("disk") })
}

/// Every state, class and time, the deadlines that have passed included.
#[test]
fn what_may_have_been_dispatched_since_is_in_doubt_and_what_is_final_stays() {
    for (begin, kind, when) in all() {
        let Some(mut scene) = start(begin, kind) else { continue };
        scene.at(when);
        let (before, state) = (scene.life().clone(), scene.state());
        let decision = scene.apply(&epoch(1));
        if state.is_terminal() {
            replayed(&decision);
            continue;
        }
        let case = format!("{begin} {kind:?} {when:?}");
        assert_eq!(events(&decision)[0], "restored", "{case}");
        let may_have_been =
            [State::Proposed, State::IntentRecorded, State::Dispatched, State::SafeToRetry, State::OutcomeUnknown];
        let expected = if may_have_been.contains(&state) { State::OutcomeUnknown } else { state };
        assert_eq!(scene.state(), expected, "{case}");
        assert_eq!(scene.life().fence, fence_base(1), "{case}");
        assert_eq!(scene.life().revision, before.revision + 1, "{case}");
        assert!(scene.life().reconciliation.is_none(), "{case}: what was admitted before is stale");
        assert!(scene.life().lease_end().is_none(), "{case}: every lease is dead");
        if expected == State::OutcomeUnknown {
            let approval = scene.life().approval.as_ref();
            assert!(approval.is_none_or(|held| held.held_for.is_some() && !held.granted), "{case}");
            assert!(scene.life().deadline_at.is_some() && scene.life().first_dispatched_at.is_some(), "{case}");
            assert_eq!(scene.life().travelling_since, Some(scene.now.plus_seconds(limits::LEASE_MAX_SECONDS)));
        }
        replayed(&scene.apply(&epoch(1)));
        assert!(scene.apply(&epoch(2)).change.is_some(), "{case}");
        assert_eq!(scene.life().fence, fence_base(2), "{case}");
    }
}

fn all() -> impl Iterator<Item = (&'static str, Kind, When)> {
    STARTS
        .into_iter()
        .flat_map(|begin| Kind::ALL.into_iter().flat_map(move |kind| When::ALL.map(|when| (begin, kind, when))))
}

#[test]
fn an_owner_from_before_decides_nothing_and_is_heard() {
    let done = |owner| report(owner, succeeded(completed(RECORDED)));
    for says in 0..2 {
        let mut scene = Scene::dispatched(spec(EffectClass::External));
        let owner = scene.owner();
        scene.apply(&epoch(1));
        let decision = scene.apply(&if says == 0 { done(owner) } else { not_sent(owner) });
        let expected = Refusal::StaleFence { newest: fence_base(1), evidence_recorded: true };
        assert_eq!(decision.answer.unwrap_err(), expected);
        assert_ne!(scene.state(), State::Completed);
        assert_ne!(scene.state(), State::SafeToRetry);
    }
}

#[test]
fn fences_go_on_above_every_one_that_was_given_out() {
    let mut scene = Scene::dispatched(spec(EffectClass::None));
    let (_, before) = scene.owner();
    scene.apply(&epoch(3));
    scene.claim("two").answer.unwrap();
    assert_eq!((before, scene.owner().1), (1, fence_base(3) + 1));
}

#[test]
fn a_new_effect_begins_above_the_fences_of_one_that_was_lost() {
    let mut scene = Scene::empty(spec(EffectClass::External));
    let intent = scene.intent();
    scene.propose(&crate::domain::command::Propose { fence_base: fence_base(1), ..intent }).answer.unwrap();
    scene.claim("one").answer.unwrap();
    assert_eq!(scene.owner().1, fence_base(1) + 1);
}
