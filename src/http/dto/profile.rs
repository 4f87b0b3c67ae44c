//! Profiles and adoptions as sent and as answered.

use serde::{Deserialize, Serialize};

use super::Faults;
use super::grant::{check_key, check_reason};
use crate::domain::profile::{Profile, ProfileComponent};
use crate::domain::time::Timestamp;
use crate::http::problem::Problem;
use crate::service::profiles::AdoptionRequest;
use crate::store::{Adoption, ProfileRow, SessionRow};

/// The components that a client runs with.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProfileBody {
    /// In any order; one per class and name.
    #[schema(min_items = 1, max_items = 256)]
    pub components: Vec<ProfileComponent>,
}

impl ProfileBody {
    /// Checks and sorts the components.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self) -> Result<Profile, Problem> {
        Profile::new(self.components).map_err(|found| {
            let mut faults = Faults::default();
            faults.under("", found);
            faults.problem()
        })
    }
}

/// The name of a profile.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ProfileId<'a> {
    /// `sha256:` and 64 hex digits over the canonical JSON of the components, sorted by class (`tool`, `policy`,
    /// `environment`) and name.
    pub profile_id: &'a str,
}

/// A declared profile.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Profile)]
pub struct ProfileView<'a> {
    profile_id: &'a str,
    /// The components, sorted.
    components: Vec<ProfileComponent>,
    /// When it was declared first.
    #[schema(value_type = String, format = DateTime)]
    declared_at: Timestamp,
    /// Who declared it first.
    declared_by: &'a str,
}

impl<'a> From<&'a ProfileRow> for ProfileView<'a> {
    fn from(row: &'a ProfileRow) -> Self {
        Self {
            profile_id: row.id.as_str(),
            components: serde_json::from_str(&row.components).unwrap_or_default(),
            declared_at: row.declared_at,
            declared_by: row.declared_by.as_str(),
        }
    }
}

/// What a session is bound to.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SessionProfileView<'a> {
    session_id: &'a str,
    profile_id: &'a str,
    /// Since when.
    #[schema(value_type = String, format = DateTime)]
    bound_at: Timestamp,
    /// Who bound it.
    bound_by: &'a str,
}

impl<'a> From<&'a SessionRow> for SessionProfileView<'a> {
    fn from(row: &'a SessionRow) -> Self {
        Self {
            session_id: row.id.as_str(),
            profile_id: row.profile.as_str(),
            bound_at: row.bound_at,
            bound_by: row.bound_by.as_str(),
        }
    }
}

/// A wish that a session adopt another profile.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptionBody {
    /// The profile to adopt; declared before.
    pub profile_id: String,
    /// The caller's name for this request: a repeat gets the recorded answer. May come as the header `Idempotency-Key`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
    /// Why (at most 2 KiB).
    pub reason: String,
    /// For whom, where the caller acts for somebody.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub requester: Option<String>,
}

impl AdoptionBody {
    /// Checks the wish; `header` is the `Idempotency-Key`.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self, header: Option<&str>) -> Result<AdoptionRequest, Problem> {
        let mut faults = Faults::default();
        let profile = faults.name("/profile_id", &self.profile_id);
        let requester = faults.optional("/requester", self.requester.as_ref());
        check_reason(&self.reason, &mut faults);
        let key = check_key(self.idempotency_key.as_deref(), header, &mut faults);
        if self.idempotency_key.is_none() && header.is_none() {
            faults.add("/idempotency_key", "is required, or the header `Idempotency-Key`");
        }
        match (profile, key) {
            (Some(profile), Some(key)) if faults.is_empty() => {
                Ok(AdoptionRequest { profile, key, reason: self.reason, requester })
            }
            _ => Err(faults.problem()),
        }
    }
}

/// An adoption on record.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Adoption)]
pub struct AdoptionView<'a> {
    session_id: &'a str,
    /// The profile after it.
    profile_id: &'a str,
    /// The profile before it.
    previous_profile_id: &'a str,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    adopted_at: Timestamp,
    /// Who.
    adopted_by: &'a str,
}

impl<'a> From<&'a Adoption> for AdoptionView<'a> {
    fn from(made: &'a Adoption) -> Self {
        Self {
            session_id: made.session.as_str(),
            profile_id: made.profile.as_str(),
            previous_profile_id: made.previous.as_str(),
            adopted_at: made.at,
            adopted_by: made.by.as_str(),
        }
    }
}
