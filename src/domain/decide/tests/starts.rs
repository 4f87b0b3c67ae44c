//! The states that the table starts from, each reached by commands alone.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::{Value, json};
use uuid::Uuid;

use super::commands::{
    RECORDED, cancel, completed, failed, not_sent, outcome, read, report, result, succeeded, unknown,
};
use super::scene::{Scene, spec_with, wish};
use crate::domain::command::{Claim, Command, Report};
use crate::domain::state::{EffectClass, State};

/// The dispatch before the newest one.
pub(super) const FIRST_DISPATCH: Uuid = Uuid::from_u128(1);

/// What a replay may do, at the time of asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    None,
    /// `idempotent`, while the downstream remembers the key.
    Remembered,
    /// `idempotent`, after it has forgotten the key.
    Forgotten,
    External,
}

impl Kind {
    pub(super) const ALL: [Self; 4] = [Self::None, Self::Remembered, Self::Forgotten, Self::External];

    /// The table's letter.
    pub(super) fn letter(self) -> char {
        match self {
            Self::None => 'n',
            Self::Remembered => 'i',
            Self::Forgotten => 'o',
            Self::External => 'x',
        }
    }

    fn class(self) -> EffectClass {
        match self {
            Self::None => EffectClass::None,
            Self::Remembered | Self::Forgotten => EffectClass::Idempotent,
            Self::External => EffectClass::External,
        }
    }

    fn spec(self, mut changes: Value) -> crate::domain::tool::ToolSpec {
        if self == Self::Forgotten {
            changes["downstream_key_ttl_seconds"] = json!(1);
        }
        spec_with(self.class(), &changes)
    }
}

/// When the command comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// The last moment before the lease or the deadline.
    Fresh,
    /// The lease or the deadline has just passed, and no sweep was here.
    Due,
    /// A sweep was here.
    Swept,
}

impl When {
    pub(super) const ALL: [Self; 3] = [Self::Fresh, Self::Due, Self::Swept];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Fresh => "fresh",
            Self::Due => "due",
            Self::Swept => "swept",
        }
    }
}

pub(super) const STARTS: [&str; 18] = [
    "proposed",
    "proposed-again",
    "intent_recorded",
    "dispatched",
    "outcome_unknown",
    "outcome_unknown+attempt",
    "outcome_unknown+approval",
    "outcome_unknown+approved",
    "outcome_unknown+denied",
    "safe_to_retry",
    "verifying",
    "manual_review",
    "manual_review+attempt",
    "completed",
    "completed-flagged",
    "failed",
    "failed-unsent",
    "refused",
];

/// Two dispatches: the first was never sent, the second is live.
fn two_dispatches(kind: Kind, changes: Value) -> Scene {
    let mut scene = Scene::recorded(kind.spec(changes));
    claim_twice(&mut scene);
    scene
}

fn claim_twice(scene: &mut Scene) {
    let approve_if_asked = |scene: &mut Scene| {
        if scene.state() == State::Proposed {
            let approve = scene.by("approver").approve(true);
            scene.apply(&approve).answer.unwrap();
        }
    };
    approve_if_asked(scene);
    scene.claim_with(Claim { dispatch_id: FIRST_DISPATCH, ..wish("one") }).answer.unwrap();
    scene.apply(&not_sent(scene.owner())).answer.unwrap();
    scene.claim("two").answer.unwrap();
    approve_if_asked(scene);
    scene.claim("two").answer.unwrap();
    assert_eq!((scene.state(), scene.life().fence), (State::Dispatched, 2));
}

fn in_doubt(kind: Kind) -> Scene {
    let mut scene = two_dispatches(kind, json!({}));
    scene.apply(&unknown(scene.owner())).answer.unwrap();
    scene
}

fn in_review(kind: Kind) -> Scene {
    let mut scene = in_doubt(kind);
    let rejected = scene.admit("the request that was rejected");
    scene.apply(&rejected).answer.unwrap();
    let rejected = scene.settle(crate::domain::command::Finding::Rejected(crate::domain::adapter::Verdict::Conflict));
    scene.apply(&rejected).answer.unwrap();
    scene
}

fn settled(kind: Kind, report_of: Report) -> Scene {
    let mut scene = two_dispatches(kind, json!({}));
    let mut outcome = outcome(scene.owner(), report_of);
    outcome.result = Some(result("{\"refund\":1}"));
    scene.apply(&Command::Outcome(Box::new(outcome))).answer.unwrap();
    scene
}

/// An effect of that kind in that state; `None` where there can be none.
pub(super) fn start(state: &str, kind: Kind) -> Option<Scene> {
    static BUILT: LazyLock<HashMap<(&str, char), Option<Scene>>> = LazyLock::new(|| {
        let all = STARTS.into_iter().flat_map(|state| Kind::ALL.map(|kind| (state, kind)));
        all.map(|(state, kind)| ((state, kind.letter()), build(state, kind))).collect()
    });
    BUILT[&(state, kind.letter())].clone()
}

fn build(state: &str, kind: Kind) -> Option<Scene> {
    let approval = json!({"authorization": {"mode": "approval", "expires_after_seconds": super::scene::APPROVAL}});
    let mut scene = match state {
        "proposed" => Scene::recorded(kind.spec(approval)),
        "proposed-again" => {
            let mut scene = two_dispatches(kind, approval);
            scene.apply(&not_sent(scene.owner())).answer.unwrap();
            scene.claim("three").answer.unwrap();
            scene
        }
        "outcome_unknown+approval" | "outcome_unknown+approved" | "outcome_unknown+denied" => {
            let mut scene = two_dispatches(kind, approval);
            scene.apply(&unknown(scene.owner())).answer.unwrap();
            let claim = scene.claim("three");
            if kind == Kind::External {
                assert!(claim.change.is_none(), "an approval can't make another try of an external effect safe");
                return None;
            }
            if state != "outcome_unknown+approval" {
                let decision = scene.by("approver").approve(state == "outcome_unknown+approved");
                scene.apply(&decision).answer.unwrap();
            }
            scene
        }
        "intent_recorded" => Scene::recorded(kind.spec(json!({}))),
        "dispatched" => two_dispatches(kind, json!({})),
        "outcome_unknown" => in_doubt(kind),
        "safe_to_retry" => {
            let mut scene = two_dispatches(kind, json!({}));
            scene.apply(&not_sent(scene.owner())).answer.unwrap();
            scene
        }
        "manual_review" => in_review(kind),
        "outcome_unknown+attempt" | "manual_review+attempt" => {
            let mut scene = if state.starts_with('o') { in_doubt(kind) } else { in_review(kind) };
            let admit = scene.admit("request");
            scene.apply(&admit).answer.unwrap();
            scene
        }
        "verifying" => settled(kind, succeeded(completed(RECORDED))),
        "completed" | "completed-flagged" => {
            let verification = Some(read(true, "GET at once"));
            let mut scene = settled(kind, Report::Succeeded { receipt: completed(RECORDED), verification });
            if state == "completed-flagged" {
                let contradiction = Report::Failed { receipt: Some(failed("re_0")), failure: None };
                assert!(scene.apply(&report(scene.owner(), contradiction)).answer.is_err());
                assert!(scene.life().contradicted);
            }
            scene
        }
        "failed" => settled(kind, Report::Failed { receipt: Some(failed(RECORDED)), failure: None }),
        "failed-unsent" => {
            let mut scene = Scene::recorded(kind.spec(json!({})));
            scene.apply(&cancel()).answer.unwrap();
            scene
        }
        "refused" => {
            let mut scene = Scene::recorded(kind.spec(approval));
            let deny = scene.by("denier").approve(false);
            scene.apply(&deny).answer.unwrap();
            scene
        }
        _ => panic!("no start {state}"),
    };
    scene.by("approver-2");
    assert_eq!(scene.state().as_str(), state.split(['-', '+']).next().unwrap());
    Some(scene)
}

impl Scene {
    /// Moves the clock to the last moment before the deadline, to the deadline, or past a sweep.
    /// Without a deadline only a little time passes.
    pub(super) fn at(&mut self, when: When) {
        match (self.life().due_at(), when) {
            (None, _) => self.now = self.now.plus_seconds(10),
            (Some(due), When::Fresh) => self.now = due.plus_micros(-1),
            (Some(due), When::Due) => self.now = due,
            (Some(due), When::Swept) => {
                self.now = due;
                self.expire().answer.unwrap();
                self.now = due.plus_seconds(1);
            }
        }
    }
}
