//! Messages to subscribers: signed as the Standard Webhooks specification says, over the same client and
//! under the same rules as adapters' webhooks.

use std::sync::Arc;

use async_trait::async_trait;
use http::{Method, header};

use super::adapter::sign;
use super::address;
use super::client::{Outbound, OutboundRequest};
use crate::domain::adapter::NoAnswer;
use crate::limits;
use crate::service::outbox::port::{Message, Received, Webhooks};
use crate::service::ports::DatabaseTime;

/// Sends messages over HTTP.
#[derive(Debug)]
pub struct OutboundWebhooks {
    outbound: Outbound,
    time: Arc<dyn DatabaseTime>,
}

impl OutboundWebhooks {
    /// Messages behind a client.
    #[must_use]
    pub fn new(outbound: Outbound, time: Arc<dyn DatabaseTime>) -> Self {
        Self { outbound, time }
    }
}

#[async_trait]
impl Webhooks for OutboundWebhooks {
    async fn send(&self, message: Message<'_>) -> Result<Received, NoAnswer> {
        if message.secrets.is_empty() {
            return Err(NoAnswer::NoSecret);
        }
        let timestamp = self.time.now().micros().div_euclid(1_000_000);
        let body = message.body.as_bytes();
        let signatures: Vec<String> =
            message.secrets.iter().filter_map(|secret| sign(secret, message.id, timestamp, body)).collect();
        let headers = [
            ("content-type", "application/json".to_owned()),
            ("webhook-id", message.id.to_owned()),
            ("webhook-timestamp", timestamp.to_string()),
            ("webhook-signature", signatures.join(" ")),
        ];
        let response = self
            .outbound
            .send(OutboundRequest {
                method: Method::POST,
                url: message.url.to_owned(),
                headers: headers.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
                body: body.to_vec(),
                timeout: message.timeout,
                max_bytes: limits::DELIVERY_ANSWER_BYTES,
            })
            .await?;
        let seconds = response.headers.get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        Ok(Received { status: response.status, retry_after_seconds: seconds })
    }

    fn check_url(&self, url: &str) -> Result<(), &'static str> {
        address::check_url(self.outbound.policy(), url).map(drop)
    }
}
