//! What a commit writes and what it expects to find.

use std::sync::Arc;

use uuid::Uuid;

use super::approvals::Beside;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::state::State;
use crate::domain::time::Timestamp;

/// One change of one effect.
#[derive(Debug, Clone)]
pub enum ChangeSet {
    /// A new revision: a journal row, and the row of open effects brought along.
    Revise(Box<RevisionRow>),
    /// A lease that ends later: only the open row's `due` changes.
    Renew(Renewal),
}

impl ChangeSet {
    /// The effect.
    #[must_use]
    pub fn key(&self) -> &EffectKey {
        match self {
            Self::Revise(row) => &row.key,
            Self::Renew(renewal) => &renewal.key,
        }
    }

    /// How many bytes of documents it brings along.
    #[must_use]
    pub fn bound_bytes(&self) -> usize {
        match self {
            Self::Revise(row) => {
                let given = [row.intent.as_ref().map(|intent| &intent.text), row.receipt.as_ref(), row.result.as_ref()];
                let given: usize = given.into_iter().flatten().map(|text| text.len()).sum();
                given.saturating_add(row.life.len()).saturating_add(row.entry.len())
            }
            Self::Renew(_) => 0,
        }
    }
}

/// The columns that only revision 1 has.
#[derive(Debug, Clone)]
pub struct IntentRow {
    /// The intent's bytes.
    pub text: Arc<str>,
    /// For lists.
    pub created_at: Timestamp,
}

/// A new revision. It is applied if and only if
/// - no row (tenant, effect, revision) exists, and for `intent: None` revision − 1 is the newest;
/// - where `was_open`: the open row names revision − 1 and, with `lease_seen`, is due exactly then
///   and that time has passed by the database's clock;
/// - where `tool_stamp`: the tool's stamp is that one and it is not deleted;
/// - where `open` has a `duplicate`: no other open row of the tenant has it;
/// - where something is `beside` it: what that says.
#[derive(Debug, Clone)]
pub struct RevisionRow {
    /// The effect.
    pub key: EffectKey,
    /// The revision that is written.
    pub revision: u32,
    /// The state after it.
    pub state: State,
    /// For a new effect.
    pub intent: Option<IntentRow>,
    /// The run; goes into the journal row of revision 1 and into an open row.
    pub run_id: Option<Name>,
    /// The session; likewise.
    pub session_id: Option<Name>,
    /// The record's life.
    pub life: String,
    /// The journal entry.
    pub entry: String,
    /// The receipt stored with it.
    pub receipt: Option<Arc<str>>,
    /// The result stored with it.
    pub result: Option<Arc<str>>,
    /// The hash of the entry before.
    pub prev_hash: [u8; 32],
    /// The hash of this entry.
    pub hash: [u8; 32],
    /// Whether the effect has an open row before the change.
    pub was_open: bool,
    /// The open row after the change; `None`: no row.
    pub open: Option<OpenRow>,
    /// The lease end that the decision depends on.
    pub lease_seen: Option<Timestamp>,
    /// The tool and the stamp that the decision depends on.
    pub tool_stamp: Option<(Name, i64)>,
    /// The time of the change.
    pub at: Timestamp,
    /// What is written beside it, for the few that have something.
    pub beside: Option<Box<Beside>>,
}

/// A row of open effects.
#[derive(Debug, Clone)]
pub struct OpenRow {
    /// The newest fence.
    pub fence: u32,
    /// When a sweep has to look.
    pub due_at: Option<Timestamp>,
    /// When a doubt ends, of effects whose outcome is unknown.
    pub doubt_until: Option<Timestamp>,
    /// Guards against the same act under another operation id.
    pub duplicate: Option<Uuid>,
    /// When the effect was created.
    pub created_at: Timestamp,
    /// Whether evidence excludes the outcome.
    pub contradicted: bool,
    /// The tool.
    pub tool: Name,
    /// Who proposed the effect. Written when the row is opened, and kept.
    pub proposer: Name,
}

/// A lease that ends later. Applied if and only if the open row names the revision and the fence,
/// is in state `dispatched`, and is not yet due by the database's clock. Never shortens.
#[derive(Debug, Clone)]
pub struct Renewal {
    /// The effect.
    pub key: EffectKey,
    /// The revision that holds the lease.
    pub revision: u32,
    /// Its fence.
    pub fence: u32,
    /// The new end.
    pub until: Timestamp,
}

/// What came of one change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Committed {
    /// It is durable.
    Applied,
    /// What it expected was not there; nothing of it was written. Load, and decide again.
    Lost,
}

/// What is due, put off: claims background work for one replica, or waits for a better time. Not a change
/// of the effect. Applied if and only if the open row names the revision and is due by the database's
/// clock.
#[derive(Debug, Clone)]
pub struct Postponed {
    /// The effect.
    pub key: EffectKey,
    /// The revision that was seen.
    pub revision: u32,
    /// When it is due again.
    pub until: Timestamp,
}
