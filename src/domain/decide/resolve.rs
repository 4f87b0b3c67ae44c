//! An operator's resolution: a person decides, with a name, a reason, evidence and a revision.
//!
//! The third way out of doubt (law 4): neither a receipt nor a verification is asked for, because the
//! person's evidence stands in their place. What settled once stays settled (law 9).

use super::{Answer, Context, Decision, Next, check_revision, state_conflict};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Resolve, ResolvedOutcome};
use crate::domain::ids::Name;
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{DecisionMark, Life, Record, Resolution};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::tool::{AuthorizationMode, Tool};
use crate::limits;

/// Decides a resolution. The same decision again is a replay; another one needs the new revision.
pub(super) fn resolve(record: &Record, resolve: &Resolve, context: &Context) -> Decision {
    let mark = mark_of(resolve, record.life.revision.saturating_add(1));
    if let Some(earlier) = record.life.decisions.iter().find(|earlier| earlier.id == mark.id) {
        return if earlier.digest == mark.digest {
            Decision::unchanged(Answer { owns_dispatch: false, replayed: true })
        } else {
            Decision::refuse(state_conflict(record.life.state, "this decision id stands for another decision"))
        };
    }
    if let Err(refusal) = check_revision(record, Some(resolve.expected_revision)) {
        return Decision::refuse(refusal);
    }
    let mut next = Next::of(record, context);
    if let Err(refusal) = may_resolve(&next.life, resolve.outcome) {
        return Decision::refuse(refusal);
    }
    if !has_other_eyes(record, context) {
        let reason = "for this tool, who proposed or approved an effect can't resolve it";
        return Decision::refuse(Refusal::Forbidden(reason));
    }
    next.supersede();
    next.life.contradicted = false;
    next.life.decisions.push(mark);
    next.life.resolution = Some(Resolution {
        decision_id: resolve.decision_id.clone(),
        bulk_decision_id: resolve.bulk_decision_id.clone(),
        digest: resolve.digest.clone(),
        outcome: resolve.outcome,
        reason: resolve.reason.clone(),
        evidence: resolve.evidence.clone(),
        principal: context.principal.clone(),
        at: context.now,
    });
    next.event(event_of(resolve));
    if !next.life.state.is_terminal() {
        go(&mut next, resolve.outcome);
    }
    next.answer(Answer::default())
}

/// What may be resolved: what was brought to a person, and contradictions of what is settled.
fn may_resolve(life: &Life, outcome: ResolvedOutcome) -> Result<(), Refusal> {
    let conflict = |reason| Err(state_conflict(life.state, reason));
    match life.state {
        State::ManualReview if !outcome.is_terminal() && life.decisions.len() >= limits::RESOLUTIONS => {
            conflict("this effect was resolved too often without an outcome: decide `completed` or `failed`")
        }
        State::ManualReview => Ok(()),
        _ if life.state.is_terminal() && life.contradicted => {
            if outcome.is_terminal() {
                Ok(())
            } else {
                conflict("a settled outcome stays: take the contradiction away with `completed` or `failed`")
            }
        }
        State::Completed | State::Failed | State::Refused => {
            conflict("this effect is settled and nothing contradicts it")
        }
        State::OutcomeUnknown => conflict(
            "only an effect in manual review can be resolved: reconcile this one, or wait for its deadline, which brings it there",
        ),
        State::Dispatched => conflict(
            "only an effect in manual review can be resolved: this one is dispatched; cancel it, or wait for its outcome",
        ),
        State::Verifying => {
            conflict("only an effect in manual review can be resolved: this one waits for a verification")
        }
        State::Proposed | State::IntentRecorded | State::SafeToRetry => conflict(
            "only an effect in manual review can be resolved: this one is not in doubt; claim it, or cancel it",
        ),
    }
}

/// Whether somebody else decides than who proposed or approved, where the tool asks for four eyes: as
/// it was registered for the effect, or as it is now.
pub(super) fn has_other_eyes(record: &Record, context: &Context) -> bool {
    let asks = |tool: &Tool| {
        let rule = &tool.spec.authorization;
        rule.mode == AuthorizationMode::Approval && rule.four_eyes
    };
    if !asks(&context.tool) && !context.current.as_deref().is_some_and(asks) {
        return true;
    }
    let by = &context.principal;
    let decisions = record.life.approval.iter().flat_map(|approval| &approval.decisions);
    let approved = decisions.into_iter().any(|decision| decision.approve && decision.principal == *by);
    record.intent.proposer != *by && !approved && !record.life.past_approvers.contains(by)
}

/// Public facts alone: reason and evidence stay in the record (law 11).
fn event_of(resolve: &Resolve) -> Event {
    let mut event = Event::new(EventKind::Resolved)
        .with("decision_id", resolve.decision_id.as_str())
        .with("outcome", resolve.outcome.as_str())
        .with("decision_digest", resolve.digest.as_str())
        .with("evidence_digest", Sha256Digest::of(resolve.evidence.as_bytes()).as_str());
    if let Some(bulk) = &resolve.bulk_decision_id {
        event = event.with("bulk_decision_id", bulk.as_str());
    }
    event
}

fn go(next: &mut Next<'_>, outcome: ResolvedOutcome) {
    match outcome {
        ResolvedOutcome::Completed => {
            next.enter(State::Completed, None);
            next.kind(EventKind::Completed);
        }
        ResolvedOutcome::Failed => {
            let reached = next.life.receipt.is_some();
            next.life.executed = Some(reached);
            next.enter(State::Failed, None);
            next.event(Event::new(EventKind::Failed).with("executed", reached));
        }
        ResolvedOutcome::SafeToRetry => {
            withdraw_grant(&mut next.life);
            next.enter(State::SafeToRetry, None);
            next.event(Event::new(EventKind::SafeToRetry).with("reason", "resolved"));
        }
        ResolvedOutcome::OutcomeUnknown => {
            withdraw_grant(&mut next.life);
            next.unknown();
        }
    }
}

/// An approval that no dispatch has used was given before a person had to look: the next dispatch asks
/// again (law 6).
fn withdraw_grant(life: &mut Life) {
    if let Some(approval) = &mut life.approval {
        approval.granted = false;
    }
}

fn mark_of(resolve: &Resolve, revision: u32) -> DecisionMark {
    DecisionMark { id: short(&id_digest(&resolve.decision_id)), digest: short(&resolve.digest), revision }
}

fn id_digest(decision_id: &Name) -> Sha256Digest {
    Sha256Digest::of(decision_id.as_str().as_bytes())
}

/// 128 bits of a digest.
fn short(digest: &Sha256Digest) -> Box<str> {
    digest.hex().chars().take(32).collect()
}
