//! Subscriptions on SQLite.

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;
use sqlx::types::Json;
use sqlx::{Connection as _, Row as _};
use uuid::Uuid;

use super::SqliteStore;
use super::record::{column, revision_of};
use super::sql::{BEGIN, TICK, subscriptions as sql};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::feed::FeedMark;
use crate::store::subscriptions::{
    Attempted, MessageRow, NewMessage, Next, Outstanding, Subscribed, SubscriptionKey, SubscriptionRow,
    SubscriptionStore,
};
use crate::store::{Corruption, Result};

fn subscription_row(row: &SqliteRow) -> Result<SubscriptionRow> {
    const TABLE: &str = "subscriptions";
    let id: Uuid = column(row, TABLE, "subscription_id", &"?")?;
    let bad = |column| Corruption { table: TABLE, column, key: id.to_string() };
    let micros = |name| column(row, TABLE, name, &id).map(Timestamp::from_micros);
    Ok(SubscriptionRow {
        tenant: Tenant::new(column(row, TABLE, "tenant", &id)?).map_err(|_| bad("tenant"))?,
        id,
        revision: revision_of(row, TABLE, &id)?,
        spec: column(row, TABLE, "spec", &id)?,
        secrets: column(row, TABLE, "secrets", &id)?,
        enabled: column(row, TABLE, "enabled", &id)?,
        reason: column(row, TABLE, "reason", &id)?,
        cursor: FeedMark {
            number: column(row, TABLE, "cursor_number", &id)?,
            effect: column(row, TABLE, "cursor_effect", &id)?,
            revision: column(row, TABLE, "cursor_revision", &id)?,
        },
        failures: column(row, TABLE, "failures", &id)?,
        created_at: micros("created_us")?,
        created_by: Name::new(column(row, TABLE, "created_by", &id)?).map_err(|_| bad("created_by"))?,
        changed_at: micros("changed_us")?,
    })
}

fn message_row(row: &SqliteRow) -> Result<MessageRow> {
    const TABLE: &str = "deliveries";
    let message_id: String = column(row, TABLE, "message_id", &"?")?;
    let optional =
        |name| column::<Option<i64>>(row, TABLE, name, &message_id).map(|micros| micros.map(Timestamp::from_micros));
    Ok(MessageRow {
        kind: column(row, TABLE, "type", &message_id)?,
        body: column(row, TABLE, "body", &message_id)?,
        attempts: column(row, TABLE, "attempts", &message_id)?,
        created_at: Timestamp::from_micros(column(row, TABLE, "created_us", &message_id)?),
        last_result: column(row, TABLE, "last_result", &message_id)?,
        last_at: optional("last_us")?,
        dead_at: optional("dead_us")?,
        message_id,
    })
}

#[async_trait]
impl SubscriptionStore for SqliteStore {
    async fn subscription(&self, key: &SubscriptionKey) -> Result<Option<SubscriptionRow>> {
        let query = sqlx::query(sql::SUBSCRIPTION).bind(key.tenant.as_str()).bind(key.id);
        query.fetch_optional(&self.readers).await?.as_ref().map(subscription_row).transpose()
    }

    async fn subscriptions(&self, tenant: &Tenant, after: Option<Uuid>, limit: u32) -> Result<Vec<SubscriptionRow>> {
        let query = sqlx::query(sql::SUBSCRIPTIONS).bind(tenant.as_str()).bind(after.unwrap_or(Uuid::nil()));
        query.bind(limit).fetch_all(&self.readers).await?.iter().map(subscription_row).collect()
    }

    async fn write_subscription(&self, row: &SubscriptionRow, most: u32) -> Result<bool> {
        let now = self.clock.now().micros();
        let query = if row.revision == 1 {
            sqlx::query(sql::SUBSCRIPTION_ADD)
                .bind(row.tenant.as_str())
                .bind(row.id)
                .bind(&row.spec)
                .bind(&row.secrets)
                .bind(row.enabled)
                .bind(row.cursor.number)
                .bind(row.cursor.effect)
                .bind(row.cursor.revision)
                .bind(row.created_by.as_str())
                .bind(most)
                .bind(now)
        } else {
            sqlx::query(sql::SUBSCRIPTION_CHANGE)
                .bind(row.tenant.as_str())
                .bind(row.id)
                .bind(row.revision)
                .bind(&row.spec)
                .bind(&row.secrets)
                .bind(row.enabled)
                .bind(row.reason.as_deref())
                .bind(now)
        };
        Ok(self.write([query]).await? == 1)
    }

    async fn delete_subscription(&self, key: &SubscriptionKey, revision: u32) -> Result<bool> {
        let of = |statement| sqlx::query(statement).bind(key.tenant.as_str()).bind(key.id).bind(revision);
        Ok(self.write([of(sql::MESSAGES_DELETE), of(sql::SUBSCRIPTION_DELETE)]).await? == 1)
    }

    async fn subscribed(&self, limit: u32) -> Result<Vec<Subscribed>> {
        const TABLE: &str = "subscriptions";
        let found = sqlx::query(sql::SUBSCRIBED).bind(limit).fetch_all(&self.readers).await?;
        let mut subscribed = Vec::with_capacity(found.len());
        for row in &found {
            if let Ok(tenant) = Tenant::new(column(row, TABLE, "tenant", &"?")?) {
                subscribed.push(Subscribed {
                    failing: column(row, TABLE, "is_failing", &tenant)?,
                    next_at: Timestamp::from_micros(column(row, TABLE, "next_us", &tenant)?),
                    tenant,
                });
            }
        }
        Ok(subscribed)
    }

    async fn claim_subscriptions(
        &self,
        holder: Uuid,
        failing: bool,
        lease_seconds: u32,
        limit: u32,
    ) -> Result<Vec<SubscriptionRow>> {
        let now = self.clock.now();
        let mut lent = self.writer.lend().await?;
        let query = sqlx::query(sql::SUBSCRIPTIONS_CLAIM).bind(holder).bind(now.micros());
        let query = query.bind(now.plus_seconds(lease_seconds).micros()).bind(limit).bind(failing);
        let query = query.bind(limits::FEED_PASSED_ROWS);
        let rows = query.fetch_all(&mut lent.connection).await?;
        lent.give_back();
        rows.iter().map(subscription_row).collect()
    }

    async fn hold_subscription(
        &self,
        key: &SubscriptionKey,
        holder: Uuid,
        lease_seconds: u32,
    ) -> Result<Option<SubscriptionRow>> {
        let mut lent = self.writer.lend().await?;
        let query = sqlx::query(sql::SUBSCRIPTION_HOLD).bind(key.tenant.as_str()).bind(key.id).bind(holder);
        let query = query.bind(self.clock.now().plus_seconds(lease_seconds).micros());
        let row = query.fetch_optional(&mut lent.connection).await?;
        lent.give_back();
        row.as_ref().map(subscription_row).transpose()
    }

    async fn release_subscription(&self, key: &SubscriptionKey, holder: Uuid, most: u32) -> Result<()> {
        let query = sqlx::query(sql::SUBSCRIPTION_RELEASE).bind(key.tenant.as_str()).bind(key.id).bind(holder);
        self.write([query.bind(most)]).await.map(drop)
    }

    async fn release_holder(&self, holder: Uuid) -> Result<()> {
        self.write([sqlx::query(sql::SUBSCRIPTIONS_RELEASE).bind(holder)]).await.map(drop)
    }

    async fn make_messages(
        &self,
        key: &SubscriptionKey,
        seen: &FeedMark,
        cursor: &FeedMark,
        messages: &[NewMessage],
    ) -> Result<bool> {
        let now = self.clock.now();
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(BEGIN).await?;
        let query = sqlx::query(sql::SUBSCRIPTION_MOVE).bind(key.tenant.as_str()).bind(key.id).bind(seen.number);
        let query = query.bind(cursor.number).bind(cursor.effect).bind(cursor.revision);
        let is_moved = query.execute(&mut *tx).await?.rows_affected() == 1;
        if is_moved {
            // Each is due a microsecond after the one before it: that keeps their order.
            let count = i64::try_from(messages.len()).unwrap_or(0);
            for (place, message) in (0_i64..).zip(messages) {
                sqlx::query(sql::MESSAGE_ADD)
                    .bind(key.tenant.as_str())
                    .bind(key.id)
                    .bind(&message.message_id)
                    .bind(&message.kind)
                    .bind(&message.body)
                    .bind(now.micros())
                    .bind(now.plus_micros(place.saturating_sub(count)).micros())
                    .execute(&mut *tx)
                    .await?;
            }
            sqlx::query(TICK).bind(now.micros()).execute(&mut *tx).await?;
            tx.commit().await?;
        } else {
            tx.rollback().await?;
        }
        lent.give_back();
        Ok(is_moved)
    }

    async fn due_messages(&self, key: &SubscriptionKey, limit: u32) -> Result<Vec<MessageRow>> {
        let query = sqlx::query(sql::MESSAGES_DUE).bind(key.tenant.as_str()).bind(key.id);
        let query = query.bind(self.clock.now().micros()).bind(limit);
        query.fetch_all(&self.readers).await?.iter().map(message_row).collect()
    }

    async fn note_attempts(&self, key: &SubscriptionKey, attempts: &[Attempted], pause: Option<i64>) -> Result<()> {
        let now = self.clock.now();
        let tenant = key.tenant.as_str();
        let mut lent = self.writer.lend().await?;
        let mut tx = lent.connection.begin_with(BEGIN).await?;
        for attempt in attempts {
            let on = |statement| sqlx::query(statement).bind(tenant).bind(key.id).bind(&attempt.message_id);
            let failed = |statement| on(statement).bind(attempt.attempts_seen).bind(&attempt.result).bind(now.micros());
            let query = match attempt.next {
                Next::Delivered => on(sql::MESSAGE_DONE),
                Next::Again(micros) => failed(sql::MESSAGE_AGAIN).bind(now.plus_micros(micros).micros()),
                Next::Dead => failed(sql::MESSAGE_DEAD),
            };
            query.execute(&mut *tx).await?;
        }
        let until = pause.map(|micros| now.plus_micros(micros).micros());
        sqlx::query(sql::SUBSCRIPTION_TRIED).bind(tenant).bind(key.id).bind(until).execute(&mut *tx).await?;
        sqlx::query(TICK).bind(now.micros()).execute(&mut *tx).await?;
        tx.commit().await?;
        lent.give_back();
        Ok(())
    }

    async fn disable_subscription(&self, key: &SubscriptionKey, reason: &str) -> Result<()> {
        let query = sqlx::query(sql::SUBSCRIPTION_DISABLE).bind(key.tenant.as_str()).bind(key.id).bind(reason);
        self.write([query.bind(self.clock.now().micros())]).await.map(drop)
    }

    async fn message_counts(&self, key: &SubscriptionKey) -> Result<(u64, u64)> {
        let query = sqlx::query(sql::MESSAGES_COUNT).bind(key.tenant.as_str()).bind(key.id);
        let row = query.fetch_one(&self.readers).await?;
        let count = |at: usize| row.try_get::<i64, _>(at).map(|count| u64::try_from(count).unwrap_or(0));
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
        query.bind(message_id).bind(limit).fetch_all(&self.readers).await?.iter().map(message_row).collect()
    }

    async fn resend_messages(&self, key: &SubscriptionKey, ids: Option<&[String]>, limit: u32) -> Result<u64> {
        let tenant = key.tenant.as_str();
        let wake = sqlx::query(sql::SUBSCRIPTION_WAKE).bind(tenant).bind(key.id);
        let resend = sqlx::query(sql::MESSAGES_RESEND).bind(tenant).bind(key.id);
        let resend = resend.bind(self.clock.now().micros()).bind(ids.map(Json)).bind(limit);
        self.write([wake, resend]).await
    }

    async fn outstanding(&self) -> Result<Outstanding> {
        let now = self.clock.now();
        let query = sqlx::query(sql::OUTSTANDING).bind(now.micros()).bind(limits::OUTSTANDING_SUBSCRIPTIONS);
        let query = query.bind(limits::FEED_PASSED_ROWS);
        let mut found = Outstanding::none(now);
        for row in &query.fetch_all(&self.readers).await? {
            let due = row.try_get::<Option<i64>, _>("due_us")?.map(Timestamp::from_micros);
            found.add(due, row.try_get("entry")?);
        }
        Ok(found)
    }
}
