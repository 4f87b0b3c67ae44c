//! Approvals as answered, with a preview of the arguments where the tool retains them.

use serde::Serialize;
use serde_json::Value;
use uuid::Uuid;

use crate::domain::approval::{ApprovalState, is_stale};
use crate::domain::ids::Name;
use crate::domain::record::ApprovalDecision;
use crate::domain::state::{EffectClass, State};
use crate::domain::time::Timestamp;
use crate::http::dto::outcome::DecisionWord;
use crate::service::approvals::{ApprovalItem, Preview};

/// What can be said of the arguments.
#[derive(Debug, Clone, Copy, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum PreviewWord {
    /// `arguments` has them, byte for byte as they were sent.
    Available,
    /// The tool does not retain them; there is only their digest.
    NotRetained,
    /// They were retained until the effect was settled.
    Removed,
    /// They are kept and can't be opened: they were sealed under another data key.
    Unreadable,
}

/// A decision of one person.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct DecisionView<'a> {
    /// Who.
    principal: &'a str,
    /// Yes or no.
    decision: DecisionWord,
    /// Why, in their words.
    reason: &'a str,
    /// When.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
}

/// An effect whose approval is asked for, or was.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ApprovalItemView<'a> {
    /// The operation.
    operation_id: &'a str,
    /// Where the approval stands.
    state: ApprovalState,
    /// Whether it can't be used because the tool or the session's profile was changed after it was asked for.
    stale: bool,
    /// The state of the effect.
    effect_state: State,
    /// The revision of the effect, for `If-Match` with the decision.
    revision: u32,
    /// To be repeated with the decision. Covers operation id, tool and its revision, class, target and arguments digest.
    proposal_digest: &'a str,
    /// The tool.
    tool: &'a str,
    /// The tool revision it was proposed under.
    tool_revision: u32,
    /// The effect class.
    effect: EffectClass,
    /// What is acted on.
    target: &'a str,
    /// Digest of the arguments.
    arguments_digest: &'a str,
    /// What can be said of the arguments.
    arguments_preview: PreviewWord,
    /// Who proposed it.
    proposer: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile_id: Option<&'a str>,
    /// When the intent was recorded.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it is refused by itself.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// Approvals needed; 0 where a standing grant authorized it.
    approvals_needed: u32,
    /// Approvals so far.
    approvals: usize,
    /// Whether the proposer's own approval is refused.
    four_eyes: bool,
    /// Decisions so far.
    decisions: Vec<DecisionView<'a>>,
    /// The unresolved effect that this one seems to repeat.
    #[serde(skip_serializing_if = "Option::is_none")]
    held_for: Option<&'a str>,
    /// The standing grant that authorized it.
    #[serde(skip_serializing_if = "Option::is_none")]
    grant_id: Option<Uuid>,
}

fn decision(decision: &ApprovalDecision) -> DecisionView<'_> {
    DecisionView {
        principal: decision.principal.as_str(),
        decision: if decision.approve { DecisionWord::Approve } else { DecisionWord::Deny },
        reason: &decision.reason,
        at: decision.at,
    }
}

fn view(item: &ApprovalItem) -> Option<ApprovalItemView<'_>> {
    let record = &item.decided.record;
    let (intent, life) = (&record.intent, &record.life);
    let approval = life.approval.as_ref()?;
    Some(ApprovalItemView {
        operation_id: intent.operation_id.as_str(),
        state: item.state,
        stale: is_stale(record, &item.decided.context),
        effect_state: life.state,
        revision: life.revision,
        proposal_digest: approval.proposal_digest.as_str(),
        tool: intent.tool.as_str(),
        tool_revision: intent.tool_revision,
        effect: intent.class,
        target: intent.target.as_str(),
        arguments_digest: intent.arguments_digest.as_str(),
        arguments_preview: match &item.preview {
            Preview::Available(_) => PreviewWord::Available,
            Preview::NotRetained => PreviewWord::NotRetained,
            Preview::Removed => PreviewWord::Removed,
            Preview::Unreadable => PreviewWord::Unreadable,
        },
        proposer: intent.proposer.as_str(),
        run_id: intent.run_id.as_ref().map(Name::as_str),
        session_id: intent.session_id.as_ref().map(Name::as_str),
        profile_id: intent.profile_id.as_ref().map(Name::as_str),
        created_at: intent.created_at,
        expires_at: approval.expires_at,
        approvals_needed: approval.needed,
        approvals: approval.approvals(),
        four_eyes: approval.four_eyes,
        decisions: approval.decisions.iter().map(decision).collect(),
        held_for: approval.held_for.as_ref().map(Name::as_str),
        grant_id: approval.grant_id,
    })
}

/// The JSON of an approval. The arguments are appended as the bytes that were sent.
#[must_use]
pub fn body(item: &ApprovalItem) -> String {
    let mut json = view(item).and_then(|view| serde_json::to_string(&view).ok()).unwrap_or_default();
    if let Preview::Available(arguments) = &item.preview
        && json.pop().is_some()
    {
        json.reserve(arguments.len().saturating_add(16));
        json.push_str(",\"arguments\":");
        json.push_str(arguments);
        json.push('}');
    }
    json
}

/// An approval with the arguments: how [`body`] is documented.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Approval)]
pub struct ApprovalDocument<'a> {
    /// The approval.
    #[serde(flatten)]
    approval: ApprovalItemView<'a>,
    /// The arguments, byte for byte as they were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Value>)]
    arguments: Option<Value>,
}

/// Documentation of a page of approvals.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ApprovalPage)]
pub struct ApprovalPageDocument<'a> {
    /// The approvals, oldest effect first.
    items: Vec<ApprovalDocument<'a>>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
}
