//! What happens, line by line.

use std::fmt::Display;
use std::io::{self, Write as _};
use std::time::Instant;

/// Prints lines with the time since its start.
pub(super) struct Timeline {
    started: Instant,
}

impl Timeline {
    pub(super) fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// One line: who does what.
    pub(super) fn line(&self, who: &str, what: impl Display) -> io::Result<()> {
        let seconds = self.started.elapsed().as_secs_f64();
        write(format_args!("{seconds:>7.3}  {who:<10}  {what}"))
    }
}

/// Prints one line on standard output.
pub(super) fn write(line: impl Display) -> io::Result<()> {
    writeln!(io::stdout().lock(), "{line}")
}
