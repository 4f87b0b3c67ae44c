//! All journal rows in order, for verification: one that can't be read back hides no other.

use async_trait::async_trait;
use uuid::Uuid;

use super::{AuditRow, Corruption, Result};
use crate::domain::ids::EffectKey;

/// Where a row stands, whatever is wrong with it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditPlace {
    /// The bytes of the tenant's name.
    pub tenant: Vec<u8>,
    /// The effect.
    pub effect: Uuid,
    /// The revision.
    pub revision: i64,
}

impl AuditPlace {
    /// The place of an effect's revision.
    #[must_use]
    pub fn of(key: &EffectKey, revision: u32) -> Self {
        Self { tenant: key.tenant.as_str().as_bytes().to_vec(), effect: key.effect, revision: i64::from(revision) }
    }
}

/// A row, or what of it can't be read.
#[derive(Debug, Clone)]
pub struct AuditFound {
    /// Where it stands.
    pub place: AuditPlace,
    /// The row.
    pub row: std::result::Result<AuditRow, Corruption>,
}

/// See the module.
#[async_trait]
pub trait AuditStore {
    /// Journal rows in key order, strictly after a place.
    async fn audit_each(&self, after: Option<&AuditPlace>, limit: u32) -> Result<Vec<AuditFound>>;
}
