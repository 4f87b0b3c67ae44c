//! The store: a narrow trait, two backends, one behaviour.
//!
//! Durability contract: when [`Store::commit`] returns, what it reports as applied survives the
//! kill of this process, of the database server and of the machine (`fsync`). No business rule
//! lives in SQL; every write carries what it expects to find.

pub mod aliases;
pub mod approvals;
pub mod audit;
pub mod backup;
pub mod bypass;
pub mod changeset;
pub mod checkpoints;
pub mod doubts;
pub mod elapsed;
pub mod error;
pub mod feed;
pub mod health;
pub mod inspect;
pub mod migrate;
pub mod open;
pub mod operators;
pub mod pools;
pub mod postgres;
pub mod profiles;
pub mod quotas;
pub mod receipts;
pub mod recovery;
pub mod restore;
pub mod retention;
pub mod rows;
pub mod seals;
pub mod secrets;
pub mod sqlite;
pub mod subscriptions;

use async_trait::async_trait;
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::record::Record;
use crate::domain::state::State;
use crate::domain::time::Timestamp;

pub use approvals::{ApprovalStore, Beside, GrantRow, GrantWritten};
pub use bypass::BypassStore;
pub use changeset::{ChangeSet, Committed, IntentRow, OpenRow, Postponed, Renewal, RevisionRow};
pub use checkpoints::CheckpointStore;
pub use error::{Corruption, StoreError};
pub use feed::{FeedContent, FeedMark, FeedPage, FeedRow, FeedStore};
pub use operators::{DoubtBound, EvidenceRow, OperatorStore, QueueRow, QueueWalk};
pub use pools::{PoolStore, PoolUse};
pub use profiles::{Adopted, Adoption, ProfileRow, ProfileStore, SessionRow};
pub use receipts::ReceiptStore;
pub use recovery::RecoveryStore;
pub use retention::Unloadable;
pub use secrets::{SecretStore, ToolSecretRow};
pub use subscriptions::SubscriptionStore;

/// Result of a store call.
pub type Result<T> = std::result::Result<T, StoreError>;

/// Which backend it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// One embedded file.
    Sqlite,
    /// A Postgres server.
    Postgres,
}

impl Backend {
    /// The word of protocol §14.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }
}

/// A place in a list: creation time, then effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position {
    /// When the effect was created.
    pub created_at: Timestamp,
    /// Its id.
    pub effect: Uuid,
}

/// What a list walks along. Each is an index; other filters are applied to what it yields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Walk {
    /// Every effect of the tenant.
    All,
    /// Effects of one run.
    Run(Name),
    /// Effects of one session.
    Session(Name),
    /// Open effects in one state.
    Open(State),
    /// Effects flagged as contradicted.
    Contradicted,
}

/// One journal row as stored.
#[derive(Debug, Clone)]
pub struct JournalRow {
    /// The revision.
    pub revision: u32,
    /// The entry's bytes.
    pub entry: String,
    /// The previous hash.
    pub prev_hash: Vec<u8>,
    /// Its hash.
    pub hash: Vec<u8>,
}

/// One journal row with everything that its entry's digests cover, for verification.
#[derive(Debug, Clone)]
pub struct AuditRow {
    /// The effect.
    pub key: EffectKey,
    /// The journal row.
    pub journal: JournalRow,
    /// The state column.
    pub state: i16,
    /// The intent, in revision 1.
    pub intent: Option<String>,
    /// The record's life.
    pub life: String,
    /// The receipt, where stored.
    pub receipt: Option<String>,
    /// The result, where stored.
    pub result: Option<String>,
}

/// One row of the table of open effects, for verification.
#[derive(Debug, Clone)]
pub struct OpenMark {
    /// The effect.
    pub key: EffectKey,
    /// The revision it claims.
    pub revision: u32,
}

/// A tool's current row with the registration of its current revision.
#[derive(Debug, Clone)]
pub struct ToolRow {
    /// The name.
    pub name: Name,
    /// The current revision.
    pub revision: u32,
    /// Grows with every change.
    pub stamp: i64,
    /// Whether claims are held.
    pub paused: bool,
    /// Whether it was deleted; its revisions stay for the effects made under them.
    pub deleted: bool,
    /// The registration, as stored.
    pub spec: String,
    /// When this revision was registered.
    pub registered_at: Timestamp,
}

/// A change of a tool, as a compare-and-set on its stamp.
#[derive(Debug, Clone)]
pub struct ToolWrite {
    /// The tenant.
    pub tenant: Tenant,
    /// The tool.
    pub name: Name,
    /// The stamp found, `None` for a tool that was never there.
    pub expected_stamp: Option<i64>,
    /// The revision after it.
    pub revision: u32,
    /// The new registration, where the revision is new.
    pub spec: Option<String>,
    /// Paused after it.
    pub paused: bool,
    /// Deleted after it, its secrets with it; refused while an open effect uses the tool.
    pub deleted: bool,
    /// Doubts of the tool that are already open are to be woken: see [`doubts`].
    pub wakes_doubts: bool,
    /// A new secret, sealed; the former one is retired.
    pub secret: Option<Vec<u8>>,
    /// Who.
    pub by: Name,
    /// When.
    pub at: Timestamp,
}

/// What came of a [`ToolWrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolWritten {
    /// It is durable.
    Applied,
    /// Somebody else was first.
    Lost,
    /// An open effect uses the tool.
    InUse,
}

/// The narrow trait. Object-safe; `Arc<dyn Store>` is what the engine holds.
#[async_trait]
pub trait Store:
    aliases::AliasKeyStore
    + SecretStore
    + audit::AuditStore
    + doubts::DoubtStore
    + OperatorStore
    + RecoveryStore
    + elapsed::ElapsedStore
    + ReceiptStore
    + ApprovalStore
    + ProfileStore
    + FeedStore
    + SubscriptionStore
    + CheckpointStore
    + BypassStore
    + PoolStore
    + health::WriteHealth
    + quotas::QuotaStore
    + restore::RestoreStore
    + retention::RetentionStore
    + seals::SealStore
    + Send
    + Sync
    + std::fmt::Debug
{
    /// Which backend.
    fn backend(&self) -> Backend;

    /// The database's time (law 13).
    async fn now(&self) -> Result<Timestamp>;

    /// Whether the database takes writes: one that answers may be a standby, or switched to reads.
    async fn takes_writes(&self) -> Result<bool>;

    /// Commits changes of different effects in one transaction, each applied or lost by itself:
    /// the answer has one [`Committed`] per change, in order. An error means that nothing of the
    /// batch was written, or that the connection broke and nobody knows. At most one change per
    /// effect and batch.
    async fn commit(&self, batch: &[ChangeSet]) -> Result<Vec<Committed>>;

    /// How many commits may be under way at once; more would wait for each other.
    fn commits_at_once(&self) -> usize {
        1
    }

    /// Loads records, one answer per key in order. A row that can't be read back is that key's
    /// answer alone, and so is what was pruned.
    async fn load(&self, keys: &[EffectKey]) -> Result<Vec<std::result::Result<Option<Record>, Unloadable>>>;

    /// The newest revision of each effect, 0 where there is none.
    async fn revisions(&self, keys: &[EffectKey]) -> Result<Vec<u32>>;

    /// The open effect with this duplicate key, if any.
    async fn twin(&self, tenant: &Tenant, duplicate: Uuid) -> Result<Option<EffectKey>>;

    /// Open effects whose time has come, by the database's own clock, oldest first.
    async fn due(&self, limit: u32) -> Result<Vec<EffectKey>>;

    /// Puts off what is due (see [`Postponed`]); the effects that were.
    async fn postpone(&self, postponed: &[Postponed]) -> Result<Vec<Uuid>>;

    /// When the next open effect becomes due, and the database's time.
    async fn next_due(&self) -> Result<(Option<Timestamp>, Timestamp)>;

    /// Walks a list in order of creation (oldest first), strictly after a position.
    async fn walk(&self, tenant: &Tenant, walk: &Walk, after: Option<Position>, limit: u32) -> Result<Vec<Position>>;

    /// How many effects of a run are in each state now.
    async fn run_states(&self, tenant: &Tenant, run: &Name) -> Result<Vec<(State, u64)>>;

    /// How many open effects there are per state over all tenants, with the oldest creation.
    async fn open_states(&self) -> Result<Vec<(State, u64, Timestamp)>>;

    /// Journal rows of an effect after a revision.
    async fn journal(&self, key: &EffectKey, after: u32, limit: u32) -> Result<Vec<JournalRow>>;

    /// All journal rows in key order, strictly after (tenant, effect, revision). Each has to be readable.
    async fn audit(&self, after: Option<(EffectKey, u32)>, limit: u32) -> Result<Vec<AuditRow>> {
        let after = after.map(|(key, revision)| audit::AuditPlace::of(&key, revision));
        let found = self.audit_each(after.as_ref(), limit).await?;
        Ok(found.into_iter().map(|found| found.row).collect::<std::result::Result<_, _>>()?)
    }

    /// All open rows in key order, strictly after a key, for verification.
    async fn open_marks(&self, after: Option<EffectKey>, limit: u32) -> Result<Vec<OpenMark>>;

    /// A tool's current row, deleted ones included.
    async fn tool(&self, tenant: &Tenant, name: &Name) -> Result<Option<ToolRow>>;

    /// One revision of a tool; `paused` and `stamp` are the current ones.
    async fn tool_revision(&self, tenant: &Tenant, name: &Name, revision: u32) -> Result<Option<ToolRow>>;

    /// Tools that are not deleted, by name, strictly after one.
    async fn tools(&self, tenant: &Tenant, after: Option<&Name>, limit: u32) -> Result<Vec<ToolRow>>;

    /// Changes a tool.
    async fn write_tool(&self, write: &ToolWrite) -> Result<ToolWritten>;

    /// Tells every replica that listens. Best effort, outside any write transaction; `message` is
    /// at most 7,900 bytes of ASCII.
    async fn announce(&self, message: &str) -> Result<()>;

    /// Hands on announcements of any replica, this one included, until the channel closes or the
    /// connection breaks. A backend that has one process at most answers at once.
    async fn listen(&self, sink: mpsc::Sender<String>) -> Result<()>;

    /// Closes all connections.
    async fn close(&self);
}
