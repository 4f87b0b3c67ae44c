//! What profiles store: declared profiles, the sessions bound to them, and adoptions.

use async_trait::async_trait;

use super::Result;
use crate::domain::ids::{Name, Tenant};
use crate::domain::state::State;
use crate::domain::time::Timestamp;

/// A declared profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProfileRow {
    /// The digest of the components.
    pub id: Name,
    /// The components, as a document.
    pub components: String,
    /// When it was declared first.
    pub declared_at: Timestamp,
    /// Who declared it first.
    pub declared_by: Name,
}

/// A session that is bound to a profile.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionRow {
    /// The session.
    pub id: Name,
    /// Its profile.
    pub profile: Name,
    /// Since when.
    pub bound_at: Timestamp,
    /// Who bound it.
    pub bound_by: Name,
}

/// A wish that a session adopt another profile, or one that came true.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Adoption {
    /// The session.
    pub session: Name,
    /// The caller's name for the wish.
    pub key: Name,
    /// The profile before; in a wish, not looked at.
    pub previous: Name,
    /// The profile after.
    pub profile: Name,
    /// What was asked, as a document: a repeat is the same one.
    pub request: String,
    /// Who.
    pub by: Name,
    /// When.
    pub at: Timestamp,
}

/// What came of a wish to adopt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Adopted {
    /// It is durable.
    Applied(Adoption),
    /// It was made before under the same key: as it is on record, whatever was asked now.
    Known(Adoption),
    /// The session is bound to no profile.
    Unbound,
    /// The session has effects that are neither settled nor mere proposals.
    Unresolved(Vec<(State, u64)>),
}

/// Profiles and sessions.
#[async_trait]
pub trait ProfileStore {
    /// Declares a profile; one that is there stays as it is.
    async fn add_profile(&self, tenant: &Tenant, profile: &ProfileRow) -> Result<()>;

    /// A declared profile.
    async fn profile(&self, tenant: &Tenant, id: &Name) -> Result<Option<ProfileRow>>;

    /// A bound session.
    async fn session(&self, tenant: &Tenant, id: &Name) -> Result<Option<SessionRow>>;

    /// Binds a session to a profile, unless it is bound. Answers what it is bound to then.
    async fn bind_session(&self, tenant: &Tenant, session: &SessionRow) -> Result<SessionRow>;

    /// Adopts another profile. No intent of the session commits under the old one after it, and none that
    /// was committed before is overlooked.
    async fn adopt(&self, tenant: &Tenant, wish: &Adoption) -> Result<Adopted>;
}
