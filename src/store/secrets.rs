//! Sealed secrets of tools. They are written with the tool, in the same transaction.

use async_trait::async_trait;

use super::Result;
use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;

/// One secret of a tool, as stored.
#[derive(Clone)]
pub struct ToolSecretRow {
    /// Its number: the newest is the highest.
    pub number: u32,
    /// The secret, sealed.
    pub sealed: Vec<u8>,
    /// When it was set, by database time.
    pub created_at: Timestamp,
    /// When a newer one took its place, by database time.
    pub retired_at: Option<Timestamp>,
}

impl std::fmt::Debug for ToolSecretRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToolSecretRow").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Reads of tools' secrets; [`ToolWrite`](super::ToolWrite) writes them.
#[async_trait]
pub trait SecretStore {
    /// The newest secret of a tool and the one before it, the newest first.
    async fn tool_secrets(&self, tenant: &Tenant, tool: &Name) -> Result<Vec<ToolSecretRow>>;
}
