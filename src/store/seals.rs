//! What is kept sealed under a data key, table by table: for the change of that key, and for a look at it.

use async_trait::async_trait;
use serde::Serialize;
use uuid::Uuid;

use super::Result;

/// A table with sealed content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SealedTable {
    /// Secrets of tools.
    ToolSecrets,
    /// Arguments of effects that have not settled.
    RetainedArguments,
    /// Secrets of receipt sources.
    ReceiptSources,
    /// Secrets of subscriptions.
    Subscriptions,
}

impl SealedTable {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ToolSecrets, Self::RetainedArguments, Self::ReceiptSources, Self::Subscriptions];

    /// The table's name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ToolSecrets => "tool_secrets",
            Self::RetainedArguments => "retained_arguments",
            Self::ReceiptSources => "receipt_sources",
            Self::Subscriptions => "subscriptions",
        }
    }

    /// Whether the sealed bytes are kept as base64.
    #[must_use]
    pub const fn is_text(self) -> bool {
        matches!(self, Self::ReceiptSources | Self::Subscriptions)
    }

    /// Whether its rows are named by an id, and not by a name.
    #[must_use]
    pub const fn has_ids(self) -> bool {
        matches!(self, Self::RetainedArguments | Self::Subscriptions)
    }
}

/// What a sealed row belongs to, within its tenant.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum SealedOwner {
    /// A tool or a source.
    Name(String),
    /// An effect or a subscription.
    Id(Uuid),
}

/// The key of a sealed row.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SealedKey {
    /// The tenant.
    pub tenant: String,
    /// What it belongs to.
    pub owner: SealedOwner,
    /// Its number, where there are several.
    pub number: i64,
}

impl SealedKey {
    /// Before every row of a table.
    #[must_use]
    pub const fn before_all(table: SealedTable) -> Self {
        let owner = if table.has_ids() { SealedOwner::Id(Uuid::nil()) } else { SealedOwner::Name(String::new()) };
        Self { tenant: String::new(), owner, number: -1 }
    }
}

/// A sealed row.
#[derive(Clone)]
pub struct SealedRow {
    /// Its key.
    pub key: SealedKey,
    /// How it begins: three bytes, as they are kept.
    pub start: Vec<u8>,
    /// All of it as it is kept, where it was asked for.
    pub content: Option<Vec<u8>>,
    /// The id of the source that it belongs to.
    pub source: Option<Uuid>,
}

impl std::fmt::Debug for SealedRow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SealedRow").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A row that is sealed anew: only where it is still what was seen.
#[derive(Clone)]
pub struct Resealed {
    /// Its key.
    pub key: SealedKey,
    /// What was seen, as it is kept.
    pub seen: Vec<u8>,
    /// What takes its place.
    pub fresh: Vec<u8>,
}

impl std::fmt::Debug for Resealed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Resealed").field("key", &self.key).finish_non_exhaustive()
    }
}

/// How many of the rows that were looked at begin alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedStart {
    /// The table.
    pub table: SealedTable,
    /// Three bytes, as they are kept.
    pub start: Vec<u8>,
    /// How many.
    pub rows: u64,
}

/// The store's part in a change of the data key.
#[async_trait]
pub trait SealStore {
    /// Sealed rows of a table in order of their keys, strictly after one. Their content comes with them only where `but`
    /// is given, and where they begin otherwise; what is kept as text always begins otherwise.
    async fn sealed(
        &self,
        table: SealedTable,
        after: &SealedKey,
        but: Option<[u8; 2]>,
        limit: u32,
    ) -> Result<Vec<SealedRow>>;

    /// Puts what was sealed anew in place of what was seen, in one transaction and each row by itself; how many were.
    /// A row that changed meanwhile, or that somebody else is writing, is left alone.
    async fn reseal(&self, table: SealedTable, rows: &[Resealed]) -> Result<u64>;
}
