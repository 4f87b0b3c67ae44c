//! `POST /api/intents` and `POST …/dispatch`.

use std::sync::Arc;

use axum::http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Faults, present};
use crate::domain::canonical::{Canonical, Sha256Digest};
use crate::domain::ids::Name;
use crate::domain::object;
use crate::domain::state::EffectClass;
use crate::http::extract::only_one;
use crate::http::problem::{Problem, ProblemType};
use crate::limits;
use crate::service::effects::{ClaimWish, IntentRequest};

/// A wish to act now.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ClaimBody {
    /// Who would act.
    #[schema(min_length = 1, max_length = 256, example = "agent-7")]
    pub worker: String,
    /// A random value that lives only in the memory of the process that is about to act, one per
    /// attempt. Repeating it after a lost answer gets the same dispatch back.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub claim_id: Option<String>,
    /// How long the dispatch may stay silent (1 to 3600 s); the tool's default where absent.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3600)]
    pub lease_seconds: Option<u32>,
}

impl ClaimBody {
    /// Checks the wish; faults are noted below `prefix`.
    pub fn check(&self, prefix: &str, faults: &mut Faults) -> Option<ClaimWish> {
        let worker = faults.name(&format!("{prefix}/worker"), &self.worker);
        if let Some(id) = &self.claim_id {
            faults.name(&format!("{prefix}/claim_id"), id);
        }
        if self
            .lease_seconds
            .is_some_and(|lease| !(limits::LEASE_MIN_SECONDS..=limits::LEASE_MAX_SECONDS).contains(&lease))
        {
            faults.add(&format!("{prefix}/lease_seconds"), "must be between 1 and 3600");
        }
        Some(ClaimWish { worker: worker?, claim_id: self.claim_id.clone(), lease_seconds: self.lease_seconds })
    }
}

/// An intent: what is about to be done.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct IntentBody {
    /// The caller's stable name for the operation, the same on every retry. May come as the header
    /// `Idempotency-Key`, or be derived from `run_id`, tool and arguments.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256, example = "run-42:refund:order-1001")]
    pub operation_id: Option<String>,
    /// The registered tool.
    #[schema(min_length = 1, max_length = 256, example = "payments.refund")]
    pub tool: String,
    /// The effect class; not weaker than the registered one.
    #[serde(default)]
    pub effect: Option<EffectClass>,
    /// What is acted on.
    #[schema(min_length = 1, max_length = 256, example = "order-1001")]
    pub target: String,
    /// The arguments, any JSON (at most 256 KiB). Only their digest is kept, unless the tool retains them.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub arguments: Option<Box<RawValue>>,
    /// Their digest instead: `sha256:` and 64 hex digits over canonical JSON.
    #[serde(default)]
    #[schema(pattern = "^sha256:[0-9a-f]{64}$")]
    pub arguments_digest: Option<String>,
    /// The run.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub run_id: Option<String>,
    /// The session.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub session_id: Option<String>,
    /// The model's name for the call.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub call_id: Option<String>,
    /// The profile.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub profile_id: Option<String>,
    /// The wish to act at once.
    #[serde(default, deserialize_with = "object::optional")]
    pub claim: Option<ClaimBody>,
}

impl IntentBody {
    /// Checks the intent; `header` is the `Idempotency-Key`.
    ///
    /// # Errors
    /// Every fault at once, or `too-large` for the arguments.
    pub fn check(self, header: Option<&str>) -> Result<IntentRequest, Problem> {
        let mut faults = Faults::default();
        let operation_id = match (&self.operation_id, header) {
            (Some(body), Some(header)) if body != header => {
                faults.add("/operation_id", "differs from the header `Idempotency-Key`");
                None
            }
            (Some(id), _) => faults.name("/operation_id", id),
            (None, Some(id)) => faults.name("header:Idempotency-Key", id),
            (None, None) => None,
        };
        let tool = faults.name("/tool", &self.tool);
        let target = faults.name("/target", &self.target);
        let run_id = faults.optional("/run_id", self.run_id.as_ref());
        let session_id = faults.optional("/session_id", self.session_id.as_ref());
        let call_id = faults.optional("/call_id", self.call_id.as_ref());
        let profile_id = faults.optional("/profile_id", self.profile_id.as_ref());
        let claim = self.claim.as_ref().map(|claim| claim.check("/claim", &mut faults));
        let (digest, arguments) = check_arguments(&self, &mut faults)?;
        let sent = self.arguments.as_ref().map(|raw| Arc::from(raw.get()));
        let (Some(tool), Some(target), Some(digest), true) = (tool, target, digest, faults.is_empty()) else {
            return Err(faults.problem());
        };
        Ok(IntentRequest {
            operation_id,
            tool,
            class: self.effect,
            target,
            arguments_digest: digest,
            arguments,
            sent,
            run_id,
            session_id,
            call_id,
            profile_id,
            claim: claim.flatten(),
        })
    }
}

type Arguments = (Option<Sha256Digest>, Option<Arc<Canonical>>);

fn check_arguments(body: &IntentBody, faults: &mut Faults) -> Result<Arguments, Problem> {
    let stated = match &body.arguments_digest {
        Some(text) => {
            let digest = Sha256Digest::parse(text);
            if digest.is_none() {
                faults.add("/arguments_digest", "must be `sha256:` and 64 lower-case hex digits");
            }
            digest
        }
        None => None,
    };
    let Some(raw) = &body.arguments else {
        if body.arguments_digest.is_none() {
            faults.add("/arguments", "is required, or `arguments_digest`");
        }
        return Ok((stated, None));
    };
    if raw.get().len() > limits::ARGUMENTS_BYTES {
        return Err(Problem::new(ProblemType::TooLarge, "The arguments may have at most 262144 bytes.")
            .with("limit_bytes", limits::ARGUMENTS_BYTES)
            .fault("/arguments", "is too large"));
    }
    match Canonical::of(raw) {
        Err(fault) => {
            faults.add(&format!("/arguments{}", fault.pointer), fault.reason);
            Ok((None, None))
        }
        Ok(canonical) => {
            let digest = canonical.digest();
            if stated.is_some_and(|stated| stated != digest) {
                faults.add("/arguments_digest", "is not the digest of `arguments`");
            }
            Ok((Some(digest), Some(Arc::new(canonical))))
        }
    }
}

/// `Idempotency-Key`, bare or as a quoted string.
///
/// # Errors
/// The header is not readable text.
pub fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let Some(value) = only_one(headers, "Idempotency-Key")? else { return Ok(None) };
    let faulty = |reason: &str| {
        Problem::new(ProblemType::InvalidRequest, "A header has a fault.").fault("header:Idempotency-Key", reason)
    };
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| faulty("must be UTF-8"))?.trim();
    let bare = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    Name::new(bare).map(|name| Some(name.as_str().to_owned())).map_err(|fault| faulty(&fault.to_string()))
}
