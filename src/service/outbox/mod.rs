//! Subscriptions (protocol §10): who is told of events by webhook. How they are told stands in `deliver`.

pub mod deliver;
pub mod port;
pub(super) mod secrets;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use uuid::Uuid;

use self::port::Webhooks;
use self::secrets::Kept;
use super::events::place::Place;
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::events::EventFilter;
use crate::domain::ids::Tenant;
use crate::domain::time::Timestamp;
use crate::limits;
use crate::service::ports::SigningSecret;
use crate::store::Corruption;
use crate::store::feed::FeedMark;
use crate::store::subscriptions::{MessageRow, SubscriptionKey, SubscriptionRow};
use crate::support::random_id;

/// What deliveries need of a process.
#[derive(Debug, Default)]
pub struct Outbox {
    pub(super) webhooks: OnceLock<Arc<dyn Webhooks>>,
    pub(super) bell: Arc<Notify>,
    /// For whom the bell hangs.
    pub(super) tenants: Mutex<HashSet<Tenant>>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubscriptionSpec {
    /// Where messages go.
    pub url: String,
    /// What is told.
    pub filter: EventFilter,
    /// For people.
    pub description: String,
}

/// A subscription.
#[derive(Debug)]
pub struct Subscription {
    /// As stored.
    pub row: SubscriptionRow,
    /// What was asked for.
    pub spec: SubscriptionSpec,
}

/// Where a new subscription begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// With what happens from now on.
    Now,
    /// With the first event that there is.
    Beginning,
}

impl Service {
    /// Says what sends messages; the first one said stays. Without it nothing is sent.
    pub fn deliver_with(&self, webhooks: Arc<dyn Webhooks>) {
        self.outbox.webhooks.get_or_init(|| webhooks);
    }

    fn check_subscription(&self, spec: &SubscriptionSpec) -> Result<(), ServiceError> {
        let webhooks = self.outbox.webhooks.get().ok_or(ServiceError::Internal("nothing sends messages"))?;
        webhooks.check_url(&spec.url).map_err(|reason| ServiceError::invalid("/url", reason))
    }

    fn subscription_of(row: SubscriptionRow) -> Result<Subscription, ServiceError> {
        let spec = serde_json::from_str(&row.spec).map_err(|_| Corruption {
            table: "subscriptions",
            column: "spec",
            key: row.id.to_string(),
        })?;
        Ok(Subscription { row, spec })
    }

    fn spec_text(spec: &SubscriptionSpec) -> Result<String, ServiceError> {
        serde_json::to_string(spec).map_err(|_| ServiceError::Internal("a subscription can't be serialized"))
    }

    /// Subscribes. The secret is answered this once, unless it was given.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn subscribe(
        &self,
        caller: &Principal,
        spec: &SubscriptionSpec,
        begin: Begin,
        enabled: bool,
        given: Option<SigningSecret>,
    ) -> Result<(Subscription, String), ServiceError> {
        self.check_subscription(spec)?;
        let cursor = match begin {
            Begin::Beginning => FeedMark::START,
            Begin::Now => match self.feed_end_place(&caller.tenant).await? {
                Place::Start => FeedMark::START,
                Place::At { mark, .. } => mark,
            },
        };
        let secret = given.map_or_else(secrets::make, Ok)?;
        let key = SubscriptionKey { tenant: caller.tenant.clone(), id: random_id() };
        let now = self.engine().clock().now();
        let row = SubscriptionRow {
            tenant: key.tenant.clone(),
            id: key.id,
            revision: 1,
            spec: Self::spec_text(spec)?,
            secrets: self.seal_kept(&key, &[Kept::new(&secret)])?,
            enabled,
            reason: None,
            cursor,
            failures: 0,
            created_at: now,
            created_by: caller.subject.clone(),
            changed_at: now,
        };
        if !self.engine().store().write_subscription(&row, limits::SUBSCRIPTIONS).await? {
            return Err(ServiceError::Conflict("this tenant has 50 subscriptions already"));
        }
        self.outbox.bell.notify_one();
        Ok((self.subscription(caller, key.id).await?, secret.text()))
    }

    async fn subscription_row(&self, caller: &Principal, id: Uuid) -> Result<SubscriptionRow, ServiceError> {
        let key = SubscriptionKey { tenant: caller.tenant.clone(), id };
        self.engine().store().subscription(&key).await?.ok_or(ServiceError::NotFound)
    }

    /// One subscription.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn subscription(&self, caller: &Principal, id: Uuid) -> Result<Subscription, ServiceError> {
        Self::subscription_of(self.subscription_row(caller, id).await?)
    }

    /// How many messages of a subscription wait, and how many were given up.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn subscription_counts(&self, subscription: &Subscription) -> Result<(u64, u64), ServiceError> {
        Ok(self.engine().store().message_counts(&subscription.row.key()).await?)
    }

    /// Subscriptions by id.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn subscriptions(
        &self,
        caller: &Principal,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<Subscription>, Option<String>), ServiceError> {
        let list = "subscriptions";
        let after = self.place_after(caller, list, cursor, |id| Uuid::try_parse(id).ok())?;
        let mut rows = self.engine().store().subscriptions(&caller.tenant, after, limit.saturating_add(1)).await?;
        let next = self.cut_to_page(caller, list, &mut rows, limit, |row| row.id.to_string());
        Ok((rows.into_iter().map(Self::subscription_of).collect::<Result<_, _>>()?, next))
    }

    /// Changes a subscription. What waits goes to the new URL; enabling it again goes on where it was.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn change_subscription(
        &self,
        caller: &Principal,
        id: Uuid,
        spec: &SubscriptionSpec,
        enabled: bool,
        expected_revision: Option<u32>,
    ) -> Result<Subscription, ServiceError> {
        self.check_subscription(spec)?;
        let text = Self::spec_text(spec)?;
        self.write_over(caller, id, expected_revision, |row| {
            let is_same = row.spec == text && row.enabled == enabled;
            let (spec, secrets) = (text.clone(), self.sealed_again(row));
            Ok((!is_same).then(|| SubscriptionRow { spec, secrets, enabled, reason: None, ..row.clone() }))
        })
        .await
    }

    /// Gives a subscription a new secret. The one before it signs beside it for a day.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn rotate_secret(
        &self,
        caller: &Principal,
        id: Uuid,
        given: Option<SigningSecret>,
        expected_revision: Option<u32>,
    ) -> Result<(Subscription, String), ServiceError> {
        let secret = given.map_or_else(secrets::make, Ok)?;
        let until = self.engine().clock().now().plus_seconds(limits::SECRET_OVERLAP_SECONDS);
        let changed = self
            .write_over(caller, id, expected_revision, |row| {
                let kept = self.kept_secrets(row)?;
                let current = kept.first().map(|kept| kept.clone().until(until));
                if kept.first() == Some(&Kept::new(&secret)) {
                    return Ok(None);
                }
                let kept: Vec<Kept> = [Kept::new(&secret)].into_iter().chain(current).collect();
                Ok(Some(SubscriptionRow { secrets: self.seal_kept(&row.key(), &kept)?, ..row.clone() }))
            })
            .await?;
        Ok((changed, secret.text()))
    }

    /// Decides on what is there, and again when somebody else was first.
    async fn write_over(
        &self,
        caller: &Principal,
        id: Uuid,
        expected_revision: Option<u32>,
        change: impl Fn(&SubscriptionRow) -> Result<Option<SubscriptionRow>, ServiceError>,
    ) -> Result<Subscription, ServiceError> {
        for _ in 0..limits::COMMIT_RETRIES {
            let row = self.subscription_row(caller, id).await?;
            if expected_revision.is_some_and(|expected| expected != row.revision) {
                return Err(ServiceError::StaleSubscription { found: row.revision });
            }
            let Some(mut changed) = change(&row)? else { return Self::subscription_of(row) };
            changed.revision = row.revision.saturating_add(1);
            if self.engine().store().write_subscription(&changed, limits::SUBSCRIPTIONS).await? {
                self.outbox.bell.notify_one();
                return self.subscription(caller, id).await;
            }
        }
        Err(ServiceError::Capacity("the subscription is changed by too many at once"))
    }

    /// Ends a subscription, with everything that was not delivered.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn unsubscribe(
        &self,
        caller: &Principal,
        id: Uuid,
        expected_revision: Option<u32>,
    ) -> Result<(), ServiceError> {
        for _ in 0..limits::COMMIT_RETRIES {
            let row = self.subscription_row(caller, id).await?;
            if expected_revision.is_some_and(|expected| expected != row.revision) {
                return Err(ServiceError::StaleSubscription { found: row.revision });
            }
            if self.engine().store().delete_subscription(&row.key(), row.revision).await? {
                return Ok(());
            }
        }
        Err(ServiceError::Capacity("the subscription is changed by too many at once"))
    }

    /// Messages that were given up.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn dead_letters(
        &self,
        caller: &Principal,
        id: Uuid,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<MessageRow>, Option<String>), ServiceError> {
        let row = self.subscription_row(caller, id).await?;
        let list = format!("dead letters {id}");
        let opened = self.place_after(caller, &list, cursor, |text| {
            let (micros, message) = text.split_once(':')?;
            Some((Timestamp::from_micros(micros.parse().ok()?), message.to_owned()))
        })?;
        let after = opened.as_ref().map(|(at, message)| (*at, message.as_str()));
        let store = self.engine().store();
        let mut found = store.dead_messages(&row.key(), after, limit.saturating_add(1)).await?;
        let place = |row: &MessageRow| format!("{}:{}", row.dead_at.map_or(0, Timestamp::micros), row.message_id);
        let next = self.cut_to_page(caller, &list, &mut found, limit, place);
        Ok((found, next))
    }

    /// Sends messages again that were given up: these, or the oldest ones. How many, and how many are left.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn resend(
        &self,
        caller: &Principal,
        id: Uuid,
        messages: Option<&[String]>,
    ) -> Result<(u64, u64), ServiceError> {
        let key = self.subscription_row(caller, id).await?.key();
        let store = self.engine().store();
        let resent = store.resend_messages(&key, messages, limits::PAGE_MAX).await?;
        self.outbox.bell.notify_one();
        Ok((resent, store.message_counts(&key).await?.1))
    }

    /// For how many seconds the oldest message that is due has waited, over all tenants.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn outbox_age_seconds(&self) -> Result<f64, ServiceError> {
        #[derive(Deserialize)]
        struct Head {
            at: Timestamp,
        }
        let found = self.engine().store().outstanding().await?;
        let entries = found.entries.iter().filter_map(|entry| serde_json::from_str::<Head>(entry).ok());
        let oldest = entries.map(|head| head.at).chain(found.oldest_due).min();
        Ok(oldest.map_or(0.0, |oldest| found.now.duration_since(oldest).as_secs_f64()))
    }
}
