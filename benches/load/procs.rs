//! Processes under measurement: starting them, ending them, and what they cost.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use sqlx::PgPool;

/// What tokens are signed with.
pub(crate) const SECRET: &str = "bench-secret-bench-secret-bench-secret-bench";

/// The service as it runs in production: on a database, or on a file of its own directory.
pub(crate) fn serve(actonce: &Path, directory: &Path, database: Option<&str>) -> Command {
    let mut command = Command::new(actonce);
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(directory);
    command.env("ACTONCE_JWT_HS256_SECRET", SECRET).env("ACTONCE_DATA_KEY", "07".repeat(32));
    command.env_remove("DATABASE_URL");
    if let Some(database) = database {
        command.env("DATABASE_URL", database);
    }
    command
}

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

    /// CPU seconds so far.
    pub(crate) fn cpu(&self) -> f64 {
        stat(self.pid()).map_or(0.0, |(_, seconds)| seconds)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The URL of a database of a server, and the database, made anew.
pub(crate) async fn make_database(pool: &PgPool, server_url: &str, name: &str) -> sqlx::Result<String> {
    sqlx::query(sqlx::AssertSqlSafe(format!("CREATE DATABASE {name}"))).execute(pool).await?;
    Ok(database_url(server_url, name))
}

/// The URL of another database of the same server.
pub(crate) fn database_url(server_url: &str, name: &str) -> String {
    format!("{}/{name}", server_url.rsplit_once('/').map_or("", |(server, _)| server))
}

/// The middle one.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn stat(pid: u32) -> Option<(u32, f64)> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<f64>().ok());
    // After the name: state, parent, …; user and system time are fields 14 and 15 of the whole.
    Some((fields.get(1)?.parse().ok()?, (ticks(11)? + ticks(12)?) / 100.0))
}

/// Memory of a process now, in MB.
pub(crate) fn resident_mb(pid: u32) -> f64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or_default();
    line.split_whitespace().next().and_then(|kb| kb.parse::<f64>().ok()).unwrap_or(f64::NAN) / 1024.0
}

/// CPU seconds of a process and its children so far: a Postgres server.
pub(crate) fn cpu_with_children(pid: u32) -> f64 {
    let mut sum = stat(pid).map_or(0.0, |(_, seconds)| seconds);
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
