//! The quarantine for people: reading it, attaching a delivery to an effect, discarding one.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::apply::Applied;
use super::{Authentic, parse, principal_of};
use crate::auth::Principal;
use crate::domain::delivery::{Reading, Told, read};
use crate::domain::fault::Fault;
use crate::domain::ids::Name;
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::time::Timestamp;
use crate::limits;
use crate::service::{Service, ServiceError};
use crate::store::receipts::{QuarantineRow, QuarantineStatus};
use crate::telemetry::probe;

/// What a person decided about a delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct QuarantineDecision {
    /// Who.
    pub by: String,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    /// Why.
    pub reason: String,
    /// The effect it was attached to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// What became of it there: `settled`, `evidence` or `known`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disposition: Option<String>,
}

/// A delivery in quarantine, with what was decided.
#[derive(Debug)]
pub struct QuarantineItem {
    /// As stored.
    pub row: QuarantineRow,
    /// What was decided, if anything.
    pub decision: Option<QuarantineDecision>,
}

/// A wish to attach a delivery to an effect.
#[derive(Debug, Clone)]
pub struct Attach {
    /// The effect.
    pub operation_id: Name,
    /// Its revision as read.
    pub expected_revision: u32,
    /// Why.
    pub reason: String,
}

fn item(row: QuarantineRow) -> Result<QuarantineItem, ServiceError> {
    let bad = || crate::store::Corruption { table: "quarantine", column: "decision", key: row.id.to_string() };
    let decision = row.decision.as_deref().map(serde_json::from_str).transpose().map_err(|_| bad())?;
    Ok(QuarantineItem { row, decision })
}

fn rejected(reason: &'static str) -> ServiceError {
    let text = match reason {
        "other_operation" => "names another operation",
        "other_tool" => "comes from a source that does not speak about this tool",
        "other_target" => "names another target",
        "evidence_full" => "can't be kept: the effect has as many late reports as it may",
        "contention" => return ServiceError::Capacity("the effect is changed by too many at once"),
        "does_not_bind" | "beyond_limits" => "does not satisfy the tool's receipt",
        _ => "can't be read by the source as it is registered now",
    };
    let refusal = Refusal::ReceiptRejected(vec![Fault::new("/receipt", text)]);
    ServiceError::Refused { refusal, record: None }
}

impl Service {
    /// Deliveries in quarantine, oldest first.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn quarantine_page(
        &self,
        caller: &Principal,
        status: QuarantineStatus,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<QuarantineItem>, Option<String>), ServiceError> {
        let list = format!("quarantine {}", status.code());
        let after = self.place_after(caller, &list, cursor, |text| {
            let (micros, id) = text.split_once(':')?;
            Some((Timestamp::from_micros(micros.parse().ok()?), id.parse::<Uuid>().ok()?))
        })?;
        let store = self.engine().store();
        let mut rows =
            probe::read(store.quarantine_list(&caller.tenant, status, after, limit.saturating_add(1))).await?;
        let place = |row: &QuarantineRow| format!("{}:{}", row.received_at.micros(), row.id);
        let next = self.cut_to_page(caller, &list, &mut rows, limit, place);
        Ok((rows.into_iter().map(item).collect::<Result<_, _>>()?, next))
    }

    /// A delivery in quarantine.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn quarantine_item(&self, caller: &Principal, id: Uuid) -> Result<QuarantineItem, ServiceError> {
        let row = probe::read(self.engine().store().quarantined(&caller.tenant, id)).await?;
        item(row.ok_or(ServiceError::NotFound)?)
    }

    /// Attaches a delivery to an effect. It must still bind, and settles like a supplied receipt, in the
    /// name of the person.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn attach_delivery(
        &self,
        caller: &Principal,
        id: Uuid,
        wish: &Attach,
    ) -> Result<QuarantineItem, ServiceError> {
        let found = self.quarantine_item(caller, id).await?;
        if let Some(decided) = attached_before(&found, wish)? {
            return decided.then_some(found).ok_or(ServiceError::ToolConflict("it was attached to another effect"));
        }
        let row = &found.row;
        let source = self.source(caller, &row.source).await?;
        let came = Authentic {
            principal: principal_of(&source)?,
            text: row.body.as_deref().unwrap_or_default(),
            facts: serde_json::from_str(&row.facts).unwrap_or_default(),
            received_at: row.received_at,
            source: &source,
        };
        let told = told(&came)?;
        let (look, expected) = self.look_at(&came, &told, wish).await?;
        let applied = self.apply_look(&caller.subject, look, Some(expected)).await?;
        let disposition = match applied {
            Applied::Done(disposition) => disposition,
            Applied::Held("live_dispatch") => {
                return Err(ServiceError::Refused {
                    refusal: Refusal::StateConflict {
                        state: State::Dispatched,
                        reason: "a dispatch is live, and its owner alone decides; the delivery waits for its end",
                        evidence_recorded: false,
                    },
                    record: None,
                });
            }
            Applied::Held(reason) => return Err(rejected(reason)),
        };
        let decision = QuarantineDecision {
            by: caller.subject.as_str().to_owned(),
            at: self.engine().clock().now(),
            reason: wish.reason.clone(),
            operation_id: Some(wish.operation_id.as_str().to_owned()),
            disposition: Some(disposition.as_str().to_owned()),
        };
        self.decide(row, QuarantineStatus::Attached, &decision).await?;
        let now = self.quarantine_item(caller, id).await?;
        match attached_before(&now, wish)? {
            Some(true) => Ok(now),
            _ => Err(ServiceError::ToolConflict("somebody else decided about it at the same time")),
        }
    }

    /// Discards a delivery. It is remembered, so that a repeat of it is dropped.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn discard_delivery(&self, caller: &Principal, id: Uuid, reason: String) -> Result<(), ServiceError> {
        for _ in 0..2 {
            let found = self.quarantine_item(caller, id).await?;
            match found.row.status {
                QuarantineStatus::Discarded => return Ok(()),
                QuarantineStatus::Attached => {
                    return Err(ServiceError::ToolConflict("it was attached to an effect"));
                }
                QuarantineStatus::Waiting => {}
            }
            let decision = QuarantineDecision {
                by: caller.subject.as_str().to_owned(),
                at: self.engine().clock().now(),
                reason: reason.clone(),
                operation_id: None,
                disposition: None,
            };
            self.decide(&found.row, QuarantineStatus::Discarded, &decision).await?;
        }
        Ok(())
    }

    async fn decide(
        &self,
        row: &QuarantineRow,
        status: QuarantineStatus,
        decision: &QuarantineDecision,
    ) -> Result<(), ServiceError> {
        let text = serde_json::to_string(decision).map_err(|_| ServiceError::Internal("a decision"))?;
        probe::write(self.engine().store().quarantine_decide(row, status, &text, limits::QUARANTINE_DECIDED)).await?;
        Ok(())
    }
}

fn told(came: &Authentic<'_>) -> Result<Box<Told>, ServiceError> {
    let (_, raw) = parse(came.text.as_bytes())?;
    match read(&came.source.spec, raw) {
        Reading::Told(told) => Ok(told),
        Reading::Faulty(reason) => Err(rejected(reason)),
        Reading::Ignored => Err(rejected("ignored")),
    }
}

/// Whether it was attached before, and if so, to the same effect.
fn attached_before(found: &QuarantineItem, wish: &Attach) -> Result<Option<bool>, ServiceError> {
    match found.row.status {
        QuarantineStatus::Waiting => Ok(None),
        QuarantineStatus::Discarded => Err(ServiceError::ToolConflict("it was discarded")),
        QuarantineStatus::Attached => {
            let to = found.decision.as_ref().and_then(|decision| decision.operation_id.as_deref());
            Ok(Some(to == Some(wish.operation_id.as_str())))
        }
    }
}
