//! How many effects a tenant may have open at once.

use std::collections::BTreeMap;
use std::num::NonZeroU32;

use serde::Serialize;

use super::ids::Tenant;

/// The most unsettled effects that a tenant may have before its new intents are refused; nothing else ever is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct OpenQuota {
    /// Of tenants that are not named; `None`: no bound.
    pub default: Option<NonZeroU32>,
    /// Of these; `None`: no bound.
    pub tenants: BTreeMap<Tenant, Option<NonZeroU32>>,
}

impl OpenQuota {
    /// The bound of a tenant; `None` for none.
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
