//! Intents, dispatches, heartbeats, outcomes, verifications, cancellations, authorizations.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use uuid::Uuid;

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::canonical::{Canonical, Sha256Digest};
use crate::domain::command::{Claim, Command, Outcome, Propose};
use crate::domain::ids::{EffectKey, Name};
use crate::domain::receipt::Verification;
use crate::domain::state::{Directive, EffectClass};
use crate::engine::waiters::Ticket;
use crate::engine::{Decided, EngineError};
use crate::support::random_id;

/// A wish to act now, as sent.
#[derive(Debug, Clone)]
pub struct ClaimWish {
    /// Who would act.
    pub worker: Name,
    /// The random value that lives in the memory of who would act.
    pub claim_id: Option<String>,
    /// The lease wished for, within the limits.
    pub lease_seconds: Option<u32>,
}

impl ClaimWish {
    fn claim(&self) -> Claim {
        Claim {
            worker: self.worker.clone(),
            claim: self.claim_id.as_ref().map(|id| Claim::digest(&self.worker, id)),
            lease_seconds: self.lease_seconds,
            dispatch_id: random_id(),
        }
    }
}

/// `POST /api/intents`, checked.
#[derive(Debug, Clone)]
pub struct IntentRequest {
    /// Sent, or derived from the run.
    pub operation_id: Option<Name>,
    /// The tool.
    pub tool: Name,
    /// The class stated.
    pub class: Option<EffectClass>,
    /// What is acted on.
    pub target: Name,
    /// Digest of the arguments.
    pub arguments_digest: Sha256Digest,
    /// The arguments, where sent.
    pub arguments: Option<Arc<Canonical>>,
    /// The same, byte for byte.
    pub sent: Option<Arc<str>>,
    /// Correlation.
    pub run_id: Option<Name>,
    /// Correlation.
    pub session_id: Option<Name>,
    /// Correlation.
    pub call_id: Option<Name>,
    /// The declared profile.
    pub profile_id: Option<Name>,
    /// The wish to act at once.
    pub claim: Option<ClaimWish>,
}

impl Service {
    /// Records an intent, and grants its dispatch where asked and possible.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn record_intent(
        &self,
        caller: &Principal,
        request: IntentRequest,
        wait: Option<Duration>,
    ) -> Result<Decided, ServiceError> {
        let operation_id = match request.operation_id {
            Some(id) => id,
            None => derive_operation_id(&request)?,
        };
        let key = EffectKey::of(&caller.tenant, &operation_id);
        let propose = Propose {
            idempotency_key: self.data_key.idempotency_key(&caller.tenant, &operation_id),
            operation_id,
            tool: request.tool,
            class: request.class,
            target: request.target,
            arguments_digest: request.arguments_digest,
            arguments: request.arguments,
            run_id: request.run_id,
            session_id: request.session_id,
            call_id: request.call_id,
            profile_id: request.profile_id,
            claim: request.claim.as_ref().map(ClaimWish::claim),
            duplicate_of: None,
            sent: request.sent,
            grant: None,
            fence_base: 0,
        };
        if let Some(wait) = wait {
            let engine = self.engine();
            return self.attach(&key, wait, || engine.propose(&caller.tenant, &caller.subject, propose.clone())).await;
        }
        Ok(self.engine().propose(&caller.tenant, &caller.subject, propose).await?)
    }

    /// Claims a known effect.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn dispatch(
        &self,
        caller: &Principal,
        operation_id: &Name,
        wish: &ClaimWish,
        expected_revision: Option<u32>,
        wait: Option<Duration>,
    ) -> Result<Decided, ServiceError> {
        let key = EffectKey::of(&caller.tenant, operation_id);
        let command = Command::Claim { claim: wish.claim(), expected_revision, hold_released: false };
        match wait {
            Some(wait) => self.attach(&key, wait, || self.engine().apply(&key, &caller.subject, command.clone())).await,
            None => Ok(self.engine().apply(&key, &caller.subject, command).await?),
        }
    }

    /// Renews a lease.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn heartbeat(
        &self,
        caller: &Principal,
        operation_id: &Name,
        dispatch_id: Uuid,
        fence: u32,
    ) -> Result<Decided, ServiceError> {
        self.apply(caller, operation_id, Command::Heartbeat { dispatch_id, fence }).await
    }

    /// Takes a report.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn outcome(
        &self,
        caller: &Principal,
        operation_id: &Name,
        outcome: Outcome,
    ) -> Result<Decided, ServiceError> {
        self.apply(caller, operation_id, Command::Outcome(Box::new(outcome))).await
    }

    /// Takes a verification.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn verification(
        &self,
        caller: &Principal,
        operation_id: &Name,
        verification: Verification,
    ) -> Result<Decided, ServiceError> {
        self.apply(caller, operation_id, Command::Verify(verification)).await
    }

    /// Withdraws.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn cancel(
        &self,
        caller: &Principal,
        operation_id: &Name,
        expected_revision: Option<u32>,
    ) -> Result<Decided, ServiceError> {
        self.apply(caller, operation_id, Command::Cancel { expected_revision }).await
    }

    /// Approves or denies.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn authorize(
        &self,
        caller: &Principal,
        operation_id: &Name,
        command: Command,
    ) -> Result<Decided, ServiceError> {
        self.apply(caller, operation_id, command).await
    }

    /// Decides by hand.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn resolve(
        &self,
        caller: &Principal,
        operation_id: &Name,
        command: Command,
    ) -> Result<Decided, ServiceError> {
        self.apply(caller, operation_id, command).await
    }

    /// Reads an effect; with `wait`, until there is something to do.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn read(
        &self,
        caller: &Principal,
        operation_id: &Name,
        wait: Option<Duration>,
    ) -> Result<Decided, ServiceError> {
        let key = EffectKey::of(&caller.tenant, operation_id);
        match wait {
            Some(wait) => self.attach(&key, wait, || self.engine().read(&key, &caller.subject)).await,
            None => Ok(self.engine().read(&key, &caller.subject).await?),
        }
    }

    async fn apply(&self, caller: &Principal, operation_id: &Name, command: Command) -> Result<Decided, ServiceError> {
        let key = EffectKey::of(&caller.tenant, operation_id);
        Ok(self.engine().apply(&key, &caller.subject, command).await?)
    }

    /// Holds a request while its directive is `wait` or `authorize` (protocol §4): asks again at
    /// each change of the effect, and never otherwise.
    async fn attach<F, Fut>(&self, key: &EffectKey, wait: Duration, mut ask: F) -> Result<Decided, ServiceError>
    where
        F: FnMut() -> Fut,
        Fut: Future<Output = Result<Decided, EngineError>>,
    {
        let deadline = Instant::now() + wait;
        let decided = ask().await?;
        if !is_pending(&decided) {
            return Ok(decided);
        }
        let ticket = self.engine().waiters().register(key).ok_or(EngineError::TooManyWaiters)?;
        // A held effect moves when the one that it is held for does.
        let held_for = decided.record.life.approval.as_ref().and_then(|approval| approval.held_for.as_ref());
        let other = match held_for.map(|first| EffectKey::of(&key.tenant, first)) {
            Some(first) => Some(self.engine().waiters().register(&first).ok_or(EngineError::TooManyWaiters)?),
            None => None,
        };
        loop {
            let mut changed = std::pin::pin!(ticket.changed());
            // From here on no change is missed, also between this look and the wait.
            changed.as_mut().enable();
            let mut first_changed = std::pin::pin!(other.as_ref().map(Ticket::changed));
            if let Some(first_changed) = first_changed.as_mut().as_pin_mut() {
                first_changed.enable();
            }
            let decided = ask().await?;
            ticket.saw(decided.record.life.revision);
            if !is_pending(&decided) {
                return Ok(decided);
            }
            tokio::select! {
                () = changed => {}
                () = async { match first_changed.as_pin_mut() {
                    Some(first_changed) => first_changed.await,
                    None => std::future::pending().await,
                } } => {}
                () = tokio::time::sleep_until(deadline) => return Ok(decided),
                () = self.stopping.cancelled() => return Ok(decided),
            }
        }
    }
}

fn is_pending(decided: &Decided) -> bool {
    matches!(decided.directive(), Directive::Wait | Directive::Authorize)
}

/// `{run_id}:{tool}:{sha256 hex of canonical arguments}`: the same for the same call of a run.
fn derive_operation_id(request: &IntentRequest) -> Result<Name, ServiceError> {
    let run = request.run_id.as_ref().ok_or(ServiceError::OperationIdRequired)?;
    let id = format!("{run}:{}:{}", request.tool, request.arguments_digest.hex());
    Name::new(&id).map_err(|_| {
        ServiceError::invalid("/operation_id", "must be given: the one derived from `run_id` would exceed 256 bytes")
    })
}
