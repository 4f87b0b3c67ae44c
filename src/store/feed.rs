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

/// An entry with the intent of its effect.
#[derive(Debug, Clone)]
pub struct FeedRow {
    /// Where it stands.
    pub mark: FeedMark,
    /// The entry's bytes.
    pub entry: String,
    /// Its hash.
    pub hash: Vec<u8>,
    /// The intent's bytes.
    pub intent: String,
}

/// Reads the journal as a feed.
#[async_trait]
pub trait FeedStore {
    /// Entries of a tenant from a place on, the entry at that place included, in the order of the feed.
    /// What a transaction that is still under way might yet precede is not shown.
    async fn feed(&self, tenant: &Tenant, from: &FeedMark, limit: u32) -> Result<Vec<FeedRow>>;

    /// The last entry that [`FeedStore::feed`] shows.
    async fn feed_end(&self, tenant: &Tenant) -> Result<Option<FeedRow>>;

    /// For each tenant, whether its feed has an entry with a higher number than this one.
    async fn feed_moved(&self, seen: &[(Tenant, i64)]) -> Result<Vec<bool>>;
}
