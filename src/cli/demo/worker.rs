//! A worker as every client should be: it acts only when told `dispatch`, sends the key of the
//! dispatch downstream, and reports what happened, not what it wishes.

use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::api::{Answer, Api, Grant, encoded};
use super::call::Operation;
use super::failure::{Failure, innermost};
use crate::domain::state::EffectClass;
use crate::support::random_id;

/// The way to the downstream.
pub(super) struct Downward {
    http: reqwest::Client,
    url: String,
    /// What the downstream calls that which it makes.
    collection: &'static str,
}

/// A worker.
pub(super) struct Worker<'a> {
    pub(super) name: &'a str,
    claim_id: String,
    api: &'a Api,
    downward: &'a Downward,
}

/// What the downstream says of a commit.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Said {
    pub(super) receipt_id: String,
    observed_at: String,
}

/// The downstream gave no answer: it may have committed or not.
#[derive(Debug)]
pub(super) struct Lost {
    is_timeout: bool,
    /// It gave an answer that says nothing about the act: an error.
    pub(super) is_status: bool,
    pub(super) why: String,
}

impl Lost {
    /// The worker waits no longer; what it sent may still travel.
    pub(super) fn given_up() -> Self {
        Self { is_timeout: true, is_status: false, why: "no answer in time".to_owned() }
    }
}

impl Downward {
    pub(super) fn new(url: &str, collection: &'static str) -> Result<Self, Failure> {
        // A new connection each time and nothing sent twice: a client that repeats a request by
        // itself would act twice under one grant.
        let http = reqwest::Client::builder()
            .no_proxy()
            .timeout(Duration::from_secs(10))
            .pool_max_idle_per_host(0)
            .retry(reqwest::retry::never())
            .build();
        let http = http.map_err(|error| Failure::no_answer("a client", &error))?;
        Ok(Self { http, url: url.to_owned(), collection })
    }

    async fn get(&self, path: &str) -> Result<Option<Said>, Failure> {
        let lost = |error: reqwest::Error| Failure::no_answer("a read of the downstream", &error);
        let response = self.http.get(format!("{}/{path}", self.url)).send().await.map_err(lost)?;
        if response.status() == reqwest::StatusCode::NOT_FOUND {
            return Ok(None);
        }
        response.error_for_status().map_err(lost)?.json().await.map(Some).map_err(lost)
    }
}

impl<'a> Worker<'a> {
    /// A process that is about to act. Its claim id is random and dies with it.
    pub(super) fn start(name: &'a str, api: &'a Api, downward: &'a Downward) -> Self {
        Self { name, claim_id: random_id().to_string(), api, downward }
    }

    /// States the intent and asks to act.
    pub(super) async fn ask(&self, operation: &Operation<'_>) -> Result<Answer, Failure> {
        self.api.ask(operation, self.name, &self.claim_id, 0).await
    }

    /// Asks again, and lets the answer be held while somebody else acts.
    pub(super) async fn attach(&self, operation: &Operation<'_>, wait_seconds: u64) -> Result<Answer, Failure> {
        self.api.ask(operation, self.name, &self.claim_id, wait_seconds).await
    }

    /// Acts: the one place where something happens downstream. It takes a grant.
    pub(super) async fn act(&self, operation: &Operation<'_>, grant: &Grant) -> Result<Said, Lost> {
        let downward = self.downward;
        let request = if operation.call.effect == EffectClass::None {
            downward.http.get(format!("{}/state/{}", downward.url, encoded(operation.call.target.as_str())))
        } else {
            let body = json!({ "reference": operation.id, "arguments": operation.call.arguments });
            let url = format!("{}/{}", downward.url, downward.collection);
            downward.http.post(url).header("idempotency-key", &grant.idempotency_key).json(&body)
        };
        let lost = |error: reqwest::Error| Lost {
            is_timeout: error.is_timeout(),
            is_status: error.is_status(),
            why: innermost(&error),
        };
        request.send().await.map_err(lost)?.error_for_status().map_err(lost)?.json().await.map_err(lost)
    }

    /// Looks for what was committed under the key of a dispatch.
    pub(super) async fn look_up(&self, grant: &Grant) -> Result<Option<Said>, Failure> {
        let key = encoded(&grant.idempotency_key);
        self.downward.get(&format!("{}?key={key}", self.downward.collection)).await
    }

    /// Reports success: the receipt, and for what changes something also a fresh read of it.
    pub(super) async fn report_success(
        &self,
        operation: &Operation<'_>,
        grant: &Grant,
        said: &Said,
    ) -> Result<Answer, Failure> {
        let mut report = json!({
            "dispatch_id": grant.dispatch_id,
            "fence": grant.fence,
            "outcome": "succeeded",
            "receipt": {
                "receipt_id": said.receipt_id,
                "schema": "generic",
                "schema_version": 1,
                "operation_id": operation.id,
                "target": operation.call.target,
                "outcome": "completed",
                "observed_at": said.observed_at,
                "source": "downstream",
            },
            "result": { "receipt_id": said.receipt_id },
        });
        if operation.call.effect != EffectClass::None
            && let Some(object) = report.as_object_mut()
        {
            object.insert("verification".to_owned(), self.verify(operation, said).await?);
        }
        self.api.report(operation, &report).await
    }

    async fn verify(&self, operation: &Operation<'_>, said: &Said) -> Result<Value, Failure> {
        let path = format!("{}/{}", self.downward.collection, encoded(&said.receipt_id));
        let read = self.downward.get(&path).await?;
        Ok(json!({
            "verified": read.is_some(),
            "observed_at": read.as_ref().unwrap_or(said).observed_at,
            "source": format!("GET /{}/{}", self.downward.collection, said.receipt_id),
            "target": operation.call.target,
        }))
    }

    /// Reports that nobody knows. Silence is not failure.
    pub(super) async fn report_unknown(
        &self,
        operation: &Operation<'_>,
        grant: &Grant,
        lost: &Lost,
    ) -> Result<Answer, Failure> {
        let report = json!({
            "dispatch_id": grant.dispatch_id,
            "fence": grant.fence,
            "outcome": "unknown",
            "failure_evidence": {
                "classification": if lost.is_timeout { "timeout" } else { "disconnect" },
                "phase": "in_flight",
                "detail": lost.why,
            },
        });
        self.api.report(operation, &report).await
    }

    /// Reports an error of the downstream as a failure, without a receipt: a hasty worker's word.
    pub(super) async fn report_failure(
        &self,
        operation: &Operation<'_>,
        grant: &Grant,
        lost: &Lost,
    ) -> Result<Answer, Failure> {
        let report = json!({
            "dispatch_id": grant.dispatch_id,
            "fence": grant.fence,
            "outcome": "failed",
            "failure_evidence": { "classification": "exception", "phase": "after_send", "detail": lost.why },
        });
        self.api.report(operation, &report).await
    }
}
