//! Questions that the service puts by itself: nothing ever spins (protocol §6, §12).

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use uuid::Uuid;

use super::places::Places;
use super::ports::AdapterCall;
use super::reconciliation::{Ask, timeout_of};
use super::{Service, ServiceError};
use crate::domain::adapter::Question;
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Admission, Command};
use crate::domain::decide::asking::{Agenda, again, agenda, settler};
use crate::domain::ids::{EffectKey, Name};
use crate::domain::receipt::{CheckedReceipt, Receipt};
use crate::domain::record::Record;
use crate::domain::refusal::Refusal;
use crate::domain::time::Timestamp;
use crate::engine::{Decided, EngineError};
use crate::store::Postponed;
use crate::telemetry::probe;

/// Calls under way in this process.
#[derive(Debug, Default)]
pub(super) struct Asks {
    pub(super) places: Places,
    running: Arc<Mutex<HashSet<(Uuid, u32)>>>,
}

/// The call of an attempt that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Running {
    running: Arc<Mutex<HashSet<(Uuid, u32)>>>,
    attempt: (Uuid, u32),
}

impl Drop for Running {
    fn drop(&mut self) {
        lock(&self.running).remove(&self.attempt);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What came of an effect that was due.
#[derive(Debug)]
pub(super) enum Done {
    /// It moved, or somebody else moved it.
    Moved,
    /// There is nothing to do before a later time.
    Later(Postponed),
    /// It can't be moved.
    Stuck,
}

fn later(record: &Record, until: Timestamp) -> Done {
    Done::Later(Postponed { key: record.key.clone(), revision: record.life.revision, until })
}

impl Asks {
    /// Marks the call of an attempt as under way; `None` when it is already.
    pub(super) fn begin(&self, effect: Uuid, admitted_revision: u32) -> Option<Running> {
        let attempt = (effect, admitted_revision);
        let is_new = lock(&self.running).insert(attempt);
        is_new.then(|| Running { running: Arc::clone(&self.running), attempt })
    }

    pub(super) fn is_running(&self, effect: Uuid, admitted_revision: u32) -> bool {
        lock(&self.running).contains(&(effect, admitted_revision))
    }
}

impl Service {
    /// Does what is due for one effect; a failure is its own alone.
    pub(super) async fn settle_due(self: &Arc<Self>, key: &EffectKey) -> Done {
        match self.do_due(key).await {
            Ok(done) => done,
            Err(ServiceError::Corrupt(corruption)) => {
                tracing::error!(tenant = %key.tenant, %corruption, "an effect can't be read back");
                Done::Stuck
            }
            Err(error) => {
                tracing::warn!(tenant = %key.tenant, effect = %key.effect, %error, "what was due could not be done");
                Done::Stuck
            }
        }
    }

    async fn do_due(self: &Arc<Self>, key: &EffectKey) -> Result<Done, ServiceError> {
        let found = self.engine().read(key, &self.principal).await?;
        let now = found.context.now;
        match agenda(&found.record, &found.context) {
            Agenda::Expire => self.expire(key).await.map(|()| Done::Moved),
            Agenda::Lookup => self.look_up(found).await,
            Agenda::Verify => self.ask_for_verification(found).await,
            // What made it due has changed since, or never is due again by itself.
            Agenda::Later(Some(at)) => Ok(later(&found.record, at)),
            Agenda::Later(None) => Ok(later(&found.record, now.plus_seconds(60))),
        }
    }

    async fn expire(&self, key: &EffectKey) -> Result<(), ServiceError> {
        let decided = self.engine().apply(key, &self.principal, Command::Expire { hold_released: false }).await?;
        let state = decided.record.life.state.as_str();
        metrics::counter!("actonce_expired_total", "state" => state).increment(1);
        tracing::info!(
            tenant = %key.tenant,
            operation_id = %decided.record.intent.operation_id,
            state,
            "a deadline passed"
        );
        Ok(())
    }

    /// Asks the adapter about an unknown outcome. Of several replicas, one is admitted.
    async fn look_up(self: &Arc<Self>, found: Decided) -> Result<Done, ServiceError> {
        let (record, now) = (&found.record, found.context.now);
        let since = record.life.unknown_since.unwrap_or(now);
        let Ok(tool) = settler(record, &found.context) else {
            return Ok(later(record, again(record, since, None, now)));
        };
        let Some(place) = self.asks.places.take(&record.key.tenant, &tool.name) else {
            return Ok(self.crowded(&found, &tool.name));
        };
        let revision = record.life.revision;
        let admission = Admission {
            request_digest: Sha256Digest::of(format!("automatic lookup\n{}\n{revision}", record.key.effect).as_bytes()),
            expected_revision: revision,
            lookup: true,
            automatic: true,
            timeout_seconds: timeout_of(&tool),
            worker: None,
            handoff_id: None,
            review_reference: None,
        };
        let command = Command::AdmitReconciliation(Box::new(admission));
        let admitted = match self.engine().apply(&record.key, &self.principal, command).await {
            Ok(admitted) => admitted,
            // Somebody else was first, or the doubt is gone.
            Err(EngineError::Refused {
                refusal: Refusal::StaleRevision { .. } | Refusal::StateConflict { .. },
                ..
            }) => return Ok(Done::Moved),
            Err(error) => return Err(error.into()),
        };
        if let (false, Some(open)) = (admitted.answer.replayed, admitted.record.life.reconciliation.clone()) {
            let admitted = Arc::clone(&admitted.record);
            self.begin_call(Ask { admitted, open, tool, question: Question::Lookup, receipt: None, place });
        }
        Ok(Done::Moved)
    }

    fn crowded(&self, found: &Decided, tool: &Name) -> Done {
        metrics::counter!("actonce_questions_crowded_total").increment(1);
        let wait = self.asks.places.wait(&found.record.key.tenant, tool);
        later(&found.record, found.context.now.plus(wait))
    }

    /// Asks the adapter for the fresh read of law 5. Of several replicas, the one that puts the next
    /// question off asks this one.
    async fn ask_for_verification(self: &Arc<Self>, found: Decided) -> Result<Done, ServiceError> {
        let (record, now) = (&found.record, found.context.now);
        let next = again(record, record.life.updated_at, None, now);
        let Ok(tool) = settler(record, &found.context) else { return Ok(later(record, next)) };
        let timeout_seconds = timeout_of(&tool);
        let Some(place) = self.asks.places.take(&record.key.tenant, &tool.name) else {
            return Ok(self.crowded(&found, &tool.name));
        };
        let until = next.max(now.plus_seconds(timeout_seconds));
        let claim = Postponed {
            key: record.key.clone(),
            revision: record.life.revision,
            until: record.life.deadline_at.map_or(until, |deadline| until.min(deadline)),
        };
        if !self.engine().store().postpone(&[claim]).await?.contains(&record.key.effect) {
            return Ok(Done::Moved);
        }
        let (service, record) = (Arc::clone(self), Arc::clone(record));
        self.tasks.spawn(probe::carry(async move {
            let revision = record.life.revision;
            let call = AdapterCall {
                question: Question::Verify,
                call_id: format!("{}-{revision}-verify", record.key.effect.simple()),
                tenant: record.key.tenant.clone(),
                tool,
                receipt: receipt_of(&record),
                record: Arc::clone(&record),
                timeout: Duration::from_secs(u64::from(timeout_seconds)),
                place,
            };
            service.verify_by(call, &record).await;
        }));
        Ok(Done::Moved)
    }

    async fn verify_by(&self, call: AdapterCall, record: &Record) {
        let key = &record.key;
        let answer = match tokio::time::timeout(call.timeout, self.adapters.ask(call)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(reason)) => {
                tracing::warn!(tenant = %key.tenant, effect = %key.effect, reason = reason.as_str(), clause = reason.clause(),
                    "the adapter did not verify");
                return;
            }
            Err(_) => return,
        };
        let Some(verification) = answer.verification else { return };
        match self.engine().apply(key, &self.principal, Command::Verify(verification)).await {
            Ok(_) => {}
            Err(EngineError::Refused { refusal, .. }) => {
                tracing::warn!(tenant = %key.tenant, effect = %key.effect, ?refusal, "a verification of the adapter was refused");
            }
            Err(error) => {
                tracing::warn!(tenant = %key.tenant, effect = %key.effect, %error, "a verification was not recorded");
            }
        }
    }
}

/// The recorded receipt, as it was checked when it came.
fn receipt_of(record: &Record) -> Option<CheckedReceipt> {
    let text = record.receipt.clone()?;
    let receipt: Receipt = serde_json::from_str(&text).ok()?;
    let digest = Sha256Digest::of(text.as_bytes());
    Some(CheckedReceipt { receipt: Arc::new(receipt), text, digest })
}
