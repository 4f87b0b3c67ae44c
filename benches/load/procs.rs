//! Processes under measurement: starting them, ending them, and what they cost.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

/// A started server; ended when dropped.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    /// Host and port.
    pub(crate) address: String,
}

impl Server {
    /// Starts a server and waits for its ready line.
    pub(crate) fn start(mut command: Command) -> std::io::Result<Self> {
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let stdout = child.stdout.take().ok_or(std::io::ErrorKind::BrokenPipe)?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let ready: Value = serde_json::from_str(&line)
            .map_err(|_| std::io::Error::other(format!("the server did not become ready: {command:?}")))?;
        let url = ready["url"].as_str().unwrap_or_default();
        Ok(Self { child, address: url.trim_start_matches("http://").to_owned() })
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn stat(pid: u32) -> Option<(u32, f64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    // After the name: state, parent, …; user and system time are fields 14 and 15 of the whole.
    Some((fields.get(1)?.parse().ok()?, (ticks(11)? + ticks(12)?) / 100.0))
}

/// CPU seconds of a process so far.
pub(crate) fn cpu(pid: u32) -> f64 {
    stat(pid).map_or(0.0, |(_, seconds)| seconds)
}

/// CPU seconds of a process and its children so far: a Postgres server.
pub(crate) fn cpu_with_children(pid: u32) -> f64 {
    let mut sum = cpu(pid);
    let Ok(entries) = std::fs::read_dir("/proc") else { return sum };
    for entry in entries.flatten() {
        if let Some(child) = entry.file_name().to_str().and_then(|name| name.parse().ok())
            && let Some((parent, seconds)) = stat(child)
            && parent == pid
        {
            sum += seconds;
        }
    }
    sum
}
