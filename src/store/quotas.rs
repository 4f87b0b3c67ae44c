//! Counting what a tenant and its principals have open, for their quotas.

use async_trait::async_trait;

use super::Result;
use crate::domain::ids::{Name, Tenant};

/// See the module.
#[async_trait]
pub trait QuotaStore {
    /// How many effects of a tenant are not settled; it is counted up to `most` and no further.
    async fn count_open(&self, tenant: &Tenant, most: u32) -> Result<u64>;

    /// How many of them each principal has proposed, those with the most first, `principals` of them. `rows` rows of the
    /// tenant are looked at, and no more: where it has more, the numbers are too low.
    async fn count_open_by_principal(&self, tenant: &Tenant, rows: u32, principals: u32) -> Result<Vec<(Name, u64)>>;
}
