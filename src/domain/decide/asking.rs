//! Whom the service asks about a doubt, and when: pure, like everything here.

use std::sync::Arc;

use super::Context;
use crate::domain::adapter::AdapterSpec;
use crate::domain::record::{ReconciliationAttempt, Record};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::domain::tool::{ReconciliationMode, Tool};

/// Shortest time between two questions about one effect.
const PAUSE_MIN_MICROS: i64 = 1_000_000;
/// Longest.
const PAUSE_MAX_MICROS: i64 = 3_600 * 1_000_000;

/// What is to be done about an effect that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Agenda {
    /// Let time decide.
    Expire,
    /// Ask the adapter what became of it.
    Lookup,
    /// Ask the adapter for the fresh read.
    Verify,
    /// Nothing before this time: what made it due has changed.
    Later(Option<Timestamp>),
}

/// What is to be done now.
#[must_use]
pub fn agenda(record: &Record, context: &Context) -> Agenda {
    let life = &record.life;
    let passed = |at: Option<Timestamp>| at.is_some_and(|at| at <= context.now);
    let closes = life.reconciliation.as_ref().map(ReconciliationAttempt::closes_at);
    if passed(life.lease_end()) || passed(life.deadline_at) || passed(closes) {
        return Agenda::Expire;
    }
    match life.state {
        State::OutcomeUnknown if life.reconciliation.is_none() => match life.ask_at {
            // It is nobody's question any more: the deadline is all that is left.
            _ if !looks_up(record, context) => Agenda::Later(life.deadline_at),
            Some(at) if at > context.now => Agenda::Later(life.due_at()),
            // Without a time the tool was not automatic when the doubt began, and is now.
            _ => Agenda::Lookup,
        },
        State::Verifying if passed(life.ask_at) => Agenda::Verify,
        _ => Agenda::Later(life.due_at()),
    }
}

/// The tool revision whose adapter may settle the effect: the one it was made under, or the one that
/// is registered now if it says so (`settles_revisions`), or if its adapter is the same. A changed
/// adapter never settles by accident (protocol §6).
///
/// # Errors
/// The adapter was changed since.
pub fn settler(record: &Record, context: &Context) -> Result<Arc<Tool>, Refusal> {
    let Some(current) = &context.current else { return Ok(Arc::clone(&context.tool)) };
    if current.revision == context.tool.revision || current.spec.settles_revisions.contains(&context.tool.revision) {
        return Ok(Arc::clone(current));
    }
    let fingerprint = |tool: &Tool| tool.spec.adapter.as_ref().map(AdapterSpec::fingerprint);
    if fingerprint(current) == fingerprint(&context.tool) {
        Ok(Arc::clone(&context.tool))
    } else {
        Err(Refusal::StateConflict {
            state: record.life.state,
            reason: "the adapter of the tool was changed after this effect was made; a revision that may settle it \
                     says so in `settles_revisions`",
            evidence_recorded: false,
        })
    }
}

/// Whether the service looks unknown outcomes of this effect up by itself. Whether it asks is a matter of the
/// registration now; whom it asks, of the revision that may settle.
pub(super) fn looks_up(record: &Record, context: &Context) -> bool {
    let now = context.current.as_ref().unwrap_or(&context.tool);
    now.spec.reconciliation == ReconciliationMode::Automatic
        && settler(record, context).is_ok_and(|tool| tool.spec.adapter.as_ref().is_some_and(|adapter| adapter.lookup))
}

/// Whether the adapter makes the fresh read of this effect.
pub(super) fn verifies(record: &Record, context: &Context) -> bool {
    settler(record, context).is_ok_and(|tool| tool.spec.adapter.as_ref().is_some_and(|adapter| adapter.verify))
}

/// When to ask again: after half of the time that has already gone by, so that the pauses grow by half
/// each time without anybody counting; not before the earliest time at which the answer could differ.
#[must_use]
pub fn again(record: &Record, since: Timestamp, not_before: Option<Timestamp>, now: Timestamp) -> Timestamp {
    let pause = (now.since(since) / 2).clamp(PAUSE_MIN_MICROS, PAUSE_MAX_MICROS);
    // Effects that became doubtful together are not asked about together for ever: up to a quarter more,
    // by the effect's own id.
    let spread = i64::from(record.key.effect.as_bytes().iter().fold(0_u8, |sum, byte| sum.wrapping_add(*byte)));
    let at = now.plus_micros(pause.saturating_add(pause.saturating_mul(spread) / 1024));
    not_before.map_or(at, |earliest| at.max(earliest))
}
