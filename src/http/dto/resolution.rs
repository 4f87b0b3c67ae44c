//! Operators' decisions, and what was recorded beside an outcome.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::Faults;
use crate::domain::canonical;
use crate::domain::canonical::Sha256Digest;
use crate::domain::command::{Command, Resolve, ResolvedOutcome};
use crate::domain::ids::Name;
use crate::domain::receipt::Receipt;
use crate::domain::record::Resolution;
use crate::domain::time::Timestamp;
use crate::http::problem::{Problem, ProblemType};
use crate::limits;
use crate::service::bulk::{BulkDecision, BulkFilter, BulkReason, Preview, decision_digest};
use crate::service::evidence::LateReport;

/// An operator's decision about one effect.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ResolutionBody {
    /// Your name for the decision, the same on every retry.
    #[schema(min_length = 1, max_length = 256)]
    pub decision_id: String,
    /// Where the effect goes.
    pub outcome: ResolvedOutcome,
    /// Why (at most 2 KiB).
    #[schema(min_length = 1)]
    pub reason: String,
    /// What it rests on: a JSON object of at most 16 KiB, with one member at least.
    #[schema(value_type = Object)]
    pub evidence: Box<RawValue>,
}

impl ResolutionBody {
    /// Checks the decision.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self, expected_revision: u32) -> Result<Command, Problem> {
        let mut faults = Faults::default();
        let decision_id = faults.name("/decision_id", &self.decision_id);
        check_reason(&self.reason, &mut faults);
        let evidence = check_evidence(&self.evidence, &mut faults)?;
        match decision_id {
            Some(decision_id) if faults.is_empty() => Ok(Command::Resolve(Resolve {
                expected_revision,
                decision_id,
                outcome: self.outcome,
                digest: decision_digest(self.outcome, &self.reason, &evidence, None),
                reason: self.reason,
                evidence,
                bulk_decision_id: None,
            })),
            _ => Err(faults.problem()),
        }
    }
}

fn check_reason(reason: &str, faults: &mut Faults) {
    if reason.trim().is_empty() || reason.len() > limits::REASON_BYTES || reason.contains('\0') {
        faults.add("/reason", "must be a text of 1 to 2048 bytes without NUL characters");
    }
}

fn check_evidence(raw: &RawValue, faults: &mut Faults) -> Result<Box<str>, Problem> {
    let text = raw.get();
    if text.len() > limits::RESOLUTION_EVIDENCE_BYTES {
        return Err(Problem::new(ProblemType::TooLarge, "The evidence may have at most 16384 bytes.")
            .with("limit_bytes", limits::RESOLUTION_EVIDENCE_BYTES)
            .fault("/evidence", "is too large"));
    }
    if let Err(fault) = canonical::check(raw) {
        faults.add(&format!("/evidence{}", fault.pointer), fault.reason);
    } else if !serde_json::from_str::<Value>(text).is_ok_and(|value| value.as_object().is_some_and(|o| !o.is_empty())) {
        faults.add("/evidence", "must be an object with one member at least");
    }
    Ok(text.into())
}

/// Which effects a bulk resolution is meant for. All members narrow the choice.
#[derive(Debug, Clone, Default, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PreviewBody {
    /// The tool.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub tool: Option<String>,
    /// Why they stand in the queue.
    #[serde(default)]
    pub reason: Option<BulkReason>,
    /// Created at least so long ago, by database time.
    #[serde(default)]
    pub older_than_seconds: Option<u32>,
    /// The run.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub run_id: Option<String>,
    /// These and no others, at most 1,000.
    #[serde(default)]
    #[schema(min_items = 1, max_items = 1000)]
    pub operation_ids: Option<Vec<String>>,
}

impl PreviewBody {
    /// Checks the filter.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self) -> Result<BulkFilter, Problem> {
        let mut faults = Faults::default();
        let named = self.operation_ids.unwrap_or_default();
        let count = named.len();
        if count > limits::BULK_ITEMS {
            return Err(too_many("/operation_ids"));
        }
        let mut seen = std::collections::HashSet::new();
        let names: Vec<Name> = named
            .iter()
            .enumerate()
            .filter_map(|(index, name)| {
                let pointer = format!("/operation_ids/{index}");
                if !seen.insert(name) {
                    faults.add(&pointer, "is named twice");
                }
                faults.name(&pointer, name)
            })
            .collect();
        let filter = BulkFilter {
            tool: faults.optional("/tool", self.tool.as_ref()),
            reason: self.reason,
            older_than_seconds: self.older_than_seconds,
            run_id: faults.optional("/run_id", self.run_id.as_ref()),
            operation_ids: (count > 0).then_some(names),
        };
        if faults.is_empty() { Ok(filter) } else { Err(faults.problem()) }
    }
}

fn too_many(pointer: &str) -> Problem {
    Problem::new(ProblemType::TooLarge, "A bulk resolution may have at most 1000 items.")
        .with("limit_items", limits::BULK_ITEMS)
        .fault(pointer, "has too many items")
}

/// A decision about all effects of a preview.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkResolutionBody {
    /// The preview as it was answered.
    #[schema(inline = false)]
    pub preview: Preview,
    /// Its id as it was answered.
    #[schema(pattern = "^sha256:[0-9a-f]{64}$")]
    pub preview_id: String,
    /// Your name for the decision, the same on every retry.
    #[schema(min_length = 1, max_length = 256)]
    pub decision_id: String,
    /// Where the effects go.
    pub outcome: ResolvedOutcome,
    /// Why (at most 2 KiB).
    #[schema(min_length = 1)]
    pub reason: String,
    /// What it rests on: a JSON object of at most 16 KiB, with one member at least.
    #[schema(value_type = Object)]
    pub evidence: Box<RawValue>,
}

impl BulkResolutionBody {
    /// Checks the decision.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self) -> Result<BulkDecision, Problem> {
        let mut faults = Faults::default();
        if self.preview.items.len() > limits::BULK_ITEMS {
            return Err(too_many("/preview/items"));
        }
        if self.preview.items.is_empty() {
            faults.add("/preview/items", "must have one item at least");
        }
        let mut seen = std::collections::HashSet::new();
        for (index, item) in self.preview.items.iter().enumerate() {
            if !seen.insert(&item.operation_id) {
                faults.add(&format!("/preview/items/{index}/operation_id"), "is there twice");
            }
        }
        if self.preview.id().as_str() != self.preview_id {
            faults.add("/preview_id", "is not the id of this preview: give it back as it was answered");
        }
        let decision_id = faults.name("/decision_id", &self.decision_id);
        check_reason(&self.reason, &mut faults);
        let evidence = check_evidence(&self.evidence, &mut faults)?;
        match decision_id {
            Some(decision_id) if faults.is_empty() => Ok(BulkDecision {
                preview: self.preview,
                decision_id,
                outcome: self.outcome,
                reason: self.reason,
                evidence,
            }),
            _ => Err(faults.problem()),
        }
    }
}

/// An operator's decision as recorded, with reason and evidence.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ResolutionRecord)]
pub struct ResolutionView {
    /// The revision that it made.
    revision: u32,
    /// When, by database time.
    #[schema(value_type = String, format = DateTime)]
    at: Timestamp,
    /// Who decided.
    by: String,
    /// The operator's name for it.
    decision_id: String,
    /// The decision on many effects that it was part of.
    #[serde(skip_serializing_if = "Option::is_none")]
    bulk_decision_id: Option<String>,
    /// What was decided.
    outcome: ResolvedOutcome,
    /// Why.
    reason: String,
    /// Digest of the whole decision.
    decision_digest: String,
    /// Digest of the evidence.
    evidence_digest: String,
    /// What it rests on, byte for byte as it was sent.
    #[schema(value_type = Object)]
    evidence: Box<RawValue>,
}

impl ResolutionView {
    /// A decision that was made at a revision.
    #[must_use]
    pub fn new(revision: u32, made: Resolution) -> Self {
        Self {
            revision,
            at: made.at,
            by: made.principal.as_str().to_owned(),
            decision_id: made.decision_id.as_str().to_owned(),
            bulk_decision_id: made.bulk_decision_id.map(|id| id.as_str().to_owned()),
            outcome: made.outcome,
            reason: made.reason,
            decision_digest: made.digest.as_str().to_owned(),
            evidence_digest: Sha256Digest::of(made.evidence.as_bytes()).as_str().to_owned(),
            evidence: RawValue::from_string(made.evidence.into()).unwrap_or_default(),
        }
    }
}

/// Operators' decisions about an effect.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = ResolutionPage)]
pub struct ResolutionPage {
    /// The decisions, oldest first.
    pub items: Vec<ResolutionView>,
    /// Where the next page starts; `null` at the end.
    pub next_cursor: Option<String>,
}

/// A late report.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = LateReport)]
pub struct ReportView {
    /// The revision that stored it.
    revision: u32,
    /// When, by database time.
    #[schema(format = DateTime)]
    at: String,
    /// Who brought it.
    by: String,
    /// What it says in public facts: `fence`, `outcome`, `verified`, `classification`, `report_digest`
    /// and others, as in the journal. `contradicts` is there where it excludes what is recorded.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    facts: Map<String, Value>,
    /// The receipt that came with it, byte for byte.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Receipt>)]
    receipt: Option<Box<RawValue>>,
}

impl From<LateReport> for ReportView {
    fn from(report: LateReport) -> Self {
        let mut facts = match report.event {
            Value::Object(facts) => facts,
            _ => Map::new(),
        };
        facts.remove("type");
        Self {
            revision: report.revision,
            at: report.at,
            by: report.by,
            facts,
            receipt: report.receipt.and_then(|text| RawValue::from_string(text).ok()),
        }
    }
}

/// Late reports of an effect.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = LateReportPage)]
pub struct ReportPage {
    /// The reports, oldest first.
    pub items: Vec<ReportView>,
    /// Where the next page starts; `null` at the end.
    pub next_cursor: Option<String>,
}
