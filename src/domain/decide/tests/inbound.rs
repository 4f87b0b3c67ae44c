//! Receipts from outside: what each state makes of one (laws 3, 4, 7, 9).

use super::commands::{RECORDED, completed, failed};
use super::scene::{digest, events};
use super::starts::{Kind, STARTS, start};
use crate::domain::command::Command;
use crate::domain::decide::{Change, Standing, standing};
use crate::domain::receipt::CheckedReceipt;
use crate::domain::refusal::Refusal;
use crate::domain::state::State;

fn evidence(receipt: &CheckedReceipt) -> Command {
    Command::Evidence { receipt: receipt.clone(), digest: digest(&format!("inbound {}", receipt.digest.as_str())) }
}

/// By start: what a receipt of another id that says `completed` comes to, and one that says `failed`.
fn expected(start: &str) -> (Standing, Standing) {
    match start {
        "dispatched"
        | "outcome_unknown"
        | "outcome_unknown+attempt"
        | "outcome_unknown+approval"
        | "outcome_unknown+approved"
        | "outcome_unknown+denied"
        | "manual_review"
        | "manual_review+attempt" => (Standing::Settles, Standing::Settles),
        _ => (Standing::Evidence, Standing::Evidence),
    }
}

#[test]
fn every_state_makes_of_a_receipt_what_the_laws_let_it() {
    let mut seen = 0;
    for name in STARTS {
        for kind in Kind::ALL {
            let Some(scene) = start(name, kind) else { continue };
            let receipts = [completed("re_9"), failed("re_9")];
            let (done, not_done) = expected(name);
            for (receipt, expected) in receipts.iter().zip([done, not_done]) {
                let found = standing(scene.life(), receipt, &digest("new"));
                assert_eq!(found, expected, "{name} {kind:?} {:?}", receipt.receipt.outcome);
                let mut after = scene.clone();
                let decision = after.apply(&evidence(receipt));
                if expected == Standing::Settles {
                    // Evidence never takes the place of a settlement.
                    assert!(decision.change.is_none(), "{name}");
                    assert!(matches!(decision.answer, Err(Refusal::StateConflict { .. })), "{name}");
                    continue;
                }
                assert_eq!(events(&decision)[0], "late_report", "{name}");
                let Some(Change::Revise(revision)) = &decision.change else { panic!("{name}: nothing is kept") };
                assert_eq!(revision.receipt.as_deref(), Some(&*receipt.text), "{name}");
                assert_eq!(after.life().revision, scene.life().revision + 1);
                if scene.state().is_terminal() {
                    assert_eq!(after.state(), scene.state(), "{name}: a settled outcome stays");
                    assert_eq!(after.life().receipt, scene.life().receipt);
                } else if after.life().contradicted {
                    assert_eq!(after.state(), State::ManualReview, "{name}: what might be acted on stops");
                }
                assert!(!matches!(after.state(), State::Dispatched | State::OutcomeUnknown));
                // Law 9: a repeat writes nothing.
                let repeat = after.apply(&evidence(receipt));
                assert!(repeat.change.is_none() && repeat.answer.is_ok_and(|answer| answer.replayed), "{name}");
                seen += 1;
            }
        }
    }
    assert!(seen > 40, "{seen}");
}

#[test]
fn what_is_recorded_is_no_news() {
    for (name, same, opposite) in
        [("verifying", completed(RECORDED), failed(RECORDED)), ("completed", completed(RECORDED), failed(RECORDED))]
    {
        let scene = start(name, Kind::External).unwrap();
        assert_eq!(standing(scene.life(), &same, &digest("new")), Standing::Known, "{name}");
        assert_eq!(standing(scene.life(), &opposite, &digest("new")), Standing::Evidence, "{name}");
        let mut after = scene.clone();
        after.apply(&evidence(&opposite)).answer.unwrap();
        assert!(after.life().contradicted, "{name}");
    }
}

#[test]
fn evidence_must_bind() {
    let scene = start("completed", Kind::External).unwrap();
    let other = super::commands::receipt_with(&serde_json::json!({ "receipt_id": "re_9", "target": "order-2" }));
    let decision = scene.clone().apply(&evidence(&other));
    assert!(matches!(decision.answer, Err(Refusal::ReceiptRejected(_))));
    assert!(decision.change.is_none());
}
