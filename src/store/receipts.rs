//! Receipt sources and the quarantine of their deliveries.

use async_trait::async_trait;
use uuid::Uuid;

use super::Result;
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;

/// A source as stored.
#[derive(Debug, Clone)]
pub struct SourceRow {
    /// The tenant.
    pub tenant: Tenant,
    /// The name.
    pub name: Name,
    /// The address that a vendor is given.
    pub source_id: Uuid,
    /// Grows with every change.
    pub revision: u32,
    /// The registration.
    pub spec: String,
    /// The secrets, sealed; absent where the configuration has them.
    pub secrets: Option<String>,
    /// When it was changed last.
    pub changed_at: Timestamp,
}

/// A change of a source, as a compare-and-set on its revision.
#[derive(Debug, Clone)]
pub struct SourceWrite {
    /// The source after the change; `revision` is one more than the one found.
    pub row: SourceRow,
    /// Who.
    pub by: Name,
}

/// What came of deleting a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SourceDeleted {
    /// It is gone, and with it what is remembered of its decided deliveries.
    Applied,
    /// Somebody else was first.
    Lost,
    /// A delivery of it waits in quarantine.
    InUse,
}

/// Whether a delivery in quarantine was decided about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuarantineStatus {
    /// It waits.
    Waiting,
    /// A person attached it to an effect.
    Attached,
    /// A person discarded it.
    Discarded,
}

impl QuarantineStatus {
    /// The number under which it is stored. Never reuse one.
    #[must_use]
    pub const fn code(self) -> i16 {
        match self {
            Self::Waiting => 1,
            Self::Attached => 2,
            Self::Discarded => 3,
        }
    }

    /// The status stored under a number.
    #[must_use]
    pub fn of(code: i16) -> Option<Self> {
        [Self::Waiting, Self::Attached, Self::Discarded].into_iter().find(|status| status.code() == code)
    }
}

/// A delivery in quarantine.
#[derive(Debug, Clone)]
pub struct QuarantineRow {
    /// The tenant.
    pub tenant: Tenant,
    /// Computed from source and body.
    pub id: Uuid,
    /// The source.
    pub source: Name,
    /// Whether it was decided about.
    pub status: QuarantineStatus,
    /// Why it is here.
    pub reason: String,
    /// The body as delivered, while it waits.
    pub body: Option<String>,
    /// Digest of the body.
    pub body_digest: String,
    /// How it came, as JSON.
    pub facts: String,
    /// The operation that it names, where that could be read.
    pub operation_id: Option<Name>,
    /// How often it was tried again.
    pub attempts: u32,
    /// When it is tried again by itself.
    pub next_try_at: Option<Timestamp>,
    /// When it came.
    pub received_at: Timestamp,
    /// When it is dropped.
    pub expires_at: Timestamp,
    /// What was decided, as JSON.
    pub decision: Option<String>,
}

/// What came of putting a delivery into quarantine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quarantined {
    /// It is durable.
    Stored,
    /// It was there already; nothing was written.
    Known(QuarantineStatus),
    /// The tenant's quarantine is full.
    Full,
    /// The source is gone.
    NoSource,
}

/// A look at a waiting delivery, as a compare-and-set on how often it was tried.
#[derive(Debug, Clone)]
pub struct QuarantineTry {
    /// The tenant.
    pub tenant: Tenant,
    /// The delivery.
    pub id: Uuid,
    /// How often it was tried before.
    pub attempts: u32,
    /// Why it still waits; `None`: as before.
    pub reason: Option<&'static str>,
    /// The operation that it names, where that is known now.
    pub operation_id: Option<Name>,
    /// When it is tried again by itself; `None`: only people do.
    pub next_try_at: Option<Timestamp>,
}

/// The store of sources and their quarantine.
#[async_trait]
pub trait ReceiptStore {
    /// A source by its name.
    async fn receipt_source(&self, tenant: &Tenant, name: &Name) -> Result<Option<SourceRow>>;

    /// A source by its address.
    async fn receipt_source_at(&self, source_id: Uuid) -> Result<Option<SourceRow>>;

    /// Sources by name, strictly after one.
    async fn receipt_sources(&self, tenant: &Tenant, after: Option<&Name>, limit: u32) -> Result<Vec<SourceRow>>;

    /// Writes a source; whatever of it waits in quarantine is tried again soon. Returns whether the
    /// revision before was the one expected.
    async fn write_receipt_source(&self, write: &SourceWrite) -> Result<bool>;

    /// Deletes a source at a revision.
    async fn delete_receipt_source(&self, tenant: &Tenant, name: &Name, revision: u32) -> Result<SourceDeleted>;

    /// Puts a delivery into quarantine, unless it is there or `most` of the tenant wait already.
    async fn quarantine(&self, row: &QuarantineRow, most: u32) -> Result<Quarantined>;

    /// A delivery in quarantine.
    async fn quarantined(&self, tenant: &Tenant, id: Uuid) -> Result<Option<QuarantineRow>>;

    /// Deliveries with a status by the time they came, strictly after one. Without their bodies.
    async fn quarantine_list(
        &self,
        tenant: &Tenant,
        status: QuarantineStatus,
        after: Option<(Timestamp, Uuid)>,
        limit: u32,
    ) -> Result<Vec<QuarantineRow>>;

    /// Waiting deliveries whose next try has come, by the database's own clock, oldest first.
    async fn quarantine_due(&self, limit: u32) -> Result<Vec<QuarantineRow>>;

    /// When the next try comes, and the database's time.
    async fn quarantine_next(&self) -> Result<(Option<Timestamp>, Timestamp)>;

    /// Notes a try. Returns whether the delivery waited and was tried as often as expected.
    async fn quarantine_try(&self, look: &QuarantineTry) -> Result<bool>;

    /// Notes what a person decided about a waiting delivery, and forgets all decided ones of the tenant
    /// but the newest `most`. Returns whether it waited.
    async fn quarantine_decide(
        &self,
        row: &QuarantineRow,
        status: QuarantineStatus,
        decision: &str,
        most: u32,
    ) -> Result<bool>;

    /// Removes a waiting delivery that was applied. Returns whether it waited.
    async fn quarantine_applied(&self, tenant: &Tenant, id: Uuid) -> Result<bool>;

    /// Removes deliveries that are too old, by the database's own clock. Returns how many of them waited.
    async fn quarantine_expire(&self, limit: u32) -> Result<u64>;
}
