//! The ways in which a downstream is hostile, and what has to come of each.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::domain::state::EffectClass;

/// How a downstream misbehaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Manner {
    /// It commits and drops the connection.
    DropsAnswer,
    /// It commits only after its own books were read and had nothing.
    CommitsLate,
    /// It answers one act twice, with different receipts.
    AnswersTwice,
    /// Its books lag behind its commits.
    VisibleLate,
    /// It takes a repeated key for an error.
    RefusesRetry,
    /// It loses the request and never commits it.
    NeverCommits,
}

/// What has to come of an act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Expected {
    /// Answers `dispatch`.
    pub(super) dispatches: u64,
    /// Lookups that had to find nothing, at least; with fewer nothing was shown.
    pub(super) absences: u64,
    /// How it ends.
    pub(super) end: &'static str,
}

impl Manner {
    /// All of them, in the order of the table.
    pub(super) const ALL: [Self; 6] = [
        Self::DropsAnswer,
        Self::CommitsLate,
        Self::AnswersTwice,
        Self::VisibleLate,
        Self::RefusesRetry,
        Self::NeverCommits,
    ];

    /// Its part of a URL.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::DropsAnswer => "drops-answer",
            Self::CommitsLate => "commits-late",
            Self::AnswersTwice => "answers-twice",
            Self::VisibleLate => "visible-late",
            Self::RefusesRetry => "refuses-retry",
            Self::NeverCommits => "never-commits",
        }
    }

    /// Its row in the table.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::DropsAnswer => "drops the answer",
            Self::CommitsLate => "commits late",
            Self::AnswersTwice => "answers twice",
            Self::VisibleLate => "visible late",
            Self::RefusesRetry => "409 on the retry",
            Self::NeverCommits => "never commits",
        }
    }

    /// What it does, for people.
    pub(super) const fn story(self) -> &'static str {
        match self {
            Self::DropsAnswer => "commits, then drops the connection",
            Self::CommitsLate => "has nothing when it is first looked up, and commits the same request after that",
            Self::AnswersTwice => {
                "tells the lookup one receipt, and the worker that gave up another one for the same act"
            }
            Self::VisibleLate => "commits, and its lagging books have nothing three times",
            Self::RefusesRetry => "idempotent: commits, drops the connection, and says 409 to the same key again",
            Self::NeverCommits => "loses the request for good; only then a second dispatch is earned",
        }
    }

    /// Its tool.
    pub(super) fn tool(self) -> String {
        format!("hostile.{}", self.name())
    }

    /// The class of its tool.
    pub(super) const fn class(self) -> EffectClass {
        if matches!(self, Self::RefusesRetry) { EffectClass::Idempotent } else { EffectClass::External }
    }

    /// What has to come of it; each is committed exactly once.
    pub(super) const fn expected(self) -> Expected {
        let (dispatches, absences, end) = match self {
            Self::DropsAnswer => (1, 0, "completed"),
            Self::CommitsLate => (1, 1, "completed"),
            Self::AnswersTwice => (1, 0, "completed, flagged contradicted"),
            Self::VisibleLate => (1, 3, "completed"),
            Self::RefusesRetry => (2, 0, "completed"),
            Self::NeverCommits => (2, 1, "safe_to_retry, then completed"),
        };
        Expected { dispatches, absences, end }
    }

    /// How long a request may travel. The late one commits well within it.
    const fn settle_window_seconds(self) -> u32 {
        match self {
            Self::CommitsLate => 3,
            Self::NeverCommits => 2,
            _ => 1,
        }
    }

    /// The registration of its tool, with the adapter at `url`.
    pub(super) fn registration(self, url: &str, secret: &str) -> Value {
        let mut spec = json!({
            "effect": self.class(),
            "description": self.story(),
            "reconciliation": "automatic",
            "settle_window_seconds": self.settle_window_seconds(),
            "reconcile_deadline_seconds": 60,
            "adapter": {
                "url": format!("{url}/adapter/{}", self.name()),
                "secret": secret,
                "lookup": true,
                "authoritative": true,
                "timeout_seconds": 5,
            },
        });
        if self.class() == EffectClass::Idempotent
            && let Some(spec) = spec.as_object_mut()
        {
            spec.insert("replay_contract".to_owned(), json!("A repeat under the same key commits nothing."));
            spec.insert("downstream_key_ttl_seconds".to_owned(), json!(3_600));
        }
        spec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_in_a_url_is_the_one_that_is_read() {
        for manner in Manner::ALL {
            assert_eq!(serde_json::to_value(manner).unwrap(), manner.name());
        }
    }
}
