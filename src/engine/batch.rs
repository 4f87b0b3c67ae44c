//! Reading together: what arrives while a read is in flight goes with the next one, as with
//! [commits](super::commits).

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::{mpsc, oneshot};

use crate::domain::ids::EffectKey;
use crate::domain::record::Record;
use crate::limits;
use crate::store::{Store, StoreError, Unloadable};
use crate::telemetry::meters::{self, Read};
use crate::telemetry::probe::{self, BatchTimes};

/// Reads of a lane under way at once.
const AT_ONCE: usize = 2;
/// How many must wait for a read to begin beside another one.
const BESIDE: usize = 32;

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
    /// The lane, and the loop that must be run for it; the loop ends when all senders are gone.
    pub fn new(store: &Arc<dyn Store>) -> (Self, impl Future<Output = ()> + Send + use<R>) {
        let (jobs, queue) = mpsc::channel(limits::COMMIT_QUEUE);
        let store = Arc::clone(store);
        (Self { jobs }, share(queue, move |jobs| read_batch::<R>(Arc::clone(&store), jobs)))
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

/// Takes what waits to one read after the other, and to a second one at once only where it is worth that: a small one
/// would cost the store as much as the large one that it splits.
async fn share<J, F: Future<Output = ()>>(mut queue: mpsc::Receiver<J>, read: impl Fn(Vec<J>) -> F) {
    let (mut waiting, mut is_open) = (Vec::new(), true);
    let mut under_way = FuturesUnordered::new();
    loop {
        let may_begin = under_way.is_empty() || (under_way.len() < AT_ONCE && waiting.len() >= BESIDE);
        if may_begin && !waiting.is_empty() {
            under_way.push(read(std::mem::take(&mut waiting)));
        }
        if !is_open && under_way.is_empty() {
            return;
        }
        let room = limits::COMMIT_CHANGES.saturating_sub(waiting.len());
        tokio::select! {
            Some(()) = under_way.next() => {}
            count = queue.recv_many(&mut waiting, room), if is_open && room > 0 => is_open = count > 0,
        }
    }
}

/// Reads for all of a batch and answers its members.
async fn read_batch<R: BatchRead>(store: Arc<dyn Store>, jobs: Vec<ReadJob<R>>) {
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
            for (job, answer) in jobs.into_iter().zip(found) {
                drop(job.reply.send((Ok(answer), times)));
            }
        }
        Err(error) => {
            let error = LaneError::Store(Arc::new(error));
            for job in jobs {
                drop(job.reply.send((Err(error.clone()), times)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::sync::watch;

    use super::*;

    /// How many each read took that began before any had ended, as so many came one group after the other.
    async fn reads_of(arrivals: &[usize]) -> Vec<usize> {
        let (jobs, queue) = mpsc::channel(1_000);
        let begun = Mutex::new(Vec::new());
        let (end, may_end) = watch::channel(false);
        let lane = share(queue, |jobs: Vec<()>| {
            begun.lock().unwrap().push(jobs.len());
            let mut may_end = may_end.clone();
            async move { drop(may_end.wait_for(|may| *may).await) }
        });
        let come = async {
            for count in arrivals {
                for _ in 0..*count {
                    jobs.send(()).await.unwrap();
                }
                // The lane runs until it waits.
                for _ in 0..3 {
                    tokio::task::yield_now().await;
                }
            }
            let before = begun.lock().unwrap().clone();
            end.send_replace(true);
            drop(jobs);
            before
        };
        let (before, ()) = tokio::join!(come, lane);
        assert_eq!(
            begun.lock().unwrap().iter().sum::<usize>(),
            arrivals.iter().sum::<usize>(),
            "everybody is answered"
        );
        before
    }

    #[tokio::test]
    async fn a_second_read_needs_a_crowd_and_there_is_no_third() {
        assert_eq!(reads_of(&[1]).await, [1], "nobody waits for company");
        assert_eq!(reads_of(&[1, BESIDE - 1]).await, [1], "a few go with the next one");
        assert_eq!(reads_of(&[1, BESIDE]).await, [1, BESIDE]);
        assert_eq!(reads_of(&[1, BESIDE - 1, 1]).await, [1, BESIDE]);
        assert_eq!(reads_of(&[1, BESIDE, 300]).await, [1, BESIDE], "two at once");
    }
}
