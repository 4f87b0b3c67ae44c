//! What recovery reads and writes besides effects: open work by root, executions of plans with their
//! receipts, and who has an item in hand.

use async_trait::async_trait;
use uuid::Uuid;

use super::{Corruption, Result};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::time::Timestamp;

/// An open effect and the root it belongs to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenWork {
    /// The effect.
    pub key: EffectKey,
    /// Its session, as stored.
    pub session_id: Option<String>,
    /// Its run, as stored.
    pub run_id: Option<String>,
}

/// An execution of a plan, as written before anything is done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutionRow {
    /// The caller's name for it.
    pub execution_id: Name,
    /// Digest of plan and decisions.
    pub digest: String,
    /// The plan.
    pub plan_id: String,
    /// The decisions, as text.
    pub decisions: String,
    /// How many they are.
    pub items: u32,
    /// Who began it.
    pub begun_by: String,
    /// When.
    pub begun_at: Timestamp,
}

/// Who wants an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemClaim {
    /// The item's effect.
    pub key: EffectKey,
    /// Random; the executor's alone.
    pub executor: Uuid,
    /// How long it may stay silent, from now by the database's clock.
    pub lease_seconds: u32,
}

/// The store's part of recovery.
#[async_trait]
pub trait RecoveryStore: Send + Sync {
    /// Open effects that were created no later than a time, in key order, strictly after a key. A row
    /// that can't be read back is an answer of its own.
    async fn open_work(
        &self,
        until: Timestamp,
        after: Option<&EffectKey>,
        limit: u32,
    ) -> Result<Vec<std::result::Result<OpenWork, Corruption>>>;

    /// Whether an executor has each effect in hand, by the database's clock.
    async fn recovery_claimed(&self, keys: &[EffectKey]) -> Result<Vec<bool>>;

    /// Writes an execution unless its id is taken, and answers what is there then. Durable.
    async fn begin_execution(&self, tenant: &Tenant, row: &ExecutionRow) -> Result<ExecutionRow>;

    /// An execution.
    async fn execution(&self, tenant: &Tenant, execution_id: &Name) -> Result<Option<ExecutionRow>>;

    /// The receipts of an execution by item.
    async fn execution_receipts(&self, tenant: &Tenant, execution_id: &Name) -> Result<Vec<(u32, String)>>;

    /// Takes an item, or holds it longer: granted if nobody else has it by the database's clock.
    async fn claim_item(&self, claim: &ItemClaim) -> Result<bool>;

    /// Gives an item back. Nothing happens where somebody else has it by now.
    async fn release_item(&self, claim: &ItemClaim) -> Result<()>;

    /// The receipt of one item.
    async fn item_receipt(&self, tenant: &Tenant, execution_id: &Name, item: u32) -> Result<Option<String>>;

    /// Writes an item's receipt unless one is there, and gives the item back, in one. Durable.
    async fn close_item(&self, claim: &ItemClaim, execution_id: &Name, item: u32, receipt: &str) -> Result<()>;
}
