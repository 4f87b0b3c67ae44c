//! Evidence of one effect: what was intended, who allowed it, what came of it, and the journal that says so, signed.
//!
//! Nothing of the arguments, the result or the receipt itself is in it, nor the key that was sent downstream: digests
//! stand for them. The entries of the journal are the bytes that were hashed.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use super::checkpoint::{Checkpoint, leaf};
use super::merkle;
use super::signer::Signed;
use crate::auth::Principal;
use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::receipt::{ReceiptOutcome, Verification};
use crate::domain::record::{Intent, Life, Record};
use crate::domain::state::{EffectClass, State};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::service::{Service, ServiceError};
use crate::store::JournalRow;
use crate::store::checkpoints::LEAF_BYTES;
use crate::telemetry::probe;

/// The `typ` of evidence.
pub const TYP: &str = "actonce-evidence";
/// The form of the payload.
pub const FORMAT: u32 = 1;
/// Entries read at once.
const PAGE: u32 = 200;
/// Newest revisions that a checkpoint is looked for.
const REVISIONS: u32 = 4;
/// How far the clock that an entry was dated by may be ahead of the one of its checkpoint.
const CLOCKS_SECONDS: i64 = 60;

/// The signed payload.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bundle {
    /// Which form this is.
    pub format: u32,
    /// The version of the service that made it.
    pub service_version: String,
    /// When, by database time.
    pub made_at: Timestamp,
    /// The tenant.
    pub tenant: String,
    /// The operation.
    pub operation_id: String,
    /// The effect's id in the journal: derived from tenant and operation.
    pub effect_id: Uuid,
    /// The state.
    pub state: State,
    /// The revision: how many entries the journal has.
    pub revision: u32,
    /// For `failed`: whether the downstream was reached.
    pub executed: Option<bool>,
    /// Evidence excludes the outcome.
    pub contradicted: bool,
    /// What was intended.
    pub intent: IntentFacts,
    /// Who was asked.
    pub approval: Option<ApprovalFacts>,
    /// Operators' decisions.
    pub decisions: Vec<DecisionFacts>,
    /// The accepted receipt.
    pub receipt: Option<ReceiptFacts>,
    /// The accepted verification.
    pub verification: Option<Verification>,
    /// The recorded result.
    pub result: Option<ResultFacts>,
    /// The whole journal, oldest first.
    pub journal: Vec<EntryFacts>,
    /// A checkpoint that names one of the entries, where there is one.
    pub checkpoint: Option<CheckpointFacts>,
}

/// What was intended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IntentFacts {
    tool: String,
    tool_revision: u32,
    effect: EffectClass,
    target: String,
    arguments_digest: String,
    digest_algorithm: String,
    run_id: Option<String>,
    session_id: Option<String>,
    call_id: Option<String>,
    profile_id: Option<String>,
    proposer: String,
    created_at: Timestamp,
}

/// Who was asked, and what they said; not why, which is for those who may read it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalFacts {
    proposal_digest: String,
    approvals_needed: u32,
    four_eyes: bool,
    grant_id: Option<Uuid>,
    decisions: Vec<ApprovalDecisionFacts>,
}

/// What one approver said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ApprovalDecisionFacts {
    principal: String,
    approve: bool,
    at: Timestamp,
}

/// One decision of an operator.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecisionFacts {
    /// The revision that it made.
    pub revision: u32,
    by: String,
    at: Timestamp,
    decision_id: String,
    outcome: String,
    /// Digest of the whole decision.
    decision_digest: String,
}

/// The accepted receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReceiptFacts {
    /// The entry that came with it.
    pub revision: u32,
    receipt_id: String,
    outcome: ReceiptOutcome,
    observed_at: Timestamp,
    /// Digest of the stored bytes.
    pub digest: String,
}

/// The recorded result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResultFacts {
    /// The entry that came with it.
    pub revision: u32,
    /// Digest of the bytes as sent.
    pub digest: String,
    size_bytes: u64,
    /// Whether they were too many to keep.
    pub truncated: bool,
}

/// One entry of the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EntryFacts {
    /// Its revision.
    pub revision: u32,
    /// The bytes that were hashed.
    pub entry: String,
    /// Hash of the one before, in hex.
    pub prev_hash: String,
    /// Its hash, in hex.
    pub hash: String,
}

/// A checkpoint that names one of the entries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CheckpointFacts {
    /// The checkpoint as it was signed, in compact form.
    pub jws: String,
    /// The revision that it names.
    pub revision: u32,
    /// The place of the leaf.
    pub index: usize,
    /// The hashes that lead from the leaf to the root, in hex, the nearest first.
    pub path: Vec<String>,
}

fn text(name: Option<&Name>) -> Option<String> {
    name.map(|name| name.as_str().to_owned())
}

impl From<&Intent> for IntentFacts {
    fn from(intent: &Intent) -> Self {
        Self {
            tool: intent.tool.as_str().to_owned(),
            tool_revision: intent.tool_revision,
            effect: intent.class,
            target: intent.target.as_str().to_owned(),
            arguments_digest: intent.arguments_digest.as_str().to_owned(),
            digest_algorithm: intent.digest_algorithm.to_string(),
            run_id: text(intent.run_id.as_ref()),
            session_id: text(intent.session_id.as_ref()),
            call_id: text(intent.call_id.as_ref()),
            profile_id: text(intent.profile_id.as_ref()),
            proposer: intent.proposer.as_str().to_owned(),
            created_at: intent.created_at,
        }
    }
}

fn digest(digest: &Sha256Digest) -> String {
    digest.as_str().to_owned()
}

fn approval(life: &Life) -> Option<ApprovalFacts> {
    let approval = life.approval.as_ref()?;
    let decisions = approval.decisions.iter().map(|made| ApprovalDecisionFacts {
        principal: made.principal.as_str().to_owned(),
        approve: made.approve,
        at: made.at,
    });
    Some(ApprovalFacts {
        proposal_digest: digest(&approval.proposal_digest),
        approvals_needed: approval.needed,
        four_eyes: approval.four_eyes,
        grant_id: approval.grant_id,
        decisions: decisions.collect(),
    })
}

/// The decisions that entries tell of.
pub(super) fn decisions(journal: &[EntryFacts]) -> Vec<DecisionFacts> {
    journal.iter().filter_map(decision).collect()
}

fn decision(entry: &EntryFacts) -> Option<DecisionFacts> {
    let said: Value = serde_json::from_str(&entry.entry).ok()?;
    let events = said.get("events")?.as_array()?;
    let event = events.iter().find(|event| event.get("type").is_some_and(|kind| kind == "effect.resolved"))?;
    let text = |from: &Value, name: &str| from.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(DecisionFacts {
        revision: entry.revision,
        by: text(&said, "by")?,
        at: Timestamp::parse(&text(&said, "at")?)?,
        decision_id: text(event, "decision_id")?,
        outcome: text(event, "outcome")?,
        decision_digest: text(event, "decision_digest")?,
    })
}

fn receipt(life: &Life) -> Option<ReceiptFacts> {
    life.receipt.as_ref().map(|receipt| ReceiptFacts {
        revision: receipt.revision,
        receipt_id: receipt.receipt_id.as_str().to_owned(),
        outcome: receipt.outcome,
        observed_at: receipt.observed_at,
        digest: digest(&receipt.digest),
    })
}

fn result(life: &Life) -> Option<ResultFacts> {
    life.result.as_ref().map(|result| ResultFacts {
        revision: result.revision,
        digest: digest(&result.digest),
        size_bytes: result.size_bytes,
        truncated: result.truncated,
    })
}

impl Service {
    /// Signed evidence of one effect, as it is durable now.
    ///
    /// # Errors
    /// See [`ServiceError`]; a conflict where no key is configured.
    pub async fn effect_evidence(&self, caller: &Principal, operation_id: &Name) -> Result<Signed, ServiceError> {
        let key = EffectKey::of(&caller.tenant, operation_id);
        let mut found = probe::read(self.engine().store().load(std::slice::from_ref(&key))).await?;
        let record = found.pop().transpose()?.flatten().ok_or(ServiceError::NotFound)?;
        let signer = self.signer().ok_or(ServiceError::Conflict(
            "no evidence key is configured (`ACTONCE_EVIDENCE_KEY_FILE`), so nothing is signed",
        ))?;
        let journal = self.whole_journal(&record).await?;
        let checkpoint = self.checkpoint_facts(&record, &journal).await?;
        let journal: Vec<EntryFacts> = journal.iter().map(entry).collect();
        let (intent, life) = (&record.intent, &record.life);
        let bundle = Bundle {
            format: FORMAT,
            service_version: env!("CARGO_PKG_VERSION").to_owned(),
            made_at: probe::read(self.engine().store().now()).await?,
            tenant: key.tenant.as_str().to_owned(),
            operation_id: operation_id.as_str().to_owned(),
            effect_id: key.effect,
            state: life.state,
            revision: life.revision,
            executed: life.executed,
            contradicted: life.contradicted,
            intent: IntentFacts::from(intent.as_ref()),
            approval: approval(life),
            decisions: decisions(&journal),
            receipt: receipt(life),
            verification: life.verification.clone(),
            result: result(life),
            journal,
            checkpoint,
        };
        let text =
            serde_json::to_string(&bundle).map_err(|_| ServiceError::Internal("evidence can't be serialized"))?;
        Ok(signer.sign(TYP, &text))
    }

    /// Every entry up to the record's revision.
    async fn whole_journal(&self, record: &Record) -> Result<Vec<JournalRow>, ServiceError> {
        let (mut journal, mut bytes, mut after): (Vec<JournalRow>, usize, u32) = (Vec::new(), 0, 0);
        while after < record.life.revision {
            let rows = probe::read(self.engine().store().journal(&record.key, after, PAGE)).await?;
            let Some(last) = rows.last() else { break };
            after = last.revision;
            for row in rows.into_iter().filter(|row| row.revision <= record.life.revision) {
                bytes = bytes.saturating_add(row.entry.len());
                if bytes > limits::EVIDENCE_BUNDLE_BYTES {
                    let limit_bytes = limits::EVIDENCE_BUNDLE_BYTES;
                    return Err(ServiceError::TooLarge {
                        reason: "the journal is too large for one answer",
                        limit_bytes,
                    });
                }
                journal.push(row);
            }
        }
        Ok(journal)
    }

    /// A checkpoint that names one of the newest entries.
    async fn checkpoint_facts(
        &self,
        record: &Record,
        journal: &[JournalRow],
    ) -> Result<Option<CheckpointFacts>, ServiceError> {
        let newest = usize::try_from(REVISIONS).unwrap_or(0);
        for row in journal.iter().rev().take(newest) {
            let Ok(hash) = row.hash.as_slice().try_into() else { continue };
            let wanted = leaf(record.key.effect, row.revision, &hash);
            let at = entry_time(row).unwrap_or(record.intent.created_at);
            let from = at.plus_micros(CLOCKS_SECONDS.saturating_mul(-1_000_000));
            let found = probe::read(self.engine().store().checkpoint_of(&record.key.tenant, from, &wanted)).await?;
            let Some(found) = found.filter(|found| Checkpoint::read(&found.jws).is_some()) else { continue };
            let leaves: Vec<&[u8]> = found.leaves.chunks(LEAF_BYTES).collect();
            let Some(index) = leaves.iter().position(|leaf| *leaf == wanted) else { continue };
            let path = merkle::path(&leaves, index).into_iter().map(hex::encode).collect();
            return Ok(Some(CheckpointFacts { jws: found.jws, revision: row.revision, index, path }));
        }
        Ok(None)
    }
}

fn entry(row: &JournalRow) -> EntryFacts {
    EntryFacts {
        revision: row.revision,
        entry: row.entry.clone(),
        prev_hash: hex::encode(&row.prev_hash),
        hash: hex::encode(&row.hash),
    }
}

fn entry_time(row: &JournalRow) -> Option<Timestamp> {
    #[derive(Deserialize)]
    struct At {
        at: Timestamp,
    }
    serde_json::from_str::<At>(&row.entry).ok().map(|entry| entry.at)
}
