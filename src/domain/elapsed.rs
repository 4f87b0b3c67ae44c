//! Elapsed limits (protocol §8): how long a run or a session may be at work before nothing more of it
//! is dispatched. Counted in times of the database; time in which people are waited for is no part of a
//! run's.

use serde::{Deserialize, Serialize};

use super::ids::Name;
use super::record::{Intent, Life};
use super::state::State;
use super::time::Timestamp;

/// What a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ElapsedScope {
    /// The run's active time: without the time in which people were waited for.
    Run,
    /// The session's time, all of it.
    Session,
}

impl ElapsedScope {
    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Run => "run",
            Self::Session => "session",
        }
    }

    /// The member of an intent that names what is counted.
    #[must_use]
    pub const fn pointer(self) -> &'static str {
        match self {
            Self::Run => "/run_id",
            Self::Session => "/session_id",
        }
    }

    /// Of the names of an intent, the one that is counted under.
    #[must_use]
    pub const fn name<'a>(self, run: Option<&'a Name>, session: Option<&'a Name>) -> Option<&'a Name> {
        match self {
            Self::Run => run,
            Self::Session => session,
        }
    }
}

/// A limit, as a tool registers it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ElapsedLimit {
    /// What is counted.
    pub scope: ElapsedScope,
    /// No dispatch begins after so many seconds since the first intent (1 to 31536000).
    pub max_elapsed_seconds: u32,
}

impl ElapsedLimit {
    /// Whether a dispatch may still begin after so many microseconds; exactly at the limit it may. What
    /// was not counted is over it.
    #[must_use]
    pub fn allows(self, elapsed_us: Option<i64>) -> bool {
        elapsed_us.is_some_and(|elapsed| elapsed <= i64::from(self.max_elapsed_seconds).saturating_mul(1_000_000))
    }
}

/// An effect of a run waits for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HumanWait {
    /// When the wait ends by itself, where it does.
    pub until: Option<Timestamp>,
}

/// The person that an effect waits for, if it does: an approver, or who reviews.
#[must_use]
pub fn human_wait(life: &Life) -> Option<HumanWait> {
    let asked = || life.approval.as_ref().map(|approval| HumanWait { until: Some(approval.expires_at) });
    let is_undecided = || life.approval.as_ref().is_some_and(|asked| !asked.is_denied() && !asked.has_quorum());
    match life.state {
        State::Proposed => asked(),
        State::OutcomeUnknown if is_undecided() => asked(),
        State::ManualReview => Some(HumanWait { until: None }),
        _ => None,
    }
}

/// A time in which a person was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaitSpan {
    /// Its beginning.
    pub began_at: Timestamp,
    /// Its end, where it has one; it may lie ahead.
    pub ends_at: Option<Timestamp>,
}

/// Microseconds from a beginning to now that lie in none of the spans, which are in order of their
/// beginnings and may overlap.
#[must_use]
pub fn active_us(from: Timestamp, now: Timestamp, waits: &[WaitSpan]) -> i64 {
    let (mut active, mut seen) = (0_i64, from);
    for wait in waits {
        active = active.saturating_add(wait.began_at.min(now).since(seen).max(0));
        seen = seen.max(wait.ends_at.map_or(now, |end| end.min(now)));
    }
    active.saturating_add(now.since(seen).max(0))
}

/// The name that a limit counts under, where the intent says it.
#[must_use]
pub const fn counted(limit: ElapsedLimit, intent: &Intent) -> Option<&Name> {
    limit.scope.name(intent.run_id.as_ref(), intent.session_id.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: i64) -> Timestamp {
        Timestamp::from_micros(micros)
    }

    fn span(began: i64, ends: Option<i64>) -> WaitSpan {
        WaitSpan { began_at: at(began), ends_at: ends.map(at) }
    }

    #[test]
    fn time_counts_once_and_waits_not_at_all() {
        let active = |waits: &[WaitSpan]| active_us(at(100), at(200), waits);
        assert_eq!(active(&[]), 100);
        assert_eq!(active(&[span(120, Some(150))]), 70);
        assert_eq!(active(&[span(120, Some(150)), span(130, Some(140))]), 70, "one within another");
        assert_eq!(active(&[span(120, Some(150)), span(140, Some(160))]), 60, "two that overlap");
        assert_eq!(active(&[span(120, Some(150)), span(150, Some(160))]), 60, "two that meet");
        assert_eq!(active(&[span(120, None)]), 20, "one that goes on");
        assert_eq!(active(&[span(120, Some(900))]), 20, "one that may go on");
        assert_eq!(active(&[span(100, None), span(110, Some(120))]), 0);
        assert_eq!(active(&[span(0, Some(110))]), 90, "what was before the beginning is none of it");
        assert_eq!(active(&[span(250, None)]), 100, "what another clock has ahead is not there yet");
    }

    #[test]
    fn exactly_at_the_limit_a_dispatch_may_begin() {
        let limit = ElapsedLimit { scope: ElapsedScope::Run, max_elapsed_seconds: 60 };
        assert!(limit.allows(Some(0)) && limit.allows(Some(60_000_000)));
        assert!(!limit.allows(Some(60_000_001)) && !limit.allows(Some(i64::MAX)) && !limit.allows(None));
    }

    /// Against a count tick by tick, over many small histories.
    #[test]
    fn active_time_is_what_a_tick_by_tick_count_says() {
        let mut seed = 7_u64;
        let mut below = |end: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            i64::try_from((seed >> 33) % end).unwrap()
        };
        for _ in 0..2_000 {
            let (from, now) = (below(10), 10 + below(30));
            let mut waits: Vec<WaitSpan> = (0..below(6))
                .map(|_| {
                    let began = below(45);
                    span(began, (below(3) > 0).then(|| began + below(20)))
                })
                .collect();
            waits.sort_by_key(|wait| wait.began_at);
            let idle = |tick: i64| {
                waits
                    .iter()
                    .any(|wait| wait.began_at.micros() <= tick && wait.ends_at.is_none_or(|end| tick < end.micros()))
            };
            let expected = (from..now).filter(|tick| !idle(*tick)).count();
            assert_eq!(
                active_us(at(from), at(now), &waits),
                i64::try_from(expected).unwrap(),
                "{from} {now} {waits:?}"
            );
        }
    }
}
