//! Log lines on their way to standard error.
//!
//! Whoever reads a pipe may be slow or stand still, and a write to a full pipe waits for as long. So lines
//! go through a bounded buffer to a thread that writes; what does not fit is dropped and counted, and no
//! request waits for a reader. A regular file has no reader to wait for: it is written to at once.

use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::fd::AsFd as _;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing_subscriber::fmt::MakeWriter;

use super::meters;
use crate::limits;

/// Takes lines.
#[derive(Debug, Clone)]
pub struct LogSink(Way);

#[derive(Debug, Clone)]
enum Way {
    Direct,
    Buffered(Arc<Shared>),
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Whole lines, one after the other.
    lines: Vec<u8>,
    count: u64,
    /// The thread has some in hand.
    is_writing: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: &[u8]) {
        let mut waiting = self.lock();
        if waiting.lines.len().saturating_add(line.len()) > limits::LOG_BUFFER_BYTES {
            drop(waiting);
            meters::log_dropped("full", 1);
            return;
        }
        waiting.lines.extend_from_slice(line);
        waiting.count = waiting.count.saturating_add(1);
        drop(waiting);
        self.changed.notify_all();
    }

    /// Writes what comes, until the process ends.
    fn run(&self, mut out: impl Write) {
        let mut taken = Vec::new();
        loop {
            let count = {
                let waiting = self.changed.wait_while(self.lock(), |waiting| waiting.lines.is_empty());
                let mut waiting = waiting.unwrap_or_else(PoisonError::into_inner);
                mem::swap(&mut waiting.lines, &mut taken);
                waiting.is_writing = true;
                mem::take(&mut waiting.count)
            };
            if out.write_all(&taken).and_then(|()| out.flush()).is_err() {
                meters::log_dropped("failed", count);
            }
            taken.clear();
            self.lock().is_writing = false;
            self.changed.notify_all();
        }
    }

    /// Waits until everything is written; false where that took too long.
    fn flush(&self, limit: Duration) -> bool {
        let is_busy = |waiting: &mut Waiting| waiting.is_writing || !waiting.lines.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), limit, is_busy);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }
}

impl LogSink {
    /// To standard error of this process.
    ///
    /// # Errors
    /// There is no standard error, or no thread for it.
    pub fn to_stderr() -> io::Result<Self> {
        // A handle of its own: the one of the library is locked while it waits for a reader.
        let out = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        if out.metadata()?.is_file() {
            return Ok(Self(Way::Direct));
        }
        Self::through(out)
    }

    fn through(out: impl Write + Send + 'static) -> io::Result<Self> {
        let shared = Arc::<Shared>::default();
        let writing = Arc::clone(&shared);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || writing.run(out))?;
        Ok(Self(Way::Buffered(shared)))
    }

    /// Waits for what is still to be written when it is dropped, also by a panic.
    #[must_use]
    pub fn flushed_at_end(&self) -> FlushedAtEnd {
        FlushedAtEnd(self.clone())
    }
}

/// Waits for a bounded time until everything is written.
#[derive(Debug)]
pub struct FlushedAtEnd(LogSink);

impl Drop for FlushedAtEnd {
    fn drop(&mut self) {
        if let Way::Buffered(shared) = &self.0.0 {
            shared.flush(Duration::from_secs(limits::LOG_FLUSH_SECONDS));
        }
    }
}

/// Takes one line.
#[derive(Debug)]
pub struct Line<'a>(&'a LogSink);

impl<'a> MakeWriter<'a> for LogSink {
    type Writer = Line<'a>;

    fn make_writer(&'a self) -> Line<'a> {
        Line(self)
    }
}

impl Write for Line<'_> {
    /// Takes all of it: a line is written at once, so none is torn.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        match &self.0.0 {
            Way::Direct => io::stderr().lock().write_all(line)?,
            Way::Buffered(shared) => shared.push(line),
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_reader_that_stands_still_holds_nobody_up_and_costs_lines() {
        let (reader, writer) = io::pipe().unwrap();
        let sink = LogSink::through(writer).unwrap();
        let line = [vec![b'x'; 1023], vec![b'\n']].concat();
        let began = Instant::now();
        // More than the buffer, the thread's and the pipe's together.
        let many = 3 * limits::LOG_BUFFER_BYTES / line.len();
        for _ in 0..many {
            sink.make_writer().write_all(&line).unwrap();
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
        let Way::Buffered(shared) = &sink.0 else { panic!("it is buffered") };
        assert!(shared.lock().lines.len() <= limits::LOG_BUFFER_BYTES, "bounded");
        assert!(!shared.flush(Duration::from_millis(50)), "it waits for a bounded time");
        // Once it is read again, what was kept comes whole, and so does what is new.
        let reading = std::thread::spawn(move || {
            let lines = BufReader::new(reader).lines().map(Result::unwrap).take_while(|line| line != "the last");
            lines.inspect(|line| assert_eq!(line.len(), 1023, "torn")).count()
        });
        assert!(shared.flush(Duration::from_secs(30)));
        sink.make_writer().write_all(b"the last\n").unwrap();
        let kept = reading.join().unwrap();
        assert!(kept < many && kept >= limits::LOG_BUFFER_BYTES / line.len(), "{kept} of {many}");
    }

    #[test]
    fn everything_is_written_when_it_ends() {
        let (reader, writer) = io::pipe().unwrap();
        let sink = LogSink::through(writer).unwrap();
        for number in 0..50 {
            writeln!(sink.make_writer(), "{number}").unwrap();
        }
        drop(sink.flushed_at_end());
        let Way::Buffered(shared) = &sink.0 else { panic!("it is buffered") };
        assert!(shared.lock().lines.is_empty());
        let numbers: Vec<String> = BufReader::new(reader).lines().take(50).map(|line| line.unwrap()).collect();
        assert_eq!(numbers, (0..50).map(|number| number.to_string()).collect::<Vec<_>>());
    }

    #[test]
    fn a_reader_that_is_gone_is_no_fault() {
        let (reader, writer) = io::pipe().unwrap();
        drop(reader);
        let sink = LogSink::through(writer).unwrap();
        for _ in 0..3 {
            sink.make_writer().write_all(b"line\n").unwrap();
            let Way::Buffered(shared) = &sink.0 else { panic!("it is buffered") };
            assert!(shared.flush(Duration::from_secs(10)));
        }
    }
}
