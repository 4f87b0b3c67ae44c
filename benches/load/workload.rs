//! What is sent: real calls of agents, each under an operation id of its own.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::client::request;

/// One line of `agent-calls.jsonl`, as far as it is sent.
#[derive(Debug, Deserialize)]
pub(crate) struct Call {
    run_id: String,
    tool: String,
    target: String,
    arguments: Box<RawValue>,
    effect: String,
}

/// What tells the operation ids of one run of this program from those of another.
pub(crate) fn salt() -> String {
    actonce::support::random_id().simple().to_string()[..8].to_owned()
}

/// The calls to draw from.
#[derive(Debug)]
pub(crate) struct Workload {
    calls: Vec<Call>,
    tokens: Vec<String>,
    next: AtomicU64,
    /// Distinguishes the operation ids of one run of this program from those of another.
    salt: String,
}

impl Workload {
    /// Reads the external calls of a file.
    pub(crate) fn read(path: &Path, tokens: Vec<String>, salt: String) -> std::io::Result<Self> {
        let text = std::fs::read_to_string(path)?;
        let calls: Vec<Call> = text
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .filter(|c: &Call| c.effect == "external")
            .collect();
        Ok(Self { calls, tokens, next: AtomicU64::new(0), salt })
    }

    /// The next number.
    pub(crate) fn draw(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn call(&self, number: u64) -> &Call {
        &self.calls[usize::try_from(number).unwrap_or(0) % self.calls.len()]
    }

    fn token(&self, number: u64) -> &str {
        &self.tokens[usize::try_from(number).unwrap_or(0) % self.tokens.len()]
    }

    fn operation(&self, number: u64) -> String {
        format!("{}-{}-{number}", self.call(number).run_id, self.salt)
    }

    fn target(&self, number: u64) -> String {
        format!("{}-{number}", self.call(number).target)
    }

    /// All tools of the calls.
    pub(crate) fn tools(&self) -> Vec<&str> {
        let mut tools: Vec<&str> = self.calls.iter().map(|call| call.tool.as_str()).collect();
        tools.sort_unstable();
        tools.dedup();
        tools
    }

    /// A request that registers a tool as it would be in production: external, all defaults.
    pub(crate) fn register(&self, tool: &str) -> Vec<u8> {
        request("PUT", &format!("/api/tools/{tool}"), &self.tokens[0], "{\"effect\":\"external\"}")
    }

    /// The body of an intent with a claim.
    pub(crate) fn intent_body(&self, number: u64) -> String {
        let call = self.call(number);
        format!(
            "{{\"operation_id\":\"{}\",\"tool\":\"{}\",\"target\":\"{}\",\"run_id\":\"{}-{}\",\"arguments\":{},\
             \"claim\":{{\"worker\":\"worker-1\",\"claim_id\":\"claim-{number}\",\"lease_seconds\":600}}}}",
            self.operation(number),
            call.tool,
            self.target(number),
            call.run_id,
            // A run has about a dozen calls.
            number / 12,
            call.arguments.get(),
        )
    }

    /// An intent with a claim.
    pub(crate) fn intent(&self, number: u64) -> Vec<u8> {
        request("POST", "/api/intents", self.token(number), &self.intent_body(number))
    }

    /// The body of the outcome of a dispatch.
    pub(crate) fn outcome_body(&self, number: u64, dispatch_id: &str) -> String {
        let (operation, target) = (self.operation(number), self.target(number));
        format!(
            "{{\"dispatch_id\":\"{dispatch_id}\",\"fence\":1,\"outcome\":\"succeeded\",\"receipt\":{{\
             \"receipt_id\":\"re-{number}\",\"schema\":\"generic\",\"schema_version\":1,\"operation_id\":\"{operation}\",\
             \"target\":\"{target}\",\"outcome\":\"completed\",\"message\":\"done\",\"structured\":{{\"reference\":\"{number}\"}},\
             \"observed_at\":\"2026-01-01T12:00:00Z\",\"source\":\"client\"}},\"verification\":{{\"verified\":true,\
             \"observed_at\":\"2026-01-01T12:00:01Z\",\"source\":\"GET /state\",\"target\":\"{target}\"}},\
             \"result\":{{\"status\":\"ok\",\"reference\":\"{number}\"}}}}"
        )
    }

    /// The outcome of a dispatch.
    pub(crate) fn outcome(&self, number: u64, dispatch_id: &str) -> Vec<u8> {
        let path = format!("/api/effects/{}/outcome", self.operation(number));
        request("POST", &path, self.token(number), &self.outcome_body(number, dispatch_id))
    }

    /// A read of an effect.
    pub(crate) fn read_effect(&self, number: u64) -> Vec<u8> {
        request("GET", &format!("/api/effects/{}", self.operation(number)), self.token(number), "")
    }

    /// A read of an effect that waits until it has moved.
    pub(crate) fn wait_for(&self, number: u64, seconds: u32) -> Vec<u8> {
        format!(
            "GET /api/effects/{} HTTP/1.1\r\nHost: load\r\nAuthorization: Bearer {}\r\nPrefer: wait={seconds}\r\n\r\n",
            self.operation(number),
            self.token(number)
        )
        .into_bytes()
    }

    /// A stream of the events from now on.
    pub(crate) fn stream(&self) -> Vec<u8> {
        format!(
            "GET /api/events?after=latest HTTP/1.1\r\nHost: load\r\nAuthorization: Bearer {}\r\n\
             Accept: text/event-stream\r\n\r\n",
            self.token(0)
        )
        .into_bytes()
    }

    /// A list of effects that are dispatched.
    pub(crate) fn list(&self, number: u64) -> Vec<u8> {
        request("GET", "/api/effects?state=dispatched&limit=20", self.token(number), "")
    }

    /// An echo of an intent's bytes.
    pub(crate) fn echo(&self, number: u64) -> Vec<u8> {
        request("POST", "/echo", self.token(number), &self.intent_body(number))
    }
}
