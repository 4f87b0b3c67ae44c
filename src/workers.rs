//! The threads that drive connections, each with a runtime of its own.
//!
//! A runtime of many threads wakes another one whenever a commit answers several requests at once, so that it takes some of
//! them over. With few connections that costs more than what there is to do: the waking, and the memory that has to follow.
//! So the first connections are all driven by one thread, which drives the lanes to the store as well, and another thread is
//! given some when there are many.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio_util::sync::CancellationToken;

/// So many connections are driven by a thread before the next one gets any.
const APIECE: usize = 32;
/// How long work on a blocking thread may go on at the end.
const END: Duration = Duration::from_secs(1);

/// The threads. Dropped, they end, and what they still drive with them.
#[derive(Debug)]
pub struct Workers {
    workers: Vec<Worker>,
    end: CancellationToken,
}

#[derive(Debug)]
struct Worker {
    handle: Handle,
    driven: Arc<AtomicUsize>,
    thread: Option<JoinHandle<()>>,
}

impl Workers {
    /// As many as the process has processors for.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn start() -> io::Result<Self> {
        let mut workers = Self { workers: Vec::new(), end: CancellationToken::new() };
        for number in 0..thread::available_parallelism().map_or(1, usize::from) {
            let runtime = Builder::new_current_thread().enable_all().build()?;
            let (handle, end) = (runtime.handle().clone(), workers.end.clone());
            let thread = thread::Builder::new().name(format!("connections-{number}")).spawn(move || {
                runtime.block_on(end.cancelled());
                runtime.shutdown_timeout(END);
            })?;
            workers.workers.push(Worker { handle, driven: Arc::default(), thread: Some(thread) });
        }
        Ok(workers)
    }

    /// The thread that gets connections first.
    #[must_use]
    pub fn first(&self) -> Option<&Handle> {
        self.workers.first().map(|worker| &worker.handle)
    }

    /// The thread that is to drive one connection more, until the place is dropped.
    #[must_use]
    pub fn place(&self) -> Option<(&Handle, Driven)> {
        let driven = |worker: &&Worker| worker.driven.load(Ordering::Relaxed);
        let with_room = self.workers.iter().find(|worker| driven(worker) < APIECE);
        let worker = with_room.or_else(|| self.workers.iter().min_by_key(driven))?;
        worker.driven.fetch_add(1, Ordering::Relaxed);
        Some((&worker.handle, Driven(Arc::clone(&worker.driven))))
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.end.cancel();
        for worker in &mut self.workers {
            if let Some(thread) = worker.thread.take() {
                // One that panicked has said so.
                drop(thread.join());
            }
        }
    }
}

/// A connection that a thread drives.
#[derive(Debug)]
pub struct Driven(Arc<AtomicUsize>);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
