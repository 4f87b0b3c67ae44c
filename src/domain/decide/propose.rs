//! `POST /api/intents`: a new effect, or the known one again.

use std::sync::Arc;

use super::expire::release_hold;
use super::{Answer, Change, Context, Decision, Next, Revision, claim};
use crate::domain::canonical::{ALGORITHM, Sha256Digest};
use crate::domain::command::Propose;
use crate::domain::elapsed;
use crate::domain::fault::Fault;
use crate::domain::grant::LiveGrant;
use crate::domain::ids::Name;
use crate::domain::journal::{Event, EventKind};
use crate::domain::record::{Approval, Identity, Intent, Life, Record};
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::tool::{AuthorizationMode, DuplicateRule, RetainArguments};

/// The intent that a proposal states under the context's tool.
///
/// # Errors
/// The class given is weaker than the registered one.
pub fn intent_of(propose: &Propose, context: &Context) -> Result<Intent, Refusal> {
    let tool = &context.tool;
    let class = match propose.class {
        Some(class) if class < tool.spec.effect => {
            return Err(Refusal::Invalid(vec![Fault::new(
                "/effect",
                "is weaker than the class that the tool registers",
            )]));
        }
        Some(class) => class,
        None => tool.spec.effect,
    };
    let identity = match (&tool.spec.identity_fields, &propose.arguments) {
        (Some(fields), Some(arguments)) => {
            Some(Identity { fields: fields.clone(), digest: arguments.digest_of_fields(fields) })
        }
        _ => None,
    };
    Ok(Intent {
        operation_id: propose.operation_id.clone(),
        tool: propose.tool.clone(),
        tool_revision: tool.revision,
        class,
        target: propose.target.clone(),
        arguments_digest: propose.arguments_digest.clone(),
        digest_algorithm: ALGORITHM.into(),
        identity,
        run_id: propose.run_id.clone(),
        session_id: propose.session_id.clone(),
        call_id: propose.call_id.clone(),
        profile_id: propose.profile_id.clone(),
        proposer: context.principal.clone(),
        created_at: context.now,
        idempotency_key: propose.idempotency_key.clone(),
    })
}

/// Decides a proposal on what is there (law 1).
#[must_use]
pub fn propose(existing: Option<&Record>, propose: &Propose, context: &Context) -> Decision {
    match existing {
        None => fresh(propose, context),
        Some(record) => again(record, propose, context),
    }
}

/// The parts in which a proposal differs from the recorded intent: tool, class, target, arguments.
#[must_use]
pub fn reused_parts(intent: &Intent, propose: &Propose) -> Vec<&'static str> {
    let mut parts = Vec::new();
    if propose.tool != intent.tool {
        parts.push("tool");
    }
    if propose.class.is_some_and(|class| class != intent.class) {
        parts.push("effect");
    }
    if propose.target != intent.target {
        parts.push("target");
    }
    if propose.arguments_digest != intent.arguments_digest {
        // By the fields that counted when the effect was made, not by today's registration.
        let same = match (&intent.identity, &propose.arguments) {
            (Some(identity), Some(arguments)) => arguments.digest_of_fields(&identity.fields) == identity.digest,
            _ => false,
        };
        if !same {
            parts.push("arguments");
        }
    }
    parts
}

fn again(record: &Record, propose: &Propose, context: &Context) -> Decision {
    let parts = reused_parts(&record.intent, propose);
    if !parts.is_empty() {
        return Decision::refuse(Refusal::OperationReused(parts));
    }
    let hold_released = propose.duplicate_of.is_none();
    match &propose.claim {
        Some(wish) => claim::claim(record, wish, None, hold_released, context),
        None => {
            let mut next = Next::of(record, context);
            if hold_released {
                release_hold(&mut next);
            }
            next.answer(Answer { owns_dispatch: false, replayed: record.life.state.is_terminal() })
        }
    }
}

/// What an approver reads and what a decision is bound to (protocol §8).
pub(super) fn proposal_digest(intent: &Intent) -> Sha256Digest {
    let parts = serde_json::json!([
        "actonce proposal v1",
        intent.operation_id,
        intent.tool,
        intent.tool_revision,
        intent.class,
        intent.target,
        intent.arguments_digest,
    ]);
    Sha256Digest::of(parts.to_string().as_bytes())
}

/// An approval to be asked for.
pub(super) fn ask(intent: &Intent, context: &Context, held_for: Option<Name>) -> Approval {
    let spec = &context.tool.spec.authorization;
    Approval {
        proposal_digest: proposal_digest(intent),
        needed: if spec.mode == AuthorizationMode::Approval { spec.approvals } else { 1 },
        four_eyes: spec.four_eyes,
        expires_at: context.now.plus_seconds(spec.expires_after_seconds),
        decisions: Vec::new(),
        held_for,
        granted: false,
        grant_id: None,
    }
}

/// The approval that a standing grant is: nobody has to be asked.
fn approval_by(grant: &LiveGrant, intent: &Intent) -> Approval {
    Approval {
        proposal_digest: proposal_digest(intent),
        needed: 0,
        four_eyes: false,
        expires_at: grant.expires_at,
        decisions: Vec::new(),
        held_for: None,
        granted: true,
        grant_id: Some(grant.id),
    }
}

/// Nothing new begins after the tool's elapsed limit, and nothing that the limit could not be counted for.
fn over_time(intent: &Intent, context: &Context) -> Option<Refusal> {
    let limit = context.tool.spec.elapsed_limit?;
    if elapsed::counted(limit, intent).is_none() {
        let reason = "is required: the tool limits the time that elapses under this name";
        return Some(Refusal::Invalid(vec![Fault::new(limit.scope.pointer(), reason)]));
    }
    context.is_over_time()
}

fn fresh(propose: &Propose, context: &Context) -> Decision {
    let intent = match intent_of(propose, context) {
        Ok(intent) => Arc::new(intent),
        Err(refusal) => return Decision::refuse(refusal),
    };
    if let Some(refusal) = over_time(&intent, context) {
        return Decision::refuse(refusal);
    }
    let mut held_for = None;
    if let Some(first) = &propose.duplicate_of {
        match context.tool.spec.duplicate_rule(intent.class) {
            DuplicateRule::Refuse => return Decision::refuse(Refusal::SuspectedDuplicate(first.clone())),
            DuplicateRule::Hold => held_for = Some(first.clone()),
            DuplicateRule::Allow => {}
        }
    }
    if context.tool.spec.retain_arguments == RetainArguments::UntilSettled && propose.sent.is_none() {
        let fault = Fault::new("/arguments", "must be sent: the tool retains them until the effect is settled");
        return Decision::refuse(Refusal::Invalid(vec![fault]));
    }
    let mut proposed = Event::new(EventKind::Proposed)
        .with("tool", intent.tool.as_str())
        .with("effect", intent.class.as_str())
        .with("target", intent.target.as_str())
        .with("arguments_digest", intent.arguments_digest.as_str());
    if let Some(first) = &held_for {
        proposed = proposed.with("held_for", first.as_str());
    }
    let grant =
        propose.grant.as_deref().filter(|grant| held_for.is_none() && grant.terms.cover(&intent, &context.tool));
    let mut life = Life::new(context.now);
    life.fence = propose.fence_base;
    let mut events = vec![proposed];
    let mut answer = Answer::default();
    let asks = context.tool.spec.authorization.mode == AuthorizationMode::Approval && grant.is_none();
    if held_for.is_some() || asks {
        let approval = ask(&intent, context, held_for);
        life.deadline_at = Some(approval.expires_at);
        life.approval = Some(approval);
    } else {
        life.state = State::IntentRecorded;
        let authorized = Event::new(EventKind::Authorized);
        events.push(match grant {
            Some(grant) => authorized.with("grant_id", grant.id.to_string()),
            None => authorized,
        });
        events.push(Event::new(EventKind::IntentRecorded));
        life.approval = grant.map(|grant| approval_by(grant, &intent));
        if let Some(wish) = &propose.claim
            && !context.is_paused()
        {
            events.push(claim::grant(&mut life, wish, context));
            answer.owns_dispatch = true;
        }
    }
    Decision {
        change: Some(Change::Revise(Box::new(Revision {
            intent: Some(intent),
            life,
            events,
            receipt: None,
            result: None,
            lease_seen: None,
            tool_stamp: (context.tool.revision > 0).then_some(context.tool.stamp),
            grant_use: grant.map(|grant| grant.id),
            is_lapse: false,
        }))),
        answer: Ok(answer),
    }
}
