//! The few requests to Actonce that a client needs, over HTTP like any other client.

use std::time::Duration;

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::{Method, RequestBuilder};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::call::Operation;
use super::failure::Failure;
use crate::domain::state::{Directive, State};

/// Longest time for an answer, beyond the time that a request waits on purpose.
const ANSWER_SECONDS: u64 = 20;

/// A client of Actonce.
pub(super) struct Api {
    http: reqwest::Client,
    url: String,
    token: String,
}

/// What a client reads of an effect.
#[derive(Debug, Deserialize)]
pub(super) struct Answer {
    pub(super) directive: Directive,
    pub(super) state: State,
    #[serde(default)]
    dispatch: Option<Newest>,
    #[serde(default)]
    pub(super) result: Option<Box<RawValue>>,
    #[serde(default)]
    pub(super) contradicted: bool,
}

/// The newest dispatch; only its owner is shown the key.
#[derive(Debug, Deserialize)]
struct Newest {
    dispatch_id: uuid::Uuid,
    fence: u32,
    #[serde(default)]
    idempotency_key: Option<String>,
}

/// The right to act once. There is no way to one but the directive `dispatch`.
#[derive(Debug)]
pub(super) struct Grant {
    pub(super) dispatch_id: uuid::Uuid,
    pub(super) fence: u32,
    pub(super) idempotency_key: String,
}

impl Answer {
    /// Whether the client may act, and with what.
    pub(super) fn grant(&self) -> Option<Grant> {
        let dispatch = self.dispatch.as_ref().filter(|_| self.directive == Directive::Dispatch)?;
        Some(Grant {
            dispatch_id: dispatch.dispatch_id,
            fence: dispatch.fence,
            idempotency_key: dispatch.idempotency_key.clone()?,
        })
    }
}

#[derive(Deserialize)]
struct Problem {
    title: String,
    #[serde(default)]
    detail: String,
}

#[derive(Deserialize)]
struct Journal {
    items: Vec<Entry>,
}

/// One revision of an effect.
#[derive(Debug, Deserialize)]
pub(super) struct Entry {
    pub(super) revision: u32,
    pub(super) events: Vec<JournalEvent>,
}

/// What happened in it.
#[derive(Debug, Deserialize)]
pub(super) struct JournalEvent {
    #[serde(rename = "type")]
    pub(super) kind: String,
}

impl Api {
    pub(super) fn new(url: &str, token: String) -> Result<Self, Failure> {
        let http = reqwest::Client::builder().no_proxy().build();
        let http = http.map_err(|error| Failure::no_answer("a client", &error))?;
        Ok(Self { http, url: url.to_owned(), token })
    }

    /// Registers a tool.
    pub(super) async fn put_tool(&self, name: &str, spec: &Value) -> Result<(), Failure> {
        let path = format!("/api/tools/{}", encoded(name));
        let request = self.request(Method::PUT, &path, 0).json(spec);
        send("a registration", request).await.map(drop)
    }

    /// States an intent and asks to act, by a claim id that lives only in the memory of who asks.
    /// With `wait_seconds` the answer is held while somebody else acts.
    pub(super) async fn ask(
        &self,
        operation: &Operation<'_>,
        worker: &str,
        claim_id: &str,
        wait_seconds: u64,
    ) -> Result<Answer, Failure> {
        let call = operation.call;
        let body = json!({
            "operation_id": operation.id,
            "tool": call.tool,
            "target": call.target,
            "arguments": call.arguments,
            "run_id": call.run_id,
            "call_id": call.id,
            "claim": { "worker": worker, "claim_id": claim_id, "lease_seconds": operation.lease_seconds },
        });
        let mut request = self.request(Method::POST, "/api/intents", wait_seconds).json(&body);
        if wait_seconds > 0 {
            request = request.header("prefer", format!("wait={wait_seconds}"));
        }
        understand("an intent", &send("an intent", request).await?)
    }

    /// Reports what came of a dispatch.
    pub(super) async fn report(&self, operation: &Operation<'_>, report: &Value) -> Result<Answer, Failure> {
        let path = format!("/api/effects/{}/outcome", encoded(operation.id.as_str()));
        understand("a report", &send("a report", self.request(Method::POST, &path, 0).json(report)).await?)
    }

    /// Reads an effect.
    pub(super) async fn read(&self, operation: &Operation<'_>) -> Result<Answer, Failure> {
        let path = format!("/api/effects/{}", encoded(operation.id.as_str()));
        understand("a read", &send("a read", self.request(Method::GET, &path, 0)).await?)
    }

    /// Every change of an effect.
    pub(super) async fn journal(&self, operation: &Operation<'_>) -> Result<Vec<Entry>, Failure> {
        let path = format!("/api/effects/{}/journal", encoded(operation.id.as_str()));
        let body = send("a journal", self.request(Method::GET, &path, 0)).await?;
        understand::<Journal>("a journal", &body).map(|journal| journal.items)
    }

    fn request(&self, method: Method, path: &str, wait_seconds: u64) -> RequestBuilder {
        let timeout = Duration::from_secs(wait_seconds.saturating_add(ANSWER_SECONDS));
        self.http.request(method, format!("{}{path}", self.url)).bearer_auth(&self.token).timeout(timeout)
    }
}

/// A part of a path.
pub(super) fn encoded(text: &str) -> String {
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

async fn send(what: &'static str, request: RequestBuilder) -> Result<Vec<u8>, Failure> {
    let response = request.send().await.map_err(|error| Failure::no_answer(what, &error))?;
    let status = response.status();
    let body = response.bytes().await.map_err(|error| Failure::no_answer(what, &error))?;
    if status.is_success() {
        return Ok(body.to_vec());
    }
    let problem = match serde_json::from_slice::<Problem>(&body) {
        Ok(problem) => format!("{status}, {}. {}", problem.title, problem.detail),
        Err(_) => status.to_string(),
    };
    Err(Failure::Refused { what, problem })
}

fn understand<T: serde::de::DeserializeOwned>(what: &'static str, body: &[u8]) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| Failure::no_answer(what, &error))
}
