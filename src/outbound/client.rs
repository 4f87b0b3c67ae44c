//! The one way out: an HTTP client for URLs that somebody else chose.
//!
//! The address that was checked is the address that is connected to: names are resolved by our own
//! resolver, once per call, and nothing else in the client asks for a name. No connection is kept, so
//! none outlives a decision. Redirects, proxies of the environment, retries and compression are off;
//! the deadline covers everything from the name to the last byte of the body.

use std::error::Error;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{Client, redirect};
use tokio::sync::Semaphore;

use super::address::{check_url, is_allowed};
use crate::config::AdapterPolicy;
use crate::domain::adapter::NoAnswer;
use crate::limits;
use crate::telemetry::spans::{CallSpan, Finished};
use crate::telemetry::trace::{TRACEPARENT, Trace};
use crate::telemetry::{Telemetry, known_method};

/// A request to somewhere outside.
pub struct OutboundRequest {
    /// The method.
    pub method: Method,
    /// Where to. Checked anew at every call.
    pub url: String,
    /// Headers; those that frame the message or name its host are refused.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
    /// How long all of it may take.
    pub timeout: Duration,
    /// The largest body of an answer.
    pub max_bytes: usize,
}

/// Headers and body may hold secrets.
impl fmt::Debug for OutboundRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

/// An answer from outside, as it came.
pub struct OutboundResponse {
    /// Its status; never a redirect.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// Its body, complete.
    pub body: Vec<u8>,
}

/// Its content is nobody's business.
impl fmt::Debug for OutboundResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboundResponse").field("status", &self.status).finish_non_exhaustive()
    }
}

/// Asks for the addresses of a name.
#[async_trait]
pub trait Lookup: Send + Sync + fmt::Debug {
    /// All addresses of a host.
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The operating system's resolver.
#[derive(Debug)]
pub struct SystemLookup {
    /// A lookup can't be stopped, so those that nobody waits for any more are counted too.
    running: Arc<Semaphore>,
}

impl Default for SystemLookup {
    fn default() -> Self {
        Self { running: Arc::new(Semaphore::new(limits::NAME_LOOKUPS)) }
    }
}

#[async_trait]
impl Lookup for SystemLookup {
    async fn lookup(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        let permit = Arc::clone(&self.running).acquire_owned().await.map_err(io::Error::other)?;
        let host = host.to_owned();
        let found = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            (host.as_str(), 0).to_socket_addrs().map(|all| all.map(|address| address.ip()).collect())
        });
        found.await.map_err(io::Error::other)?
    }
}

/// The name resolves to an address that may not be called.
#[derive(Debug)]
struct ForbiddenAddress;

impl fmt::Display for ForbiddenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name resolves to an address that may not be called")
    }
}

impl Error for ForbiddenAddress {}

/// Resolves, and lets through what may be called.
#[derive(Debug)]
struct CheckedResolver {
    policy: Arc<AdapterPolicy>,
    lookup: Arc<dyn Lookup>,
}

impl Resolve for CheckedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let (policy, lookup) = (Arc::clone(&self.policy), Arc::clone(&self.lookup));
        Box::pin(async move {
            let found = lookup.lookup(name.as_str()).await?;
            // One bad address among good ones is no accident: the choice would be the resolver's.
            if found.iter().any(|address| !is_allowed(&policy, *address)) {
                return Err(ForbiddenAddress.into());
            }
            let addresses: Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// The client can't be made.
#[derive(Debug, thiserror::Error)]
#[error("no client for outgoing requests: {0}")]
pub struct ClientError(#[source] reqwest::Error);

/// The client.
#[derive(Debug, Clone)]
pub struct Outbound {
    client: Client,
    policy: Arc<AdapterPolicy>,
    telemetry: Arc<Telemetry>,
}

impl Outbound {
    /// A client that resolves names with the operating system.
    ///
    /// # Errors
    /// TLS can't be set up.
    pub fn new(policy: AdapterPolicy) -> Result<Self, ClientError> {
        Self::with_lookup(policy, Arc::new(SystemLookup::default()))
    }

    /// A client that resolves names in a way of its own.
    ///
    /// # Errors
    /// TLS can't be set up.
    pub fn with_lookup(policy: AdapterPolicy, lookup: Arc<dyn Lookup>) -> Result<Self, ClientError> {
        let policy = Arc::new(policy);
        let client = Client::builder()
            .user_agent("actonce")
            .https_only(!policy.allow_http)
            .http1_only()
            .no_proxy()
            .no_gzip()
            .no_brotli()
            .no_zstd()
            .no_deflate()
            .referer(false)
            .redirect(redirect::Policy::none())
            .retry(reqwest::retry::never())
            .pool_max_idle_per_host(0)
            .dns_resolver(CheckedResolver { policy: Arc::clone(&policy), lookup })
            .build()
            .map_err(ClientError)?;
        Ok(Self { client, policy, telemetry: Telemetry::off() })
    }

    /// The same, which tells of its requests.
    #[must_use]
    pub fn observed_by(mut self, telemetry: Arc<Telemetry>) -> Self {
        self.telemetry = telemetry;
        self
    }

    /// What may be called.
    #[must_use]
    pub fn policy(&self) -> &AdapterPolicy {
        &self.policy
    }

    /// Sends a request once and reads the whole answer. A redirect is `Forbidden`: it is never followed.
    ///
    /// # Errors
    /// `Timeout`, `Unreachable`, `Forbidden`, or `Contract("size")` for a body that is too large.
    pub async fn send(&self, request: OutboundRequest) -> Result<OutboundResponse, NoAnswer> {
        let timeout = request.timeout;
        let trace = self.telemetry.outgoing();
        let (method, started_us) = (known_method(&request.method), self.telemetry.now_us());
        let answered = match tokio::time::timeout(timeout, Box::pin(self.exchange(request, &trace))).await {
            Ok(answered) => answered,
            Err(_) => Err(NoAnswer::Timeout),
        };
        self.telemetry.record(&trace, || {
            let ended_us = self.telemetry.now_us();
            let (status, error) = match &answered {
                Ok(response) => (Some(response.status), None),
                Err(no) => (None, Some(no.as_str())),
            };
            Finished::Call(CallSpan { trace, method, started_us, ended_us, status, error })
        });
        answered
    }

    async fn exchange(&self, request: OutboundRequest, trace: &Trace) -> Result<OutboundResponse, NoAnswer> {
        let url = check_url(&self.policy, &request.url).map_err(|_| NoAnswer::Forbidden)?;
        let mut headers = headers(&request.headers).ok_or(NoAnswer::Forbidden)?;
        // A template that has a trace context of its own keeps it.
        if let (false, Some(value)) = (headers.contains_key(TRACEPARENT), trace.header()) {
            headers.insert(TRACEPARENT, value);
        }
        let mut sending = self.client.request(request.method, url).headers(headers);
        if !request.body.is_empty() {
            sending = sending.body(request.body);
        }
        let mut response = sending.send().await.map_err(|error| no_answer(&error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(NoAnswer::Forbidden);
        }
        let mut body = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| no_answer(&error))? {
            if body.len().saturating_add(chunk.len()) > request.max_bytes {
                return Err(NoAnswer::Contract("size"));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(OutboundResponse { status: status.as_u16(), headers: std::mem::take(response.headers_mut()), body })
    }
}

/// The headers of a request; `None` where one can't be sent, or would say where the message ends or
/// whom it is for.
fn headers(list: &[(String, String)]) -> Option<HeaderMap> {
    const OURS: [HeaderName; 9] = [
        header::HOST,
        header::CONTENT_LENGTH,
        header::TRANSFER_ENCODING,
        header::CONNECTION,
        header::UPGRADE,
        header::TE,
        header::TRAILER,
        header::EXPECT,
        header::ACCEPT_ENCODING,
    ];
    let mut headers = HeaderMap::new();
    for (name, value) in list {
        let name = HeaderName::try_from(name.as_str()).ok()?;
        let mut value = HeaderValue::try_from(value.as_str()).ok()?;
        if OURS.contains(&name) || name.as_str().starts_with("proxy-") {
            return None;
        }
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Some(headers)
}

fn no_answer(error: &reqwest::Error) -> NoAnswer {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<ForbiddenAddress>() {
            return NoAnswer::Forbidden;
        }
        cause = error.source();
    }
    if error.is_timeout() { NoAnswer::Timeout } else { NoAnswer::Unreachable }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_frame_the_message_are_refused() {
        let one = |name: &str, value: &str| headers(&[(name.to_owned(), value.to_owned())]);
        assert!(one("Authorization", "Bearer x").is_some());
        for (name, value) in [
            ("Host", "internal"),
            ("content-length", "0"),
            ("Transfer-Encoding", "chunked"),
            ("connection", "x"),
            ("Proxy-Authorization", "x"),
            ("a b", "x"),
            ("a", "x\r\nb: c"),
            ("a", "x\0"),
            ("", "x"),
        ] {
            assert!(one(name, value).is_none(), "{name}");
        }
    }

    #[test]
    fn requests_and_answers_show_no_content() {
        let request = OutboundRequest {
            method: Method::POST,
            url: "https://example.org/hunter2".to_owned(),
            headers: vec![("authorization".to_owned(), "hunter2".to_owned())],
            body: b"hunter2".to_vec(),
            timeout: Duration::from_secs(1),
            max_bytes: 1,
        };
        assert!(!format!("{request:?}").contains("hunter2"));
        let response = OutboundResponse { status: 200, headers: HeaderMap::new(), body: b"hunter2".to_vec() };
        assert!(!format!("{response:?}").contains("104"));
    }
}
