//! What the service needs of the world outside, as traits. The real ones stand in `outbound`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::places::Place;
use super::redact::KnownSecrets;
use crate::domain::adapter::{AdapterAnswer, NoAnswer, Question, WriteOnly};
use crate::domain::ids::Tenant;
use crate::domain::receipt::CheckedReceipt;
use crate::domain::record::Record;
use crate::domain::time::Timestamp;
use crate::domain::tool::Tool;
use crate::engine::Engine;

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
    /// Its place among the calls under way.
    pub place: Arc<Place>,
}

/// Asks adapters. An answer has kept the contract of protocol §7; whether its receipt binds is decided
/// by the domain.
#[async_trait]
pub trait Adapters: Send + Sync + fmt::Debug {
    /// Asks once. Never retries by itself, never holds a transaction.
    async fn ask(&self, call: AdapterCall) -> Result<AdapterAnswer, NoAnswer>;

    /// Whether a URL may be registered, as far as it can be judged without asking for its name.
    ///
    /// # Errors
    /// What is wrong with it, as the end of the sentence "this URL …".
    fn check_url(&self, _url: &str) -> Result<(), &'static str> {
        Ok(())
    }
}

/// A secret that webhooks are signed with: the bytes behind `whsec_`.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

impl SigningSecret {
    /// Reads `whsec_` and the base64 of 24 to 64 bytes.
    ///
    /// # Errors
    /// What it must look like.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let bytes = text.strip_prefix("whsec_").and_then(|text| STANDARD.decode(text).ok());
        let bytes = bytes.filter(|bytes| (24..=64).contains(&bytes.len()));
        bytes.map(Self).ok_or("must be `whsec_` and the base64 of 24 to 64 bytes")
    }

    /// The secret of these bytes, which were read before.
    #[must_use]
    pub const fn of(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// `whsec_` and the base64, as it is shown once and as somebody might repeat it.
    #[must_use]
    pub fn text(&self) -> String {
        format!("whsec_{}", STANDARD.encode(&self.0))
    }

    /// The bytes. Call it where they are used.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// Where adapters' secrets come from.
#[async_trait]
pub trait AdapterSecrets: Send + Sync + fmt::Debug {
    /// What webhooks to the adapter of a tool are signed with, the newest first; never empty.
    async fn signing(&self, tenant: &Tenant, tool: &Tool) -> Result<Vec<SigningSecret>, NoAnswer>;

    /// All that the adapter of a tool could know of secrets, for redaction.
    async fn known(&self, tenant: &Tenant, tool: &Tool) -> Result<KnownSecrets, NoAnswer>;

    /// The values of a secret of the configuration that a tenant may use, the newest first.
    fn named(&self, tenant: &Tenant, name: &str) -> Option<&[Box<str>]>;

    /// The newest value of a secret of the configuration, if this tenant may send it to this host.
    fn for_host(&self, tenant: &Tenant, host: &str, name: &str) -> Option<WriteOnly>;
}

/// The database's time, for what has to say the time outside (law 13).
pub trait DatabaseTime: Send + Sync + fmt::Debug {
    /// Now.
    fn now(&self) -> Timestamp;
}

impl DatabaseTime for Engine {
    fn now(&self) -> Timestamp {
        self.clock().now()
    }
}
