//! What goes out: adapters' webhooks, over a client that speaks to public addresses only.

mod adapter;
pub mod address;
pub mod client;
pub mod contract;
pub mod declarative;
pub mod guard;
pub mod otlp;
pub mod reach;
pub mod webhooks;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;

use self::client::{Outbound, OutboundRequest};
use self::declarative::{FetchRequest, FetchResponse};
use self::guard::{AdapterKey, Guard};
use crate::config::Secret;
use crate::domain::adapter::{AdapterAnswer, AdapterSpec, NoAnswer, Verdict};
use crate::domain::ids::Tenant;
use crate::service::ports::{AdapterCall, AdapterSecrets, Adapters, DatabaseTime};
use crate::telemetry::phase::Phase;
use crate::telemetry::probe;

/// Asks adapters over HTTP.
#[derive(Debug)]
pub struct OutboundAdapters {
    outbound: Outbound,
    secrets: Arc<dyn AdapterSecrets>,
    time: Arc<dyn DatabaseTime>,
    guard: Guard,
}

impl OutboundAdapters {
    /// Adapters behind a client.
    #[must_use]
    pub fn new(outbound: Outbound, secrets: Arc<dyn AdapterSecrets>, time: Arc<dyn DatabaseTime>) -> Self {
        Self { outbound, secrets, time, guard: Guard::default() }
    }

    async fn guarded(&self, call: &AdapterCall, spec: &AdapterSpec) -> Result<AdapterAnswer, NoAnswer> {
        let key =
            AdapterKey { tenant: call.tenant.clone(), tool: call.tool.name.clone(), fingerprint: spec.fingerprint() };
        let admission = self.guard.admit(&key, Instant::now())?;
        let started = Instant::now();
        let result = match probe::watched(Phase::Adapter, Box::pin(self.call(call, spec))).await {
            Ok(answer) => self.redacted(call, answer).await,
            Err(no) => Err(no),
        };
        metrics::histogram!("actonce_adapter_call_seconds", "question" => call.question.as_str())
            .record(started.elapsed().as_secs_f64());
        admission.settle(&result, Instant::now());
        result
    }

    /// The answer without the secrets that its author could know (law 11), and the contract once more.
    async fn redacted(&self, call: &AdapterCall, answer: AdapterAnswer) -> Result<AdapterAnswer, NoAnswer> {
        if answer.receipt.is_none() && answer.verification.is_none() {
            return Ok(answer);
        }
        let known = self.secrets.known(&call.tenant, &call.tool).await?;
        contract::redact(answer, &known, &call.record.intent, &call.tool)
    }

    /// Calls a webhook, or a declarative adapter.
    async fn call(&self, call: &AdapterCall, spec: &AdapterSpec) -> Result<AdapterAnswer, NoAnswer> {
        let timeout = call.timeout.min(Duration::from_secs(spec.timeout_seconds.into()));
        match (&spec.url, &spec.request) {
            (Some(url), _) => {
                let secrets = self.secrets.signing(&call.tenant, &call.tool).await?;
                let request = adapter::webhook(call, url, &secrets, self.time.now(), timeout)?;
                let response = self.outbound.send(request).await?;
                contract::read(&response, &call.record.intent, &call.tool)
            }
            (None, Some(_)) => {
                let call = AdapterCall { timeout, ..call.clone() };
                declarative::ask(self, self, &call).await
            }
            (None, None) => Ok(unsupported()),
        }
    }
}

#[async_trait]
impl declarative::Fetch for OutboundAdapters {
    async fn fetch(&self, request: FetchRequest) -> Result<FetchResponse, NoAnswer> {
        let asked_at = self.time.now();
        let FetchRequest { method, url, headers, body, timeout, max_bytes } = request;
        let sent = self.outbound.send(OutboundRequest { method, url, headers, body, timeout, max_bytes }).await?;
        Ok(FetchResponse { status: sent.status, headers: sent.headers, body: sent.body, asked_at })
    }
}

impl declarative::Secrets for OutboundAdapters {
    fn get(&self, tenant: &Tenant, host: &str, name: &str) -> Option<Secret<String>> {
        self.secrets.for_host(tenant, host, name).map(|secret| Secret::new(secret.expose().to_owned()))
    }
}

/// It can't say.
const fn unsupported() -> AdapterAnswer {
    AdapterAnswer {
        verdict: Verdict::Unsupported,
        authoritative: false,
        is_final: false,
        receipt: None,
        verification: None,
    }
}

#[async_trait]
impl Adapters for OutboundAdapters {
    async fn ask(&self, call: AdapterCall) -> Result<AdapterAnswer, NoAnswer> {
        let result = match &call.tool.spec.adapter {
            Some(spec) => self.guarded(&call, spec).await,
            None => Ok(unsupported()),
        };
        let word = result.as_ref().map_or_else(|no| no.as_str(), |_| "answered");
        metrics::counter!("actonce_adapter_calls_total", "question" => call.question.as_str(), "result" => word)
            .increment(1);
        if let Err(no) = &result {
            let clause = no.clause().unwrap_or_default();
            tracing::debug!(question = call.question.as_str(), result = word, clause, "an adapter gave no answer");
        }
        result
    }

    fn check_url(&self, url: &str) -> Result<(), &'static str> {
        address::check_url(self.outbound.policy(), url).map(drop)
    }
}
