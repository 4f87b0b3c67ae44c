//! What elapsed limits count by: the times in which effects of a run waited for people.

use async_trait::async_trait;

use super::Result;
use crate::domain::elapsed::{HumanWait, WaitSpan};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;

/// An effect begins to wait for a person, or ends to, at the time of the revision that it stands beside.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitChange {
    /// The run.
    pub run: Name,
    /// What was waited for until now is waited for no more.
    pub ended: bool,
    /// A person is waited for from now on.
    pub began: Option<HumanWait>,
}

/// The store's part of elapsed limits.
#[async_trait]
pub trait ElapsedStore: Send + Sync {
    /// The times in which effects of a run waited for people, in order of their beginnings: the first
    /// `limit` of them.
    async fn run_waits(&self, tenant: &Tenant, run: &Name, limit: u32) -> Result<Vec<WaitSpan>>;
}

/// A wait as both backends store it: its beginning and its end, in microseconds.
pub(super) fn wait_span((began, ends): (i64, Option<i64>)) -> WaitSpan {
    WaitSpan { began_at: Timestamp::from_micros(began), ends_at: ends.map(Timestamp::from_micros) }
}
