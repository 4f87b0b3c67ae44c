//! Subscriptions, as sent and as answered.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::Faults;
use crate::domain::events::EventFilter;
use crate::domain::journal::EventKind;
use crate::domain::time::Timestamp;
use crate::http::problem::Problem;
use crate::limits;
use crate::service::outbox::{Begin, Subscription, SubscriptionSpec};
use crate::service::ports::SigningSecret;
use crate::store::subscriptions::MessageRow;

/// Where a new subscription begins.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum BeginWord {
    /// With what happens from now on.
    #[default]
    Now,
    /// With the first event that there is.
    Beginning,
}

/// A new subscription.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscribeBody {
    /// Where messages are sent, by `POST`.
    #[schema(max_length = 2048)]
    pub url: String,
    /// Only events of these names; absent or empty: all.
    #[serde(default)]
    pub events: Vec<EventKind>,
    /// Only of these tools; absent or empty: all.
    #[serde(default)]
    pub tools: Vec<String>,
    /// For people (at most 2 KiB).
    #[serde(default)]
    pub description: String,
    /// Whether it is told anything.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Where it begins.
    #[serde(default)]
    pub start: BeginWord,
    /// `whsec_` and the base64 of 24 to 64 bytes; absent: one is made.
    #[serde(default)]
    #[schema(write_only)]
    pub secret: Option<String>,
}

const fn yes() -> bool {
    true
}

/// A changed subscription: what is absent gets its default.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SubscriptionBody {
    /// Where messages are sent, by `POST`.
    #[schema(max_length = 2048)]
    pub url: String,
    /// Only events of these names; absent or empty: all.
    #[serde(default)]
    pub events: Vec<EventKind>,
    /// Only of these tools; absent or empty: all.
    #[serde(default)]
    pub tools: Vec<String>,
    /// For people (at most 2 KiB).
    #[serde(default)]
    pub description: String,
    /// Whether it is told anything. `true` also takes back what the service disabled.
    #[serde(default = "yes")]
    pub enabled: bool,
}

/// A new secret.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct SecretBody {
    /// `whsec_` and the base64 of 24 to 64 bytes; absent: one is made.
    #[serde(default)]
    #[schema(write_only)]
    pub secret: Option<String>,
}

/// Messages to be sent again.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResendBody {
    /// Which of the dead letters (at most 200); absent: the oldest 200.
    #[serde(default)]
    #[schema(max_items = 200)]
    pub message_ids: Option<Vec<String>>,
}

impl SubscribeBody {
    /// Checks the wish.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self) -> Result<(SubscriptionSpec, Begin, bool, Option<SigningSecret>), Problem> {
        let mut faults = Faults::default();
        let secret = check_secret(self.secret.as_deref(), &mut faults);
        let begin = match self.start {
            BeginWord::Now => Begin::Now,
            BeginWord::Beginning => Begin::Beginning,
        };
        let enabled = self.enabled;
        let body = SubscriptionBody {
            url: self.url,
            events: self.events,
            tools: self.tools,
            description: self.description,
            enabled,
        };
        let spec = body.spec(&mut faults);
        if faults.is_empty() { Ok((spec, begin, enabled, secret)) } else { Err(faults.problem()) }
    }
}

impl SubscriptionBody {
    fn spec(self, faults: &mut Faults) -> SubscriptionSpec {
        for (pointer, count) in [("/events", self.events.len()), ("/tools", self.tools.len())] {
            if count > limits::SUBSCRIPTION_NAMES {
                faults.add(pointer, "must have at most 64 names");
            }
        }
        if self.description.len() > limits::REASON_BYTES || self.description.contains('\0') {
            faults.add("/description", "must be a text of at most 2048 bytes without NUL characters");
        }
        let tools = self.tools.iter().take(limits::SUBSCRIPTION_NAMES).enumerate();
        let tools = tools.filter_map(|(place, tool)| faults.name(&format!("/tools/{place}"), tool)).collect();
        let filter = EventFilter { events: self.events, tools, operation_id: None };
        SubscriptionSpec { url: self.url, filter, description: self.description }
    }

    /// Checks the wish.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self) -> Result<(SubscriptionSpec, bool), Problem> {
        let mut faults = Faults::default();
        let enabled = self.enabled;
        let spec = self.spec(&mut faults);
        if faults.is_empty() { Ok((spec, enabled)) } else { Err(faults.problem()) }
    }
}

fn check_secret(text: Option<&str>, faults: &mut Faults) -> Option<SigningSecret> {
    let secret = SigningSecret::parse(text?);
    secret.map_err(|reason| faults.add("/secret", reason)).ok()
}

impl SecretBody {
    /// Checks the secret.
    ///
    /// # Errors
    /// Its fault.
    pub fn check(self) -> Result<Option<SigningSecret>, Problem> {
        let mut faults = Faults::default();
        let secret = check_secret(self.secret.as_deref(), &mut faults);
        if faults.is_empty() { Ok(secret) } else { Err(faults.problem()) }
    }
}

impl ResendBody {
    /// Checks the list.
    ///
    /// # Errors
    /// It is too long.
    pub fn check(self) -> Result<Option<Vec<String>>, Problem> {
        let mut faults = Faults::default();
        let most = usize::try_from(limits::PAGE_MAX).unwrap_or(usize::MAX);
        if let Some(ids) = &self.message_ids {
            if ids.len() > most {
                faults.add("/message_ids", "must have at most 200 ids");
            } else if ids.iter().any(|id| id.len() > limits::NAME_BYTES || id.contains('\0')) {
                faults.add("/message_ids", "must be ids of messages");
            }
        }
        if faults.is_empty() { Ok(self.message_ids) } else { Err(faults.problem()) }
    }
}

/// A subscription.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Subscription)]
pub struct SubscriptionView {
    /// Its id.
    subscription_id: Uuid,
    /// Grows with every change; also the `ETag`.
    revision: u32,
    /// Where messages are sent.
    url: String,
    /// Only events of these names; empty: all.
    events: Vec<EventKind>,
    /// Only of these tools; empty: all.
    tools: Vec<String>,
    /// For people.
    description: String,
    /// Whether it is told anything.
    enabled: bool,
    /// Why the service disabled it: `gone` (the endpoint answered 410), `too_many_dead_letters`,
    /// `cursor_gone` (where it stood is not in the journal any more).
    disabled_reason: Option<String>,
    /// Failed attempts since the last message that was taken.
    failures_in_a_row: u32,
    /// When it was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// Who made it.
    created_by: String,
    /// When it was changed last.
    #[schema(value_type = String, format = DateTime)]
    changed_at: Timestamp,
    /// Messages that wait. In a single read.
    #[serde(skip_serializing_if = "Option::is_none")]
    waiting: Option<u64>,
    /// Messages that were given up. In a single read.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letters: Option<u64>,
    /// The secret, where it was made or replaced just now. It is shown this once.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

impl From<&Subscription> for SubscriptionView {
    fn from(subscription: &Subscription) -> Self {
        let (row, spec) = (&subscription.row, &subscription.spec);
        Self {
            subscription_id: row.id,
            revision: row.revision,
            url: spec.url.clone(),
            events: spec.filter.events.clone(),
            tools: spec.filter.tools.iter().map(|tool| tool.as_str().to_owned()).collect(),
            description: spec.description.clone(),
            enabled: row.enabled,
            disabled_reason: row.reason.clone(),
            failures_in_a_row: row.failures,
            created_at: row.created_at,
            created_by: row.created_by.as_str().to_owned(),
            changed_at: row.changed_at,
            waiting: None,
            dead_letters: None,
            secret: None,
        }
    }
}

impl SubscriptionView {
    /// With its counts.
    #[must_use]
    pub fn counted(self, (waiting, dead): (u64, u64)) -> Self {
        Self { waiting: Some(waiting), dead_letters: Some(dead), ..self }
    }

    /// With its secret.
    #[must_use]
    pub fn shown(self, secret: String) -> Self {
        Self { secret: Some(secret), ..self }
    }
}

/// A page of subscriptions.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = SubscriptionPage)]
pub struct SubscriptionPage {
    /// The subscriptions, by id.
    items: Vec<SubscriptionView>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
}

/// A message that was given up.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = DeadLetter)]
pub struct DeadLetterView {
    /// Its id: the `webhook-id`, and the id of the event.
    message_id: String,
    /// The event's name.
    r#type: String,
    /// Attempts.
    attempts: u32,
    /// What the last attempt came to: a status, or a word such as `timeout`.
    last_result: Option<String>,
    /// When that was.
    #[schema(value_type = Option<String>, format = DateTime)]
    last_at: Option<Timestamp>,
    /// When the message was made.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it was given up.
    #[schema(value_type = Option<String>, format = DateTime)]
    dead_at: Option<Timestamp>,
}

impl From<&MessageRow> for DeadLetterView {
    fn from(row: &MessageRow) -> Self {
        Self {
            message_id: row.message_id.clone(),
            r#type: row.kind.clone(),
            attempts: row.attempts,
            last_result: row.last_result.clone(),
            last_at: row.last_at,
            created_at: row.created_at,
            dead_at: row.dead_at,
        }
    }
}

/// A page of messages that were given up.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = DeadLetterPage)]
pub struct DeadLetterPage {
    /// The messages, the first given up first.
    items: Vec<DeadLetterView>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
}

/// What is sent again.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Resent)]
pub struct ResentView {
    /// Messages that are due again.
    pub resent: u64,
    /// Messages that are still given up.
    pub dead_letters: u64,
}
