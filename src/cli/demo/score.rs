//! What is counted while calls are played, and what it has to come to.

use crate::domain::state::{Directive, EffectClass};

/// How a call is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Way {
    /// A call without an external effect: once.
    Once,
    /// One worker.
    Normal,
    /// The answer of the downstream is lost.
    Lost,
    /// Two workers at the same time.
    Two,
}

impl Way {
    /// All ways, in the order of the table.
    pub(super) const ALL: [Self; 4] = [Self::Once, Self::Normal, Self::Lost, Self::Two];

    /// The ways in which a call of a class is played.
    pub(super) const fn of(class: EffectClass) -> &'static [Self] {
        match class {
            EffectClass::None | EffectClass::Idempotent => &[Self::Once],
            EffectClass::External => &[Self::Normal, Self::Lost, Self::Two],
        }
    }

    /// The end of its operation ids.
    pub(super) const fn suffix(self) -> &'static str {
        match self {
            Self::Once => "once",
            Self::Normal => "normal",
            Self::Lost => "lost",
            Self::Two => "two",
        }
    }

    /// Its row in the table.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Once => "not external",
            Self::Normal => "external, normal",
            Self::Lost => "external, lost answer",
            Self::Two => "external, two workers",
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::Once => 0,
            Self::Normal => 1,
            Self::Lost => 2,
            Self::Two => 3,
        }
    }
}

/// The counts of a way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    /// Calls of the file.
    pub(super) calls: u64,
    /// Answers `dispatch`.
    pub(super) dispatches: u64,
    /// Answers `replay`.
    pub(super) replays: u64,
    /// Answers `wait` and `reconcile`.
    pub(super) waits: u64,
    /// Reports without an answer of the downstream.
    pub(super) unknowns: u64,
    /// What the downstream counted.
    pub(super) commits: u64,
    /// Commits beyond the first of an operation.
    pub(super) duplicates: u64,
    /// Operations that were never committed.
    pub(super) missing: u64,
    /// Times that something did not end as it should have.
    pub(super) astray: u64,
}

impl Tally {
    pub(super) fn one_call() -> Self {
        Self { calls: 1, ..Self::default() }
    }

    /// Counts what a worker was told to do.
    pub(super) fn told(&mut self, directive: Directive) {
        let count = match directive {
            Directive::Dispatch => &mut self.dispatches,
            Directive::Replay => &mut self.replays,
            Directive::Wait | Directive::Reconcile => &mut self.waits,
            _ => &mut self.astray,
        };
        *count = count.saturating_add(1);
    }

    /// Counts a report of doubt; it must have left doubt.
    pub(super) fn in_doubt(&mut self, is_unknown: bool) {
        self.unknowns = self.unknowns.saturating_add(1);
        self.settled(is_unknown);
    }

    /// Counts what should have been settled and was not.
    pub(super) fn settled(&mut self, is_as_expected: bool) {
        self.astray = self.astray.saturating_add(u64::from(!is_as_expected));
    }

    /// The sum.
    pub(super) fn plus(self, other: &Self) -> Self {
        Self {
            calls: self.calls.saturating_add(other.calls),
            dispatches: self.dispatches.saturating_add(other.dispatches),
            replays: self.replays.saturating_add(other.replays),
            waits: self.waits.saturating_add(other.waits),
            unknowns: self.unknowns.saturating_add(other.unknowns),
            commits: self.commits.saturating_add(other.commits),
            duplicates: self.duplicates.saturating_add(other.duplicates),
            missing: self.missing.saturating_add(other.missing),
            astray: self.astray.saturating_add(other.astray),
        }
    }
}

/// The counts of all ways.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Score([Tally; 4]);

impl Score {
    /// The counts of a way.
    pub(super) fn of(&self, way: Way) -> &Tally {
        &self.0[way.place()]
    }

    /// Adds to a way.
    pub(super) fn add(&mut self, way: Way, tally: &Tally) {
        let sum = &mut self.0[way.place()];
        *sum = sum.plus(tally);
    }

    /// Counts how often the downstream committed one operation. Once is what it should be.
    pub(super) fn count(&mut self, way: Way, commits: u64) {
        let (duplicates, missing) = (commits.saturating_sub(1), u64::from(commits == 0));
        self.add(way, &Tally { commits, duplicates, missing, ..Tally::default() });
    }

    /// The sum.
    pub(super) fn plus(mut self, other: &Self) -> Self {
        for way in Way::ALL {
            self.add(way, other.of(way));
        }
        self
    }

    /// The counts of all ways together.
    pub(super) fn total(&self) -> Tally {
        Way::ALL.into_iter().fold(Tally::default(), |sum, way| sum.plus(self.of(way)))
    }

    /// What the downstream counted decides; `all_commits` is everything that it committed.
    pub(super) fn verdict(&self, all_commits: u64) -> Result<String, String> {
        let total = self.total();
        let mut faults = Vec::new();
        for (count, what) in [
            (total.duplicates, "duplicate commits"),
            (total.missing, "operations without a commit"),
            (all_commits.abs_diff(total.commits), "commits that belong to no operation"),
            (total.astray, "answers that were not as they should be"),
        ] {
            if count > 0 {
                faults.push(format!("{count} {what}"));
            }
        }
        if faults.is_empty() {
            Ok(format!(
                "Verdict: {} operations downstream, each committed exactly once. The contract held.",
                total.commits
            ))
        } else {
            Err(format!("the contract did not hold: {}", faults.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(commits: &[u64]) -> Result<String, String> {
        let mut score = Score::default();
        for count in commits {
            score.count(Way::Lost, *count);
        }
        score.verdict(commits.iter().sum())
    }

    #[test]
    fn each_operation_has_to_be_committed_exactly_once() {
        assert!(verdict(&[1, 1, 1]).unwrap().contains("3 operations"));
        assert!(verdict(&[1, 2, 1]).unwrap_err().contains("1 duplicate"));
        assert!(verdict(&[1, 0, 1]).unwrap_err().contains("1 operations without"));
        // A sum that is right is not enough.
        assert!(verdict(&[2, 0, 1]).is_err());
    }

    #[test]
    fn commits_of_nobody_and_unexpected_answers_count_too() {
        let mut score = Score::default();
        score.count(Way::Two, 1);
        assert!(score.verdict(1).is_ok());
        assert!(score.verdict(2).unwrap_err().contains("belong to no operation"));
        let mut tally = Tally::one_call();
        tally.told(Directive::Review);
        score.add(Way::Two, &tally);
        assert!(score.verdict(1).is_err());
    }

    #[test]
    fn sums_keep_the_ways_apart() {
        let mut one = Score::default();
        one.add(Way::Once, &Tally::one_call());
        let mut two = one;
        two.add(Way::Two, &Tally::one_call());
        let sum = one.plus(&two);
        assert_eq!((sum.of(Way::Once).calls, sum.of(Way::Two).calls, sum.total().calls), (2, 1, 3));
    }
}
