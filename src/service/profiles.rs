//! Profiles, and the sessions bound to them.

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::ids::Name;
use crate::domain::profile::Profile;
use crate::store::{Adopted, Adoption, ProfileRow, SessionRow};
use crate::telemetry::probe;

/// `POST /api/sessions/{session_id}/profile`, checked.
#[derive(Debug, Clone)]
pub struct AdoptionRequest {
    /// The profile to adopt.
    pub profile: Name,
    /// The caller's name for the request.
    pub key: Name,
    /// Why.
    pub reason: String,
    /// For whom, where the caller acts for somebody.
    pub requester: Option<Name>,
}

impl Service {
    /// Declares a profile. The same components make the same profile.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn put_profile(&self, caller: &Principal, profile: &Profile) -> Result<Name, ServiceError> {
        let bad = |_| ServiceError::Internal("a profile id is no name");
        let id = Name::new(profile.id().as_str()).map_err(bad)?;
        if self.engine().sessions().profile(&caller.tenant, &id).await?.is_none() {
            let row = ProfileRow {
                id: id.clone(),
                components: profile.text(),
                declared_at: self.engine().clock().now(),
                declared_by: caller.subject.clone(),
            };
            probe::write(self.engine().store().add_profile(&caller.tenant, &row)).await?;
        }
        Ok(id)
    }

    /// A declared profile.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn profile(&self, caller: &Principal, id: &Name) -> Result<ProfileRow, ServiceError> {
        probe::read(self.engine().store().profile(&caller.tenant, id)).await?.ok_or(ServiceError::NotFound)
    }

    /// What a session is bound to.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn session_profile(&self, caller: &Principal, session: &Name) -> Result<SessionRow, ServiceError> {
        probe::read(self.engine().store().session(&caller.tenant, session)).await?.ok_or(ServiceError::NotFound)
    }

    /// Adopts another profile for a session that has nothing unresolved. A repeat under the same key gets
    /// the recorded adoption.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn adopt_profile(
        &self,
        caller: &Principal,
        session: &Name,
        request: AdoptionRequest,
    ) -> Result<Adoption, ServiceError> {
        let (tenant, store) = (&caller.tenant, self.engine().store());
        // An unbound session is absent, whatever profile is named.
        let bound = probe::read(store.session(tenant, session)).await?.ok_or(ServiceError::NotFound)?;
        if self.engine().sessions().profile(tenant, &request.profile).await?.is_none() {
            return Err(ServiceError::invalid("/profile_id", "is not a declared profile of this tenant"));
        }
        let asked = serde_json::json!({
            "profile_id": request.profile, "reason": request.reason, "requester": request.requester,
        });
        let wish = Adoption {
            session: session.clone(),
            key: request.key,
            previous: bound.profile,
            profile: request.profile,
            request: asked.to_string(),
            by: caller.subject.clone(),
            at: probe::read(store.now()).await?,
        };
        let adopted = probe::write(store.adopt(tenant, &wish)).await?;
        self.engine().sessions().forget(tenant, session);
        match adopted {
            Adopted::Applied(made) => Ok(made),
            Adopted::Known(made) if made.request == wish.request && made.by == wish.by => Ok(made),
            Adopted::Known(_) => Err(ServiceError::KeyReused),
            Adopted::Unbound => Err(ServiceError::NotFound),
            Adopted::Unresolved(counts) => Err(ServiceError::Unresolved(counts)),
        }
    }
}
