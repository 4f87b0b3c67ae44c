//! The real program as a child process.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use actonce::config::{AuthArgs, Environment, TokenArgs, token};
use serde_json::Value;

use super::{reaper, unique};

/// How long a start or a stop may take on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

/// The program under test.
pub(crate) const PROGRAM: &str = env!("CARGO_BIN_EXE_actonce");

/// How a server is started.
#[derive(Debug, Clone, Default)]
pub(crate) struct Options {
    /// `None`: SQLite in the data directory.
    pub(crate) database_url: Option<String>,
    /// More arguments of `serve`.
    pub(crate) args: Vec<String>,
    /// More variables; they outrank the defaults of the harness.
    pub(crate) env: BTreeMap<String, String>,
    /// `None`: a directory of its own. Replicas share one, as its keys are in it.
    pub(crate) data_dir: Option<PathBuf>,
    /// Without `--dev`: every key comes from the configuration.
    pub(crate) production: bool,
}

impl Options {
    pub(crate) fn env(mut self, name: &str, value: &str) -> Self {
        self.env.insert(name.to_owned(), value.to_owned());
        self
    }

    pub(crate) fn arg(mut self, arg: &str) -> Self {
        self.args.push(arg.to_owned());
        self
    }

    pub(crate) fn data_dir(mut self, dir: &Path) -> Self {
        self.data_dir = Some(dir.to_owned());
        self
    }
}

/// What the ready line says.
#[derive(Debug, Clone)]
pub(crate) struct Ready {
    pub(crate) url: String,
    pub(crate) database: String,
    pub(crate) token: String,
}

/// A server. Its process is killed when it is dropped.
#[derive(Debug)]
pub(crate) struct Server {
    options: Options,
    data_dir: PathBuf,
    stderr: PathBuf,
    child: Mutex<Option<Child>>,
    ready: Mutex<Ready>,
}

/// The program without what this process' environment would tell it.
pub(crate) fn program() -> Command {
    let mut command = Command::new(PROGRAM);
    let ours = |name: &OsString| {
        let name = name.to_string_lossy();
        name.starts_with("ACTONCE_") || name == "DATABASE_URL" || name == "RUST_LOG"
    };
    for (name, _) in std::env::vars_os().filter(|(name, _)| ours(name)) {
        command.env_remove(name);
    }
    command
}

impl Server {
    /// Starts a server and waits until it is ready.
    pub(crate) fn start(options: Options) -> Self {
        match Self::try_start(options) {
            Ok(server) => server,
            Err(failure) => panic!("the server did not start: {failure}"),
        }
    }

    /// Starts a server; on failure tells its exit status and what it wrote on standard error.
    pub(crate) fn try_start(options: Options) -> Result<Self, String> {
        let home = reaper::root().join(unique("server"));
        let data_dir = options.data_dir.clone().unwrap_or_else(|| home.join("data"));
        fs::create_dir_all(&home).unwrap();
        let stderr = home.join("stderr");
        File::create(&stderr).unwrap();
        let (child, ready) = launch(&options, &data_dir, &stderr)?;
        Ok(Self { options, data_dir, stderr, child: Mutex::new(Some(child)), ready: Mutex::new(ready) })
    }

    /// Another process on the same database with the same keys.
    pub(crate) fn replica(&self) -> Self {
        Self::start(self.options.clone().data_dir(&self.data_dir))
    }

    /// The same database without `--dev`, and so with no key but the ones for tokens and for data.
    pub(crate) fn without_dev(&self) -> Self {
        let secret = self.data_dir.join("jwt-secret");
        fs::write(&secret, "5ec2e75ec2e75ec2e75ec2e75ec2e75ec2e75ec2e7").unwrap();
        let options = self.options.clone().data_dir(&self.data_dir);
        let options = options
            .env("ACTONCE_JWT_SECRET_FILE", secret.to_str().unwrap())
            .env("ACTONCE_JWT_ALGORITHM", "HS256")
            .env("ACTONCE_DATA_KEY_FILE", self.data_dir.join("dev-data-key").to_str().unwrap());
        Self::start(Options { production: true, ..options })
    }

    /// How it was started.
    pub(crate) const fn options(&self) -> &Options {
        &self.options
    }

    /// Starts it again after [`Server::stop`] or [`Server::kill9`], on the same data.
    pub(crate) fn restart(&self) {
        let mut running = self.running();
        assert!(running.is_none(), "the server still runs");
        match launch(&self.options, &self.data_dir, &self.stderr) {
            Ok((child, ready)) => {
                *running = Some(child);
                *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = ready;
            }
            Err(failure) => panic!("the server did not start again: {failure}"),
        }
    }

    /// SIGTERM, then waits for the end.
    pub(crate) fn stop(&self) -> ExitStatus {
        self.signal("TERM");
        self.wait()
    }

    /// SIGKILL, then waits for the end.
    pub(crate) fn kill9(&self) {
        let mut running = self.running();
        if let Some(mut child) = running.take() {
            child.kill().unwrap();
            child.wait().unwrap();
            reaper::release(child.id());
        }
    }

    /// Sends a signal by name, such as `STOP` and `CONT`.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let status = Command::new("kill").args(["-s", name, &pid]).status().unwrap();
        assert!(status.success(), "kill -s {name} {pid}: {status}");
    }

    /// Waits for a process that ends by itself.
    pub(crate) fn wait(&self) -> ExitStatus {
        let mut running = self.running();
        let child = running.as_mut().expect("the server runs");
        let until = Instant::now() + PATIENCE;
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < until, "the server does not end; its log: {}", self.log());
            thread::sleep(Duration::from_millis(10));
        };
        reaper::release(child.id());
        *running = None;
        status
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.running().as_ref().expect("the server runs").id()
    }

    /// What the ready line of the latest start said.
    pub(crate) fn ready(&self) -> Ready {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Where it answers. Another one after a restart, as a free port is taken.
    pub(crate) fn url(&self) -> String {
        self.ready().url
    }

    /// What it wrote on standard error so far, restarts included.
    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.stderr).unwrap()).into_owned()
    }

    /// The directory with the keys and, on SQLite, the data.
    pub(crate) fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    /// The Postgres database, if it is not on SQLite.
    pub(crate) fn database_url(&self) -> Option<&str> {
        self.options.database_url.as_deref()
    }

    /// A token; `scopes` by comma, or `all`.
    pub(crate) fn token(&self, tenant: &str, subject: &str, scopes: &str) -> String {
        let auth = if self.options.production {
            AuthArgs {
                jwt_secret_file: self.options.env.get("ACTONCE_JWT_SECRET_FILE").cloned(),
                jwt_algorithm: Some("HS256".to_owned()),
                ..AuthArgs::default()
            }
        } else {
            AuthArgs::default()
        };
        self.token_by(tenant, subject, scopes, auth)
    }

    /// A token under other rules, such as another issuer.
    pub(crate) fn token_by(&self, tenant: &str, subject: &str, scopes: &str, auth: AuthArgs) -> String {
        let args = TokenArgs {
            // The key that `--dev` made is found there, and would be taken first.
            data_dir: Some(
                if self.options.production { "no keys of --dev" } else { self.data_dir.to_str().unwrap() }.to_owned(),
            ),
            config: None,
            tenant: tenant.to_owned(),
            subject: subject.to_owned(),
            scopes: scopes.to_owned(),
            expires_in: "3600".to_owned(),
            auth,
        };
        token::run(&args, &Environment::default()).expect("a token")
    }

    fn running(&self) -> MutexGuard<'_, Option<Child>> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill9();
        if thread::panicking() {
            eprintln!("--- log of the server at {}\n{}", self.url(), tail(&self.log(), 8_000));
        }
    }
}

fn tail(text: &str, bytes: usize) -> &str {
    let from = text.len().saturating_sub(bytes);
    let from = (from..=text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    &text[from..]
}

fn launch(options: &Options, data_dir: &Path, stderr: &Path) -> Result<(Child, Ready), String> {
    let mut command = program();
    command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(data_dir);
    if !options.production {
        command.arg("--dev");
    }
    if let Some(url) = &options.database_url {
        // Not as an argument: a URL may hold a password.
        command.env("DATABASE_URL", url).env("ACTONCE_POSTGRES_CONNECTIONS", "5");
    }
    command.env("ACTONCE_LOG", "info,actonce=debug").env("ACTONCE_DRAIN_SECONDS", "10");
    command.envs(&options.env).args(&options.args);
    let log = File::options().append(true).open(stderr).unwrap();
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
    let mut child = command.spawn().expect("the program starts");
    reaper::adopt(child.id());
    let mut lines = BufReader::new(child.stdout.take().expect("its output is a pipe")).lines();
    let (sender, receiver) = mpsc::channel();
    // Reads on after the first line, so that the pipe never fills.
    thread::spawn(move || {
        while let Some(Ok(line)) = lines.next() {
            drop(sender.send(line));
        }
    });
    let failure = match receiver.recv_timeout(PATIENCE) {
        Ok(line) => match ready(&line) {
            Some(ready) => return Ok((child, ready)),
            None => format!("not a ready line: {line}"),
        },
        Err(RecvTimeoutError::Timeout) => "no ready line in time".to_owned(),
        Err(RecvTimeoutError::Disconnected) => "it ended".to_owned(),
    };
    if !failure.contains("ended") {
        child.kill().unwrap();
    }
    let status = child.wait().unwrap();
    reaper::release(child.id());
    Err(format!("{failure}; {status}\n{}", fs::read_to_string(stderr).unwrap_or_default()))
}

fn ready(line: &str) -> Option<Ready> {
    let line: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| Some(line.get(name)?.as_str()?.to_owned());
    (line["event"] == "ready").then_some(())?;
    Some(Ready { url: text("url")?, database: text("database")?, token: text("token").unwrap_or_default() })
}
