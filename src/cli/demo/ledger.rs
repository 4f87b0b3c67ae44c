//! What the downstream has committed: the oracle of both demonstrations.

use std::collections::{HashMap, HashSet};

use crate::domain::time::Timestamp;

/// One commit.
#[derive(Debug, Clone)]
pub(super) struct Commit {
    /// The downstream's own name for it.
    pub(super) receipt_id: String,
    /// What it was for.
    operation_id: String,
}

/// All commits, in order.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    commits: Vec<Commit>,
    by_key: HashMap<String, usize>,
    by_operation: HashMap<String, u64>,
    to_lose: HashSet<String>,
    last_reading: Option<Timestamp>,
}

impl Ledger {
    /// Commits. It does so for every request, also for a key that it has seen: this downstream is
    /// `external`, and a second request is a second act.
    pub(super) fn commit(&mut self, operation_id: &str, key: &str) -> Commit {
        let number = self.commits.len();
        let commit =
            Commit { receipt_id: format!("re_{}", number.saturating_add(1)), operation_id: operation_id.to_owned() };
        self.commits.push(commit.clone());
        self.by_key.entry(key.to_owned()).or_insert(number);
        let count = self.by_operation.entry(operation_id.to_owned()).or_default();
        *count = count.saturating_add(1);
        commit
    }

    /// From now on the answer to the next commit of an operation is lost.
    pub(super) fn lose_answer(&mut self, operation_id: &str) {
        self.to_lose.insert(operation_id.to_owned());
    }

    /// Whether the answer to this commit is to be lost; says so once.
    pub(super) fn loses(&mut self, operation_id: &str) -> bool {
        self.to_lose.remove(operation_id)
    }

    /// The first commit under a key.
    pub(super) fn by_key(&self, key: &str) -> Option<&Commit> {
        self.by_key.get(key).and_then(|number| self.commits.get(*number))
    }

    /// The commit with a receipt.
    pub(super) fn by_receipt(&self, receipt_id: &str) -> Option<&Commit> {
        let number: usize = receipt_id.strip_prefix("re_")?.parse().ok()?;
        self.commits.get(number.checked_sub(1)?)
    }

    /// How often an operation was committed.
    pub(super) fn commits_of(&self, operation_id: &str) -> u64 {
        self.by_operation.get(operation_id).copied().unwrap_or(0)
    }

    /// How many commits there are in all.
    pub(super) fn total(&self) -> u64 {
        u64::try_from(self.commits.len()).unwrap_or(u64::MAX)
    }

    /// The receipts of an operation.
    pub(super) fn receipts_of(&self, operation_id: &str) -> Vec<String> {
        let of = |commit: &&Commit| commit.operation_id == operation_id;
        self.commits.iter().filter(of).map(|commit| commit.receipt_id.clone()).collect()
    }

    /// The downstream's clock never goes back, so that a fresh read is never older than a receipt.
    pub(super) fn reading(&mut self, now: Timestamp) -> Timestamp {
        let reading = self.last_reading.map_or(now, |last| last.max(now));
        self.last_reading = Some(reading);
        reading
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_a_commit_also_under_a_key_that_was_seen() {
        let mut ledger = Ledger::default();
        ledger.lose_answer("a");
        assert!(!ledger.loses("b"));
        assert_eq!(ledger.commit("a", "key-a").receipt_id, "re_1");
        assert!(ledger.loses("a"));
        assert!(!ledger.loses("a"), "one answer is lost, the next is not");
        ledger.commit("b", "key-b");
        ledger.commit("a", "key-a");
        assert_eq!((ledger.commits_of("a"), ledger.commits_of("b"), ledger.commits_of("c")), (2, 1, 0));
        assert_eq!(ledger.total(), 3);
        assert_eq!(ledger.receipts_of("a"), ["re_1", "re_3"]);
        assert_eq!(ledger.by_key("key-a").unwrap().receipt_id, "re_1");
        assert_eq!(ledger.by_receipt("re_2").unwrap().operation_id, "b");
        for absent in ["re_0", "re_4", "re_", "x"] {
            assert!(ledger.by_receipt(absent).is_none());
        }
    }

    #[test]
    fn its_clock_never_goes_back() {
        let mut ledger = Ledger::default();
        let (early, late) = (Timestamp::from_micros(1), Timestamp::from_micros(2));
        assert_eq!(ledger.reading(late), late);
        assert_eq!(ledger.reading(early), late);
    }
}
