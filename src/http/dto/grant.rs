//! Standing grants as sent and as answered.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;

use super::{Faults, present};
use crate::domain::canonical::{Canonical, Sha256Digest};
use crate::domain::ids::Name;
use crate::domain::time::Timestamp;
use crate::http::problem::Problem;
use crate::limits;
use crate::service::grants::{Grant, GrantEnd, GrantRequest, GrantState};

/// A standing grant: which intents of an approval tool need not be asked about.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantBody {
    /// The tool; it must ask for the approval of one person.
    #[schema(min_length = 1, max_length = 256)]
    pub tool: String,
    /// The one target.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub target: Option<String>,
    /// What targets begin with, instead.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub target_prefix: Option<String>,
    /// The one value that arguments must have. Only its digest is kept.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub arguments: Option<Box<RawValue>>,
    /// Its digest instead.
    #[serde(default)]
    #[schema(pattern = "^sha256:[0-9a-f]{64}$")]
    pub arguments_digest: Option<String>,
    /// The one run.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub run_id: Option<String>,
    /// The one session.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub session_id: Option<String>,
    /// How many effects it may authorize.
    #[schema(minimum = 1, maximum = 100_000)]
    pub max_uses: u32,
    /// When it ends; either this or `expires_after_seconds`.
    #[serde(default)]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<String>,
    /// After how many seconds of database time it ends.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 31_536_000)]
    pub expires_after_seconds: Option<u32>,
    /// Why (at most 2 KiB).
    pub reason: String,
    /// The caller's name for this request: a repeat gets the same grant. May come as the header `Idempotency-Key`.
    #[serde(default)]
    #[schema(min_length = 1, max_length = 256)]
    pub idempotency_key: Option<String>,
}

impl GrantBody {
    /// Checks the grant; `header` is the `Idempotency-Key`.
    ///
    /// # Errors
    /// Every fault at once.
    pub fn check(self, header: Option<&str>) -> Result<GrantRequest, Problem> {
        let mut faults = Faults::default();
        let tool = faults.name("/tool", &self.tool);
        let target = faults.optional("/target", self.target.as_ref());
        let target_prefix = faults.optional("/target_prefix", self.target_prefix.as_ref());
        if self.target.is_some() && self.target_prefix.is_some() {
            faults.add("/target_prefix", "is given beside `target`; give one of them");
        }
        let run_id = faults.optional("/run_id", self.run_id.as_ref());
        let session_id = faults.optional("/session_id", self.session_id.as_ref());
        if !(1..=limits::GRANT_USES).contains(&self.max_uses) {
            faults.add("/max_uses", "must be between 1 and 100000");
        }
        let ends = self.ends(&mut faults);
        check_reason(&self.reason, &mut faults);
        let key = check_key(self.idempotency_key.as_deref(), header, &mut faults);
        let arguments_digest = self.digest(&mut faults);
        let (Some(tool), Some(ends), true) = (tool, ends, faults.is_empty()) else { return Err(faults.problem()) };
        Ok(GrantRequest {
            tool,
            target,
            target_prefix,
            arguments_digest,
            run_id,
            session_id,
            max_uses: self.max_uses,
            ends,
            reason: self.reason,
            key,
        })
    }

    fn ends(&self, faults: &mut Faults) -> Option<GrantEnd> {
        match (&self.expires_at, self.expires_after_seconds) {
            (Some(text), None) => {
                let at = Timestamp::parse(text);
                if at.is_none() {
                    faults.add("/expires_at", "must be an RFC 3339 date and time with an offset");
                }
                at.map(GrantEnd::At)
            }
            (None, Some(seconds)) => {
                if !(1..=limits::DEADLINE_MAX_SECONDS).contains(&seconds) {
                    faults.add("/expires_after_seconds", "must be between 1 and 31536000");
                }
                Some(GrantEnd::After(seconds))
            }
            (Some(_), Some(_)) => {
                faults.add("/expires_after_seconds", "is given beside `expires_at`; give one of them");
                None
            }
            (None, None) => {
                faults.add("/expires_at", "is required, or `expires_after_seconds`");
                None
            }
        }
    }

    fn digest(&self, faults: &mut Faults) -> Option<Sha256Digest> {
        let stated = self.arguments_digest.as_deref().map(Sha256Digest::parse);
        if stated == Some(None) {
            faults.add("/arguments_digest", "must be `sha256:` and 64 lower-case hex digits");
        }
        let Some(raw) = &self.arguments else { return stated.flatten() };
        if raw.get().len() > limits::ARGUMENTS_BYTES {
            faults.add("/arguments", "must be at most 262144 bytes");
            return None;
        }
        match Canonical::of(raw) {
            Err(fault) => {
                faults.add(&format!("/arguments{}", fault.pointer), fault.reason);
                None
            }
            Ok(canonical) => {
                let digest = canonical.digest();
                if stated.flatten().is_some_and(|stated| stated != digest) {
                    faults.add("/arguments_digest", "is not the digest of `arguments`");
                }
                Some(digest)
            }
        }
    }
}

/// Checks a reason that a person typed.
pub(super) fn check_reason(reason: &str, faults: &mut Faults) {
    if reason.trim().is_empty() || reason.len() > limits::REASON_BYTES || reason.contains('\0') {
        faults.add("/reason", "must be a text of 1 to 2048 bytes without NUL characters");
    }
}

/// The key of a request, from its body or its header.
pub(super) fn check_key(body: Option<&str>, header: Option<&str>, faults: &mut Faults) -> Option<Name> {
    match (body, header) {
        (Some(body), Some(header)) if body != header => {
            faults.add("/idempotency_key", "differs from the header `Idempotency-Key`");
            None
        }
        (Some(key), _) => faults.name("/idempotency_key", key),
        (None, Some(key)) => faults.name("header:Idempotency-Key", key),
        (None, None) => None,
    }
}

/// A standing grant.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = Grant)]
pub struct GrantView<'a> {
    /// Its id; the journal of an effect that it authorized names it.
    grant_id: Uuid,
    /// Whether it may still be used.
    state: GrantState,
    /// The tool.
    tool: &'a str,
    /// The tool's revision when it was granted; no other one is covered.
    tool_revision: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_prefix: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arguments_digest: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    session_id: Option<&'a str>,
    /// Effects authorized so far.
    uses: u32,
    /// How many it may authorize.
    max_uses: u32,
    /// When it was granted.
    #[schema(value_type = String, format = DateTime)]
    created_at: Timestamp,
    /// When it ends.
    #[schema(value_type = String, format = DateTime)]
    expires_at: Timestamp,
    /// Who granted.
    author: &'a str,
    /// Why, in their words.
    reason: &'a str,
    /// When it was revoked.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    revoked_at: Option<Timestamp>,
    /// Who revoked it.
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked_by: Option<&'a str>,
}

impl<'a> From<&'a Grant> for GrantView<'a> {
    fn from(grant: &'a Grant) -> Self {
        let (row, terms) = (&grant.row, &grant.terms);
        Self {
            grant_id: row.id,
            state: grant.state,
            tool: terms.tool.as_str(),
            tool_revision: terms.tool_revision,
            target: terms.target.as_ref().map(Name::as_str),
            target_prefix: terms.target_prefix.as_ref().map(Name::as_str),
            arguments_digest: terms.arguments_digest.as_ref().map(Sha256Digest::as_str),
            run_id: terms.run_id.as_ref().map(Name::as_str),
            session_id: terms.session_id.as_ref().map(Name::as_str),
            uses: row.uses,
            max_uses: row.max_uses,
            created_at: row.created_at,
            expires_at: row.expires_at,
            author: terms.author.as_str(),
            reason: &terms.reason,
            revoked_at: row.revoked.as_ref().map(|(_, at)| *at),
            revoked_by: row.revoked.as_ref().map(|(by, _)| by.as_str()),
        }
    }
}

/// A page of grants.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = GrantPage)]
pub struct GrantPageDocument<'a> {
    /// The grants, oldest first.
    items: Vec<GrantView<'a>>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
}
