//! How many effects a tenant, and each of its principals, may have open at once.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Serialize;

use super::ids::Tenant;

/// Whose bound it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bounded {
    /// A tenant's, for all that it has open.
    Tenant,
    /// A principal's, for what it has proposed itself.
    Principal,
}

impl Bounded {
    /// The name that problems and metrics have for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tenant => "tenant_open_effects",
            Self::Principal => "principal_open_effects",
        }
    }
}

/// The most unsettled effects that a tenant may have, or each of its principals, before new intents are refused;
/// nothing else ever is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OpenQuota {
    /// Of tenants that are not named, or of their principals; `None`: no bound.
    pub default: Option<NonZeroU32>,
    /// Of these, or of theirs; `None`: no bound.
    pub tenants: BTreeMap<Tenant, Option<NonZeroU32>>,
}

impl OpenQuota {
    /// The bound of a tenant, or of each of its principals; `None` for none.
    #[must_use]
    pub fn of(&self, tenant: &Tenant) -> Option<NonZeroU32> {
        self.tenants.get(tenant).copied().unwrap_or(self.default)
    }

    /// Whether nobody is bounded.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.default.is_none() && self.tenants.values().all(Option::is_none)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenant_s_own_bound_stands_above_the_one_of_all() {
        let tenant = |name: &str| Tenant::new(name).unwrap();
        let named = [(tenant("small"), NonZeroU32::new(2)), (tenant("free"), None)];
        let quota = OpenQuota { default: NonZeroU32::new(10), tenants: named.into() };
        assert_eq!(quota.of(&tenant("small")), NonZeroU32::new(2));
        assert_eq!((quota.of(&tenant("free")), quota.is_off()), (None, false));
        assert_eq!(quota.of(&tenant("other")), NonZeroU32::new(10));
        assert!(OpenQuota { default: None, tenants: [(tenant("free"), None)].into() }.is_off());
        assert!(OpenQuota::default().is_off());
    }
}
