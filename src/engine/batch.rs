//! Reading together: what arrives while a read is in flight goes with the next one, as with
//! [commits](super::commits).

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::domain::ids::EffectKey;
use crate::domain::record::Record;
use crate::limits;
use crate::store::{Store, StoreError, Unloadable};
use crate::telemetry::meters::{self, Read};
use crate::telemetry::probe::{self, BatchTimes};

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

/// What a load answers for one key.
pub type Loaded = Result<Option<Record>, Unloadable>;

/// A read that answers many keys at once.
#[async_trait]
pub trait BatchRead: Send + Sync + 'static {
    /// The answer for one key.
    type Answer: Send + 'static;

    /// What it is, for its metric.
    const READ: Read;

    /// One answer per key, in order.
    async fn read(store: &dyn Store, keys: &[EffectKey]) -> crate::store::Result<Vec<Self::Answer>>;
}

/// Reads whole records.
#[derive(Debug)]
pub enum Records {}

#[async_trait]
impl BatchRead for Records {
    type Answer = Loaded;
    const READ: Read = Read::Records;

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
    const READ: Read = Read::Revisions;

    async fn read(store: &dyn Store, keys: &[EffectKey]) -> crate::store::Result<Vec<u32>> {
        store.revisions(keys).await
    }
}

struct ReadJob<R: BatchRead> {
    key: EffectKey,
    reply: oneshot::Sender<(Result<R::Answer, LaneError>, BatchTimes)>,
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
        let sent = probe::sent();
        self.jobs.try_send(ReadJob { key, reply }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => LaneError::Full,
            mpsc::error::TrySendError::Closed(_) => LaneError::Stopped,
        })?;
        let (found, times) = answer.await.map_err(|_| LaneError::Stopped)?;
        probe::waited_for(sent, &times, 0);
        found
    }
}

async fn run_reads<R: BatchRead>(store: Arc<dyn Store>, queue: Arc<Mutex<mpsc::Receiver<ReadJob<R>>>>) {
    let mut jobs: Vec<ReadJob<R>> = Vec::with_capacity(limits::COMMIT_CHANGES);
    loop {
        if queue.lock().await.recv_many(&mut jobs, limits::COMMIT_CHANGES).await == 0 {
            return;
        }
        let keys: Vec<EffectKey> = jobs.iter().map(|job| job.key.clone()).collect();
        let reading = async {
            let mut result = R::read(store.as_ref(), &keys).await;
            if result.as_ref().is_err_and(StoreError::is_broken_connection) {
                result = R::read(store.as_ref(), &keys).await;
            }
            result
        };
        let (result, times) = probe::batch(keys.len(), reading).await;
        meters::have_read(R::READ, times.took());
        match result {
            Ok(found) => {
                for (job, answer) in jobs.drain(..).zip(found) {
                    drop(job.reply.send((Ok(answer), times)));
                }
            }
            Err(error) => {
                let error = LaneError::Store(Arc::new(error));
                for job in jobs.drain(..) {
                    drop(job.reply.send((Err(error.clone()), times)));
                }
            }
        }
    }
}
