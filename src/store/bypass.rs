//! What a comparison with a vendor's export needs to know of many effects: not more than their intent and state.

use async_trait::async_trait;

use super::{Position, Result};
use crate::domain::ids::{EffectKey, Tenant};
use crate::domain::time::Timestamp;

/// An effect at a glance, as stored.
#[derive(Debug, Clone)]
pub struct Glance {
    /// The intent.
    pub intent: String,
    /// The state of the newest entry.
    pub state: i16,
}

/// Reads for bypass reports.
#[async_trait]
pub trait BypassStore {
    /// Effects at a glance, one answer per key in order.
    async fn glances(&self, keys: &[EffectKey]) -> Result<Vec<Option<Glance>>>;

    /// Effects created before a time, in order of creation, strictly after a position.
    async fn created(
        &self,
        tenant: &Tenant,
        after: Position,
        before: Timestamp,
        limit: u32,
    ) -> Result<Vec<(Position, Glance)>>;
}
