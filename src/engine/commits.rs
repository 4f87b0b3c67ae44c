//! Committing together: what arrives while a commit is in flight goes with the next one. No timer,
//! no added latency when idle, one `fsync` for many callers when busy.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::backlog::{Backlog, Speed};
use super::batch::LaneError;
use crate::limits;
use crate::store::{ChangeSet, Committed, Store, StoreError};
use crate::telemetry::meters;
use crate::telemetry::probe::{self, BatchTimes};

struct CommitJob {
    change: ChangeSet,
    reply: oneshot::Sender<CommitReply>,
}

/// What became of a change, and what the batch cost that it was in.
type CommitReply = (Result<Committed, LaneError>, Option<BatchTimes>);

/// The lane of commits.
#[derive(Debug, Clone)]
pub struct CommitLane {
    jobs: mpsc::Sender<CommitJob>,
    backlog: Arc<Backlog>,
}

impl std::fmt::Debug for CommitJob {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CommitJob")
    }
}

impl CommitLane {
    /// The lane, and the loop that must be run for it; the loop ends when all senders are gone.
    pub fn new(store: Arc<dyn Store>) -> (Self, impl Future<Output = ()> + Send) {
        let (jobs, queue) = mpsc::channel(limits::COMMIT_QUEUE);
        let backlog = Arc::new(Backlog::default());
        (Self { jobs, backlog: Arc::clone(&backlog) }, run_commits(store, queue, backlog))
    }

    /// What waits.
    #[must_use]
    pub fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// Commits one change, together with whatever else waits.
    ///
    /// # Errors
    /// See [`LaneError`]. After [`LaneError::Store`] nobody knows whether the change was written.
    pub async fn commit(&self, change: ChangeSet) -> Result<Committed, LaneError> {
        let (reply, answer) = oneshot::channel();
        let (sent, bound) = (probe::sent(), change.bound_bytes());
        // Counted first: its commit may be over before this goes on.
        self.backlog.grows();
        self.jobs.try_send(CommitJob { change, reply }).map_err(|error| {
            self.backlog.shrinks(1);
            match error {
                mpsc::error::TrySendError::Full(_) => LaneError::Full,
                mpsc::error::TrySendError::Closed(_) => LaneError::Stopped,
            }
        })?;
        let (committed, times) = answer.await.map_err(|_| LaneError::Stopped)?;
        if let Some(times) = times {
            probe::waited_for(sent, &times, bound);
        }
        committed
    }
}

async fn run_commits(store: Arc<dyn Store>, mut queue: mpsc::Receiver<CommitJob>, backlog: Arc<Backlog>) {
    let (mut waiting, mut speed) = (Waiting::default(), Speed::default());
    let mut under_way = FuturesUnordered::new();
    let (mut came, mut is_open) = (Vec::with_capacity(limits::COMMIT_CHANGES), true);
    loop {
        while under_way.is_empty() || (under_way.len() < store.commits_at_once() && waiting.is_worth_another()) {
            let Some(batch) = waiting.next_batch() else { break };
            speed.begins(Instant::now());
            under_way.push(commit_batch(Arc::clone(&store), batch));
        }
        if !is_open && under_way.is_empty() {
            return;
        }
        tokio::select! {
            Some(done) = under_way.next() => {
                waiting.release(&done.keys);
                backlog.shrinks(done.answered);
                if let Some(in_time) = speed.ended(done.answered, !under_way.is_empty(), Instant::now()) {
                    backlog.measured(in_time);
                }
            }
            count = queue.recv_many(&mut came, waiting.room()), if is_open && waiting.room() > 0 => {
                is_open = count > 0;
                waiting.jobs.append(&mut came);
            }
        }
    }
}

/// What waits for a commit, and what those that are under way are about.
#[derive(Debug, Default)]
struct Waiting {
    jobs: Vec<CommitJob>,
    taken: HashSet<Uuid>,
}

/// What goes to the store at once.
#[derive(Debug, Default)]
struct CommitBatch {
    changes: Vec<ChangeSet>,
    replies: Vec<oneshot::Sender<CommitReply>>,
    /// Decided on what a change of this batch replaces.
    overtaken: Vec<oneshot::Sender<CommitReply>>,
    keys: Vec<Uuid>,
}

impl Waiting {
    const fn room(&self) -> usize {
        limits::COMMIT_CHANGES.saturating_sub(self.jobs.len())
    }

    /// Whether enough waits for a commit beside the one that is under way: a small one would only split
    /// what the next one takes along.
    const fn is_worth_another(&self) -> bool {
        self.jobs.len() >= limits::COMMIT_BESIDE
    }

    /// The changes that may go now, in the order in which they came. Of commits under way no two are about the
    /// same effect, or the same act: the second would wait for the first in the database, and then be lost.
    fn next_batch(&mut self) -> Option<CommitBatch> {
        let mut batch = CommitBatch::default();
        let mut effects = HashSet::with_capacity(self.jobs.len());
        let mut kept = Vec::new();
        for job in self.jobs.drain(..) {
            if keys_of(&job.change).any(|key| self.taken.contains(&key)) {
                kept.push(job);
            } else if effects.insert(job.change.key().effect) {
                batch.keys.extend(keys_of(&job.change));
                batch.changes.push(job.change);
                batch.replies.push(job.reply);
            } else {
                batch.overtaken.push(job.reply);
            }
        }
        self.jobs = kept;
        self.taken.extend(&batch.keys);
        (!batch.changes.is_empty()).then_some(batch)
    }

    fn release(&mut self, keys: &[Uuid]) {
        for key in keys {
            self.taken.remove(key);
        }
    }
}

/// What no two commits under way may share: the effect, and the act that is open once.
fn keys_of(change: &ChangeSet) -> impl Iterator<Item = Uuid> {
    let act = match change {
        ChangeSet::Revise(row) => row.open.as_ref().and_then(|open| open.duplicate),
        ChangeSet::Renew(_) => None,
    };
    [Some(change.key().effect), act].into_iter().flatten()
}

/// A batch that is over.
struct Done {
    /// What it was about.
    keys: Vec<Uuid>,
    /// How many have their answer.
    answered: usize,
}

/// Commits a batch and answers its members.
async fn commit_batch(store: Arc<dyn Store>, batch: CommitBatch) -> Done {
    let answered = batch.replies.len().saturating_add(batch.overtaken.len());
    let (answers, times) = probe::batch(batch.changes.len(), commit_all(store.as_ref(), &batch.changes)).await;
    meters::committed(batch.changes.len(), times.took());
    for (reply, answer) in batch.replies.into_iter().zip(answers) {
        // A caller that went away is told nothing; what is durable stays so.
        drop(reply.send((answer, Some(times))));
    }
    for reply in batch.overtaken {
        drop(reply.send((Ok(Committed::Lost), None)));
    }
    Done { keys: batch.keys, answered }
}

async fn commit_all(store: &dyn Store, changes: &[ChangeSet]) -> Vec<Result<Committed, LaneError>> {
    let mut result = store.commit(changes).await;
    if result.as_ref().is_err_and(StoreError::is_broken_connection) {
        // A pooled connection that had died. The change may have been written all the same; the
        // compare-and-set makes the second try harmless, and the command is then decided again.
        tracing::warn!("a commit met a broken connection and is tried once more");
        result = store.commit(changes).await;
    }
    match result {
        Ok(done) => done.into_iter().map(Ok).collect(),
        Err(StoreError::Rejected(_)) if changes.len() > 1 => {
            // One member poisons the batch: each alone, so that only the culprit fails.
            let mut answers = Vec::with_capacity(changes.len());
            for change in changes {
                answers.push(commit_one(store, change).await);
            }
            answers
        }
        Err(error) => {
            let answer = lone_failure(error);
            changes.iter().map(|_| answer.clone()).collect()
        }
    }
}

async fn commit_one(store: &dyn Store, change: &ChangeSet) -> Result<Committed, LaneError> {
    match store.commit(std::slice::from_ref(change)).await {
        Ok(done) => Ok(done.into_iter().next().unwrap_or(Committed::Lost)),
        Err(error) => lone_failure(error),
    }
}

/// A unique key that somebody else took between decision and commit is a lost compare-and-set.
fn lone_failure(error: StoreError) -> Result<Committed, LaneError> {
    if error.is_taken_key() {
        return Ok(Committed::Lost);
    }
    Err(LaneError::Store(Arc::new(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{EffectKey, Name, Tenant};
    use crate::domain::time::Timestamp;
    use crate::store::Renewal;

    type Answer = oneshot::Receiver<CommitReply>;

    fn renewal(operation: &str, fence: u32) -> ChangeSet {
        let key = EffectKey::of(&Tenant::new("t").unwrap(), &Name::new(operation).unwrap());
        ChangeSet::Renew(Renewal { key, revision: 1, fence, until: Timestamp::from_micros(1) })
    }

    fn comes(waiting: &mut Waiting, operation: &str, fence: u32) -> Answer {
        let (reply, answer) = oneshot::channel();
        waiting.jobs.push(CommitJob { change: renewal(operation, fence), reply });
        answer
    }

    fn fences(batch: &CommitBatch) -> Vec<u32> {
        let fence = |change: &ChangeSet| match change {
            ChangeSet::Renew(renewal) => renewal.fence,
            ChangeSet::Revise(_) => 0,
        };
        batch.changes.iter().map(fence).collect()
    }

    #[test]
    fn what_is_under_way_is_waited_for_and_everything_else_goes_in_order() {
        let mut waiting = Waiting::default();
        let _answers: Vec<Answer> = [("a", 1), ("b", 2), ("a", 3)].map(|(of, n)| comes(&mut waiting, of, n)).into();
        let first = waiting.next_batch().unwrap();
        assert_eq!((fences(&first), first.overtaken.len()), (vec![1, 2], 1), "the second of one effect is overtaken");
        let _more: Vec<Answer> = [("b", 4), ("c", 5), ("d", 6)].map(|(of, n)| comes(&mut waiting, of, n)).into();
        let second = waiting.next_batch().unwrap();
        assert_eq!(fences(&second), [5, 6], "b is under way");
        assert!(waiting.next_batch().is_none() && waiting.jobs.len() == 1, "and stays");
        waiting.release(&second.keys);
        assert!(waiting.next_batch().is_none());
        waiting.release(&first.keys);
        assert_eq!(fences(&waiting.next_batch().unwrap()), [4]);
        assert!(waiting.jobs.is_empty());
    }

    #[test]
    fn a_second_commit_needs_a_crowd_and_the_crowd_has_a_bound() {
        let mut waiting = Waiting::default();
        let mut answers = Vec::new();
        for n in 0..limits::COMMIT_BESIDE {
            assert!(!waiting.is_worth_another(), "{n}");
            answers.push(comes(&mut waiting, &n.to_string(), 1));
        }
        assert!(waiting.is_worth_another());
        assert_eq!(waiting.room(), limits::COMMIT_CHANGES - limits::COMMIT_BESIDE);
    }
}
