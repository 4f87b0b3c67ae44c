//! One place where refusals and failures become problems. What the client reads and what the log
//! reads are different texts.

use crate::auth::AuthError;
use crate::domain::elapsed::{ElapsedLimit, ElapsedScope};
use crate::domain::quota::Bounded;
use crate::domain::refusal::Refusal;
use crate::http::problem::{Problem, ProblemType};
use crate::limits;
use crate::service::ServiceError;
use crate::store::StoreError;

/// When to come back after the store was unavailable or a bound was full.
const RETRY_SECONDS: u32 = 1;

impl From<ServiceError> for Problem {
    fn from(error: ServiceError) -> Self {
        match error {
            ServiceError::Refused { refusal, .. } => refused(refusal),
            ServiceError::Invalid(faults) => {
                Self::new(ProblemType::InvalidRequest, "The request has faults; nothing was stored.").faults(faults)
            }
            ServiceError::OperationIdRequired => Self::new(
                ProblemType::OperationIdRequired,
                "Give `operation_id`, the header `Idempotency-Key`, or a `run_id` to derive one from. \
                 It must be the same on every retry, so the service never makes one up.",
            )
            .fault("/operation_id", "is required"),
            ServiceError::NotFound => Self::new(ProblemType::NotFound, "Nothing of this tenant has this name."),
            ServiceError::ToolConflict(reason) | ServiceError::Conflict(reason) => {
                Self::new(ProblemType::StateConflict, sentence(reason))
            }
            ServiceError::Unresolved(counts) => {
                let counts: serde_json::Map<String, serde_json::Value> =
                    counts.into_iter().map(|(state, count)| (state.as_str().to_owned(), count.into())).collect();
                Self::new(
                    ProblemType::StateConflict,
                    "The session has effects that are neither settled nor mere proposals; settle them first.",
                )
                .with("unresolved", counts)
            }
            ServiceError::KeyReused => Self::new(
                ProblemType::OperationReused,
                "This idempotency key was used for another request; nothing of this one was stored.",
            ),
            ServiceError::StaleTool { found } => {
                Self::new(ProblemType::StaleRevision, "The tool has another revision.")
                    .with("found", serde_json::json!({ "revision": found }))
            }
            ServiceError::NoKeyring => Self::new(
                ProblemType::AliasesUnavailable,
                "No alias keyring is configured (`ACTONCE_ALIAS_KEYS`), so there are no aliases. Nothing was changed.",
            ),
            ServiceError::StaleSource { found } => {
                Self::new(ProblemType::StaleRevision, "The receipt source has another revision.")
                    .with("found", serde_json::json!({ "revision": found }))
            }
            ServiceError::StaleSubscription { found } => {
                Self::new(ProblemType::StaleRevision, "The subscription has another revision.")
                    .with("found", serde_json::json!({ "revision": found }))
            }
            ServiceError::BadSignature => {
                Self::new(ProblemType::Unauthenticated, "Send a delivery that its source has signed, or a valid token.")
            }
            ServiceError::CursorGone => {
                Self::new(ProblemType::CursorGone, "The event that this cursor names is not in the journal any more.")
            }
            ServiceError::TooLarge { reason, limit_bytes } => {
                Self::new(ProblemType::TooLarge, sentence(reason)).with("limit_bytes", limit_bytes)
            }
            ServiceError::OverQuota { whose, most } => over_quota(whose, most),
            ServiceError::Capacity(reason) => {
                tracing::warn!(reason, "refused for capacity");
                Self::new(ProblemType::Capacity, sentence(reason)).with("retry_after_seconds", RETRY_SECONDS)
            }
            ServiceError::Store(error) => store(&error),
            ServiceError::SharedStore(error) => store(&error),
            ServiceError::Corrupt(corruption) => {
                tracing::error!(%corruption, "a stored row can't be read back");
                Self::new(ProblemType::InternalError, "What is stored for this name can't be read back.")
            }
            ServiceError::Internal(reason) => {
                tracing::error!(reason, "internal error");
                Self::new(ProblemType::InternalError, "The request was not carried out.")
            }
        }
    }
}

fn over_quota(whose: Bounded, most: u32) -> Problem {
    let detail = match whose {
        Bounded::Tenant => {
            "This tenant has as many unsettled effects as it may. Nothing was stored: settle some, then send the same again."
        }
        Bounded::Principal => {
            "This principal has proposed as many effects that are unsettled as it may. Nothing was stored: settle some, then send the same again."
        }
    };
    Problem::new(ProblemType::QuotaExceeded, detail)
        .with("quota", whose.as_str())
        .with("limit", most)
        .with("retry_after_seconds", limits::QUOTA_COUNT_SECONDS)
}

fn store(error: &StoreError) -> Problem {
    match error {
        StoreError::Corrupt(corruption) => {
            tracing::error!(%corruption, "a stored row can't be read back");
            Problem::new(ProblemType::InternalError, "What is stored for this name can't be read back.")
        }
        StoreError::Rejected(_) => {
            tracing::error!(%error, "the store refused a write");
            Problem::new(ProblemType::InternalError, "The request was not carried out.")
        }
        StoreError::Unavailable(_) | StoreError::Schema(_) | StoreError::Open(_) => {
            tracing::warn!(%error, "the store is unavailable");
            Problem::new(
                ProblemType::StoreUnavailable,
                "The store can't answer now. Repeat the same request: if it was carried out, you get the recorded answer.",
            )
            .with("retry_after_seconds", RETRY_SECONDS)
        }
    }
}

fn refused(refusal: Refusal) -> Problem {
    match refusal {
        Refusal::Invalid(faults) => {
            Problem::new(ProblemType::InvalidRequest, "The request has faults; nothing was stored.").faults(faults)
        }
        Refusal::OperationReused(parts) => Problem::new(
            ProblemType::OperationReused,
            "This operation id was recorded with other content; nothing of this request was stored.",
        )
        .with("differs", parts),
        Refusal::ReceiptRejected(faults) => Problem::new(
            ProblemType::ReceiptRejected,
            "The evidence does not speak about this effect, or not as the tool registers it; nothing was stored.",
        )
        .faults(faults),
        Refusal::StateConflict { state, reason, evidence_recorded } => {
            Problem::new(ProblemType::StateConflict, sentence(reason))
                .with("state", state.as_str())
                .with("evidence_recorded", evidence_recorded)
        }
        Refusal::StaleFence { newest, evidence_recorded } => Problem::new(
            ProblemType::StaleFence,
            "The report does not come from the newest dispatch of this effect and decides nothing.",
        )
        .with("newest_fence", newest)
        .with("evidence_recorded", evidence_recorded),
        Refusal::LeaseLost => Problem::new(
            ProblemType::LeaseLost,
            "This dispatch does not hold the lease any more. Stop acting; report what you know.",
        )
        .with("directive", "stop"),
        Refusal::StaleRevision { found, state } => {
            Problem::new(ProblemType::StaleRevision, "The effect has another revision than the one you name.")
                .with("found", serde_json::json!({ "revision": found, "state": state }))
        }
        Refusal::ApprovalStale(reason) => Problem::new(ProblemType::ApprovalStale, sentence(reason)),
        Refusal::ProfileMismatch(differences) => Problem::new(
            ProblemType::ProfileMismatch,
            "The session is bound to another profile; nothing of this request was stored.",
        )
        .with("differences", serde_json::to_value(differences).unwrap_or_default()),
        Refusal::SuspectedDuplicate(first) => Problem::new(
            ProblemType::SuspectedDuplicate,
            "The same tool, target and arguments are unresolved under another operation id. If this is a retry, use that id.",
        )
        .with("operation_id", first.as_str()),
        Refusal::ElapsedLimit { limit, elapsed_us } => elapsed_limit(limit, elapsed_us),
        Refusal::NotFound => Problem::new(ProblemType::NotFound, "Nothing of this tenant has this name."),
        Refusal::Pruned(tombstone) => Problem::new(
            ProblemType::StateConflict,
            "This effect was settled, and what was recorded about it was pruned. It is never carried out again.",
        )
        .with("pruned_at", tombstone.pruned_at.to_string())
        .with("state", tombstone.state.as_str())
        .with("executed", tombstone.executed)
        .with("evidence_recorded", false)
        .with("directive", "stop"),
        Refusal::StaleRequest => Problem::new(ProblemType::StaleRequest, "A newer request replaced this one."),
        Refusal::Forbidden(reason) => Problem::new(ProblemType::InsufficientScope, sentence(reason)),
    }
}

fn elapsed_limit(limit: ElapsedLimit, elapsed_us: Option<i64>) -> Problem {
    let detail = match limit.scope {
        ElapsedScope::Run => {
            "The run has been at work for longer than the tool allows; nothing more is dispatched for it."
        }
        ElapsedScope::Session => {
            "The session has lasted for longer than the tool allows; nothing more is dispatched for it."
        }
    };
    let counted = serde_json::json!({
        "scope": limit.scope.as_str(),
        "max_elapsed_seconds": limit.max_elapsed_seconds,
        "elapsed_seconds": elapsed_us.map(|elapsed| elapsed / 1_000_000),
    });
    Problem::new(ProblemType::StateConflict, detail).with("elapsed_limit", counted).with("directive", "stop")
}

impl From<&AuthError> for Problem {
    fn from(error: &AuthError) -> Self {
        if matches!(error, AuthError::KeysUnavailable) {
            return Self::new(ProblemType::StoreUnavailable, "The keys that verify tokens are unavailable.")
                .with("retry_after_seconds", RETRY_SECONDS);
        }
        Self::new(ProblemType::Unauthenticated, sentence(error.reason()))
    }
}

/// A reason as a sentence.
fn sentence(reason: &str) -> String {
    let mut chars = reason.chars();
    let first: String = chars.next().map(|c| c.to_uppercase().collect()).unwrap_or_default();
    let end = if reason.ends_with('.') { "" } else { "." };
    format!("{first}{}{end}", chars.as_str())
}
