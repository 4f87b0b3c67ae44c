//! What the service needs of the world outside, as traits. The real ones stand in `outbound`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::domain::adapter::{AdapterAnswer, NoAnswer, Question};
use crate::domain::ids::Tenant;
use crate::domain::receipt::CheckedReceipt;
use crate::domain::record::Record;
use crate::domain::tool::Tool;

/// One question to an adapter.
#[derive(Debug, Clone)]
pub struct AdapterCall {
    /// What is asked.
    pub question: Question,
    /// Stays the same when the same question is asked again: the `webhook-id`.
    pub call_id: String,
    /// Whose effect it is.
    pub tenant: Tenant,
    /// The tool revision whose adapter is asked.
    pub tool: Arc<Tool>,
    /// The effect.
    pub record: Arc<Record>,
    /// The receipt to be validated or verified.
    pub receipt: Option<CheckedReceipt>,
    /// How long it may take, at most the tool's own timeout.
    pub timeout: Duration,
}

/// Asks adapters. An answer has kept the contract of protocol §7; whether its receipt binds is decided
/// by the domain.
#[async_trait]
pub trait Adapters: Send + Sync + fmt::Debug {
    /// Asks once. Never retries by itself, never holds a transaction.
    async fn ask(&self, call: AdapterCall) -> Result<AdapterAnswer, NoAnswer>;
}

/// Nobody to ask.
#[derive(Debug)]
pub struct Nobody;

#[async_trait]
impl Adapters for Nobody {
    async fn ask(&self, _: AdapterCall) -> Result<AdapterAnswer, NoAnswer> {
        Err(NoAnswer::Unreachable)
    }
}
