//! Declarative adapters at work: a template is filled in, the downstream is asked once, and the rules
//! of the registration say what its answer means.
//!
//! The HTTP client is not here: see [`Fetch`]. It is the one that refuses private addresses and
//! redirects, and bounds what it reads.

mod dry_run;
mod judge;
mod render;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use reqwest::Method;
use reqwest::header::HeaderMap;

use crate::config::Secret;
use crate::domain::adapter::{AdapterAnswer, NoAnswer};
use crate::domain::declarative::expression::Budget;
use crate::domain::declarative::subject::Subject;
use crate::domain::ids::Tenant;
use crate::domain::time::Timestamp;
use crate::limits;
use crate::service::keys::marker;
use crate::service::ports::AdapterCall;

pub use dry_run::{DryRun, Rendered, dry_run};
pub use judge::{Answer, Judgement};

/// A request to a downstream.
#[derive(Clone)]
pub struct FetchRequest {
    /// A read: GET, HEAD or POST.
    pub method: Method,
    /// Filled in.
    pub url: String,
    /// With secrets: never shown.
    pub headers: Vec<(String, String)>,
    /// Empty, or JSON.
    pub body: Vec<u8>,
    /// How long it may take in all.
    pub timeout: Duration,
    /// How much of an answer is read.
    pub max_bytes: usize,
}

impl fmt::Debug for FetchRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FetchRequest").field("method", &self.method).finish_non_exhaustive()
    }
}

/// What a downstream answered.
#[derive(Debug, Clone)]
pub struct FetchResponse {
    /// The status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body, decoded.
    pub body: Vec<u8>,
    /// When the request was sent, by database time (law 13): what was read was there at this time or
    /// later. Receipts and verifications carry it.
    pub asked_at: Timestamp,
}

/// Sends requests: once, without redirects, to no address that is not public or allowed.
#[async_trait]
pub trait Fetch: Send + Sync {
    /// Sends one request.
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, NoAnswer>;
}

/// Secrets of the configuration.
pub trait Secrets: Send + Sync {
    /// The secret of this name, if this tenant may send it to this host. Whoever registers a tool
    /// chooses the host, so a secret that is not bound to a host could be carried anywhere.
    fn get(&self, tenant: &Tenant, host: &str, name: &str) -> Option<Secret<String>>;
}

/// Asks one question of a tool's declarative adapter, once.
///
/// # Errors
/// There is no answer that its rules understand.
pub async fn ask(fetch: &dyn Fetch, secrets: &dyn Secrets, call: &AdapterCall) -> Result<AdapterAnswer, NoAnswer> {
    let request = call.tool.spec.adapter.as_ref().and_then(|adapter| adapter.request.as_ref());
    let inquiry = request.and_then(|request| request.inquiry(call.question));
    let inquiry = inquiry.ok_or(NoAnswer::Contract("the adapter has no request for this question"))?;
    let subject = subject_of(call);
    let mut reveal = |host: &str, name: &str| secrets.get(&call.tenant, host, name);
    let rendered = render::render(inquiry, &subject, &mut reveal)?;
    let source = rendered.source.clone();
    let request = rendered.into_request(call.timeout);
    let budget = Arc::new(Budget::default());
    let _stop = StopWhenDropped(Arc::clone(&budget));
    let (question, inquiry) = (call.question, inquiry.clone());
    let asked = async {
        let response = fetch.fetch(request).await?;
        let answer = Answer::of(&response, source)?;
        let judging = move || judge::judge(&inquiry, question, &subject, &answer, budget);
        // A rule that panics has no answer either.
        tokio::task::spawn_blocking(judging).await.map_err(|_| NoAnswer::Contract("a rule failed"))?
    };
    match tokio::time::timeout(call.timeout, asked).await {
        Ok(judged) => judged.map(|judgement| judgement.answer),
        Err(_) => Err(NoAnswer::Timeout),
    }
}

/// Rules that nobody waits for any more end soon, also when the caller is cancelled.
struct StopWhenDropped(Arc<Budget>);

impl Drop for StopWhenDropped {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn subject_of(call: &AdapterCall) -> Subject {
    let record = &call.record;
    Subject {
        intent: Arc::clone(&record.intent),
        tool: Arc::clone(&call.tool),
        marker: marker(&record.intent.idempotency_key),
        attempt: record.life.attempt,
        dispatched_at: record.life.dispatch.as_ref().map(|dispatch| dispatch.dispatched_at),
        receipt: call.receipt.clone(),
    }
}

/// Judges on a thread for blocking work, for as long as a dry run may take.
async fn judge_within(
    seconds: u64,
    work: impl FnOnce(Arc<Budget>) -> Result<Judgement, NoAnswer> + Send + 'static,
) -> Result<Judgement, NoAnswer> {
    let budget = Arc::new(Budget::default());
    let _stop = StopWhenDropped(Arc::clone(&budget));
    let judging = tokio::task::spawn_blocking(move || work(budget));
    match tokio::time::timeout(Duration::from_secs(seconds), judging).await {
        Ok(judged) => judged.map_err(|_| NoAnswer::Contract("a rule failed"))?,
        Err(_) => Err(NoAnswer::Timeout),
    }
}

/// How much of an answer is read.
const MAX_BYTES: usize = limits::ADAPTER_ANSWER_BYTES;
