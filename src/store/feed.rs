//! The journal as a feed: all entries of a tenant, in an order in which nothing ever appears before a
//! place that was read already.

use async_trait::async_trait;
use uuid::Uuid;

use super::Result;
use crate::domain::ids::Tenant;

/// Where an entry stands in its tenant's feed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FeedMark {
    /// On Postgres the number of the transaction that wrote it, on SQLite of its row.
    pub number: i64,
    /// The effect.
    pub effect: Uuid,
    /// The revision.
    pub revision: u32,
}

impl FeedMark {
    /// Before everything.
    pub const START: Self = Self { number: i64::MIN, effect: Uuid::nil(), revision: 0 };
}

/// What is told of an entry.
#[derive(Debug, Clone)]
pub struct FeedContent {
    /// The entry's bytes.
    pub entry: String,
    /// The bytes of its effect's intent.
    pub intent: String,
}

/// An entry in the order of the feed.
#[derive(Debug, Clone)]
pub struct FeedRow {
    /// Where it stands.
    pub mark: FeedMark,
    /// Its hash.
    pub hash: Vec<u8>,
    /// What is told of it; `None` for one of another tenant, which shows how far was looked and nothing else.
    pub content: Option<FeedContent>,
}

/// Some of a feed.
#[derive(Debug)]
pub struct FeedPage {
    /// The entries.
    pub rows: Vec<FeedRow>,
    /// Whether there may be more behind them.
    pub more: bool,
}

/// Reads the journal as a feed.
#[async_trait]
pub trait FeedStore {
    /// Entries of a tenant from a place on, in the order of the feed, the entry at that place included whoever it
    /// belongs to. At most `limit`, and after a bounded look. What a transaction that is still under way might yet
    /// precede is not shown.
    async fn feed(&self, tenant: &Tenant, from: &FeedMark, limit: u32) -> Result<FeedPage>;

    /// The last entry that [`FeedStore::feed`] passes.
    async fn feed_end(&self, tenant: &Tenant) -> Result<Option<FeedRow>>;

    /// Whether the entry that stood at a place was pruned; on SQLite whoever it belonged to.
    async fn feed_place_is_pruned(&self, tenant: &Tenant, place: &FeedMark) -> Result<bool>;

    /// For each tenant, whether a reader of its feed that came to this number may find more.
    async fn feed_moved(&self, seen: &[(Tenant, i64)]) -> Result<Vec<bool>>;
}
