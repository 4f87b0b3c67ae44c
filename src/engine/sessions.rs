//! Profiles and sessions as this process knows them. A declared profile never changes. What a session
//! is bound to is trusted for a moment only; every commit that depends on it repeats it.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;

use crate::domain::ids::{Name, Tenant};
use crate::domain::profile::{Profile, ProfileDifference, unknown_difference};
use crate::domain::time::Timestamp;
use crate::store::{Corruption, SessionRow, Store, StoreError};

/// How long a binding is trusted for answers that write nothing.
const BOUND_TTL: Duration = Duration::from_secs(1);
/// Most entries of each cache.
const ENTRIES: u64 = 10_000;

/// Profiles and sessions.
#[derive(Debug)]
pub struct Sessions {
    store: Arc<dyn Store>,
    bound: Cache<(Tenant, Name), Name>,
    profiles: Cache<(Tenant, Name), Arc<Profile>>,
}

impl Sessions {
    /// None known yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            bound: Cache::builder().max_capacity(ENTRIES).time_to_live(BOUND_TTL).build(),
            profiles: Cache::builder().max_capacity(ENTRIES).build(),
        }
    }

    /// A declared profile.
    ///
    /// # Errors
    /// The store can't answer, or the row can't be read back.
    pub async fn profile(&self, tenant: &Tenant, id: &Name) -> Result<Option<Arc<Profile>>, StoreError> {
        let key = (tenant.clone(), id.clone());
        if let Some(known) = self.profiles.get(&key) {
            return Ok(Some(known));
        }
        let Some(row) = self.store.profile(tenant, id).await? else { return Ok(None) };
        let bad = || Corruption { table: "profiles", column: "components", key: id.to_string() };
        let profile = Arc::new(Profile::parse(&row.components).ok_or_else(bad)?);
        self.profiles.insert(key, Arc::clone(&profile));
        Ok(Some(profile))
    }

    /// The profile that a session is bound to.
    ///
    /// # Errors
    /// The store can't answer, or the row can't be read back.
    pub async fn bound(&self, tenant: &Tenant, session: &Name) -> Result<Option<Name>, StoreError> {
        let key = (tenant.clone(), session.clone());
        if let Some(known) = self.bound.get(&key) {
            return Ok(Some(known));
        }
        let found = self.store.session(tenant, session).await?.map(|row| row.profile);
        if let Some(profile) = &found {
            self.bound.insert(key, profile.clone());
        }
        Ok(found)
    }

    /// Binds a session that is not bound yet, and answers what it is bound to.
    ///
    /// # Errors
    /// The store can't answer, or the row can't be read back.
    pub async fn bind(
        &self,
        tenant: &Tenant,
        (session, profile): (&Name, &Name),
        by: &Name,
        at: Timestamp,
    ) -> Result<Name, StoreError> {
        if let Some(bound) = self.bound(tenant, session).await? {
            return Ok(bound);
        }
        let wish = SessionRow { id: session.clone(), profile: profile.clone(), bound_at: at, bound_by: by.clone() };
        let bound = self.store.bind_session(tenant, &wish).await?.profile;
        self.bound.insert((tenant.clone(), session.clone()), bound.clone());
        Ok(bound)
    }

    /// In which classes two profiles differ; never more than that.
    ///
    /// # Errors
    /// The store can't answer, or a row can't be read back.
    pub async fn differences(&self, tenant: &Tenant, a: &Name, b: &Name) -> Result<Vec<ProfileDifference>, StoreError> {
        Ok(match (self.profile(tenant, a).await?, self.profile(tenant, b).await?) {
            (Some(a), Some(b)) => a.differences(&b),
            _ => unknown_difference(),
        })
    }

    /// Forgets a binding: it changed, or a commit found another one.
    pub fn forget(&self, tenant: &Tenant, session: &Name) {
        self.bound.invalidate(&(tenant.clone(), session.clone()));
    }
}
