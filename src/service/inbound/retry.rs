//! The background of the quarantine: what waits is tried again by next-try times in the database. Safe in
//! all replicas at once: a try is taken by a compare-and-set, and every write repeats what it saw.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::apply::Applied;
use super::{Authentic, Disposition, parse, principal_of};
use crate::domain::delivery::{Reading, read};
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::service::{Service, ServiceError};
use crate::store::receipts::{QuarantineRow, QuarantineTry};

/// Deliveries per look.
const PAGE: u32 = 32;
/// The longest sleep: another replica may have put something down, and died.
const PAUSE_MAX: Duration = Duration::from_secs(10);
/// The shortest.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// How often old deliveries are looked for, and how many are dropped at once.
const EXPIRE_EVERY: Duration = Duration::from_mins(1);
const EXPIRE_PAGE: u32 = 256;
/// A settlement under way is left alone for so long.
const SETTLING_SECONDS: u32 = 10;

/// When a delivery that waits for this reason is tried again; `None`: only people, or a changed
/// registration of its source, bring it on.
pub(super) fn next_try(reason: &str, attempts: u32, now: Timestamp) -> Option<Timestamp> {
    let most = match reason {
        "live_dispatch" | "contention" => 300,
        "settling" => return Some(now.plus_seconds(SETTLING_SECONDS)),
        "unmatched" => 3600,
        _ => return None,
    };
    Some(now.plus_seconds(1_u32.checked_shl(attempts.min(16)).unwrap_or(most).min(most)))
}

impl Service {
    /// Tries again what waits in quarantine, until stopped.
    pub async fn run_receipts(self: Arc<Self>, stop: CancellationToken) {
        let mut expired_at: Option<Instant> = None;
        loop {
            if expired_at.is_none_or(|at| at.elapsed() >= EXPIRE_EVERY) {
                expired_at = Some(Instant::now());
                self.expire_quarantine().await;
            }
            let pause = match self.retry_due(&stop).await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(error = %error, "the quarantine could not be looked at");
                    PAUSE_MAX
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                () = self.inbound.wake.notified() => {}
            }
        }
    }

    async fn expire_quarantine(&self) {
        match self.engine().store().quarantine_expire(EXPIRE_PAGE).await {
            Ok(0) => {}
            Ok(waited) => {
                metrics::counter!("actonce_quarantine_expired_total").increment(waited);
                tracing::warn!(waited, "deliveries left the quarantine unapplied: they were too old");
            }
            Err(error) => tracing::warn!(%error, "old deliveries could not be dropped"),
        }
    }

    async fn retry_due(&self, stop: &CancellationToken) -> Result<Duration, ServiceError> {
        let store = self.engine().store();
        let pause = |next: Option<Timestamp>, now: Timestamp| {
            next.map_or(PAUSE_MAX, |next| next.duration_since(now)).clamp(PAUSE_MIN, PAUSE_MAX)
        };
        let (next, now) = store.quarantine_next().await?;
        if next.is_none_or(|next| next > now) {
            return Ok(pause(next, now));
        }
        for row in store.quarantine_due(PAGE).await? {
            if stop.is_cancelled() {
                break;
            }
            // A failure is this delivery's alone; its next try is set already.
            if let Err(error) = self.retry(&row).await {
                tracing::warn!(tenant = %row.tenant, source = %row.source, %error, "a delivery could not be tried");
            }
        }
        let (next, now) = store.quarantine_next().await?;
        Ok(pause(next, now))
    }

    async fn retry(&self, row: &QuarantineRow) -> Result<(), ServiceError> {
        let now = self.engine().clock().now();
        // Never left without a next try while nobody knows how this one ends.
        let next_try_at = next_try(&row.reason, row.attempts, now).or(Some(now.plus_seconds(SETTLING_SECONDS)));
        let mut look = QuarantineTry {
            tenant: row.tenant.clone(),
            id: row.id,
            attempts: row.attempts,
            reason: None,
            operation_id: None,
            next_try_at,
        };
        let store = self.engine().store();
        if !store.quarantine_try(&look).await? {
            return Ok(());
        }
        match self.again(row).await? {
            (Applied::Done(disposition), _) => {
                store.quarantine_applied(&row.tenant, row.id).await?;
                let word = disposition.as_str();
                metrics::counter!("actonce_quarantine_applied_total", "disposition" => word).increment(1);
                tracing::info!(tenant = %row.tenant, source = %row.source, disposition = word, "a delivery was applied");
            }
            (Applied::Held(reason), operation_id) if reason != row.reason || next_try(reason, 0, now).is_none() => {
                look.attempts = row.attempts.saturating_add(1);
                look.reason = Some(reason);
                look.operation_id = operation_id;
                look.next_try_at = next_try(reason, 0, now);
                store.quarantine_try(&look).await?;
            }
            (Applied::Held(_), _) => {}
        }
        Ok(())
    }

    /// Reads a delivery anew, by its source as it is registered now.
    async fn again(&self, row: &QuarantineRow) -> Result<(Applied, Option<Name>), ServiceError> {
        let Some(found) = self.engine().store().receipt_source(&row.tenant, &row.source).await? else {
            return Ok((Applied::Held("no_source"), None));
        };
        let source = self.source_of(found)?;
        let came = Authentic {
            principal: principal_of(&source)?,
            text: row.body.as_deref().unwrap_or_default(),
            facts: serde_json::from_str(&row.facts).unwrap_or_default(),
            received_at: row.received_at,
            source: &source,
        };
        let (_, raw) = parse(came.text.as_bytes())?;
        match read(&source.spec, raw) {
            // By the registration of now it says nothing that counts.
            Reading::Ignored => Ok((Applied::Done(Disposition::Ignored), None)),
            Reading::Faulty(reason) => Ok((Applied::Held(reason), None)),
            Reading::Told(told) => {
                let look = self.look_at_delivery(&came, &told).await?;
                let operation_id = look.operation_id().cloned();
                Ok((self.apply_look(&came.principal, look, None).await?, operation_id))
            }
        }
    }

    /// A delivery that was put down goes on waiting, for another reason.
    pub(super) async fn hold_on(
        &self,
        tenant: &Tenant,
        id: Uuid,
        reason: &'static str,
        operation_id: Option<Name>,
    ) -> Result<(), ServiceError> {
        let store = self.engine().store();
        let Some(row) = store.quarantined(tenant, id).await? else { return Ok(()) };
        if row.reason == reason {
            return Ok(());
        }
        let next_try_at = next_try(reason, 0, self.engine().clock().now());
        let (tenant, attempts) = (tenant.clone(), row.attempts);
        store
            .quarantine_try(&QuarantineTry { tenant, id, attempts, reason: Some(reason), operation_id, next_try_at })
            .await?;
        self.inbound.wake.notify_one();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_grow_rare_and_only_where_time_can_help() {
        let now = Timestamp::from_micros(0);
        let after = |reason, attempts| next_try(reason, attempts, now).map(|at| at.micros() / 1_000_000);
        assert_eq!((after("live_dispatch", 0), after("live_dispatch", 3)), (Some(1), Some(8)));
        assert_eq!((after("live_dispatch", 99), after("unmatched", u32::MAX)), (Some(300), Some(3600)));
        for reason in ["no_operation", "unmapped_outcome", "other_target", "does_not_bind", "evidence_full"] {
            assert_eq!(after(reason, 0), None, "{reason}");
        }
    }
}
