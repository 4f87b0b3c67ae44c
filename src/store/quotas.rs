//! Counting what a tenant has open, for its quota.

use async_trait::async_trait;

use super::Result;
use crate::domain::ids::Tenant;

/// See the module.
#[async_trait]
pub trait QuotaStore {
    /// How many effects of a tenant are not settled; it is counted up to `most` and no further.
    async fn count_open(&self, tenant: &Tenant, most: u32) -> Result<u64>;
}
