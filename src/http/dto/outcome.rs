//! Heartbeats, outcomes, authorizations.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Faults, present};
use crate::domain::canonical::{self, Sha256Digest};
use crate::domain::command::{Command, Outcome, Report, ResultDocument};
use crate::domain::object;
use crate::domain::receipt::{CheckedReceipt, Receipt, Verification};
use crate::domain::record::{FailureEvidence, FailurePhase};
use crate::http::problem::Problem;
use crate::limits;
use crate::service::mask::mask;

/// A sign of life.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct HeartbeatBody {
    /// The dispatch.
    pub dispatch_id: Uuid,
    /// Its fence.
    #[schema(minimum = 1)]
    pub fence: u32,
}

/// What a report says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeWord {
    /// It was done.
    Succeeded,
    /// It failed; without a terminal receipt this is stored as unknown.
    Failed,
    /// It was never sent.
    NotSent,
    /// Nobody knows.
    Unknown,
}

impl OutcomeWord {
    /// How digests of reports name it.
    const fn name(self) -> &'static str {
        match self {
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::NotSent => "NotSent",
            Self::Unknown => "Unknown",
        }
    }
}

/// What came of a dispatch.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct OutcomeBody {
    /// The operation; required in a batch, and otherwise that of the path.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub operation_id: Option<String>,
    /// The dispatch that reports.
    pub dispatch_id: Uuid,
    /// Its fence.
    #[schema(minimum = 1)]
    pub fence: u32,
    /// What it says.
    pub outcome: OutcomeWord,
    /// The evidence; required for `succeeded`.
    #[serde(default, deserialize_with = "object::optional")]
    pub receipt: Option<Receipt>,
    /// The fresh read, where already made.
    #[serde(default, deserialize_with = "object::optional")]
    pub verification: Option<Verification>,
    /// What replays return: any JSON, over 256 KiB kept as a digest only.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub result: Option<Box<RawValue>>,
    /// How it went wrong; required for `unknown`.
    #[serde(default, deserialize_with = "object::optional")]
    pub failure_evidence: Option<FailureEvidence>,
}

impl OutcomeBody {
    /// Checks the report.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self) -> Result<Outcome, Problem> {
        let mut faults = Faults::default();
        let word = self.outcome;
        let receipt = self.receipt.and_then(|receipt| match receipt.check() {
            Ok(receipt) => Some(receipt),
            Err(found) => {
                faults.under("/receipt", found);
                None
            }
        });
        let failure = self.failure_evidence.map(|failure| check_failure(failure, word, &mut faults));
        let result = check_result(self.result.as_deref(), &mut faults);
        let allowed = match word {
            OutcomeWord::Succeeded => (true, true, failure.is_none()),
            OutcomeWord::Failed => (true, false, true),
            OutcomeWord::NotSent | OutcomeWord::Unknown => (false, false, true),
        };
        for (is_given, is_allowed, pointer) in [
            (receipt.is_some(), allowed.0, "/receipt"),
            (self.verification.is_some(), allowed.1, "/verification"),
            (failure.is_some(), allowed.2, "/failure_evidence"),
            (result.is_some(), allowed.0, "/result"),
        ] {
            if is_given && !is_allowed {
                faults.add(pointer, "does not go with this outcome");
            }
        }
        let digest = digest(&self.dispatch_id, self.fence, word, (&receipt, &self.verification, &result, &failure));
        let report = match word {
            OutcomeWord::Succeeded => match receipt {
                Some(receipt) => Some(Report::Succeeded { receipt, verification: self.verification }),
                None if faults.is_empty() => {
                    faults.add("/receipt", "is required: nothing is completed without evidence");
                    None
                }
                None => None,
            },
            OutcomeWord::Failed => Some(Report::Failed { receipt, failure }),
            OutcomeWord::NotSent => Some(Report::NotSent(failure)),
            OutcomeWord::Unknown => {
                if failure.is_none() {
                    faults.add("/failure_evidence", "is required for `unknown`");
                }
                failure.map(Report::Unknown)
            }
        };
        match report {
            Some(report) if faults.is_empty() => {
                Ok(Outcome { dispatch_id: self.dispatch_id, fence: self.fence, report, result, digest })
            }
            _ => Err(faults.problem()),
        }
    }
}

fn check_failure(mut failure: FailureEvidence, word: OutcomeWord, faults: &mut Faults) -> FailureEvidence {
    if failure.detail.len() > limits::FAILURE_DETAIL_BYTES {
        faults.add("/failure_evidence/detail", "must be at most 2048 bytes");
    }
    if failure.detail.contains('\0') {
        faults.add("/failure_evidence/detail", "must not contain a NUL character");
    }
    if word == OutcomeWord::NotSent && !matches!(failure.phase, FailurePhase::BeforeSend) {
        faults.add("/failure_evidence/phase", "must be `before_send` for `not_sent`");
    }
    failure.detail = mask(&failure.detail);
    failure
}

fn check_result(raw: Option<&RawValue>, faults: &mut Faults) -> Option<ResultDocument> {
    let raw = raw?;
    if let Err(fault) = canonical::check(raw) {
        faults.add(&format!("/result{}", fault.pointer), fault.reason);
    }
    let text = raw.get();
    Some(ResultDocument {
        digest: Sha256Digest::of(text.as_bytes()),
        size_bytes: u64::try_from(text.len()).unwrap_or(u64::MAX),
        text: (text.len() <= limits::RESULT_BYTES).then(|| text.into()),
    })
}

type Evidence<'a> =
    (&'a Option<CheckedReceipt>, &'a Option<Verification>, &'a Option<ResultDocument>, &'a Option<FailureEvidence>);

/// Over everything that the report says, so that an equal repeat is known and another one is not.
fn digest(dispatch_id: &Uuid, fence: u32, word: OutcomeWord, evidence: Evidence<'_>) -> Sha256Digest {
    let (receipt, verification, result, failure) = evidence;
    let parts = (
        "actonce report v1",
        dispatch_id,
        fence,
        word.name(),
        receipt.as_ref().map(|receipt| receipt.digest.as_str()),
        // The members of an object stand in the order of a `Value`.
        verification.as_ref().map(|verification| serde_json::json!(verification)),
        result.as_ref().map(|result| result.digest.as_str()),
        failure.as_ref().map(|failure| serde_json::json!(failure)),
    );
    // Nothing in it fails to serialize.
    Sha256Digest::of(serde_json::to_string(&parts).unwrap_or_default().as_bytes())
}

/// A person's decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum DecisionWord {
    /// Yes.
    Approve,
    /// No.
    Deny,
}

/// A decision about a proposal.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AuthorizationBody {
    /// Yes or no; the first decision of a principal is final.
    pub decision: DecisionWord,
    /// The proposal that was read.
    #[schema(pattern = "^sha256:[0-9a-f]{64}$")]
    pub proposal_digest: String,
    /// Why (at most 2 KiB).
    pub reason: String,
}

impl AuthorizationBody {
    /// Checks the decision.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self, expected_revision: u32) -> Result<Command, Problem> {
        let mut faults = Faults::default();
        let digest = Sha256Digest::parse(&self.proposal_digest);
        if digest.is_none() {
            faults.add("/proposal_digest", "must be `sha256:` and 64 lower-case hex digits");
        }
        if self.reason.trim().is_empty() || self.reason.len() > limits::REASON_BYTES || self.reason.contains('\0') {
            faults.add("/reason", "must be a text of 1 to 2048 bytes without NUL characters");
        }
        match digest {
            Some(proposal_digest) if faults.is_empty() => Ok(Command::Authorize {
                expected_revision,
                proposal_digest,
                approve: self.decision == DecisionWord::Approve,
                reason: self.reason,
            }),
            _ => Err(faults.problem()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_digest_of_a_report_is_that_of_the_versions_before() {
        let read =
            json!({"verified": true, "observed_at": "2026-01-31T12:00:00.000001Z", "source": "GET /x", "target": "t"});
        let verification: Verification = serde_json::from_value(read).unwrap();
        let evidence = json!({"classification": "timeout", "phase": "in_flight", "detail": "no \"answer\""});
        let failure: FailureEvidence = serde_json::from_value(evidence).unwrap();
        let result = ResultDocument { digest: Sha256Digest::of(b"1"), size_bytes: 1, text: Some("1".into()) };
        let id = Uuid::from_u128(7);
        for word in [OutcomeWord::Succeeded, OutcomeWord::Failed, OutcomeWord::NotSent, OutcomeWord::Unknown] {
            for (verification, result, failure) in
                [(Some(verification.clone()), Some(result.clone()), None), (None, None, Some(failure.clone()))]
            {
                let before = json!([
                    "actonce report v1",
                    id,
                    3,
                    format!("{word:?}"),
                    null,
                    verification,
                    result.as_ref().map(|result| result.digest.as_str()),
                    failure,
                ]);
                let found = digest(&id, 3, word, (&None, &verification, &result, &failure));
                assert_eq!(found, Sha256Digest::of(before.to_string().as_bytes()), "{before}");
            }
        }
    }
}
