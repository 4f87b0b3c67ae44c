//! What operators read: the queue, and what was recorded beside the outcome of an effect.

use async_trait::async_trait;

use super::{Position, Result};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::state::State;
use crate::domain::time::Timestamp;

/// One row of open effects, as the queue needs it. Nothing here can fail to be read: what the row
/// does not say in a readable way is absent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueRow {
    /// Its place.
    pub position: Position,
    /// The state, if it is one.
    pub state: Option<State>,
    /// When a sweep has to look.
    pub due_at: Option<Timestamp>,
    /// When a doubt ends, where the outcome is unknown.
    pub doubt_until: Option<Timestamp>,
    /// Whether evidence excludes the outcome.
    pub contradicted: bool,
    /// The tool, if it is a name.
    pub tool: Option<Name>,
}

/// Up to where doubtful effects of one tool are walked.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DoubtBound {
    /// The tool.
    pub tool: Name,
    /// Created then or before.
    pub created_until_us: i64,
    /// The doubt ends then or before.
    pub doubt_until_us: i64,
}

/// One part of the queue. Each walks one index; whether a row belongs into the queue is for the caller
/// to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueueWalk {
    /// Open effects in a state, created until a time.
    State {
        /// The state.
        state: State,
        /// Created then or before.
        created_until: Timestamp,
    },
    /// Effects flagged as contradicted.
    Contradicted,
    /// Effects whose outcome is unknown, within the bounds of their tools.
    Doubt(Vec<DoubtBound>),
    /// Effects whose time came and that nothing has moved. Looks at a bounded number of rows, the
    /// longest due first.
    Overdue {
        /// Due then or before.
        due_until: Timestamp,
    },
}

/// What was recorded at one revision.
#[derive(Debug, Clone)]
pub struct EvidenceRow {
    /// The revision.
    pub revision: u32,
    /// The journal entry.
    pub entry: String,
    /// The record's life.
    pub life: String,
    /// The receipt stored with it.
    pub receipt: Option<String>,
}

/// The reads of operators.
#[async_trait]
pub trait OperatorStore {
    /// Walks one part of the queue in order of creation (oldest first), strictly after a position.
    async fn queue(
        &self,
        tenant: &Tenant,
        walk: &QueueWalk,
        after: Option<Position>,
        limit: u32,
    ) -> Result<Vec<QueueRow>>;

    /// The tools of effects whose outcome is unknown, by name.
    async fn doubtful_tools(&self, tenant: &Tenant, limit: u32) -> Result<Vec<Name>>;

    /// What was recorded at these revisions of an effect, in order of revision; those that are not
    /// there are left out.
    async fn evidence(&self, key: &EffectKey, revisions: &[u32]) -> Result<Vec<EvidenceRow>>;
}
