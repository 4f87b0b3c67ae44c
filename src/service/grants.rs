//! Standing grants: approvals made in advance.

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::canonical::Sha256Digest;
use crate::domain::fault::Fault;
use crate::domain::grant::GrantTerms;
use crate::domain::ids::{Name, prefix};
use crate::domain::time::Timestamp;
use crate::domain::tool::{AuthorizationMode, Tool};
use crate::engine::grants::terms_of;
use crate::limits;
use crate::store::{GrantRow, GrantWritten, Position};
use crate::support::random_id;
use crate::telemetry::probe;

/// `POST /api/grants`, checked.
#[derive(Debug, Clone)]
pub struct GrantRequest {
    /// The tool.
    pub tool: Name,
    /// The one target.
    pub target: Option<Name>,
    /// What targets begin with.
    pub target_prefix: Option<Name>,
    /// The one arguments digest.
    pub arguments_digest: Option<Sha256Digest>,
    /// The one run.
    pub run_id: Option<Name>,
    /// The one session.
    pub session_id: Option<Name>,
    /// Most uses.
    pub max_uses: u32,
    /// When it ends.
    pub ends: GrantEnd,
    /// Why.
    pub reason: String,
    /// The caller's name for the request.
    pub key: Option<Name>,
}

/// When a grant ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GrantEnd {
    /// At a time.
    At(Timestamp),
    /// After so many seconds.
    After(u32),
}

/// Whether a grant may still be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GrantState {
    /// It may.
    Live,
    /// All its uses are used.
    UsedUp,
    /// Its time is over.
    Expired,
    /// Somebody ended it.
    Revoked,
    /// The tool was changed after it was granted, or is gone.
    Stale,
}

/// A grant as people see it.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The row.
    pub row: GrantRow,
    /// Its terms.
    pub terms: GrantTerms,
    /// Whether it may still be used.
    pub state: GrantState,
}

impl Service {
    /// Grants. A repeat under the same key gets the recorded grant. Answers whether it is new.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn add_grant(&self, caller: &Principal, request: GrantRequest) -> Result<(Grant, bool), ServiceError> {
        let (tenant, store) = (&caller.tenant, self.engine().store());
        let digest = digest_of(caller, &request);
        let id = request.key.as_ref().map_or_else(random_id, |key| keyed_id(caller, key));
        if request.key.is_some()
            && let Some(known) = probe::read(store.grant(tenant, id)).await?
        {
            return Ok((self.known_grant(caller, known, &digest).await?, false));
        }
        let tool = self.engine().tools().current(tenant, &request.tool).await?;
        let tool = tool.ok_or_else(|| ServiceError::invalid("/tool", "is not a registered tool of this tenant"))?;
        let now = probe::read(self.engine().store().now()).await?;
        let expires_at = match request.ends {
            GrantEnd::At(at) => at,
            GrantEnd::After(seconds) => now.plus_seconds(seconds),
        };
        let faults = faults(&tool, now, expires_at);
        if !faults.is_empty() {
            return Err(ServiceError::Invalid(faults));
        }
        let terms = GrantTerms {
            tool: request.tool,
            tool_revision: tool.revision,
            target: request.target,
            target_prefix: request.target_prefix,
            arguments_digest: request.arguments_digest,
            run_id: request.run_id,
            session_id: request.session_id,
            reason: request.reason,
            author: caller.subject.clone(),
            request_digest: digest.clone(),
        };
        let row = GrantRow {
            id,
            tool: terms.tool.clone(),
            terms: serde_json::to_string(&terms).map_err(|_| ServiceError::Internal("a grant can't be serialized"))?,
            uses: 0,
            max_uses: request.max_uses,
            created_at: now,
            expires_at,
            revoked: None,
        };
        if probe::write(store.add_grant(tenant, &row, limits::GRANTS_PER_TOOL)).await? == GrantWritten::Applied {
            return Ok((Grant { row, terms, state: GrantState::Live }, true));
        }
        // Another request under the same key was faster, or the tool has enough of them.
        match probe::read(store.grant(tenant, id)).await? {
            Some(known) => Ok((self.known_grant(caller, known, &digest).await?, false)),
            None => Err(ServiceError::ToolConflict("the tool has as many live grants as it may; revoke one")),
        }
    }

    async fn known_grant(
        &self,
        caller: &Principal,
        row: GrantRow,
        digest: &Sha256Digest,
    ) -> Result<Grant, ServiceError> {
        let known = self.grant_of(caller, row).await?;
        if known.terms.request_digest == *digest { Ok(known) } else { Err(ServiceError::KeyReused) }
    }

    /// A grant.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn grant(&self, caller: &Principal, id: Uuid) -> Result<Grant, ServiceError> {
        let row = probe::read(self.engine().store().grant(&caller.tenant, id)).await?.ok_or(ServiceError::NotFound)?;
        self.grant_of(caller, row).await
    }

    /// Grants in order of creation.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn grants(
        &self,
        caller: &Principal,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<Grant>, Option<String>), ServiceError> {
        let after = match cursor {
            Some(cursor) => Some(self.position(caller, "grants", cursor)?),
            None => None,
        };
        let rows = probe::read(self.engine().store().grants(&caller.tenant, after, limit.saturating_add(1))).await?;
        let page = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > page;
        let mut grants = Vec::with_capacity(rows.len());
        for row in rows.into_iter().take(page) {
            grants.push(self.grant_of(caller, row).await?);
        }
        let last = grants.last().filter(|_| more);
        let last = last.map(|grant| Position { created_at: grant.row.created_at, effect: grant.row.id });
        Ok((grants, self.seal_position(caller, "grants", last)))
    }

    /// Ends a grant: it authorizes nothing new. What it authorized stays authorized.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn revoke_grant(&self, caller: &Principal, id: Uuid) -> Result<Grant, ServiceError> {
        let at = self.engine().clock().now();
        if !probe::write(self.engine().store().revoke_grant(&caller.tenant, id, &caller.subject, at)).await? {
            return Err(ServiceError::NotFound);
        }
        self.grant(caller, id).await
    }

    async fn grant_of(&self, caller: &Principal, row: GrantRow) -> Result<Grant, ServiceError> {
        let terms = terms_of(&row)?;
        let current = self.engine().tools().current(&caller.tenant, &row.tool).await?;
        let state = if row.revoked.is_some() {
            GrantState::Revoked
        } else if row.uses >= row.max_uses {
            GrantState::UsedUp
        } else if row.expires_at <= self.engine().clock().now() {
            GrantState::Expired
        } else if current.is_none_or(|tool| tool.revision != terms.tool_revision) {
            GrantState::Stale
        } else {
            GrantState::Live
        };
        Ok(Grant { row, terms, state })
    }
}

fn faults(tool: &Tool, now: Timestamp, expires_at: Timestamp) -> Vec<Fault> {
    let policy = &tool.spec.authorization;
    let mut faults = Vec::new();
    if policy.mode != AuthorizationMode::Approval {
        faults.push(Fault::new("/tool", "asks for no approval"));
    } else if policy.approvals > 1 {
        faults.push(Fault::new("/tool", "asks for several people; a grant is one person's"));
    }
    if expires_at <= now || expires_at > now.plus_seconds(limits::DEADLINE_MAX_SECONDS) {
        faults.push(Fault::new("/expires_at", "must be in the future, by at most 31536000 seconds"));
    }
    faults
}

/// Over everything that was asked for, so that a repeat is known and another request is not.
fn digest_of(caller: &Principal, request: &GrantRequest) -> Sha256Digest {
    let ends = match request.ends {
        GrantEnd::At(at) => format!("at {at}"),
        GrantEnd::After(seconds) => format!("after {seconds}"),
    };
    let parts = serde_json::json!([
        "actonce grant v1",
        caller.subject,
        request.tool,
        request.target,
        request.target_prefix,
        request.arguments_digest,
        request.run_id,
        request.session_id,
        request.max_uses,
        ends,
        request.reason,
    ]);
    Sha256Digest::of(parts.to_string().as_bytes())
}

/// The id of a grant that its author named: the same name is the same grant.
fn keyed_id(caller: &Principal, key: &Name) -> Uuid {
    let mut hash = Sha256::new();
    hash.update(b"actonce grant id v1");
    for part in [caller.tenant.as_str(), caller.subject.as_str(), key.as_str()] {
        hash.update(prefix(part));
        hash.update(part);
    }
    let digest: [u8; 32] = hash.finalize().into();
    let mut half = [0_u8; 16];
    half.copy_from_slice(&digest[..16]);
    Uuid::from_bytes(half)
}
