//! Reports, receipts and verifications to send, and the words by which the table names commands.

use serde_json::{Value, json};
use uuid::Uuid;

use super::scene::{START, Scene, digest, name, wish};
use crate::domain::adapter::{NoAnswer, Verdict};
use crate::domain::command::{
    Admission, Command, Finding, Outcome, Propose, Report, Resolve, ResolvedOutcome, ResultDocument,
};
use crate::domain::receipt::{CheckedReceipt, Receipt, Verification};
use crate::domain::record::{FailureClass, FailureEvidence, FailurePhase};

/// The receipt that an effect's start already has, where it has one.
pub(super) const RECORDED: &str = "re_1";

/// A receipt that binds, with some members replaced.
pub(super) fn receipt_with(changes: &Value) -> CheckedReceipt {
    let mut receipt = json!({
        "receipt_id": RECORDED,
        "schema": "generic",
        "schema_version": 1,
        "operation_id": "run-1:refund",
        "target": "order-1",
        "outcome": "completed",
        "observed_at": START,
        "source": "downstream",
    });
    for (member, value) in changes.as_object().unwrap() {
        receipt[member] = value.clone();
    }
    let receipt: Receipt = serde_json::from_str(&receipt.to_string()).unwrap();
    receipt.check().unwrap()
}

pub(super) fn completed(receipt_id: &str) -> CheckedReceipt {
    receipt_with(&json!({ "receipt_id": receipt_id }))
}

pub(super) fn failed(receipt_id: &str) -> CheckedReceipt {
    receipt_with(&json!({ "receipt_id": receipt_id, "outcome": "failed" }))
}

/// A fresh read that binds.
pub(super) fn read(verified: bool, source: &str) -> Verification {
    Verification { verified, observed_at: START.plus_seconds(1), source: name(source), target: name("order-1") }
}

pub(super) fn failure(classification: FailureClass) -> FailureEvidence {
    FailureEvidence { classification, phase: FailurePhase::InFlight, detail: String::new() }
}

pub(super) fn succeeded(receipt: CheckedReceipt) -> Report {
    Report::Succeeded { receipt, verification: None }
}

pub(super) fn result(text: &str) -> ResultDocument {
    let size_bytes = u64::try_from(text.len()).unwrap();
    ResultDocument { text: Some(text.into()), digest: digest(text), size_bytes }
}

pub(super) fn outcome((dispatch_id, fence): (Uuid, u32), report: Report) -> Outcome {
    let digest = digest(&format!("{dispatch_id} {fence} {report:?}"));
    Outcome { dispatch_id, fence, report, result: None, digest }
}

pub(super) fn report(who: (Uuid, u32), report: Report) -> Command {
    Command::Outcome(Box::new(outcome(who, report)))
}

pub(super) fn cancel() -> Command {
    Command::Cancel { expected_revision: None }
}

pub(super) fn unknown(who: (Uuid, u32)) -> Command {
    report(who, Report::Unknown(failure(FailureClass::Timeout)))
}

pub(super) fn not_sent(who: (Uuid, u32)) -> Command {
    report(who, Report::NotSent(None))
}

/// An authoritative "no" about something that can't arrive any more.
pub(super) fn proven_absence() -> Finding {
    Finding::Absent { verdict: Verdict::NotFound, authoritative: true, is_final: true, asked_at: START }
}

/// A "no" that may be a "not yet".
pub(super) fn eventual_absence() -> Finding {
    Finding::Absent { verdict: Verdict::NotFound, authoritative: false, is_final: false, asked_at: START }
}

impl Scene {
    pub(super) fn approve(&self, approve: bool) -> Command {
        let approval = self.life().approval.as_ref();
        Command::Authorize {
            expected_revision: self.life().revision,
            proposal_digest: approval.map_or_else(|| digest("none"), |approval| approval.proposal_digest.clone()),
            approve,
            reason: "read".to_owned(),
        }
    }

    pub(super) fn admit(&self, request: &str) -> Command {
        Command::AdmitReconciliation(Box::new(self.admission(request)))
    }

    pub(super) fn admission(&self, request: &str) -> Admission {
        Admission {
            request_digest: digest(request),
            expected_revision: self.life().revision,
            lookup: true,
            automatic: false,
            timeout_seconds: 30,
            worker: None,
            handoff_id: None,
            review_reference: None,
        }
    }

    /// The settlement of the open attempt, if there is one.
    pub(super) fn settle(&self, finding: Finding) -> Command {
        let open = self.life().reconciliation.as_ref();
        Command::SettleReconciliation {
            admitted_revision: open.map_or(self.life().revision, |open| open.admitted_revision),
            request_digest: open.map_or_else(|| digest("none"), |open| open.request_digest.clone()),
            finding: Box::new(finding),
        }
    }

    pub(super) fn resolve(&self, decision: &str, outcome: ResolvedOutcome) -> Command {
        Command::Resolve(Resolve {
            expected_revision: self.life().revision,
            decision_id: name(decision),
            outcome,
            reason: "looked at it".to_owned(),
            evidence: "{\"ticket\":\"hunter2\"}".into(),
            bulk_decision_id: None,
            digest: digest(&format!("{decision} {outcome:?}")),
        })
    }
}

/// Who reports or beats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// The newest dispatch.
    Owner,
    /// Its fence under another dispatch id.
    Wrong,
    /// The dispatch before it.
    Older,
    /// A fence that was never granted.
    Newer,
}

impl Who {
    pub(super) const ALL: [Self; 4] = [Self::Owner, Self::Wrong, Self::Older, Self::Newer];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Owner => "owner",
            Self::Wrong => "wrong",
            Self::Older => "older",
            Self::Newer => "newer",
        }
    }

    fn credentials(self, scene: &Scene) -> (Uuid, u32) {
        let stranger = Uuid::from_u128(7);
        let fence = scene.life().fence;
        match (self, &scene.life().dispatch) {
            (Self::Owner, Some(_)) => scene.owner(),
            (Self::Owner | Self::Wrong, _) => (stranger, fence.max(1)),
            (Self::Older, _) => (super::starts::FIRST_DISPATCH, fence.saturating_sub(1)),
            (Self::Newer, _) => (stranger, fence + 1),
        }
    }
}

/// What is asked of an effect.
#[derive(Debug)]
pub(super) enum Asked {
    Command(Command),
    Proposal(Propose),
}

/// Commands that name a dispatch, by word.
pub(super) const REPORTS: [&str; 9] =
    ["beat", "succ", "succ.other", "succ+v", "succ-v", "fail+r", "fail", "not_sent", "unknown"];

/// All other commands, by word.
pub(super) const COMMANDS: [&str; 27] = [
    "claim.new",
    "claim.same",
    "again",
    "again+claim",
    "again.other",
    "expire",
    "verify+",
    "verify-",
    "cancel",
    "approve",
    "deny",
    "undispatched",
    "admit",
    "admit.same",
    "find.completed",
    "find.failed",
    "find.absent",
    "find.not_found",
    "find.pending",
    "find.unsupported",
    "find.rejected",
    "find.nothing",
    "find.stale",
    "resolve.completed",
    "resolve.failed",
    "resolve.retry",
    "resolve.unknown",
];

/// The report behind a word.
pub(super) fn asked_by(scene: &Scene, word: &str, who: Who) -> Asked {
    let credentials = who.credentials(scene);
    let verified = |verified| Report::Succeeded {
        receipt: completed(RECORDED),
        verification: Some(read(verified, "GET beside the receipt")),
    };
    Asked::Command(match word {
        "beat" => Command::Heartbeat { dispatch_id: credentials.0, fence: credentials.1 },
        // Beside the receipt another result, so that it is not the report that the start was made by.
        "succ" => {
            let mut outcome = outcome(credentials, succeeded(completed(RECORDED)));
            outcome.digest = digest("another report");
            Command::Outcome(Box::new(outcome))
        }
        "succ.other" => report(credentials, succeeded(completed("re_2"))),
        "succ+v" => report(credentials, verified(true)),
        "succ-v" => report(credentials, verified(false)),
        "fail+r" => report(credentials, Report::Failed { receipt: Some(failed("re_3")), failure: None }),
        "fail" => report(credentials, Report::Failed { receipt: None, failure: None }),
        "not_sent" => report(credentials, Report::NotSent(Some(failure(FailureClass::Exception)))),
        "unknown" => report(credentials, Report::Unknown(failure(FailureClass::Disconnect))),
        _ => panic!("no report {word}"),
    })
}

/// The command behind a word.
pub(super) fn asked(scene: &Scene, word: &str) -> Asked {
    let claim = |claim| Command::Claim { claim, expected_revision: None, hold_released: false };
    let found = |finding| scene.settle(finding);
    Asked::Command(match word {
        "claim.new" => claim(wish("three")),
        "claim.same" => claim(wish("two")),
        "again" => return Asked::Proposal(scene.intent()),
        "again+claim" => return Asked::Proposal(Propose { claim: Some(wish("three")), ..scene.intent() }),
        "again.other" => return Asked::Proposal(Propose { target: name("order-2"), ..scene.intent() }),
        "expire" => Command::Expire { hold_released: false },
        "verify+" => Command::Verify(read(true, "GET later")),
        "verify-" => Command::Verify(read(false, "GET later")),
        "cancel" => cancel(),
        "approve" => scene.approve(true),
        "deny" => scene.approve(false),
        "undispatched" => Command::SettleUndispatched { expected_revision: scene.life().revision },
        "admit" => scene.admit("another request"),
        "admit.same" => scene.admit("request"),
        "find.completed" => found(Finding::Receipt { receipt: completed(RECORDED), verification: None }),
        "find.failed" => found(Finding::Receipt { receipt: failed("re_3"), verification: None }),
        "find.absent" => found(proven_absence()),
        "find.not_found" => found(eventual_absence()),
        "find.pending" => found(Finding::Observed("pending")),
        "find.unsupported" => found(Finding::Observed("unsupported")),
        "find.rejected" => found(Finding::Rejected(Verdict::Multiple)),
        "find.nothing" => found(Finding::NoAnswer(NoAnswer::Timeout)),
        "find.stale" => Command::SettleReconciliation {
            admitted_revision: scene.life().revision,
            request_digest: digest("a request that was replaced"),
            finding: Box::new(proven_absence()),
        },
        "resolve.completed" => scene.resolve("d-9", ResolvedOutcome::Completed),
        "resolve.failed" => scene.resolve("d-9", ResolvedOutcome::Failed),
        "resolve.retry" => scene.resolve("d-9", ResolvedOutcome::SafeToRetry),
        "resolve.unknown" => scene.resolve("d-9", ResolvedOutcome::OutcomeUnknown),
        _ => panic!("no command {word}"),
    })
}
