//! Decisions: pure functions from a record, a command and the database's time to what changes.
//!
//! Every decision first lets pass what time has already decided (a lease that ran out, a deadline),
//! then decides the command on what is left; both become one revision and one journal entry.

pub mod asking;
mod authorize;
mod cancel;
mod claim;
mod evidence;
mod expire;
mod inbound;
mod outcome;
mod propose;
mod reconcile;
mod recover;
mod resolve;
mod restore;
mod settle;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use uuid::Uuid;

use super::command::Command;
use super::ids::Name;
use super::journal::{Event, EventKind};
use super::record::{Intent, Life, Record, ReviewReason};
use super::refusal::Refusal;
use super::state::{Directive, State};
use super::time::Timestamp;
use super::tool::{AuthorizationMode, Tool};

pub use inbound::{Standing, standing};
pub use propose::{intent_of, propose, reused_parts};

/// What a decision may look at besides the record.
#[derive(Debug, Clone)]
pub struct Context {
    /// Database time (law 13).
    pub now: Timestamp,
    /// Who asks.
    pub principal: Name,
    /// The tool revision that the effect was made under.
    pub tool: Arc<Tool>,
    /// The tool as it is registered now; `None` if it was deleted.
    pub current: Option<Arc<Tool>>,
    /// The effect's session has another profile now than the effect was proposed under.
    pub profile_changed: bool,
    /// How long what the tool's elapsed limit counts has been at work, in microseconds; `None` where it
    /// was not counted.
    pub elapsed_us: Option<i64>,
}

impl Context {
    /// Whether claims are held: the tool is paused or gone.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.current.as_ref().is_none_or(|tool| tool.paused)
    }

    /// The elapsed limit, where a dispatch that begins now would begin after it. As the tool is
    /// registered now, like a pause: who raises or lifts a limit lets go what waits behind it.
    fn is_over_time(&self) -> Option<Refusal> {
        let limit = self.current.as_ref().and_then(|tool| tool.spec.elapsed_limit)?;
        let elapsed_us = self.elapsed_us;
        (!limit.allows(elapsed_us)).then_some(Refusal::ElapsedLimit { limit, elapsed_us })
    }
}

/// What is to be written. Exactly one revision, one entry, one transaction (law 8).
#[derive(Debug, Clone)]
pub enum Change {
    /// A new revision.
    Revise(Box<Revision>),
    /// The live lease ends later. Not a change of the effect: no revision, no journal entry.
    Renew {
        /// The revision that holds the lease.
        revision: u32,
        /// Its fence.
        fence: u32,
        /// The new end.
        until: Timestamp,
    },
}

/// A new revision.
#[derive(Debug, Clone)]
pub struct Revision {
    /// The intent, for a new effect.
    pub intent: Option<Arc<Intent>>,
    /// The record after the change.
    pub life: Life,
    /// What happened.
    pub events: Vec<Event>,
    /// The receipt bytes stored with it.
    pub receipt: Option<Arc<str>>,
    /// The result bytes stored with it.
    pub result: Option<Arc<str>>,
    /// The lease end that the decision saw and depends on; the commit repeats it (law 13).
    pub lease_seen: Option<Timestamp>,
    /// The tool stamp that a grant depends on; the commit repeats it.
    pub tool_stamp: Option<i64>,
    /// The standing grant that the change uses; the commit counts the use, or loses.
    pub grant_use: Option<Uuid>,
    /// Nothing happened but what time decided: the service's own change, whoever was there to see it.
    pub is_lapse: bool,
}

/// What a caller is told when nothing was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Answer {
    /// The caller owns the live dispatch.
    pub owns_dispatch: bool,
    /// The answer was recorded before.
    pub replayed: bool,
}

/// A decision: what to write, if anything, and what to say once it is durable.
#[derive(Debug, Clone)]
pub struct Decision {
    /// What to write.
    pub change: Option<Change>,
    /// What to say.
    pub answer: Result<Answer, Refusal>,
}

impl Decision {
    /// Nothing to write, nothing refused.
    #[must_use]
    pub fn unchanged(answer: Answer) -> Self {
        Self { change: None, answer: Ok(answer) }
    }

    /// Nothing to write.
    #[must_use]
    pub fn refuse(refusal: Refusal) -> Self {
        Self { change: None, answer: Err(refusal) }
    }
}

/// Decides a command on an existing effect.
#[must_use]
pub fn decide(record: &Record, command: &Command, context: &Context) -> Decision {
    match command {
        Command::Claim { claim, expected_revision, hold_released } => {
            claim::claim(record, claim, *expected_revision, *hold_released, context)
        }
        Command::Heartbeat { dispatch_id, fence } => claim::heartbeat(record, *dispatch_id, *fence, context),
        Command::Outcome(outcome) => outcome::outcome(record, outcome, context),
        Command::Verify(verification) => outcome::verify(record, verification, context),
        Command::Cancel { expected_revision } => cancel::cancel(record, *expected_revision, context),
        Command::Expire { hold_released } => expire::expire(record, *hold_released, context),
        Command::Authorize { expected_revision, proposal_digest, approve, reason } => {
            authorize::authorize(record, *expected_revision, proposal_digest, *approve, reason, context)
        }
        Command::SettleUndispatched { expected_revision } => {
            cancel::settle_undispatched(record, *expected_revision, context)
        }
        Command::AdmitReconciliation(admission) => reconcile::admit(record, admission, context),
        Command::SettleReconciliation { admitted_revision, request_digest, finding } => {
            reconcile::settle(record, *admitted_revision, request_digest, finding, context)
        }
        Command::Resolve(resolve) => resolve::resolve(record, resolve, context),
        Command::Recover(recover) => recover::recover(record, recover, context),
        Command::Restore(restore) => restore::restore(record, restore, context),
        Command::Evidence { receipt, digest } => inbound::keep(record, receipt, digest, context),
    }
}

/// The directive for an effect (protocol §4).
#[must_use]
pub fn directive(record: &Record, context: &Context, owns_dispatch: bool) -> Directive {
    let claimable = if context.is_paused() { Directive::Stop } else { Directive::Claim };
    match record.life.state {
        State::Proposed => Directive::Authorize,
        State::IntentRecorded | State::SafeToRetry => claimable,
        State::Dispatched if owns_dispatch => Directive::Dispatch,
        State::Dispatched => Directive::Wait,
        State::Verifying if record.life.ask_at.is_some() => Directive::Wait,
        State::Verifying => Directive::Verify,
        State::OutcomeUnknown if is_replay_safe(record, context) => match another_try(&record.life, context) {
            AnotherTry::Free => claimable,
            AnotherTry::Waits => Directive::Authorize,
            AnotherTry::Denied => Directive::Reconcile,
        },
        State::OutcomeUnknown => Directive::Reconcile,
        State::ManualReview => Directive::Review,
        State::Completed => Directive::Replay,
        State::Failed | State::Refused => Directive::Stop,
    }
}

/// Whether an unknown outcome may be dispatched again now.
#[must_use]
pub fn is_replay_safe(record: &Record, context: &Context) -> bool {
    record.replay_safe(context.tool.spec.downstream_key_ttl_seconds, context.now)
}

/// Whether people let a doubtful effect be tried again. The doubt stays what it is meanwhile: neither
/// asking, nor silence, nor a denial says what the last dispatch did (law 4).
enum AnotherTry {
    /// A claim may be decided.
    Free,
    /// People were asked.
    Waits,
    /// Somebody said no.
    Denied,
}

fn another_try(life: &Life, context: &Context) -> AnotherTry {
    match &life.approval {
        Some(approval) if context.tool.spec.authorization.mode == AuthorizationMode::Approval => {
            if approval.is_denied() {
                AnotherTry::Denied
            } else if approval.is_open(context.now) {
                AnotherTry::Waits
            } else {
                AnotherTry::Free
            }
        }
        _ => AnotherTry::Free,
    }
}

/// A revision under construction.
struct Next<'a> {
    record: &'a Record,
    context: &'a Context,
    life: Life,
    events: Vec<Event>,
    receipt: Option<Arc<str>>,
    result: Option<Arc<str>>,
    lease_seen: Option<Timestamp>,
    tool_stamp: Option<i64>,
    /// How many of the events time has decided.
    lapses: usize,
}

impl<'a> Next<'a> {
    /// Starts the next revision of a record, with everything that time has already decided.
    fn of(record: &'a Record, context: &'a Context) -> Self {
        let mut next = Self::as_it_stands(record, context);
        expire::let_pass(&mut next);
        next.lapses = next.events.len();
        next
    }

    /// The same without anything that time has decided.
    fn as_it_stands(record: &'a Record, context: &'a Context) -> Self {
        let mut life = record.life.clone();
        life.revision = life.revision.saturating_add(1);
        life.updated_at = context.now;
        Self {
            record,
            context,
            life,
            events: Vec::new(),
            receipt: None,
            result: None,
            lease_seen: None,
            tool_stamp: None,
            lapses: 0,
        }
    }

    fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    fn kind(&mut self, kind: EventKind) {
        self.events.push(Event::new(kind));
    }

    /// Enters a state, with the deadline that law 10 asks for.
    fn enter(&mut self, state: State, deadline_at: Option<Timestamp>) {
        self.life.state = state;
        self.life.deadline_at = deadline_at;
        self.life.ask_at = None;
        if state != State::OutcomeUnknown {
            self.life.unknown_since = None;
        }
        if state != State::ManualReview {
            self.life.review = None;
        }
    }

    /// The outcome is unknown from now on.
    fn unknown(&mut self) {
        let spec = &self.context.tool.spec;
        let deadline = self.context.now.plus_seconds(spec.reconcile_deadline_seconds);
        self.enter(State::OutcomeUnknown, Some(deadline));
        self.life.unknown_since = Some(self.context.now);
        self.life.travelling_since = Some(self.context.now);
        self.life.breaks = 0;
        self.life.ask_at = asking::looks_up(self.record, self.context).then_some(self.context.now);
        let failure = self.life.failure.as_ref().map(|failure| (failure.classification, failure.phase));
        let mut event = Event::new(EventKind::OutcomeUnknown);
        if let Some((class, phase)) = failure {
            event = event
                .with("classification", serde_json::to_value(class).unwrap_or_default())
                .with("phase", serde_json::to_value(phase).unwrap_or_default());
        }
        self.event(event);
    }

    /// A person decides from now on.
    fn review(&mut self, reason: ReviewReason) {
        self.supersede();
        self.enter(State::ManualReview, None);
        self.life.review = Some(reason);
        let event = Event::new(EventKind::ManualReview);
        self.event(event.with("reason", serde_json::to_value(reason).unwrap_or_default()));
    }

    /// Closes an open reconciliation that this change overtakes.
    fn supersede(&mut self) {
        if let Some(attempt) = self.life.reconciliation.take() {
            self.life.reconciled = None;
            self.event(
                Event::new(EventKind::ReconciliationConflict)
                    .with("kind", "superseded")
                    .with("request_digest", attempt.request_digest.as_str()),
            );
        }
    }

    /// Whether anything happened yet.
    fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    fn change(self) -> Change {
        let is_lapse = self.lapses > 0 && self.events.len() == self.lapses && self.receipt.is_none();
        Change::Revise(Box::new(Revision {
            intent: None,
            life: self.life,
            events: self.events,
            receipt: self.receipt,
            result: self.result,
            lease_seen: self.lease_seen,
            tool_stamp: self.tool_stamp,
            grant_use: None,
            is_lapse,
        }))
    }

    /// Writes what happened, if anything, and answers.
    fn answer(self, answer: Answer) -> Decision {
        let change = if self.is_empty() { None } else { Some(self.change()) };
        Decision { change, answer: Ok(answer) }
    }

    /// Writes what happened and refuses all the same (law 7).
    fn answer_with_refusal(self, refusal: Refusal) -> Decision {
        let change = if self.is_empty() { None } else { Some(self.change()) };
        Decision { change, answer: Err(refusal) }
    }
}

/// Refuses when a caller named another revision than the one found.
fn check_revision(record: &Record, expected: Option<u32>) -> Result<(), Refusal> {
    match expected {
        Some(expected) if expected != record.life.revision => {
            Err(Refusal::StaleRevision { found: record.life.revision, state: record.life.state })
        }
        _ => Ok(()),
    }
}

fn state_conflict(state: State, reason: &'static str) -> Refusal {
    Refusal::StateConflict { state, reason, evidence_recorded: false }
}
