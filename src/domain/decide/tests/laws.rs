//! The laws of protocol §2 as checks of one step: what was there, what was asked, what came of it.

use super::commands::Asked;
use super::scene::{Scene, events};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Command, Finding, Report};
use crate::domain::decide::{Change, Decision, Revision, decide, is_replay_safe, propose};
use crate::domain::receipt::ReceiptOutcome;
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::tool::VerificationRule;

/// A text that reports and receipts carry and that no event may show.
pub(super) const SECRET: &str = "hunter2";

/// One decided step.
pub(super) struct Step<'a> {
    pub(super) before: &'a Scene,
    pub(super) asked: &'a Asked,
    pub(super) decision: &'a Decision,
    pub(super) after: &'a Scene,
    /// Whether a person doubted the recorded receipt, and sent the effect back, since it was accepted.
    pub(super) doubted: bool,
}

impl Step<'_> {
    pub(super) fn check(&self) {
        self.one_identity();
        self.a_revision_is_one_step_with_events();
        self.one_owner();
        self.no_guess();
        self.completed_means_checked();
        self.late_truth_is_kept();
        self.recorded_documents_stay();
        self.same_question_same_answer();
        self.no_silent_state();
        self.evidence_without_content();
        self.time_is_repeated_in_the_commit();
    }

    fn revision(&self) -> Option<&Revision> {
        match &self.decision.change {
            Some(Change::Revise(revision)) => Some(revision),
            _ => None,
        }
    }

    fn command(&self) -> Option<&Command> {
        match self.asked {
            Asked::Command(command) => Some(command),
            Asked::Proposal(_) => None,
        }
    }

    fn has(&self, event: &str) -> bool {
        events(self.decision).iter().any(|found| found == event)
    }

    /// Law 1.
    fn one_identity(&self) {
        let (before, after) = (self.before.record(), self.after.record());
        assert_eq!(before.intent, after.intent);
        assert_eq!(before.key, after.key);
        assert!(self.revision().is_none_or(|revision| revision.intent.is_none()), "the intent is written once");
    }

    /// Law 8.
    fn a_revision_is_one_step_with_events(&self) {
        let (before, after) = (self.before.life(), self.after.life());
        if let Some(revision) = self.revision() {
            assert_eq!(after.revision, before.revision + 1);
            assert!(!revision.events.is_empty(), "a revision without an event");
            assert_eq!(after.updated_at, self.after.now);
        } else {
            let mut renewed = before.clone();
            if let (Some(old), Some(new)) = (&mut renewed.dispatch, &after.dispatch) {
                assert!(new.lease_expires_at >= old.lease_expires_at, "a renewal shortens the lease");
                old.lease_expires_at = new.lease_expires_at;
            }
            assert_eq!(renewed, *after, "a change without a revision");
        }
        if before.state.is_terminal() {
            assert_eq!(before.state, after.state, "a final state was left");
            assert_eq!(before.executed, after.executed);
        }
    }

    /// Laws 2 and 3.
    fn one_owner(&self) {
        let (before, after) = (self.before.life(), self.after.life());
        assert!(after.fence >= before.fence && after.attempt >= before.attempt, "a fence shrank");
        assert_eq!(after.fence, after.dispatch.as_ref().map_or(0, |dispatch| dispatch.fence));
        let granted = after.fence > before.fence;
        assert_eq!(granted, self.has("dispatched"));
        if granted {
            assert_eq!((after.fence, after.attempt), (before.fence + 1, before.attempt + 1));
            let live = before.lease_end().is_some_and(|end| end > self.before.now);
            assert!(!live, "two live dispatches");
            assert_eq!(after.state, State::Dispatched);
            let stamp = self.before.current.as_ref().map(|tool| tool.stamp);
            assert_eq!(
                self.revision().and_then(|revision| revision.tool_stamp),
                stamp,
                "a grant not bound to the tool"
            );
            assert!(!self.before.context().is_paused());
            let earlier = before.dispatch.as_ref().and_then(|dispatch| dispatch.claim.as_ref());
            let now = after.dispatch.as_ref().and_then(|dispatch| dispatch.claim.as_ref());
            assert!(now.is_none() || earlier != now, "a claim id was granted twice in a row");
            let claimed = matches!(self.command(), Some(Command::Claim { .. })) || self.command().is_none();
            assert!(claimed, "a dispatch that nobody claimed");
        }
        if self.decision.answer.as_ref().is_ok_and(|answer| answer.owns_dispatch) && after.state == State::Dispatched {
            assert!(after.lease_end().is_some_and(|end| end > self.after.now), "told to act on a lapsed lease");
        }
    }

    /// Laws 4 and 6.
    fn no_guess(&self) {
        let (before, after) = (self.before.life(), self.after.life());
        let unsafe_replay = !is_replay_safe(self.before.record(), &self.before.context());
        if before.dispatch.is_none() || before.state.is_terminal() || before.state == State::SafeToRetry {
            return;
        }
        if after.state == State::Dispatched && after.fence > before.fence && before.state != State::Proposed {
            let earned = matches!(before.state, State::IntentRecorded);
            assert!(earned || !unsafe_replay, "another dispatch of what may have happened");
        }
        if !matches!(before.state, State::Dispatched | State::OutcomeUnknown | State::Verifying | State::ManualReview) {
            return;
        }
        let receipt = self.revision().is_some_and(|revision| {
            revision.receipt.is_some() && after.receipt.as_ref().is_some_and(|at| at.revision == after.revision)
        });
        let by_operator = matches!(self.command(), Some(Command::Resolve(_)));
        let allowed = match after.state {
            State::Dispatched | State::OutcomeUnknown | State::ManualReview => true,
            State::Verifying => receipt || before.state == State::Verifying,
            State::Completed => receipt || by_operator || before.state == State::Verifying,
            State::Failed => receipt || by_operator,
            State::SafeToRetry => by_operator || self.absence_is_proven(),
            State::Proposed | State::IntentRecorded | State::Refused => false,
        };
        assert!(allowed, "{:?} became {:?} by a guess", before.state, after.state);
    }

    fn absence_is_proven(&self) -> bool {
        match self.command() {
            Some(Command::SettleReconciliation { finding, .. }) => {
                matches!(**finding, Finding::Absent { authoritative: true, is_final: true, .. })
            }
            Some(Command::Outcome(outcome)) => {
                let owner = self.before.owner() == (outcome.dispatch_id, outcome.fence);
                let live = self.before.life().lease_end().is_some_and(|end| end > self.before.now);
                owner && live && matches!(outcome.report, Report::NotSent(_))
            }
            _ => false,
        }
    }

    /// Law 5.
    fn completed_means_checked(&self) {
        let (before, after) = (self.before.life(), self.after.life());
        if after.state != State::Completed || before.state == State::Completed {
            return;
        }
        let said = after.receipt.as_ref().is_some_and(|receipt| receipt.outcome == ReceiptOutcome::Completed);
        let rule = self.before.tool.spec.verification_rule(self.before.record().intent.class);
        let confirmed = after.verification.as_ref().is_some_and(|read| read.verified);
        let checked = said && (rule == VerificationRule::Waived || confirmed);
        assert!(checked || matches!(self.command(), Some(Command::Resolve(_))), "completed and not checked");
    }

    /// Law 7.
    fn late_truth_is_kept(&self) {
        let kept = match &self.decision.answer {
            Err(Refusal::StateConflict { evidence_recorded, .. } | Refusal::StaleFence { evidence_recorded, .. }) => {
                *evidence_recorded
            }
            _ => false,
        };
        let Some(Command::Outcome(outcome)) = self.command() else { return };
        let known = self.before.life().reports.iter().any(|mark| mark.digest == outcome.digest);
        let remembered = self.after.life().reports.iter().any(|mark| mark.digest == outcome.digest);
        if kept {
            assert!(remembered, "said to be kept and not kept");
            assert_eq!(self.has("late_report"), !known);
        }
        if let (true, Some((receipt, _))) = (self.has("late_report"), outcome.report.receipt()) {
            let stored = self.revision().and_then(|revision| revision.receipt.as_deref());
            assert_eq!(stored, Some(&*receipt.text), "the evidence itself is kept");
        }
        if self.before.life().contradicted && !self.after.life().contradicted {
            assert!(matches!(self.command(), Some(Command::Resolve(_))), "only a person takes the flag away");
        }
    }

    /// Law 9, of what was recorded.
    fn recorded_documents_stay(&self) {
        let (before, after) = (self.before.record(), self.after.record());
        if before.life.state.is_terminal() {
            assert_eq!(before.life.receipt, after.life.receipt);
            assert_eq!(before.life.result, after.life.result);
        }
        let reconciled = matches!(self.command(), Some(Command::SettleReconciliation { .. }));
        if before.life.receipt.is_some() && before.life.receipt != after.life.receipt {
            let in_review = before.life.state == State::ManualReview;
            assert!(self.doubted || (reconciled && in_review), "a receipt was replaced");
        }
        if before.life.result.is_some() && before.life.result != after.life.result {
            assert!(self.doubted, "a result was replaced");
        }
        for (digest, text) in [
            (after.life.receipt.as_ref().map(|at| &at.digest), &after.receipt),
            (after.life.result.as_ref().map(|at| &at.digest), &after.result),
        ] {
            assert_eq!(digest, text.as_ref().map(|text| Sha256Digest::of(text.as_bytes())).as_ref());
        }
    }

    /// Law 9, of the repeat.
    fn same_question_same_answer(&self) {
        let (record, context) = (self.after.record(), self.after.context());
        if let Some(Command::SettleReconciliation { finding, .. }) = self.command()
            && matches!(**finding, Finding::NoAnswer(_))
        {
            // Nobody's question: each call that brings no answer is on record.
            return;
        }
        let again = match self.asked {
            Asked::Command(command) => decide(record, command, &context),
            Asked::Proposal(proposal) => propose(Some(record), proposal, &context),
        };
        match &again.change {
            None => {}
            Some(Change::Renew { until, .. }) => {
                assert_eq!(record.life.lease_end(), Some(*until), "a repeated heartbeat moves the lease");
            }
            Some(Change::Revise(_)) => panic!("a repeat writes"),
        }
        let settlement = matches!(self.command(), Some(Command::SettleReconciliation { .. }));
        if settlement && self.decision.change.is_some() {
            // Nobody's request: the settlement of an attempt that is settled is stale.
            assert_eq!(again.answer, Err(Refusal::StaleRequest));
            return;
        }
        let (mut first, mut second) = (self.decision.answer.clone(), again.answer);
        for answer in [&mut first, &mut second].into_iter().filter_map(|answer| answer.as_mut().ok()) {
            answer.replayed = false;
        }
        // A report that ended the dispatch came from its owner, and still does.
        assert_eq!(first, second, "another answer to the same question");
    }

    /// Law 10.
    fn no_silent_state(&self) {
        let life = self.after.life();
        let waits_for_somebody = matches!(life.state, State::IntentRecorded | State::SafeToRetry | State::ManualReview);
        assert!(
            life.state.is_terminal() || waits_for_somebody || life.due_at().is_some(),
            "{:?} without a deadline",
            life.state
        );
        assert_eq!(life.state == State::ManualReview, life.review.is_some());
        assert_eq!(life.state == State::OutcomeUnknown, life.unknown_since.is_some());
        assert_eq!(life.state == State::Failed, life.executed.is_some());
        assert!(life.is_open() || !life.contradicted, "a contradiction that nobody would find");
    }

    /// Law 11.
    fn evidence_without_content(&self) {
        if let Some(revision) = self.revision() {
            let shown = serde_json::to_string(&revision.events).unwrap();
            assert!(!shown.contains(SECRET), "an event shows content: {shown}");
        }
        if let Err(refusal) = &self.decision.answer {
            assert!(!format!("{refusal:?}").contains(SECRET), "a refusal shows content");
        }
    }

    /// Law 13.
    fn time_is_repeated_in_the_commit(&self) {
        let Some(revision) = self.revision() else { return };
        let lapsed = self.before.life().lease_end().filter(|end| *end <= self.before.now);
        assert_eq!(revision.lease_seen, lapsed, "the commit must repeat the lease end that was seen");
    }
}
