//! Driving a base URL: closed loop (each connection sends as soon as it has an answer) or open loop
//! (requests are due at a fixed rate, and latency counts from when a request was due, so a stalled
//! server can't hide behind a generator that waits for it).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use crate::client::{Connection, member};
use crate::workload::Workload;

/// What one connection does again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Intent with claim, then outcome: one effect.
    Pair,
    /// The intent of a settled effect again.
    Replay,
    /// A read of a settled effect.
    Read,
    /// The first page of the effects that are dispatched.
    List,
    /// The bytes of an intent back.
    Echo,
}

/// How hard.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Host and port.
    pub(crate) address: String,
    /// What.
    pub(crate) kind: Kind,
    /// Connections.
    pub(crate) connections: usize,
    /// How long, after the warm-up.
    pub(crate) time: Duration,
    /// Not measured.
    pub(crate) warm_up: Duration,
    /// Effects per second in all; `None`: closed loop.
    pub(crate) rate: Option<f64>,
    /// For replays and reads: numbers below this are settled.
    pub(crate) settled: u64,
}

impl Plan {
    /// Effects in a closed loop.
    pub(crate) fn pairs(address: &str, connections: usize, time: Duration, warm_up: Duration) -> Self {
        Self { address: address.to_owned(), kind: Kind::Pair, connections, time, warm_up, rate: None, settled: 0 }
    }
}

/// What came of it.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// Completed rounds in the measured time.
    pub(crate) rounds: u64,
    /// The measured time.
    pub(crate) seconds: f64,
    /// Latency of the first request of a round, in microseconds.
    pub(crate) first: Histogram<u64>,
    /// Latency of the second, for pairs.
    pub(crate) second: Histogram<u64>,
    /// Answers 503: refused early, as they should be under overload.
    pub(crate) refused: u64,
    /// Anything else that was not as expected.
    pub(crate) errors: u64,
}

impl Outcome {
    fn new() -> Self {
        Self { rounds: 0, seconds: 0.0, first: histogram(), second: histogram(), refused: 0, errors: 0 }
    }

    /// Rounds per second.
    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a count as a rate")]
    pub(crate) fn rate(&self) -> f64 {
        self.rounds as f64 / self.seconds
    }
}

struct Shared {
    plan: Plan,
    workload: Arc<Workload>,
    measuring: AtomicBool,
    stop: AtomicBool,
    started: Instant,
    due: AtomicU64,
    tallies: Vec<Mutex<Outcome>>,
}

impl Shared {
    fn note(&self, lane: usize, what: impl FnOnce(&mut Outcome)) {
        what(&mut self.tallies[lane % TALLIES].lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn error(&self, lane: usize) {
        self.note(lane, |tally| tally.errors += 1);
    }
}

/// Lanes share these: a histogram has hundreds of kilobytes, and one for each of thousands of lanes would take from the
/// machine what is to be measured.
const TALLIES: usize = 8;

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 120_000_000, 3).unwrap_or_else(|_| unreachable!("the bounds are valid"))
}

/// Runs a plan.
pub(crate) async fn drive(plan: Plan, workload: Arc<Workload>) -> Outcome {
    let shared = Arc::new(Shared {
        workload,
        measuring: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        started: Instant::now(),
        due: AtomicU64::new(0),
        plan: plan.clone(),
        tallies: (0..TALLIES).map(|_| Mutex::new(Outcome::new())).collect(),
    });
    let mut lanes = tokio::task::JoinSet::new();
    for number in 0..plan.connections {
        lanes.spawn(lane(Arc::clone(&shared), number));
    }
    tokio::time::sleep(plan.warm_up).await;
    shared.measuring.store(true, Ordering::Release);
    let begun = Instant::now();
    tokio::time::sleep(plan.time).await;
    shared.measuring.store(false, Ordering::Release);
    let seconds = begun.elapsed().as_secs_f64();
    shared.stop.store(true, Ordering::Release);
    let mut outcome = Outcome { seconds, ..Outcome::new() };
    while lanes.join_next().await.is_some() {}
    for tally in &shared.tallies {
        let tally = tally.lock().unwrap_or_else(PoisonError::into_inner);
        outcome.rounds += tally.rounds;
        outcome.refused += tally.refused;
        outcome.errors += tally.errors;
        outcome.first += &tally.first;
        outcome.second += &tally.second;
    }
    outcome
}

async fn lane(shared: Arc<Shared>, number: usize) {
    let mut connection = None;
    while !shared.stop.load(Ordering::Acquire) {
        let since = match shared.plan.rate {
            None => Instant::now(),
            Some(rate) => {
                let turn = u32::try_from(shared.due.fetch_add(1, Ordering::Relaxed)).unwrap_or(u32::MAX);
                let due = shared.started + Duration::from_secs_f64(f64::from(turn) / rate);
                tokio::time::sleep_until(due.into()).await;
                due
            }
        };
        let open = match connection.as_mut() {
            Some(open) => open,
            None => match Connection::open(&shared.plan.address).await {
                Ok(open) => connection.insert(open),
                Err(_) => {
                    shared.error(number);
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            },
        };
        let measured = shared.measuring.load(Ordering::Acquire);
        if round(open, &shared, number, since, measured).await.is_err() {
            shared.error(number);
            connection = None;
        }
    }
}

async fn round(
    connection: &mut Connection,
    shared: &Shared,
    lane: usize,
    since: Instant,
    measured: bool,
) -> std::io::Result<()> {
    let workload = &shared.workload;
    let number = workload.draw();
    let settled = shared.plan.settled.max(1);
    let request = match shared.plan.kind {
        Kind::Pair => workload.intent(number),
        Kind::Replay => workload.intent(number % settled),
        Kind::Read => workload.read_effect(number % settled),
        Kind::List => workload.list(number),
        Kind::Echo => workload.echo(number),
    };
    // In an open loop latency counts from when the request was due.
    let since = if shared.plan.rate.is_some() { since } else { Instant::now() };
    let answer = connection.call(&request).await?;
    let took = micros(since);
    let expected = if shared.plan.kind == Kind::Pair { 201 } else { 200 };
    let status = answer.status;
    if status == 503 {
        shared.note(lane, |tally| tally.refused += u64::from(measured));
        return Ok(());
    }
    if status != expected {
        shared.error(lane);
        return Ok(());
    }
    let mut second = None;
    if shared.plan.kind == Kind::Pair {
        let Some(dispatch_id) = member(answer.body, "dispatch_id").map(str::to_owned) else {
            shared.error(lane);
            return Ok(());
        };
        let request = workload.outcome(number, &dispatch_id);
        let since = Instant::now();
        let status = connection.call(&request).await?.status;
        if status == 503 {
            shared.note(lane, |tally| tally.refused += u64::from(measured));
            return Ok(());
        }
        if status != 200 {
            shared.error(lane);
            return Ok(());
        }
        second = Some(micros(since));
    }
    if measured && shared.measuring.load(Ordering::Acquire) {
        shared.note(lane, |tally| {
            tally.rounds += 1;
            let _ = tally.first.record(took);
            if let Some(second) = second {
                let _ = tally.second.record(second);
            }
        });
    }
    Ok(())
}

fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX).clamp(1, 119_000_000)
}
