//! A downstream system that acts for real and counts. Whatever Actonce and its clients believe,
//! this count is the truth.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What it does with a request after it has committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// Answers.
    Normal,
    /// Closes the connection without an answer.
    CommitThenDrop,
    /// Answers only after this time.
    Slow(Duration),
    /// Refuses with 503 and commits nothing.
    Refuse,
}

#[derive(Debug)]
struct Shared {
    mode: Mutex<Mode>,
    /// Commits per key.
    commits: Mutex<BTreeMap<String, u32>>,
    /// Whether a repeated key commits nothing more.
    honours_keys: bool,
}

/// The downstream. It ends when dropped.
#[derive(Debug)]
pub(crate) struct Downstream {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl Downstream {
    /// One that commits every request, whatever its key.
    pub(crate) async fn start(mode: Mode) -> Self {
        Self::with(mode, false).await
    }

    /// One that commits a key once and answers repeats from memory.
    pub(crate) async fn idempotent(mode: Mode) -> Self {
        Self::with(mode, true).await
    }

    async fn with(mode: Mode, honours_keys: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { mode: Mutex::new(mode), commits: Mutex::default(), honours_keys });
        let serving = spawn(serve(listener, Arc::clone(&shared)));
        Self { address, shared, serving }
    }

    pub(crate) fn set(&self, mode: Mode) {
        *self.shared.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    /// How often a key was committed.
    pub(crate) fn commits(&self, key: &str) -> u32 {
        self.shared.commits.lock().unwrap_or_else(PoisonError::into_inner).get(key).copied().unwrap_or(0)
    }

    /// All commits.
    pub(crate) fn total(&self) -> u32 {
        self.shared.commits.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    /// Acts, as a worker would: the name of what was made, or how the answer was lost.
    pub(crate) async fn act(&self, key: &str) -> std::io::Result<String> {
        let mut stream = TcpStream::connect(self.address).await?;
        let request =
            format!("POST /refunds HTTP/1.1\r\nhost: d\r\nidempotency-key: {key}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        match answer.split_once("\r\n\r\n") {
            Some((head, body)) if head.starts_with("HTTP/1.1 200") => Ok(body.to_owned()),
            Some((head, _)) => Err(std::io::Error::other(head.lines().next().unwrap_or_default().to_owned())),
            None => Err(std::io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

impl Drop for Downstream {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

#[expect(clippy::disallowed_methods, reason = "ends with the test's runtime")]
fn spawn(task: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    tokio::spawn(task)
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(&shared);
        spawn(async move { drop(answer(stream, &shared).await) });
    }
}

async fn answer(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let (mut key, mut length) = (None, 0_usize);
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(());
        }
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let Some((name, value)) = line.split_once(':') else { continue };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = Some(value.trim().to_owned()),
            "content-length" => length = value.trim().parse().unwrap_or(0),
            _ => {}
        }
    }
    stream.read_exact(&mut vec![0; length]).await?;
    let mode = *shared.mode.lock().unwrap_or_else(PoisonError::into_inner);
    let (Some(key), true) = (key, mode != Mode::Refuse) else {
        return respond(stream, "503 Service Unavailable", "").await;
    };
    let number = commit(shared, key);
    match mode {
        Mode::CommitThenDrop => return Ok(()),
        Mode::Slow(delay) => tokio::time::sleep(delay).await,
        Mode::Normal | Mode::Refuse => {}
    }
    respond(stream, "200 OK", &format!("re_{number}")).await
}

fn commit(shared: &Shared, key: String) -> u32 {
    let mut commits = shared.commits.lock().unwrap_or_else(PoisonError::into_inner);
    let count = commits.entry(key).or_insert(0);
    if *count == 0 || !shared.honours_keys {
        *count += 1;
    }
    *count
}

async fn respond(mut stream: BufReader<TcpStream>, status: &str, body: &str) -> std::io::Result<()> {
    let length = body.len();
    let text = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.get_mut().write_all(text.as_bytes()).await
}
