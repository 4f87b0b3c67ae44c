//! From a decision to the rows that are written, and to the record as it will be loaded again.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::domain::canonical::Sha256Digest;
use crate::domain::decide::{Context, Revision};
use crate::domain::elapsed::human_wait;
use crate::domain::ids::{EffectKey, prefix};
use crate::domain::journal::{Entry, GENESIS, entry_hash};
use crate::domain::record::{Intent, Life, Record};
use crate::domain::state::State;
use crate::domain::text::json;
use crate::domain::tool::{DuplicateRule, RetainArguments};
use crate::store::elapsed::WaitChange;
use crate::store::{Beside, ChangeSet, IntentRow, OpenRow, RevisionRow};
use crate::support::service_principal;

/// The change set of a revision and the record after it. `before` is absent for a new effect.
///
/// # Errors
/// A document can't be serialized; nothing in the domain's types makes that possible.
pub fn encode(
    key: &EffectKey,
    before: Option<&Record>,
    intent: &Arc<Intent>,
    revision: Revision,
    context: &Context,
) -> Result<(ChangeSet, Record), serde_json::Error> {
    let life_text = json(&revision.life, 2048)?;
    let intent_text: Option<Arc<str>> = match &revision.intent {
        Some(intent) => Some(json(intent.as_ref(), 1024)?.into()),
        None => None,
    };
    let intent_digest = intent_text.as_ref().map(|text| Sha256Digest::of(text.as_bytes()));
    let record_digest = Sha256Digest::of(life_text.as_bytes());
    let number = revision.life.revision;
    let (receipt, result) = (revision.life.receipt.as_ref(), revision.life.result.as_ref());
    let receipt_digest = digest_of(revision.receipt.as_deref(), receipt.map(|it| (it.revision, &it.digest)), number);
    let result_digest = digest_of(revision.result.as_deref(), result.map(|it| (it.revision, &it.digest)), number);
    // What time decided is the service's own change, whoever came by and saw it.
    let service = if revision.is_lapse { service_principal().ok() } else { None };
    let entry = Entry {
        revision: number,
        at: revision.life.updated_at,
        by: service.as_ref().unwrap_or(&context.principal),
        state: revision.life.state,
        events: &revision.events,
        intent_digest: intent_digest.as_ref(),
        record_digest: &record_digest,
        receipt_digest: receipt_digest.as_ref(),
        result_digest: result_digest.as_ref(),
    };
    let entry = json(&entry, 1536)?;
    let prev_hash = before.map_or(GENESIS, |record| record.head);
    let hash = entry_hash(key, number, &prev_hash, &entry);
    let life = revision.life;
    let open = life.is_open().then(|| OpenRow {
        fence: life.fence,
        due_at: life.due_at(),
        doubt_until: life.doubt_until(),
        duplicate: duplicate_guard(intent, &life, context),
        created_at: intent.created_at,
        contradicted: life.contradicted,
        tool: intent.tool.clone(),
        proposer: intent.proposer.clone(),
    });
    let row = RevisionRow {
        key: key.clone(),
        revision: number,
        state: life.state,
        intent: intent_text.map(|text| IntentRow { text, created_at: intent.created_at }),
        run_id: intent.run_id.clone(),
        session_id: intent.session_id.clone(),
        life: life_text,
        entry,
        receipt: revision.receipt.clone(),
        result: revision.result.clone(),
        prev_hash,
        hash,
        was_open: before.is_some_and(|record| record.life.is_open()),
        open,
        lease_seen: revision.lease_seen,
        tool_stamp: revision.tool_stamp.map(|stamp| (intent.tool.clone(), stamp)),
        at: life.updated_at,
        beside: beside(before, intent, revision.grant_use, &life, context).map(Box::new),
    };
    let recorded_here = |at: Option<u32>| at == Some(number);
    let receipt = if recorded_here(life.receipt.as_ref().map(|receipt| receipt.revision)) {
        revision.receipt
    } else {
        before.and_then(|record| record.receipt.clone())
    };
    let result = if recorded_here(life.result.as_ref().map(|result| result.revision)) {
        revision.result
    } else {
        before.and_then(|record| record.result.clone())
    };
    let record = Record { key: key.clone(), intent: Arc::clone(intent), life, head: hash, receipt, result };
    Ok((ChangeSet::Revise(Box::new(row)), record))
}

/// The digest of a document that this revision records. What the life points to has one since it was checked; what is
/// evidence alone has none yet.
fn digest_of(text: Option<&str>, pointed: Option<(u32, &Sha256Digest)>, number: u32) -> Option<Sha256Digest> {
    let text = text?;
    match pointed {
        Some((revision, digest)) if revision == number => Some(digest.clone()),
        _ => Some(Sha256Digest::of(text.as_bytes())),
    }
}

/// What is written beside a revision, and what that depends on; for most there is nothing.
fn beside(
    before: Option<&Record>,
    intent: &Intent,
    grant_use: Option<Uuid>,
    life: &Life,
    context: &Context,
) -> Option<Beside> {
    let was_terminal = before.is_some_and(|record| record.life.state.is_terminal());
    let retains = context.tool.spec.retain_arguments == RetainArguments::UntilSettled;
    // A session keeps its profile while one of its effects is more than a proposal, so only the steps
    // to there depend on it.
    let was_proposed = before.is_none_or(|record| record.life.state == State::Proposed);
    let session = intent.session_id.clone().zip(intent.profile_id.clone());
    let beside = Beside {
        retained: None,
        forget: retains && life.state.is_terminal() && !was_terminal,
        grant_use,
        session: session.filter(|_| was_proposed && !life.state.is_terminal()),
        wait: wait_change(before, intent, life),
    };
    (beside != Beside::default()).then_some(beside)
}

/// Whether the effect begins to wait for a person, or ends to: told for its run's elapsed time.
fn wait_change(before: Option<&Record>, intent: &Intent, life: &Life) -> Option<WaitChange> {
    let (was, is) = (before.and_then(|record| human_wait(&record.life)), human_wait(life));
    if was == is {
        return None;
    }
    Some(WaitChange { run: intent.run_id.clone()?, ended: was.is_some(), began: is })
}

/// The key that two unresolved effects with the same content share, where the tool minds.
fn duplicate_guard(intent: &Intent, life: &Life, context: &Context) -> Option<Uuid> {
    let held = life.approval.as_ref().is_some_and(|approval| approval.held_for.is_some());
    let minds = context.tool.spec.duplicate_rule(intent.class) != DuplicateRule::Allow;
    (minds && !held && !life.state.is_terminal()).then(|| duplicate_key(intent))
}

/// 128 bits over tool, target and identity digest.
#[must_use]
pub fn duplicate_key(intent: &Intent) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"actonce duplicate v1");
    for part in [intent.tool.as_str(), intent.target.as_str(), intent.identity_digest().as_str()] {
        hash.update(prefix(part));
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut half = [0_u8; 16];
    half.copy_from_slice(&digest[..16]);
    Uuid::from_bytes(half)
}
