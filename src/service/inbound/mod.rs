//! Inbound receipts (protocol §6): a delivery is authenticated, read by its source's pointers, and
//! settles an effect like a supplied receipt; what can't be applied now waits in quarantine.

mod apply;
mod quarantine;
mod retry;
pub mod signature;

use std::collections::BTreeMap;

use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};
use tokio::sync::Notify;
use uuid::Uuid;

use super::sources::{Source, id_of};
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::canonical::{self, Sha256Digest};
use crate::domain::delivery::{Provenance, Reading, read};
use crate::domain::fault::Fault;
use crate::domain::ids::{Name, prefix};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::receipts::{QuarantineRow, QuarantineStatus, Quarantined};
use crate::telemetry::probe;
use apply::Applied;
use signature::{Checked, Headers};

pub use quarantine::{Attach, QuarantineDecision, QuarantineItem};

/// What inbound receipts need besides the engine.
#[derive(Debug, Default)]
pub(super) struct Inbound {
    /// Something may be due in quarantine.
    pub(super) wake: Notify,
}

/// A delivery as it came.
#[derive(Debug)]
pub struct Delivery {
    /// Its headers.
    pub headers: Headers,
    /// Its bytes.
    pub body: bytes::Bytes,
}

/// What became of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disposition {
    /// It ended a doubt.
    Settled,
    /// It is kept as evidence.
    Evidence,
    /// It says what is known already; nothing was written.
    Known,
    /// It waits in quarantine.
    Quarantined,
    /// It says nothing that counts.
    Ignored,
}

impl Disposition {
    /// The word in answers and metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Settled => "settled",
            Self::Evidence => "evidence",
            Self::Known => "known",
            Self::Quarantined => "quarantined",
            Self::Ignored => "ignored",
        }
    }
}

/// A delivery that was authenticated.
struct Authentic<'a> {
    source: &'a Source,
    principal: Name,
    text: &'a str,
    facts: BTreeMap<String, String>,
    received_at: Timestamp,
}

impl Authentic<'_> {
    fn provenance(&self) -> Provenance<'_> {
        Provenance { source: &self.source.row.name, received_at: self.received_at, facts: &self.facts }
    }

    /// What this delivery is called in quarantine: a repeat of the same bytes finds itself.
    fn id(&self) -> Uuid {
        let mut hash = Sha256::new();
        hash.update(b"actonce delivery v1");
        hash.update(self.source.row.source_id.as_bytes());
        hash.update(prefix(self.text));
        hash.update(self.text);
        let digest: [u8; 32] = hash.finalize().into();
        let mut half = [0_u8; 16];
        half.copy_from_slice(&digest[..16]);
        Uuid::from_bytes(half)
    }
}

/// Under whose name a source acts. No token can have it: see `auth`.
fn principal_of(source: &Source) -> Result<Name, ServiceError> {
    Name::new(&format!("{}{}", crate::support::SOURCE_PRINCIPAL_PREFIX, source.row.name))
        .map_err(|_| ServiceError::Internal("a source has no principal"))
}

fn refused(why: &'static str) -> ServiceError {
    metrics::counter!("actonce_inbound_refused_total", "why" => why).increment(1);
    ServiceError::BadSignature
}

impl Service {
    /// Takes a delivery that is authenticated by its signature alone. An unknown address and a bad
    /// signature are refused alike.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn deliver(&self, address: &str, delivery: &Delivery) -> Result<Disposition, ServiceError> {
        let id = id_of(address).ok_or_else(|| refused("address"))?;
        let row = probe::read(self.engine().store().receipt_source_at(id)).await?.ok_or_else(|| refused("address"))?;
        let source = self.source_of(row)?;
        let checked = self.check_signature(&source, delivery)?.ok_or_else(|| refused("signature"))?;
        self.take(&source, checked.delivery_id.as_deref(), "signature", delivery).await
    }

    /// Takes a delivery from a caller that may bring receipts, such as a relay that has checked the
    /// vendor's signature. Where it passes the signature on, that has to be good too.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn deliver_as(
        &self,
        caller: &Principal,
        name: &Name,
        delivery: &Delivery,
    ) -> Result<Disposition, ServiceError> {
        let store = self.engine().store();
        let row = match probe::read(store.receipt_source(&caller.tenant, name)).await? {
            Some(row) => Some(row),
            None => match id_of(name.as_str()) {
                Some(id) => probe::read(store.receipt_source_at(id)).await?.filter(|row| row.tenant == caller.tenant),
                None => None,
            },
        };
        let source = self.source_of(row.ok_or(ServiceError::NotFound)?)?;
        let checked = self.check_signature(&source, delivery)?;
        if checked.is_none() && signature::is_signed(&source.spec.scheme, &delivery.headers) {
            return Err(refused("signature"));
        }
        let id = checked.and_then(|checked| checked.delivery_id);
        self.take(&source, id.as_deref(), "token", delivery).await
    }

    fn check_signature(&self, source: &Source, delivery: &Delivery) -> Result<Option<Checked>, ServiceError> {
        let secrets = self.signing_secrets(source)?;
        let now = self.engine().clock().now();
        Ok(signature::check(&source.spec.scheme, &secrets, &delivery.headers, &delivery.body, now))
    }

    /// Takes an authenticated delivery.
    async fn take(
        &self,
        source: &Source,
        delivery_id: Option<&str>,
        authenticated_by: &str,
        delivery: &Delivery,
    ) -> Result<Disposition, ServiceError> {
        let (text, raw) = parse(&delivery.body)?;
        let mut facts = BTreeMap::from([
            ("authenticated_by".to_owned(), authenticated_by.to_owned()),
            ("body_digest".to_owned(), Sha256Digest::of(text.as_bytes()).as_str().to_owned()),
        ]);
        facts.extend(delivery_id.map(|id| ("delivery_id".to_owned(), id.to_owned())));
        let came = Authentic {
            source,
            principal: principal_of(source)?,
            text,
            facts,
            received_at: self.engine().clock().now(),
        };
        let disposition = self.process(&came, raw).await?;
        metrics::counter!("actonce_inbound_receipts_total", "disposition" => disposition.as_str()).increment(1);
        tracing::info!(
            tenant = %source.row.tenant, source = %source.row.name, disposition = disposition.as_str(),
            "a receipt came in"
        );
        Ok(disposition)
    }

    async fn process(&self, came: &Authentic<'_>, raw: &RawValue) -> Result<Disposition, ServiceError> {
        let (tenant, id) = (&came.source.row.tenant, came.id());
        let told = match read(&came.source.spec, raw) {
            Reading::Ignored => return Ok(Disposition::Ignored),
            Reading::Faulty(reason) => return self.hold(came, reason, None).await,
            Reading::Told(told) => told,
        };
        let earlier = probe::read(self.engine().store().quarantined(tenant, id)).await?;
        if earlier.as_ref().is_some_and(|row| row.status != QuarantineStatus::Waiting) {
            // A person decided about it.
            return Ok(Disposition::Known);
        }
        let look = self.look_at_delivery(came, &told).await?;
        // A doubt is ended in two commits. What is delivered is put down first, so that a crash between
        // them is repaired whether or not the vendor comes again.
        let put_down = look.settles() && earlier.is_none() && came.text.len() <= limits::QUARANTINE_BODY_BYTES;
        if put_down && self.hold(came, "settling", look.operation_id()).await? == Disposition::Known {
            return Ok(Disposition::Known);
        }
        let operation_id = look.operation_id().cloned();
        match self.apply_look(&came.principal, look, None).await? {
            Applied::Done(disposition) => {
                if put_down || earlier.is_some() {
                    probe::write(self.engine().store().quarantine_applied(tenant, id)).await?;
                }
                Ok(disposition)
            }
            Applied::Held(reason) if put_down || earlier.is_some() => {
                self.hold_on(tenant, id, reason, operation_id).await?;
                Ok(Disposition::Quarantined)
            }
            Applied::Held(reason) => self.hold(came, reason, operation_id.as_ref()).await,
        }
    }

    /// Puts a delivery into quarantine; `Known` if a person decided about the same one.
    async fn hold(
        &self,
        came: &Authentic<'_>,
        reason: &'static str,
        operation_id: Option<&Name>,
    ) -> Result<Disposition, ServiceError> {
        if came.text.len() > limits::QUARANTINE_BODY_BYTES {
            return Err(ServiceError::TooLarge {
                reason: "this delivery can't be applied now, and is too large to wait in quarantine",
                limit_bytes: limits::QUARANTINE_BODY_BYTES,
            });
        }
        let facts = serde_json::to_string(&came.facts).map_err(|_| ServiceError::Internal("facts"))?;
        let row = QuarantineRow {
            tenant: came.source.row.tenant.clone(),
            id: came.id(),
            source: came.source.row.name.clone(),
            status: QuarantineStatus::Waiting,
            reason: reason.to_owned(),
            body: Some(came.text.to_owned()),
            body_digest: Sha256Digest::of(came.text.as_bytes()).as_str().to_owned(),
            facts,
            operation_id: operation_id.cloned(),
            attempts: 0,
            next_try_at: retry::next_try(reason, 0, came.received_at),
            received_at: came.received_at,
            expires_at: came.received_at.plus_seconds(limits::QUARANTINE_DAYS.saturating_mul(24 * 3600)),
            decision: None,
        };
        match probe::write(self.engine().store().quarantine(&row, limits::QUARANTINE_ROWS)).await? {
            Quarantined::Stored => {
                self.inbound.wake.notify_one();
                metrics::counter!("actonce_quarantined_total", "reason" => reason).increment(1);
                Ok(Disposition::Quarantined)
            }
            Quarantined::Known(QuarantineStatus::Waiting) => Ok(Disposition::Quarantined),
            Quarantined::Known(_) => Ok(Disposition::Known),
            Quarantined::Full => {
                metrics::counter!("actonce_quarantine_full_total").increment(1);
                Err(ServiceError::Capacity("the quarantine of this tenant is full"))
            }
            Quarantined::NoSource => Err(refused("address")),
        }
    }
}

/// A body: UTF-8, one JSON object that every reader reads alike.
fn parse(body: &[u8]) -> Result<(&str, &RawValue), ServiceError> {
    let text = std::str::from_utf8(body).map_err(|_| ServiceError::invalid("", "must be UTF-8"))?;
    let raw: &RawValue =
        serde_json::from_str(text).map_err(|_| ServiceError::invalid("", "is not well-formed JSON"))?;
    if !raw.get().starts_with('{') {
        return Err(ServiceError::invalid("", "must be an object"));
    }
    canonical::check(raw).map_err(|fault| ServiceError::Invalid(vec![Fault::new(&fault.pointer, fault.reason)]))?;
    Ok((text, raw))
}
