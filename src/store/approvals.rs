//! What approvals store: retained arguments and standing grants.

use async_trait::async_trait;
use uuid::Uuid;

use super::elapsed::WaitChange;
use super::{Position, Result};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::time::Timestamp;

/// What is written beside a revision, in the same transaction, and what that depends on. Most
/// revisions have nothing beside them, and pay nothing for those that do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Beside {
    /// The sealed arguments, with revision 1.
    pub retained: Option<Vec<u8>>,
    /// The retained arguments go: the effect is settled.
    pub forget: bool,
    /// A use of this grant. The revision is applied only if the grant is not revoked, not expired by the
    /// database's clock, and not used up; the use is counted only if the revision is applied.
    pub grant_use: Option<Uuid>,
    /// A session and its profile. The revision is applied only if the session is bound to that profile,
    /// and no adoption can come between.
    pub session: Option<(Name, Name)>,
    /// A person is waited for from now on, or no more.
    pub wait: Option<WaitChange>,
}

/// A standing grant as stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantRow {
    /// Its id.
    pub id: Uuid,
    /// The tool.
    pub tool: Name,
    /// The terms, as a document.
    pub terms: String,
    /// Uses so far.
    pub uses: u32,
    /// Most uses.
    pub max_uses: u32,
    /// When it was made.
    pub created_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
    /// Who revoked it, and when.
    pub revoked: Option<(Name, Timestamp)>,
}

/// What came of a new grant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantWritten {
    /// It is durable.
    Applied,
    /// There is one of that id, or the tool has too many live ones.
    Refused,
}

/// Retained arguments and standing grants.
#[async_trait]
pub trait ApprovalStore {
    /// The sealed arguments of an effect, while they are retained.
    async fn retained(&self, key: &EffectKey) -> Result<Option<Vec<u8>>>;

    /// Adds a grant, unless its id is taken or its tool has `limit` live ones.
    async fn add_grant(&self, tenant: &Tenant, grant: &GrantRow, limit: u32) -> Result<GrantWritten>;

    /// A grant.
    async fn grant(&self, tenant: &Tenant, id: Uuid) -> Result<Option<GrantRow>>;

    /// Grants in order of creation, strictly after a position.
    async fn grants(&self, tenant: &Tenant, after: Option<Position>, limit: u32) -> Result<Vec<GrantRow>>;

    /// Grants of a tool that may still be used by the database's clock, the next to expire first.
    async fn live_grants(&self, tenant: &Tenant, tool: &Name, limit: u32) -> Result<Vec<GrantRow>>;

    /// Revokes a grant; one that is revoked stays as it is. Whether it is there.
    async fn revoke_grant(&self, tenant: &Tenant, id: Uuid, by: &Name, at: Timestamp) -> Result<bool>;
}
