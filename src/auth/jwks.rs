//! Key sets of an issuer (JWKS, RFC 7517), from a URL or a file.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jsonwebtoken::Algorithm;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use reqwest::{Client, StatusCode, Url, redirect};
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use super::keys::Key;
use crate::limits;

/// Where a key set is.
#[derive(Clone, PartialEq, Eq)]
pub enum KeySetSource {
    /// Behind a URL.
    Url(Url),
    /// In a file, read again like a URL.
    File(PathBuf),
}

/// The query of a URL may be a secret of the issuer.
impl fmt::Debug for KeySetSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Url(url) => f.write_str(url.as_str().split(['?', '#']).next().unwrap_or_default()),
            Self::File(path) => path.fmt(f),
        }
    }
}

impl KeySetSource {
    /// Checks a URL: `https`, or `http` to this machine or where that is allowed, as whoever can
    /// change the answer on its way makes tokens.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn url(text: &str, allow_http: bool) -> Result<Self, &'static str> {
        let url = Url::parse(text).map_err(|_| "must be a URL, such as https://issuer.example/jwks.json")?;
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not contain a user name or password");
        }
        match url.scheme() {
            "https" => Ok(Self::Url(url)),
            "http" if allow_http || is_loopback(&url) => Ok(Self::Url(url)),
            "http" => Err("must be https: whoever can change the answer on its way could make tokens"),
            _ => Err("must be an https URL"),
        }
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.is_loopback())
}

/// A key set and how often it is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySetSettings {
    /// Where it is.
    pub source: KeySetSource,
    /// How often it is read.
    pub refresh_every: Duration,
    /// The shortest time between two reads for a token with an unknown key id, however many such
    /// tokens come, and between two tries while the source is down.
    pub refresh_at_most_every: Duration,
    /// The algorithm of RSA keys that don't name theirs; without it they are not taken.
    pub rsa_algorithm: Option<Algorithm>,
}

impl KeySetSettings {
    /// A source with the default times: every 5 minutes, and at most every 30 seconds.
    #[must_use]
    pub const fn new(source: KeySetSource) -> Self {
        Self {
            source,
            refresh_every: Duration::from_mins(5),
            refresh_at_most_every: Duration::from_secs(30),
            rsa_algorithm: None,
        }
    }
}

/// Why a key set could not be read.
#[derive(Debug, thiserror::Error)]
pub enum KeySetError {
    /// No HTTP client.
    #[error("no HTTP client: {}", causes(.0))]
    Client(#[source] reqwest::Error),
    /// The request failed.
    #[error("the request failed: {}", causes(.0))]
    Request(#[source] reqwest::Error),
    /// Another status than 200. Redirects are not followed.
    #[error("the answer has status {0}")]
    Status(StatusCode),
    /// The file can't be read.
    #[error("the file can't be read: {0}")]
    File(#[source] std::io::Error),
    /// Larger than [`limits::KEY_SET_BYTES`].
    #[error("larger than {} bytes", limits::KEY_SET_BYTES)]
    TooLarge,
    /// No JWKS.
    #[error("not a key set (a JSON object with `keys`)")]
    NotAKeySet,
    /// A JWKS without a key that can be used. An issuer without keys can't issue, so this is far
    /// more likely a fault than a wish.
    #[error("the key set has no key that can be used")]
    NoUsableKey,
}

/// The error and its causes: the outermost one of a client alone says little.
fn causes(error: &reqwest::Error) -> String {
    let mut text = error.to_string();
    let mut next = std::error::Error::source(error);
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// The keys of a document that can be used. One strange key doesn't spoil the others.
pub(super) fn parse(document: &[u8], rsa_algorithm: Option<Algorithm>) -> Result<Vec<Arc<Key>>, KeySetError> {
    #[derive(Deserialize)]
    struct Document {
        keys: Vec<Value>,
    }
    let document: Document = serde_json::from_slice(document).map_err(|_| KeySetError::NotAKeySet)?;
    let all = document.keys.len();
    let mut keys: Vec<Arc<Key>> = Vec::new();
    for key in document.keys.into_iter().take(limits::KEY_SET_KEYS) {
        if let Some(key) = usable(key, rsa_algorithm) {
            keys.push(Arc::new(key));
        }
    }
    if keys.len() < all {
        tracing::debug!(taken = keys.len(), all, "keys of the key set were left out");
    }
    if keys.is_empty() { Err(KeySetError::NoUsableKey) } else { Ok(keys) }
}

fn usable(key: Value, rsa_algorithm: Option<Algorithm>) -> Option<Key> {
    let jwk: Jwk = serde_json::from_value(key).ok()?;
    let named = &jwk.common;
    let verifies = named.key_operations.as_ref().is_none_or(|all| all.contains(&KeyOperations::Verify));
    if !verifies || !matches!(named.public_key_use, None | Some(PublicKeyUse::Signature)) {
        return None;
    }
    let implied = match &jwk.algorithm {
        AlgorithmParameters::EllipticCurve(point) => match point.curve {
            EllipticCurve::P256 => Some(Algorithm::ES256),
            EllipticCurve::P384 => Some(Algorithm::ES384),
            _ => None,
        },
        AlgorithmParameters::OctetKeyPair(point) if point.curve == EllipticCurve::Ed25519 => Some(Algorithm::EdDSA),
        AlgorithmParameters::RSA(_) => rsa_algorithm,
        // A secret that is published is none, and whoever reads it could sign.
        _ => return None,
    };
    let algorithm = match named.key_algorithm {
        Some(stated) => Algorithm::try_from(stated).ok(),
        None => implied,
    };
    Key::from_jwk(named.key_id.as_deref(), algorithm?, &jwk).ok()
}

/// When reads were tried.
#[derive(Debug, Clone, Copy, Default)]
struct Attempts {
    last: Option<Instant>,
    running: bool,
    failed: bool,
}

/// One key set: how to read it, and when. Only the refresh loop reads, so that reads never run
/// side by side and no caller that hangs up can cut one off.
pub(super) struct KeySource {
    settings: KeySetSettings,
    client: Option<Client>,
    attempts: Mutex<Attempts>,
    wanted: Notify,
    done: watch::Sender<()>,
}

impl KeySource {
    pub(super) fn new(settings: KeySetSettings) -> Result<Self, KeySetError> {
        let client = match &settings.source {
            KeySetSource::Url(url) => Some(client(url).map_err(KeySetError::Client)?),
            KeySetSource::File(_) => None,
        };
        Ok(Self { settings, client, attempts: Mutex::default(), wanted: Notify::new(), done: watch::Sender::new(()) })
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the last read failed, so that nobody knows which keys the issuer has now.
    pub(super) fn has_failed(&self) -> bool {
        self.attempts().failed
    }

    /// Whether the source is behind a URL: one that is down may come back by itself.
    pub(super) const fn is_remote(&self) -> bool {
        matches!(self.settings.source, KeySetSource::Url(_))
    }

    fn may_start(&self, now: Instant) -> bool {
        let attempts = *self.attempts();
        attempts.last.is_none_or(|last| now.duration_since(last) >= self.settings.refresh_at_most_every)
    }

    /// Asks for a read because of an unknown key id, and waits for it, if one is due or running.
    pub(super) async fn want(&self) {
        let mut done = self.done.subscribe();
        let running = self.attempts().running;
        if !running {
            if !self.may_start(Instant::now()) {
                return;
            }
            self.wanted.notify_one();
        }
        // However it ends, the caller looks at the keys that are there then.
        let wait = Duration::from_secs(limits::KEY_SET_WAIT_SECONDS);
        drop(tokio::time::timeout(wait, done.changed()).await);
    }

    /// Waits until a read is due: by time, or because somebody wants one and may have it.
    pub(super) async fn due(&self) {
        loop {
            let attempts = *self.attempts();
            let pause = if attempts.failed {
                self.settings.refresh_every.min(self.settings.refresh_at_most_every)
            } else {
                self.settings.refresh_every
            };
            let Some(last) = attempts.last else { return };
            tokio::select! {
                () = tokio::time::sleep_until(last + pause) => return,
                () = self.wanted.notified() => if self.may_start(Instant::now()) { return },
            }
        }
    }

    /// Reads the key set and gives what was read to `install` before any waiter goes on.
    pub(super) async fn read(&self, install: impl FnOnce(Vec<Arc<Key>>)) -> Result<(), KeySetError> {
        {
            let mut attempts = self.attempts();
            attempts.last = Some(Instant::now());
            attempts.running = true;
        }
        let fetched = match self.fetch().await {
            Ok(document) => parse(&document, self.settings.rsa_algorithm),
            Err(error) => Err(error),
        };
        let result = fetched.map(install);
        {
            let mut attempts = self.attempts();
            attempts.running = false;
            attempts.failed = result.is_err();
        }
        self.done.send_replace(());
        result
    }

    async fn fetch(&self) -> Result<Vec<u8>, KeySetError> {
        match (&self.settings.source, &self.client) {
            (KeySetSource::Url(url), Some(client)) => fetch_url(client, url.clone()).await,
            (KeySetSource::File(path), _) => {
                let most = u64::try_from(limits::KEY_SET_BYTES).unwrap_or(u64::MAX);
                let file = tokio::fs::File::open(path).await.map_err(KeySetError::File)?;
                let mut document = Vec::new();
                file.take(most + 1).read_to_end(&mut document).await.map_err(KeySetError::File)?;
                if document.len() > limits::KEY_SET_BYTES { Err(KeySetError::TooLarge) } else { Ok(document) }
            }
            (KeySetSource::Url(_), None) => Err(KeySetError::NotAKeySet),
        }
    }
}

/// How many keys of a key set can be used, read once and for nothing else.
///
/// # Errors
/// See [`KeySetError`].
pub async fn probe(settings: &KeySetSettings) -> Result<usize, KeySetError> {
    let source = KeySource::new(settings.clone())?;
    let document = source.fetch().await?;
    parse(&document, settings.rsa_algorithm).map(|keys| keys.len())
}

fn client(url: &Url) -> Result<Client, reqwest::Error> {
    let builder = Client::builder()
        .user_agent("actonce")
        .redirect(redirect::Policy::none())
        .timeout(Duration::from_secs(limits::KEY_SET_FETCH_SECONDS))
        .connect_timeout(Duration::from_secs(limits::KEY_SET_FETCH_SECONDS))
        .pool_max_idle_per_host(0);
    if is_loopback(url) { builder.no_proxy().build() } else { builder.build() }
}

/// An error without the URL, whose query may be a secret.
fn unplaced(error: reqwest::Error) -> KeySetError {
    KeySetError::Request(error.without_url())
}

async fn fetch_url(client: &Client, url: Url) -> Result<Vec<u8>, KeySetError> {
    let request = client.get(url).header("accept", "application/jwk-set+json, application/json");
    let mut response = request.send().await.map_err(unplaced)?;
    if response.status() != StatusCode::OK {
        return Err(KeySetError::Status(response.status()));
    }
    let mut document = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unplaced)? {
        if document.len() + chunk.len() > limits::KEY_SET_BYTES {
            return Err(KeySetError::TooLarge);
        }
        document.extend_from_slice(&chunk);
    }
    Ok(document)
}
