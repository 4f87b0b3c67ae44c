//! Committing together: what arrives while a commit is in flight goes with the next one. No timer,
//! no added latency when idle, one `fsync` for many callers when busy. Loads likewise.

use std::collections::HashSet;
use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::domain::ids::EffectKey;
use crate::domain::record::Record;
use crate::limits;
use crate::store::{ChangeSet, Committed, Store, StoreError, Unloadable};

/// Why a commit or a load has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum LaneError {
    /// The queue is full.
    #[error("the queue is full")]
    Full,
    /// The store failed; shared by all members of the batch.
    #[error("{0}")]
    Store(Arc<StoreError>),
    /// The service is stopping.
    #[error("the service is stopping")]
    Stopped,
}

struct CommitJob {
    change: ChangeSet,
    reply: oneshot::Sender<Result<Committed, LaneError>>,
}

/// The lane of commits.
#[derive(Debug, Clone)]
pub struct CommitLane {
    jobs: mpsc::Sender<CommitJob>,
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
        (Self { jobs }, run_commits(store, queue))
    }

    /// Commits one change, together with whatever else waits.
    ///
    /// # Errors
    /// See [`LaneError`]. After [`LaneError::Store`] nobody knows whether the change was written.
    pub async fn commit(&self, change: ChangeSet) -> Result<Committed, LaneError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send(CommitJob { change, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => LaneError::Full,
            mpsc::error::TrySendError::Closed(_) => LaneError::Stopped,
        })?;
        answer.await.map_err(|_| LaneError::Stopped)?
    }
}

async fn run_commits(store: Arc<dyn Store>, mut queue: mpsc::Receiver<CommitJob>) {
    let mut jobs = Vec::with_capacity(limits::COMMIT_CHANGES);
    while queue.recv_many(&mut jobs, limits::COMMIT_CHANGES).await > 0 {
        let mut effects = HashSet::with_capacity(jobs.len());
        let mut changes = Vec::with_capacity(jobs.len());
        let mut replies = Vec::with_capacity(jobs.len());
        let mut overtaken = Vec::new();
        for job in jobs.drain(..) {
            // The second change of one effect was decided on what the first replaces.
            if effects.insert(job.change.key().effect) {
                changes.push(job.change);
                replies.push(job.reply);
            } else {
                overtaken.push(job.reply);
            }
        }
        metrics::histogram!("actonce_commit_batch_size").record(precise(changes.len()));
        let answers = commit_all(store.as_ref(), &changes).await;
        for (reply, answer) in replies.into_iter().zip(answers) {
            // A caller that went away is told nothing; what is durable stays so.
            drop(reply.send(answer));
        }
        for reply in overtaken {
            drop(reply.send(Ok(Committed::Lost)));
        }
    }
}

/// A count as a metric value.
fn precise(count: usize) -> f64 {
    u32::try_from(count).map_or(f64::MAX, f64::from)
}

async fn commit_all(store: &dyn Store, changes: &[ChangeSet]) -> Vec<Result<Committed, LaneError>> {
    let started = std::time::Instant::now();
    let mut result = store.commit(changes).await;
    if result.as_ref().is_err_and(StoreError::is_broken_connection) {
        // A pooled connection that had died. The change may have been written all the same; the
        // compare-and-set makes the second try harmless, and the command is then decided again.
        tracing::warn!("a commit met a broken connection and is tried once more");
        result = store.commit(changes).await;
    }
    metrics::histogram!("actonce_commit_seconds").record(started.elapsed().as_secs_f64());
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

/// What a load answers for one key.
pub type Loaded = Result<Option<Record>, Unloadable>;

/// A read that answers many keys at once.
#[async_trait]
pub trait BatchRead: Send + Sync + 'static {
    /// The answer for one key.
    type Answer: Send + 'static;

    /// One answer per key, in order.
    async fn read(store: &dyn Store, keys: &[EffectKey]) -> crate::store::Result<Vec<Self::Answer>>;
}

/// Reads whole records.
#[derive(Debug)]
pub enum Records {}

#[async_trait]
impl BatchRead for Records {
    type Answer = Loaded;

    async fn read(store: &dyn Store, keys: &[EffectKey]) -> crate::store::Result<Vec<Loaded>> {
        store.load(keys).await
    }
}

/// Reads the newest revision of each effect alone: enough to know that a record at hand is current.
#[derive(Debug)]
pub enum Revisions {}

#[async_trait]
impl BatchRead for Revisions {
    type Answer = u32;

    async fn read(store: &dyn Store, keys: &[EffectKey]) -> crate::store::Result<Vec<u32>> {
        store.revisions(keys).await
    }
}

struct ReadJob<R: BatchRead> {
    key: EffectKey,
    reply: oneshot::Sender<Result<R::Answer, LaneError>>,
}

/// A lane of reads.
pub struct ReadLane<R: BatchRead> {
    jobs: mpsc::Sender<ReadJob<R>>,
}

impl<R: BatchRead> std::fmt::Debug for ReadLane<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ReadLane")
    }
}

impl<R: BatchRead> ReadLane<R> {
    /// The lane, and the loops that must be run for it.
    pub fn new(store: &Arc<dyn Store>, loops: usize) -> (Self, Vec<impl Future<Output = ()> + Send + use<R>>) {
        let (jobs, queue) = mpsc::channel(limits::COMMIT_QUEUE);
        let queue = Arc::new(Mutex::new(queue));
        let loops = (0..loops).map(|_| run_reads::<R>(Arc::clone(store), Arc::clone(&queue))).collect();
        (Self { jobs }, loops)
    }

    /// Reads for one key, together with whatever else waits.
    ///
    /// # Errors
    /// See [`LaneError`].
    pub async fn read(&self, key: EffectKey) -> Result<R::Answer, LaneError> {
        let (reply, answer) = oneshot::channel();
        self.jobs.try_send(ReadJob { key, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => LaneError::Full,
            mpsc::error::TrySendError::Closed(_) => LaneError::Stopped,
        })?;
        answer.await.map_err(|_| LaneError::Stopped)?
    }
}

async fn run_reads<R: BatchRead>(store: Arc<dyn Store>, queue: Arc<Mutex<mpsc::Receiver<ReadJob<R>>>>) {
    let mut jobs: Vec<ReadJob<R>> = Vec::with_capacity(limits::COMMIT_CHANGES);
    loop {
        if queue.lock().await.recv_many(&mut jobs, limits::COMMIT_CHANGES).await == 0 {
            return;
        }
        let keys: Vec<EffectKey> = jobs.iter().map(|job| job.key.clone()).collect();
        let mut result = R::read(store.as_ref(), &keys).await;
        if result.as_ref().is_err_and(StoreError::is_broken_connection) {
            result = R::read(store.as_ref(), &keys).await;
        }
        match result {
            Ok(found) => {
                for (job, answer) in jobs.drain(..).zip(found) {
                    drop(job.reply.send(Ok(answer)));
                }
            }
            Err(error) => {
                let error = LaneError::Store(Arc::new(error));
                for job in jobs.drain(..) {
                    drop(job.reply.send(Err(error.clone())));
                }
            }
        }
    }
}
