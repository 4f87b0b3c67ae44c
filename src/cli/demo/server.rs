//! The real server as a child process, on a database that is thrown away.

use std::fs::{self, DirBuilder, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout, Command};

use super::failure::Failure;
use crate::config::{self, Environment, TokenArgs};
use crate::support::random_id;

/// How long the server may take to start, migrations included.
const START: Duration = Duration::from_mins(1);
/// How long it may take to end before it is killed.
const STOP: Duration = Duration::from_secs(10);

/// The running server.
pub(super) struct Server {
    /// Where it answers.
    pub(super) url: String,
    /// What it stores in.
    pub(super) database: String,
    /// The tenant of this demonstration alone.
    pub(super) tenant: String,
    /// A token of that tenant.
    pub(super) token: String,
    child: Child,
    /// Kept open: a server whose standard output is closed has nobody to talk to.
    _stdout: BufReader<ChildStdout>,
    directory: Directory,
}

#[derive(Deserialize)]
struct Ready {
    url: String,
    database: String,
}

impl Server {
    /// Starts this very program as `actonce serve --dev` and waits until it serves.
    pub(super) async fn start(database_url: Option<&str>) -> Result<Self, Failure> {
        let directory = Directory::create().map_err(|error| Failure::Start(format!("no directory: {error}")))?;
        let mut child = spawn(&directory, database_url).map_err(|error| Failure::Start(error.to_string()))?;
        let stdout = child.stdout.take().ok_or_else(|| Failure::Start("no standard output".to_owned()))?;
        let mut stdout = BufReader::new(stdout);
        let mut line = String::new();
        // Whatever goes wrong from here on, dropping `child` kills it.
        let read = tokio::time::timeout(START, stdout.read_line(&mut line)).await;
        let ready: Ready = match read {
            Ok(Ok(length)) if length > 0 => serde_json::from_str(&line)
                .map_err(|error| Failure::Start(format!("its first line is not understood: {error}")))?,
            Ok(_) => return Err(Failure::Start(directory.log_end())),
            Err(_) => return Err(Failure::Start(format!("it is not ready after {} s", START.as_secs()))),
        };
        let tenant = format!("demo-{}", random_id().simple());
        let token = token(directory.path(), &tenant)?;
        Ok(Self { url: ready.url, database: ready.database, tenant, token, child, _stdout: stdout, directory })
    }

    /// Ends the server: asked first, killed if that does not help. The database goes with it.
    pub(super) async fn stop(mut self) {
        let asked = self.child.id().is_some_and(terminate);
        if !(asked && tokio::time::timeout(STOP, self.child.wait()).await.is_ok()) {
            drop(self.child.kill().await);
        }
    }

    /// The last lines of its log, to explain a failure.
    pub(super) fn log_end(&self) -> String {
        self.directory.log_end()
    }
}

fn spawn(directory: &Directory, database_url: Option<&str>) -> std::io::Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    // Settings of a real service must not reach this one: it would use their database.
    for (name, _) in std::env::vars_os() {
        if name == "DATABASE_URL" || name.to_str().is_some_and(|name| name.starts_with("ACTONCE_")) {
            command.env_remove(name);
        }
    }
    if let Some(url) = database_url {
        // Not as an argument: everybody on a machine can read those.
        command.env("DATABASE_URL", url);
    }
    // Its adapters are on loopback, like everything else here.
    command.env("ACTONCE_ADAPTER_ALLOW_HTTP", "true").env("ACTONCE_ADAPTER_ALLOW_NETWORKS", "127.0.0.0/8");
    command
        .args(["serve", "--dev", "--listen", "127.0.0.1:0", "--log", "warn", "--log-format", "json"])
        .args(["--drain-seconds", "2", "--data-dir"])
        .arg(directory.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(directory.log())?)
        .kill_on_drop(true)
        .spawn()
}

/// Each demonstration has a tenant of its own, so that it meets nothing in a database that is not
/// thrown away.
fn token(data_dir: &Path, tenant: &str) -> Result<String, Failure> {
    let args = TokenArgs {
        data_dir: Some(data_dir.to_string_lossy().into_owned()),
        tenant: tenant.to_owned(),
        subject: "demo".to_owned(),
        scopes: "effects:write,effects:read,tools:write".to_owned(),
        expires_in: "86400".to_owned(),
        ..TokenArgs::default()
    };
    config::token::run(&args, &Environment::default()).map_err(|error| Failure::Start(error.to_string()))
}

fn terminate(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM).is_ok())
}

/// A directory for this demonstration alone, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn create() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("actonce-demo-{}", random_id().simple()));
        let mut builder = DirBuilder::new();
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&path)?;
        Ok(Self(path))
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn log(&self) -> PathBuf {
        self.0.join("server.log")
    }

    fn log_end(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        // The log and the last word of a server that does not start; not what `--dev` says to people.
        let is_log = |line: &&str| line.starts_with('{') || line.starts_with("actonce: ");
        let lines: Vec<&str> = text.lines().filter(is_log).collect();
        let last = lines.iter().rev().take(3).rev();
        last.map(|line| line.trim_start_matches("actonce: ").to_owned()).collect::<Vec<_>>().join(" / ")
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        // What can't be removed is left to the system's own cleaning.
        drop(fs::remove_dir_all(&self.0));
    }
}
