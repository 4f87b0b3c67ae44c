//! What deliveries need of the world outside.

use std::time::Duration;

use async_trait::async_trait;

use crate::domain::adapter::NoAnswer;
use crate::service::ports::SigningSecret;

/// A message to be sent once.
#[derive(Debug)]
pub struct Message<'a> {
    /// Where to.
    pub url: &'a str,
    /// The `webhook-id`.
    pub id: &'a str,
    /// The bytes.
    pub body: &'a str,
    /// What it is signed with, the newest first.
    pub secrets: &'a [SigningSecret],
    /// How long it may take.
    pub timeout: Duration,
}

/// What the endpoint said.
#[derive(Debug, Clone, Copy)]
pub struct Received {
    /// The status.
    pub status: u16,
    /// When it wants to be asked again.
    pub retry_after_seconds: Option<u32>,
}

/// Sends messages to endpoints that somebody else chose.
#[async_trait]
pub trait Webhooks: Send + Sync + std::fmt::Debug {
    /// Sends once; never follows a redirect.
    async fn send(&self, message: Message<'_>) -> Result<Received, NoAnswer>;

    /// Whether a URL may be subscribed, as far as it can be judged without asking for its name.
    ///
    /// # Errors
    /// What is wrong with it, as the end of the sentence "this URL …".
    fn check_url(&self, url: &str) -> Result<(), &'static str>;
}
