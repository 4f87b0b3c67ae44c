//! What is measured of one request, and how whatever works for it finds it.
//!
//! A probe hangs on the task: no argument is handed down for it, and code that runs for nobody measures
//! nothing. It is numbers alone, written without locks; nothing of a request's content can get into it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::Telemetry;
use super::phase::Phase;
use super::trace::Trace;
use crate::domain::ids::Tenant;

tokio::task_local! {
    static CURRENT: Arc<Probe>;
    static BATCH: Arc<BatchCost>;
}

/// One request, or one piece of work of the background.
#[derive(Debug)]
pub struct Probe {
    telemetry: Arc<Telemetry>,
    trace: Trace,
    /// By the database's clock.
    started_us: i64,
    started: Instant,
    tenant: OnceLock<Tenant>,
    phases: [Slot; Phase::COUNT],
    transactions: AtomicU32,
    lock_wait: AtomicU64,
    bytes_bound: AtomicU64,
    largest_batch: AtomicU32,
}

/// Nanoseconds of one phase, and where it began and ended.
#[derive(Debug, Default)]
struct Slot {
    spent: AtomicU64,
    /// Plus one; 0 as long as it has not begun.
    first: AtomicU64,
    last: AtomicU64,
}

/// What the store says about one batch, to whoever waits for a change in it.
#[derive(Debug, Default)]
struct BatchCost {
    lock_wait: AtomicU64,
    commit: AtomicU64,
}

/// When a batch was taken and what it cost: the same for each change in it.
#[derive(Debug, Clone, Copy)]
pub struct BatchTimes {
    taken: Instant,
    ended: Instant,
    lock_wait: Duration,
    commit: Duration,
    size: u32,
}

/// What was measured, complete.
#[derive(Debug, Clone)]
pub struct Timing {
    /// Which span it was.
    pub trace: Trace,
    /// Whose request it was.
    pub tenant: Option<Tenant>,
    /// When it began, by the database's clock.
    pub started_us: i64,
    /// How long it took.
    pub total: Duration,
    /// Each phase that was gone through.
    pub phases: [Option<PhaseTiming>; Phase::COUNT],
    /// Store costs.
    pub store: StoreCosts,
}

/// One phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PhaseTiming {
    /// Time spent in it.
    pub spent: Duration,
    /// When it began first, after the beginning.
    pub first: Duration,
    /// When it ended last.
    pub last: Duration,
}

/// What a request cost the store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreCosts {
    /// Transactions, a lone read counted as one.
    pub transactions: u32,
    /// Waiting for the connection that writes: part of [`Phase::StoreWait`].
    pub lock_wait: Duration,
    /// Bytes of documents bound to statements that write.
    pub bytes_bound: u64,
    /// The most changes that one was committed together with.
    pub largest_batch: u32,
}

impl Timing {
    /// One phase, if it was gone through.
    #[must_use]
    pub fn phase(&self, phase: Phase) -> Option<PhaseTiming> {
        self.phases.get(phase.index()).copied().flatten()
    }
}

impl Probe {
    /// Begins now.
    #[must_use]
    pub fn begin(telemetry: &Arc<Telemetry>, trace: Trace) -> Arc<Self> {
        Arc::new(Self {
            trace,
            started_us: telemetry.now_us(),
            started: Instant::now(),
            telemetry: Arc::clone(telemetry),
            tenant: OnceLock::new(),
            phases: Default::default(),
            transactions: AtomicU32::new(0),
            lock_wait: AtomicU64::new(0),
            bytes_bound: AtomicU64::new(0),
            largest_batch: AtomicU32::new(0),
        })
    }

    /// Its place in its trace.
    #[must_use]
    pub const fn trace(&self) -> &Trace {
        &self.trace
    }

    /// Whose request it is, once that is known.
    #[must_use]
    pub fn tenant(&self) -> Option<&Tenant> {
        self.tenant.get()
    }

    /// When it began.
    #[must_use]
    pub const fn started(&self) -> Instant {
        self.started
    }

    /// A moment by the database's clock.
    #[must_use]
    pub fn micros_at(&self, moment: Instant) -> i64 {
        let after = moment.saturating_duration_since(self.started).as_micros();
        self.started_us.saturating_add(i64::try_from(after).unwrap_or(i64::MAX))
    }

    /// What was measured until now.
    #[must_use]
    pub fn timing(&self) -> Timing {
        let mut phases = [None; Phase::COUNT];
        for (timing, slot) in phases.iter_mut().zip(&self.phases) {
            let first = slot.first.load(Ordering::Relaxed);
            if first > 0 {
                *timing = Some(PhaseTiming {
                    spent: Duration::from_nanos(slot.spent.load(Ordering::Relaxed)),
                    first: Duration::from_nanos(first - 1),
                    last: Duration::from_nanos(slot.last.load(Ordering::Relaxed)),
                });
            }
        }
        Timing {
            trace: self.trace,
            tenant: self.tenant.get().cloned(),
            started_us: self.started_us,
            total: self.started.elapsed(),
            phases,
            store: StoreCosts {
                transactions: self.transactions.load(Ordering::Relaxed),
                lock_wait: Duration::from_nanos(self.lock_wait.load(Ordering::Relaxed)),
                bytes_bound: self.bytes_bound.load(Ordering::Relaxed),
                largest_batch: self.largest_batch.load(Ordering::Relaxed),
            },
        }
    }

    fn measures(&self) -> bool {
        self.telemetry.is_timing()
    }

    /// Adds a time that ended at a moment.
    fn add(&self, phase: Phase, spent: Duration, ended: Instant) {
        let Some(slot) = self.phases.get(phase.index()) else { return };
        let last = nanos(ended.saturating_duration_since(self.started));
        let spent = nanos(spent);
        slot.spent.fetch_add(spent, Ordering::Relaxed);
        if slot.first.load(Ordering::Relaxed) == 0 {
            slot.first.store(last.saturating_sub(spent).saturating_add(1), Ordering::Relaxed);
        }
        slot.last.store(last, Ordering::Relaxed);
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs a future for a probe.
pub async fn scope<F: Future>(probe: Arc<Probe>, work: F) -> F::Output {
    CURRENT.scope(probe, work).await
}

/// The probe that this task works for.
#[must_use]
pub fn current() -> Option<Arc<Probe>> {
    CURRENT.try_with(Arc::clone).ok()
}

/// Looks at the probe that this task works for.
pub fn with<T>(look: impl FnOnce(&Arc<Probe>) -> T) -> Option<T> {
    CURRENT.try_with(look).ok()
}

/// A future that works for the probe of this task, wherever it is run.
pub fn carry<F: Future>(work: F) -> impl Future<Output = F::Output> {
    let probe = current();
    async move {
        match probe {
            Some(probe) => CURRENT.scope(probe, work).await,
            None => work.await,
        }
    }
}

/// The beginning of something to be measured; `None` where nobody measures.
fn begin() -> Option<Instant> {
    with(|probe| probe.measures().then(Instant::now)).flatten()
}

fn end(phase: Phase, began: Option<Instant>) {
    if let Some(began) = began {
        let now = Instant::now();
        with(|probe| probe.add(phase, now.saturating_duration_since(began), now));
    }
}

/// Measures what is done at once.
pub fn timed<T>(phase: Phase, work: impl FnOnce() -> T) -> T {
    let began = begin();
    let done = work();
    end(phase, began);
    done
}

/// Measures a future.
pub async fn watched<F: Future>(phase: Phase, work: F) -> F::Output {
    let began = begin();
    let done = work.await;
    end(phase, began);
    done
}

/// Measures a read that goes to the store by itself.
pub async fn read<F: Future>(work: F) -> F::Output {
    alone(Phase::StoreExecution, work).await
}

/// Measures a write that goes to the store by itself. Nothing tells its statements and its flush apart.
pub async fn write<F: Future>(work: F) -> F::Output {
    alone(Phase::Commit, work).await
}

async fn alone<F: Future>(phase: Phase, work: F) -> F::Output {
    let waited = || with(|probe| probe.lock_wait.load(Ordering::Relaxed)).unwrap_or_default();
    let (began, before) = (begin(), waited());
    let done = work.await;
    if let Some(began) = began {
        let now = Instant::now();
        // A wait for the connection is in its own phase already.
        let waited = Duration::from_nanos(waited().saturating_sub(before));
        with(|probe| {
            probe.transactions.fetch_add(1, Ordering::Relaxed);
            probe.add(phase, now.saturating_duration_since(began).saturating_sub(waited), now);
        });
    }
    done
}

/// Notes whose request it is.
pub fn identified(tenant: &Tenant) {
    with(|probe| probe.tenant.get_or_init(|| tenant.clone()).as_str().len());
}

/// Notes that what was needed of the request is here.
pub fn admitted() {
    with(|probe| {
        if probe.measures()
            && let Some(slot) = probe.phases.get(Phase::Admission.index())
        {
            let since = nanos(probe.started.elapsed());
            let authentication = &probe.phases[Phase::Authentication.index()].spent;
            slot.spent.store(since.saturating_sub(authentication.load(Ordering::Relaxed)), Ordering::Relaxed);
            slot.first.store(1, Ordering::Relaxed);
            slot.last.store(since, Ordering::Relaxed);
        }
    });
}

/// Notes a wait for the connection that writes.
pub fn lock_waited(began: Instant) {
    let waited = nanos(began.elapsed());
    if BATCH.try_with(|batch| batch.lock_wait.fetch_add(waited, Ordering::Relaxed)).is_err() {
        with(|probe| {
            if probe.measures() {
                probe.lock_wait.fetch_add(waited, Ordering::Relaxed);
                probe.add(Phase::StoreWait, Duration::from_nanos(waited), Instant::now());
            }
        });
    }
}

/// Notes the statement of a batch that wrote and flushed.
pub fn committed(began: Instant) {
    let took = nanos(began.elapsed());
    // Outside of a batch there is nobody to tell.
    let _ = BATCH.try_with(|batch| batch.commit.fetch_add(took, Ordering::Relaxed));
}

/// Runs a batch and says what it cost.
pub async fn batch<F: Future>(size: usize, work: F) -> (F::Output, BatchTimes) {
    let taken = Instant::now();
    let cost = Arc::new(BatchCost::default());
    let done = BATCH.scope(Arc::clone(&cost), work).await;
    let times = BatchTimes {
        taken,
        ended: Instant::now(),
        lock_wait: Duration::from_nanos(cost.lock_wait.load(Ordering::Relaxed)),
        commit: Duration::from_nanos(cost.commit.load(Ordering::Relaxed)),
        size: u32::try_from(size).unwrap_or(u32::MAX),
    };
    (done, times)
}

impl BatchTimes {
    /// How long it took.
    #[must_use]
    pub fn took(&self) -> Duration {
        self.ended.saturating_duration_since(self.taken)
    }
}

/// When something was given to a lane; `None` where nobody measures.
#[must_use]
pub fn sent() -> Option<Instant> {
    begin()
}

/// Notes a batch that one waited for, `bound` bytes of which were one's own.
pub fn waited_for(sent: Option<Instant>, times: &BatchTimes, bound: usize) {
    let Some(sent) = sent else { return };
    with(|probe| {
        let waited = times.taken.saturating_duration_since(sent).saturating_add(times.lock_wait);
        let looked = times.took().saturating_sub(times.lock_wait).saturating_sub(times.commit);
        let write_began = times.ended.checked_sub(times.commit).unwrap_or(times.ended);
        let look_began = write_began.checked_sub(looked).unwrap_or(write_began);
        probe.add(Phase::StoreWait, waited, look_began);
        probe.add(Phase::StoreExecution, looked, write_began);
        if times.commit > Duration::ZERO {
            probe.add(Phase::Commit, times.commit, times.ended);
        }
        probe.transactions.fetch_add(1, Ordering::Relaxed);
        probe.lock_wait.fetch_add(nanos(times.lock_wait), Ordering::Relaxed);
        probe.bytes_bound.fetch_add(u64::try_from(bound).unwrap_or(u64::MAX), Ordering::Relaxed);
        probe.largest_batch.fetch_max(times.size, Ordering::Relaxed);
    });
}
