//! From what a delivery says to what becomes of the effect.

use super::{Attach, Authentic, Disposition};
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Admission, Command, Finding};
use crate::domain::decide::{Standing, standing};
use crate::domain::delivery::{Locator, Told};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::receipt::CheckedReceipt;
use crate::domain::record::{Life, ReconciliationAttempt, Record};
use crate::domain::refusal::Refusal;
use crate::domain::source::SourceSpec;
use crate::domain::state::State;
use crate::engine::{Decided, EngineError};
use crate::limits;
use crate::service::keys::{alike, marked_key};
use crate::service::redact::KnownSecrets;
use crate::service::{Service, ServiceError};

/// How long a settlement may take after its admission: there is no call in between.
const SETTLE_SECONDS: u32 = 30;

/// What became of it.
#[derive(Debug)]
pub(super) enum Applied {
    /// It was applied, or had been.
    Done(Disposition),
    /// It can't be applied now: why.
    Held(&'static str),
}

/// A delivery held against the effect that it names.
pub(super) enum Look {
    /// It can't be applied: why. The operation that it names, where it names one.
    Held(&'static str, Option<Name>),
    /// It speaks about this effect.
    Bound(Box<Bound>),
}

/// A receipt that binds.
pub(super) struct Bound {
    key: EffectKey,
    operation_id: Name,
    receipt: CheckedReceipt,
    digest: Sha256Digest,
    standing: Standing,
}

impl Bound {
    /// What an attempt is called that is made at a revision: another one, later, is another request.
    fn request(&self, source_revision: u32) -> Sha256Digest {
        Sha256Digest::of(format!("{} {source_revision}", self.digest.as_str()).as_bytes())
    }

    /// The open attempt to settle by this very word.
    fn attempt<'a>(&self, life: &'a Life) -> Option<&'a ReconciliationAttempt> {
        life.reconciliation.as_ref().filter(|open| open.request_digest == self.request(open.source_revision))
    }
}

impl Look {
    /// Whether a doubt would be ended.
    pub(super) fn settles(&self) -> bool {
        matches!(self, Self::Bound(bound) if bound.standing == Standing::Settles)
    }

    /// The operation that it names.
    pub(super) fn operation_id(&self) -> Option<&Name> {
        match self {
            Self::Held(_, operation_id) => operation_id.as_ref(),
            Self::Bound(bound) => Some(&bound.operation_id),
        }
    }
}

/// The downstream key in a text.
fn key_in(text: &str, marked: bool) -> Option<&str> {
    if marked { marked_key(text) } else { Some(text) }
}

/// Whether a delivery that names an effect names this one. One that names none does not.
fn names(told: &Told, record: &Record) -> bool {
    match &told.locator {
        Locator::Nothing => false,
        Locator::Operation(operation_id) => *operation_id == record.intent.operation_id,
        Locator::Key { text, marked } => {
            key_in(text, *marked).is_some_and(|key| alike(key.as_bytes(), record.intent.idempotency_key.as_bytes()))
        }
    }
}

impl Service {
    /// Finds the effect of a delivery, and holds the receipt against it.
    pub(super) async fn look_at_delivery(&self, came: &Authentic<'_>, told: &Told) -> Result<Look, ServiceError> {
        let tenant = &came.source.row.tenant;
        let places = match &told.locator {
            Locator::Nothing => Vec::new(),
            Locator::Operation(operation_id) => vec![EffectKey::of(tenant, operation_id)],
            Locator::Key { text, marked } => self.places_in(tenant, text, *marked),
        };
        if places.is_empty() {
            return Ok(Look::Held("no_operation", None));
        }
        let named = match &told.locator {
            Locator::Operation(operation_id) => Some(operation_id.clone()),
            _ => None,
        };
        let mut found = None;
        for place in &places {
            match self.engine().read(place, &came.principal).await {
                Ok(decided) if names(told, &decided.record) => {
                    found = Some(decided);
                    break;
                }
                // What was pruned takes no more evidence: a person sees the delivery.
                Ok(_) | Err(EngineError::Refused { refusal: Refusal::NotFound | Refusal::Pruned(_), .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let Some(decided) = found else { return Ok(Look::Held("unmatched", named)) };
        Ok(bind(came, told, &decided, &self.known_to(came, &decided).await?))
    }

    /// What the vendor could know of secrets: those of its source, and those of the tool's adapter.
    async fn known_to(&self, came: &Authentic<'_>, decided: &Decided) -> Result<KnownSecrets, ServiceError> {
        let mut known = self.secrets.known(&decided.record.key.tenant, &decided.context.tool).await?;
        self.secret_texts(came.source)?.iter().for_each(|secret| known.add(secret));
        Ok(known)
    }

    /// Where the effect would be whose downstream key stands in a text.
    fn places_in(&self, tenant: &Tenant, text: &str, marked: bool) -> Vec<EffectKey> {
        key_in(text, marked).map(|key| self.data_key.places_of_key(tenant, key)).unwrap_or_default()
    }

    /// Holds a delivery against an effect that a person names, and tells which revision the effect has to
    /// have. One that names another effect is none of this one's.
    pub(super) async fn look_at(
        &self,
        came: &Authentic<'_>,
        told: &Told,
        wish: &Attach,
    ) -> Result<(Look, u32), ServiceError> {
        let key = EffectKey::of(&came.source.row.tenant, &wish.operation_id);
        let decided = self.engine().read(&key, &came.principal).await?;
        let names_none = match &told.locator {
            Locator::Nothing => true,
            Locator::Operation(_) => false,
            Locator::Key { text, marked } => self.places_in(&key.tenant, text, *marked).is_empty(),
        };
        if !names_none && !names(told, &decided.record) {
            return Ok((Look::Held("other_operation", None), wish.expected_revision));
        }
        let look = bind(came, told, &decided, &self.known_to(came, &decided).await?);
        let life = &decided.record.life;
        let expected = match &look {
            // The same wish again, whose answer was lost between its two commits.
            Look::Bound(bound) if bound.attempt(life).is_some() => life.revision,
            _ => wish.expected_revision,
        };
        Ok((look, expected))
    }

    /// Applies what was looked at. `expected`: only if the effect has that revision.
    pub(super) async fn apply_look(
        &self,
        principal: &Name,
        look: Look,
        expected: Option<u32>,
    ) -> Result<Applied, ServiceError> {
        let bound = match look {
            Look::Held(reason, _) => return Ok(Applied::Held(reason)),
            Look::Bound(bound) => bound,
        };
        for _ in 0..limits::COMMIT_RETRIES {
            let decided = self.engine().read(&bound.key, principal).await?;
            let life = &decided.record.life;
            let standing = standing(life, &bound.receipt, &bound.digest);
            if standing == Standing::Known {
                return Ok(Applied::Done(Disposition::Known));
            }
            if expected.is_some_and(|expected| expected != life.revision) {
                let refusal = Refusal::StaleRevision { found: life.revision, state: life.state };
                return Err(ServiceError::Refused { refusal, record: None });
            }
            let applied = match standing {
                Standing::Settles => self.settle_receipt(principal, &bound, &decided.record).await?,
                _ => self.keep(principal, &bound).await?,
            };
            if let Some(applied) = applied {
                return Ok(applied);
            }
        }
        Ok(Applied::Held("contention"))
    }

    /// Keeps a receipt as evidence; `None` if the effect is another one by now.
    async fn keep(&self, principal: &Name, bound: &Bound) -> Result<Option<Applied>, ServiceError> {
        let command = Command::Evidence { receipt: bound.receipt.clone(), digest: bound.digest.clone() };
        match self.engine().apply(&bound.key, principal, command).await {
            Ok(Decided { answer, .. }) if answer.replayed => Ok(Some(Applied::Done(Disposition::Known))),
            Ok(_) => Ok(Some(Applied::Done(Disposition::Evidence))),
            Err(EngineError::Refused { refusal: Refusal::StateConflict { state, .. }, record }) => {
                let settles = record
                    .is_some_and(|now| standing(&now.life, &bound.receipt, &bound.digest) == Standing::Settles)
                    || matches!(state, State::OutcomeUnknown | State::ManualReview);
                Ok(if settles { None } else { Some(Applied::Held("evidence_full")) })
            }
            Err(EngineError::Refused { refusal: Refusal::ReceiptRejected(_), .. }) => {
                Ok(Some(Applied::Held("does_not_bind")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Ends a doubt: one admission and one settlement, as for a supplied receipt. `None` if somebody else
    /// was first.
    async fn settle_receipt(
        &self,
        principal: &Name,
        bound: &Bound,
        found: &Record,
    ) -> Result<Option<Applied>, ServiceError> {
        let attempt = match bound.attempt(&found.life) {
            // A crash, or another delivery of the same word, left it open: it goes on.
            Some(attempt) => attempt.clone(),
            None => match self.admit_receipt(principal, bound, found.life.revision).await? {
                Ok(attempt) => attempt,
                Err(applied) => return Ok(applied),
            },
        };
        let settle = Command::SettleReconciliation {
            admitted_revision: attempt.admitted_revision,
            request_digest: attempt.request_digest,
            finding: Box::new(Finding::Receipt { receipt: bound.receipt.clone(), verification: None }),
        };
        match self.engine().apply(&bound.key, principal, settle).await {
            Ok(settled) => {
                let recorded = settled.record.life.receipt.as_ref();
                let is_ours = recorded.is_some_and(|recorded| recorded.digest == bound.receipt.digest);
                let applied =
                    if is_ours { Applied::Done(Disposition::Settled) } else { Applied::Held("does_not_bind") };
                Ok(Some(applied))
            }
            Err(EngineError::Refused { refusal: Refusal::StaleRequest, .. }) => Ok(None),
            Err(EngineError::Refused { refusal: Refusal::ReceiptRejected(_), .. }) => {
                Ok(Some(Applied::Held("does_not_bind")))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Asks to end a doubt. This and [`Service::settle_receipt`] are the places that speak the commands of a
    /// reconciliation.
    async fn admit_receipt(
        &self,
        principal: &Name,
        bound: &Bound,
        revision: u32,
    ) -> Result<Result<ReconciliationAttempt, Option<Applied>>, ServiceError> {
        let admit = Command::AdmitReconciliation(Box::new(Admission {
            request_digest: bound.request(revision),
            expected_revision: revision,
            lookup: false,
            automatic: false,
            timeout_seconds: SETTLE_SECONDS,
            worker: None,
            handoff_id: None,
            review_reference: None,
        }));
        match self.engine().apply(&bound.key, principal, admit).await {
            Ok(admitted) => Ok(bound.attempt(&admitted.record.life).cloned().ok_or(None)),
            Err(EngineError::Refused { refusal: Refusal::StateConflict { state: State::Dispatched, .. }, .. }) => {
                Ok(Err(Some(Applied::Held("live_dispatch"))))
            }
            // The adapter was changed since, and the registration does not say that it settles.
            Err(EngineError::Refused {
                refusal: Refusal::StateConflict { state: State::OutcomeUnknown | State::ManualReview, .. },
                ..
            }) => Ok(Err(Some(Applied::Held("does_not_bind")))),
            Err(EngineError::Refused {
                refusal: Refusal::StateConflict { .. } | Refusal::StaleRevision { .. } | Refusal::StaleRequest,
                ..
            }) => Ok(Err(None)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Preflight (protocol §6): the tool is one of the source's, the target is the effect's, the receipt
/// binds under the tool's revision that the effect was made under.
fn bind(came: &Authentic<'_>, told: &Told, decided: &Decided, known: &KnownSecrets) -> Look {
    let intent = &decided.record.intent;
    let held = |reason| Look::Held(reason, Some(intent.operation_id.clone()));
    let spec: &SourceSpec = &came.source.spec;
    if !spec.tools.iter().any(|tool| tool == intent.tool.as_str()) {
        return held("other_tool");
    }
    if told.target.as_ref().is_some_and(|target| *target != intent.target) {
        return held("other_target");
    }
    let tool = &decided.context.tool;
    let receipt = match told.receipt(intent, tool, &came.provenance()) {
        Ok(receipt) => receipt,
        Err(reason) => return held(reason),
    };
    // What must stay exact is never masked: with a secret in it, it is not taken.
    let Ok(receipt) = known.redact(&receipt) else { return held("does_not_bind") };
    if receipt.bind(intent, tool).is_err() {
        return held("does_not_bind");
    }
    let digest = told.digest(&came.source.row.name, intent);
    let standing = match &decided.record.life {
        // For the owner alone; nothing is put down for an admission that can't be.
        life if is_live(decided) && standing(life, &receipt, &digest) == Standing::Settles => {
            return held("live_dispatch");
        }
        life => standing(life, &receipt, &digest),
    };
    Look::Bound(Box::new(Bound {
        key: decided.record.key.clone(),
        operation_id: intent.operation_id.clone(),
        receipt,
        digest,
        standing,
    }))
}

fn is_live(decided: &Decided) -> bool {
    decided.record.life.lease_end().is_some_and(|end| end > decided.context.now)
}
