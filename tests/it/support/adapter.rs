//! An application's adapter over real HTTP that answers what it is told to, and breaks what it is told
//! to break. It keeps what it was asked.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use standardwebhooks::{Webhook, WebhookError};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// A secret of the right form, different for each number.
pub(crate) fn secret(number: u8) -> String {
    use base64::Engine as _;
    format!("whsec_{}", base64::engine::general_purpose::STANDARD.encode([number; 32]))
}

/// What the adapter does with a question.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// 200 with this JSON.
    Json(Value),
    /// 200 and `application/json` with this text.
    Text(String),
    /// These bytes, whatever they are; then it closes.
    Raw(Vec<u8>),
    /// Closes without an answer.
    Close,
    /// Keeps the connection open and says nothing.
    Hang,
    /// Starts well, and then sends a byte each time.
    Drip(Duration),
    /// Answers this after a while.
    Late(Duration, Value),
}

impl Reply {
    /// A status without a body.
    pub(crate) fn status(line: &str) -> Self {
        Self::Raw(format!("HTTP/1.1 {line}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n").into_bytes())
    }

    /// A whole answer with another header than `content-type: application/json`.
    pub(crate) fn with_header(header: &str, body: &str) -> Self {
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\n{header}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        Self::Raw(format!("{head}{body}").into_bytes())
    }
}

/// A question as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
}

impl Received {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).expect("the question is JSON")
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
    }

    /// Verifies the signature as the specification's own library does.
    pub(crate) fn verify(&self, secret: &str) -> Result<(), WebhookError> {
        Webhook::new(secret).unwrap().verify(&self.body, &self.headers)
    }
}

type Answer = Box<dyn Fn(&Received) -> Reply + Send + Sync>;

struct Shared {
    answer: Mutex<Answer>,
    received: Mutex<Vec<Received>>,
}

/// The adapter. It ends when dropped.
pub(crate) struct FakeAdapter {
    pub(crate) address: SocketAddr,
    shared: Arc<Shared>,
    serving: JoinHandle<()>,
}

impl fmt::Debug for FakeAdapter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FakeAdapter").field("address", &self.address).finish_non_exhaustive()
    }
}

impl FakeAdapter {
    /// One that always answers the same.
    pub(crate) async fn always(reply: Reply) -> Self {
        Self::start(move |_| reply.clone()).await
    }

    /// One that thinks.
    pub(crate) async fn start(answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        Self::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), answer).await
    }

    /// One at an address of this machine.
    pub(crate) async fn at(address: SocketAddr, answer: impl Fn(&Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let shared = Arc::new(Shared { answer: Mutex::new(Box::new(answer)), received: Mutex::default() });
        let serving = spawn(serve(listener, Arc::clone(&shared)));
        Self { address, shared, serving }
    }

    /// Answers this from now on.
    pub(crate) fn set(&self, reply: Reply) {
        *lock(&self.shared.answer) = Box::new(move |_| reply.clone());
    }

    /// Its URL.
    pub(crate) fn url(&self) -> String {
        format!("http://{}/adapter", self.address)
    }

    /// What it was asked so far.
    pub(crate) fn received(&self) -> Vec<Received> {
        lock(&self.shared.received).clone()
    }

    /// The last question.
    pub(crate) fn last(&self) -> Received {
        self.received().pop().expect("it was asked")
    }

    /// How often it was asked.
    pub(crate) fn calls(&self) -> usize {
        lock(&self.shared.received).len()
    }

    /// The registration of a tool's adapter that is asked everything.
    pub(crate) fn spec(&self) -> Value {
        json!({
            "url": self.url(), "secret": secret(1), "validate": true, "lookup": true, "verify": true,
            "authoritative": true, "timeout_seconds": 5,
        })
    }
}

impl Drop for FakeAdapter {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Variables that open a server to adapters on this machine.
pub(crate) const OPEN: [(&str, &str); 2] =
    [("ACTONCE_ADAPTER_ALLOW_HTTP", "true"), ("ACTONCE_ADAPTER_ALLOW_NETWORKS", "127.0.0.0/8,::1/128")];

/// Answers that keep the contract.
pub(crate) mod answers {
    use serde_json::{Value, json};

    /// It was done, or the downstream refused it, as `receipt` says.
    pub(crate) fn settled(receipt: &Value) -> Value {
        json!({
            "outcome": receipt["outcome"], "observation": "sent", "consistency": "authoritative",
            "retryable": false, "receipt": receipt,
        })
    }

    /// It is certainly not there.
    pub(crate) fn absent() -> Value {
        json!({
            "outcome": "not_found", "observation": "not_sent", "consistency": "authoritative", "retryable": true,
        })
    }

    /// It was not found in a reading that may lag behind.
    pub(crate) fn not_seen() -> Value {
        json!({
            "outcome": "not_found", "observation": "outcome_unknown", "consistency": "eventual", "retryable": false,
        })
    }

    /// Another word, with an observation that fits it.
    pub(crate) fn other(outcome: &str) -> Value {
        let observation = match outcome {
            "partial" => "partial",
            "not_sent" => "not_sent",
            "multiple" => "sent",
            _ => "outcome_unknown",
        };
        json!({
            "outcome": outcome, "observation": observation, "consistency": "authoritative", "retryable": false,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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

async fn read(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Received>> {
    let (mut first, mut headers) = (String::new(), HeaderMap::new());
    if stream.read_line(&mut first).await? == 0 {
        return Ok(None);
    }
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        headers.append(
            HeaderName::try_from(name).map_err(std::io::Error::other)?,
            HeaderValue::try_from(value.trim()).map_err(std::io::Error::other)?,
        );
    }
    let length = headers.get("content-length").and_then(|value| value.to_str().ok()?.parse().ok()).unwrap_or(0);
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
    Ok(Some(Received { method, path, headers, body }))
}

async fn answer(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let Some(received) = read(&mut stream).await? else { return Ok(()) };
    let reply = lock(&shared.answer)(&received);
    lock(&shared.received).push(received);
    let good = |text: &str| match Reply::with_header("content-type: application/json", text) {
        Reply::Raw(bytes) => bytes,
        _ => Vec::new(),
    };
    let bytes = match reply {
        Reply::Json(value) => good(&value.to_string()),
        Reply::Text(text) => good(&text),
        Reply::Raw(bytes) => bytes,
        Reply::Close => return Ok(()),
        Reply::Hang => {
            // Until the caller hangs up.
            stream.read_to_end(&mut Vec::new()).await?;
            return Ok(());
        }
        Reply::Drip(pause) => {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100000\r\n\r\n";
            stream.get_mut().write_all(head.as_bytes()).await?;
            loop {
                stream.get_mut().write_all(b" ").await?;
                tokio::time::sleep(pause).await;
            }
        }
        Reply::Late(pause, value) => {
            tokio::time::sleep(pause).await;
            good(&value.to_string())
        }
    };
    stream.get_mut().write_all(&bytes).await?;
    stream.get_mut().shutdown().await
}
