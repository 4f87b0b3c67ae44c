//! Subscriptions on Postgres.

use async_trait::async_trait;
use sqlx::Row as _;
use sqlx::postgres::PgRow;
use uuid::Uuid;

use super::PostgresStore;
use super::sql::{NOW, subscriptions as sql};
use super::wall::Tenants::{All, Nobody, One};
use super::wall::{Held, Purpose};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::feed::FeedMark;
use crate::store::subscriptions::{
    Attempted, MessageRow, NewMessage, Next, Outstanding, Subscribed, SubscriptionKey, SubscriptionRow,
    SubscriptionStore,
};
use crate::store::{Corruption, Result};

fn number(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

fn count(row: &PgRow, column: &'static str) -> Result<u32> {
    let number: i32 = row.try_get(column)?;
    Ok(u32::try_from(number).unwrap_or(0))
}

fn subscription_row(row: &PgRow) -> Result<SubscriptionRow> {
    let id: Uuid = row.try_get("subscription_id")?;
    let bad = |column| Corruption { table: "subscriptions", column, key: id.to_string() };
    Ok(SubscriptionRow {
        tenant: Tenant::new(row.try_get("tenant")?).map_err(|_| bad("tenant"))?,
        id,
        revision: count(row, "revision")?,
        spec: row.try_get("spec")?,
        secrets: row.try_get("secrets")?,
        enabled: row.try_get("enabled")?,
        reason: row.try_get("reason")?,
        cursor: FeedMark {
            number: row.try_get("cursor_number")?,
            effect: row.try_get("cursor_effect")?,
            revision: count(row, "cursor_revision")?,
        },
        failures: count(row, "failures")?,
        created_at: Timestamp::from_micros(row.try_get("created_us")?),
        created_by: Name::new(row.try_get("created_by")?).map_err(|_| bad("created_by"))?,
        changed_at: Timestamp::from_micros(row.try_get("changed_us")?),
    })
}

fn message_row(row: &PgRow) -> Result<MessageRow> {
    Ok(MessageRow {
        message_id: row.try_get("message_id")?,
        kind: row.try_get("type")?,
        body: row.try_get("body")?,
        attempts: count(row, "attempts")?,
        created_at: Timestamp::from_micros(row.try_get("created_us")?),
        last_result: row.try_get("last_result")?,
        last_at: row.try_get::<Option<i64>, _>("last_us")?.map(Timestamp::from_micros),
        dead_at: row.try_get::<Option<i64>, _>("dead_us")?.map(Timestamp::from_micros),
    })
}

async fn note(connection: &mut Held, key: &SubscriptionKey, attempt: &Attempted) -> Result<()> {
    let statement = match attempt.next {
        Next::Delivered => sql::MESSAGE_DONE,
        Next::Again(_) => sql::MESSAGE_AGAIN,
        Next::Dead => sql::MESSAGE_DEAD,
    };
    let mut query = sqlx::query(statement).bind(key.tenant.as_str()).bind(key.id).bind(&attempt.message_id);
    if attempt.next != Next::Delivered {
        query = query.bind(number(attempt.attempts_seen)).bind(&attempt.result);
    }
    if let Next::Again(micros) = attempt.next {
        query = query.bind(micros);
    }
    query.execute(connection).await?;
    Ok(())
}

#[async_trait]
impl SubscriptionStore for PostgresStore {
    async fn subscription(&self, key: &SubscriptionKey) -> Result<Option<SubscriptionRow>> {
        let query = sqlx::query(sql::SUBSCRIPTION).bind(key.tenant.as_str()).bind(key.id);
        query.fetch_optional(self.scope(One(&key.tenant)).await?).await?.as_ref().map(subscription_row).transpose()
    }

    async fn subscriptions(&self, tenant: &Tenant, after: Option<Uuid>, limit: u32) -> Result<Vec<SubscriptionRow>> {
        let query = sqlx::query(sql::SUBSCRIPTIONS).bind(tenant.as_str()).bind(after.unwrap_or(Uuid::nil()));
        query
            .bind(i64::from(limit))
            .fetch_all(self.scope(One(tenant)).await?)
            .await?
            .iter()
            .map(subscription_row)
            .collect()
    }

    async fn write_subscription(&self, row: &SubscriptionRow, most: u32) -> Result<bool> {
        let mut transaction = self.begin(One(&row.tenant)).await?;
        let query = if row.revision == 1 {
            sqlx::query(sql::SUBSCRIPTIONS_LOCK).execute(&mut *transaction).await?;
            sqlx::query(sql::SUBSCRIPTION_ADD)
                .bind(row.tenant.as_str())
                .bind(row.id)
                .bind(&row.spec)
                .bind(&row.secrets)
                .bind(row.enabled)
                .bind(row.cursor.number)
                .bind(row.cursor.effect)
                .bind(number(row.cursor.revision))
                .bind(row.created_by.as_str())
                .bind(i64::from(most))
        } else {
            sqlx::query(sql::SUBSCRIPTION_CHANGE)
                .bind(row.tenant.as_str())
                .bind(row.id)
                .bind(number(row.revision))
                .bind(&row.spec)
                .bind(&row.secrets)
                .bind(row.enabled)
                .bind(row.reason.as_deref())
        };
        let done = query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(done.rows_affected() == 1)
    }

    async fn delete_subscription(&self, key: &SubscriptionKey, revision: u32) -> Result<bool> {
        let mut transaction = self.begin(One(&key.tenant)).await?;
        let query = sqlx::query(sql::SUBSCRIPTION_DELETE).bind(key.tenant.as_str()).bind(key.id).bind(number(revision));
        let is_deleted = query.execute(&mut *transaction).await?.rows_affected() == 1;
        if is_deleted {
            let query = sqlx::query(sql::MESSAGES_DELETE).bind(key.tenant.as_str()).bind(key.id);
            query.execute(&mut *transaction).await?;
        }
        transaction.commit().await?;
        Ok(is_deleted)
    }

    async fn subscribed(&self, limit: u32) -> Result<Vec<Subscribed>> {
        let found = sqlx::query(sql::SUBSCRIBED)
            .bind(i64::from(limit))
            .fetch_all(self.scope(All(Purpose::Deliveries)).await?)
            .await?;
        let subscribed =
            |row: &PgRow| Ok(Tenant::new(row.try_get(0)?).ok().zip(Some((row.try_get(1)?, row.try_get(2)?))));
        let found = found.iter().map(subscribed).collect::<Result<Vec<_>>>()?;
        let known = found.into_iter().flatten();
        Ok(known
            .map(|(tenant, (failing, next))| Subscribed { tenant, failing, next_at: Timestamp::from_micros(next) })
            .collect())
    }

    async fn claim_subscriptions(
        &self,
        holder: Uuid,
        failing: bool,
        lease_seconds: u32,
        limit: u32,
    ) -> Result<Vec<SubscriptionRow>> {
        let query = sqlx::query(sql::SUBSCRIPTIONS_CLAIM).bind(holder).bind(i64::from(lease_seconds));
        query
            .bind(i64::from(limit))
            .bind(failing)
            .fetch_all(self.scope(All(Purpose::Deliveries)).await?)
            .await?
            .iter()
            .map(subscription_row)
            .collect()
    }

    async fn hold_subscription(
        &self,
        key: &SubscriptionKey,
        holder: Uuid,
        lease_seconds: u32,
    ) -> Result<Option<SubscriptionRow>> {
        let query = sqlx::query(sql::SUBSCRIPTION_HOLD).bind(key.tenant.as_str()).bind(key.id).bind(holder);
        let query = query.bind(i64::from(lease_seconds));
        query.fetch_optional(self.scope(One(&key.tenant)).await?).await?.as_ref().map(subscription_row).transpose()
    }

    async fn release_subscription(&self, key: &SubscriptionKey, holder: Uuid, most: u32) -> Result<()> {
        let query = sqlx::query(sql::SUBSCRIPTION_RELEASE).bind(key.tenant.as_str()).bind(key.id).bind(holder);
        query.bind(i64::from(most)).execute(self.scope(One(&key.tenant)).await?).await?;
        Ok(())
    }

    async fn release_holder(&self, holder: Uuid) -> Result<()> {
        sqlx::query(sql::SUBSCRIPTIONS_RELEASE)
            .bind(holder)
            .execute(self.scope(All(Purpose::Deliveries)).await?)
            .await?;
        Ok(())
    }

    async fn make_messages(
        &self,
        key: &SubscriptionKey,
        seen: &FeedMark,
        cursor: &FeedMark,
        messages: &[NewMessage],
    ) -> Result<bool> {
        let mut transaction = self.begin(One(&key.tenant)).await?;
        let moved = sqlx::query(sql::SUBSCRIPTION_MOVE)
            .bind(key.tenant.as_str())
            .bind(key.id)
            .bind(seen.number)
            .bind(seen.effect)
            .bind(number(seen.revision))
            .bind(cursor.number)
            .bind(cursor.effect)
            .bind(number(cursor.revision))
            .execute(&mut *transaction)
            .await?;
        if moved.rows_affected() != 1 {
            transaction.rollback().await?;
            return Ok(false);
        }
        if !messages.is_empty() {
            let text = |pick: fn(&NewMessage) -> &str| messages.iter().map(pick).collect::<Vec<_>>();
            sqlx::query(sql::MESSAGES_ADD)
                .bind(key.tenant.as_str())
                .bind(key.id)
                .bind(text(|message| &message.message_id))
                .bind(text(|message| &message.kind))
                .bind(text(|message| &message.body))
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(true)
    }

    async fn due_messages(&self, key: &SubscriptionKey, limit: u32) -> Result<Vec<MessageRow>> {
        let query = sqlx::query(sql::MESSAGES_DUE).bind(key.tenant.as_str()).bind(key.id).bind(i64::from(limit));
        query.fetch_all(self.scope(One(&key.tenant)).await?).await?.iter().map(message_row).collect()
    }

    async fn note_attempts(&self, key: &SubscriptionKey, attempts: &[Attempted], pause: Option<i64>) -> Result<()> {
        let mut transaction = self.begin(One(&key.tenant)).await?;
        for attempt in attempts {
            note(&mut transaction, key, attempt).await?;
        }
        let query = sqlx::query(sql::SUBSCRIPTION_TRIED).bind(key.tenant.as_str()).bind(key.id).bind(pause);
        query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(())
    }

    async fn disable_subscription(&self, key: &SubscriptionKey, reason: &str) -> Result<()> {
        let query = sqlx::query(sql::SUBSCRIPTION_DISABLE).bind(key.tenant.as_str()).bind(key.id).bind(reason);
        query.execute(self.scope(One(&key.tenant)).await?).await?;
        Ok(())
    }

    async fn message_counts(&self, key: &SubscriptionKey) -> Result<(u64, u64)> {
        let query = sqlx::query(sql::MESSAGES_COUNT).bind(key.tenant.as_str()).bind(key.id);
        let row = query.fetch_one(self.scope(One(&key.tenant)).await?).await?;
        let count = |at| row.try_get::<i64, _>(at).map(|count| u64::try_from(count).unwrap_or(0));
        Ok((count(0)?, count(1)?))
    }

    async fn dead_messages(
        &self,
        key: &SubscriptionKey,
        after: Option<(Timestamp, &str)>,
        limit: u32,
    ) -> Result<Vec<MessageRow>> {
        let (dead_us, message_id) = after.map_or((i64::MIN, ""), |(at, id)| (at.micros(), id));
        let query = sqlx::query(sql::MESSAGES_DEAD).bind(key.tenant.as_str()).bind(key.id).bind(dead_us);
        let query = query.bind(message_id).bind(i64::from(limit));
        query.fetch_all(self.scope(One(&key.tenant)).await?).await?.iter().map(message_row).collect()
    }

    async fn resend_messages(&self, key: &SubscriptionKey, ids: Option<&[String]>, limit: u32) -> Result<u64> {
        let mut transaction = self.begin(One(&key.tenant)).await?;
        let query = sqlx::query(sql::MESSAGES_RESEND).bind(key.tenant.as_str()).bind(key.id).bind(ids);
        let done = query.bind(i64::from(limit)).execute(&mut *transaction).await?;
        let query = sqlx::query(sql::SUBSCRIPTION_WAKE).bind(key.tenant.as_str()).bind(key.id);
        query.execute(&mut *transaction).await?;
        transaction.commit().await?;
        Ok(done.rows_affected())
    }

    async fn outstanding(&self) -> Result<Outstanding> {
        let rows = sqlx::query(sql::OUTSTANDING)
            .bind(i64::from(limits::OUTSTANDING_SUBSCRIPTIONS))
            .fetch_all(self.scope(All(Purpose::Deliveries)).await?)
            .await?;
        let now: i64 = sqlx::query_scalar(NOW).fetch_one(self.scope(Nobody).await?).await?;
        let mut found = Outstanding::none(Timestamp::from_micros(now));
        for row in &rows {
            found.add(row.try_get::<Option<i64>, _>(0)?.map(Timestamp::from_micros), row.try_get(1)?);
        }
        Ok(found)
    }
}
