//! Registration of tools.

use std::sync::Arc;

use super::doubts::asks_by_itself;
use super::ports::SigningSecret;
use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::adapter::AdapterSpec;
use crate::domain::fault::Fault;
use crate::domain::ids::Name;
use crate::domain::tool::{Tool, ToolSpec};
use crate::engine::tools::tool_of;
use crate::limits;
use crate::store::{ToolRow, ToolWrite, ToolWritten};
use crate::telemetry::probe;

/// A tool after a change, and whether it is new.
#[derive(Debug)]
pub struct ToolChanged {
    /// The tool as it is now.
    pub tool: Arc<Tool>,
    /// Whether the name was free before.
    pub created: bool,
}

/// What a tool is changed to.
struct ToolChange {
    revision: u32,
    /// The registration, where it is new.
    spec: Option<String>,
    paused: bool,
    deleted: bool,
    /// The service asks about its doubts from now on, also about those that are open.
    wakes_doubts: bool,
    /// A new secret, sealed.
    secret: Option<Vec<u8>>,
}

impl Service {
    /// Registers a tool, or changes its registration. An equal registration changes nothing.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn put_tool(
        &self,
        caller: &Principal,
        name: &Name,
        spec: ToolSpec,
        expected_revision: Option<u32>,
    ) -> Result<ToolChanged, ServiceError> {
        let mut faults = spec.faults();
        faults.extend(self.adapter_faults(caller, spec.adapter.as_ref()));
        if !faults.is_empty() {
            return Err(ServiceError::Invalid(faults));
        }
        let paused = spec.paused;
        // Pausing is apart from the registration: it must not make approvals stale. So is a secret.
        let mut spec = ToolSpec { paused: false, ..spec };
        let secret = spec.adapter.as_mut().and_then(|adapter| adapter.secret.take());
        let text = serde_json::to_string(&spec).map_err(|_| ServiceError::Internal("a tool can't be serialized"))?;
        if text.len() > limits::TOOL_BYTES {
            return Err(ServiceError::Invalid(vec![Fault::new("", "must be at most 131072 bytes in all")]));
        }
        for _ in 0..limits::COMMIT_RETRIES {
            let row = probe::read(self.engine().store().tool(&caller.tenant, name)).await?;
            check_revision(row.as_ref(), expected_revision)?;
            let known = row.as_ref().filter(|row| !row.deleted);
            // After the row: what changes in between changes its stamp, and this write is lost.
            let new_secret = self.secrets.change(&caller.tenant, name, spec.adapter.as_ref(), secret.as_ref()).await?;
            let same_spec = known.is_some_and(|row| row.spec == text || says_the_same(&row.spec, &spec));
            if let (Some(row), true) = (known, same_spec)
                && row.paused == paused
                && new_secret.is_none()
            {
                return Ok(ToolChanged { tool: tool_of(row.clone())?, created: false });
            }
            let revision = row.as_ref().map_or(0, |row| row.revision).saturating_add(u32::from(!same_spec));
            let created = known.is_none();
            let wakes_doubts = !same_spec && asks_by_itself(&spec);
            let spec = (!same_spec).then(|| text.clone());
            let change = ToolChange { revision, spec, paused, deleted: false, wakes_doubts, secret: new_secret };
            if let Some(tool) = self.write(caller, name, row, change).await? {
                return Ok(ToolChanged { tool, created });
            }
        }
        Err(ServiceError::Capacity("the tool is changed by too many at once"))
    }

    /// A tool as registered now.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn tool(&self, caller: &Principal, name: &Name) -> Result<Arc<Tool>, ServiceError> {
        let row = self.live_tool(caller, name).await?;
        Ok(tool_of(row)?)
    }

    /// Tools by name.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn tools(
        &self,
        caller: &Principal,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<(Vec<Arc<Tool>>, Option<String>), ServiceError> {
        let list = "tools";
        let after = self.place_after(caller, list, cursor, |name| Name::new(name).ok())?;
        let mut rows =
            probe::read(self.engine().store().tools(&caller.tenant, after.as_ref(), limit.saturating_add(1))).await?;
        let next = self.cut_to_page(caller, list, &mut rows, limit, |row| row.name.to_string());
        Ok((rows.into_iter().map(tool_of).collect::<Result<_, _>>()?, next))
    }

    /// Holds or releases the claims of a tool. What is in flight finishes.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn pause_tool(&self, caller: &Principal, name: &Name, paused: bool) -> Result<Arc<Tool>, ServiceError> {
        for _ in 0..limits::COMMIT_RETRIES {
            let row = self.live_tool(caller, name).await?;
            if row.paused == paused {
                return Ok(tool_of(row)?);
            }
            let revision = row.revision;
            let change = ToolChange { revision, spec: None, paused, deleted: false, wakes_doubts: false, secret: None };
            if let Some(tool) = self.write(caller, name, Some(row), change).await? {
                return Ok(tool);
            }
        }
        Err(ServiceError::Capacity("the tool is changed by too many at once"))
    }

    /// Deletes a tool that no open effect uses. Its revisions stay for the effects made under them.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn delete_tool(
        &self,
        caller: &Principal,
        name: &Name,
        expected_revision: Option<u32>,
    ) -> Result<(), ServiceError> {
        for _ in 0..limits::COMMIT_RETRIES {
            let row = self.live_tool(caller, name).await?;
            check_revision(Some(&row), expected_revision)?;
            let revision = row.revision;
            let change =
                ToolChange { revision, spec: None, paused: false, deleted: true, wakes_doubts: false, secret: None };
            if self.write(caller, name, Some(row), change).await?.is_some() {
                return Ok(());
            }
        }
        Err(ServiceError::Capacity("the tool is changed by too many at once"))
    }

    async fn live_tool(&self, caller: &Principal, name: &Name) -> Result<ToolRow, ServiceError> {
        let row = probe::read(self.engine().store().tool(&caller.tenant, name)).await?;
        row.filter(|row| !row.deleted).ok_or(ServiceError::NotFound)
    }

    /// What is wrong with an adapter in this deployment: a URL that may not be called, a secret of the wrong
    /// form, or one that the configuration does not name for this tenant.
    fn adapter_faults(&self, caller: &Principal, adapter: Option<&AdapterSpec>) -> Vec<Fault> {
        let Some(adapter) = adapter else { return Vec::new() };
        let mut faults = Vec::new();
        let mut check = |pointer: &str, checked: Result<(), &'static str>| {
            faults.extend(checked.err().map(|reason| Fault::new(pointer, reason)));
        };
        // One that is too long has its fault already.
        if let Some(url) = adapter.url.as_ref().filter(|url| url.len() <= limits::URL_BYTES) {
            check("/adapter/url", self.adapters.check_url(url));
        }
        // That a declarative adapter has neither is told already.
        let signs = adapter.url.is_some();
        if let Some(secret) = adapter.secret.as_ref().filter(|_| signs) {
            check("/adapter/secret", SigningSecret::parse(secret.expose()).map(drop));
        }
        if let Some(name) = adapter.secret_ref.as_ref().filter(|_| signs) {
            check("/adapter/secret_ref", self.secrets.check_named(&caller.tenant, name, signs));
        }
        faults
    }

    /// Writes a change; `None` when somebody else was first.
    async fn write(
        &self,
        caller: &Principal,
        name: &Name,
        found: Option<ToolRow>,
        change: ToolChange,
    ) -> Result<Option<Arc<Tool>>, ServiceError> {
        let ToolChange { revision, spec, paused, deleted, wakes_doubts, secret } = change;
        let store = self.engine().store();
        let at = self.engine().clock().now();
        let write = ToolWrite {
            tenant: caller.tenant.clone(),
            name: name.clone(),
            expected_stamp: found.as_ref().map(|row| row.stamp),
            revision,
            spec: spec.clone(),
            paused,
            deleted,
            wakes_doubts,
            secret,
            by: caller.subject.clone(),
            at,
        };
        let written = probe::write(store.write_tool(&write)).await?;
        self.engine().tools().forget(&caller.tenant, name);
        if wakes_doubts && written == ToolWritten::Applied {
            self.doubt_wake.notify_one();
        }
        match written {
            ToolWritten::Lost => Ok(None),
            ToolWritten::InUse => Err(ServiceError::ToolConflict("an unresolved effect uses this tool")),
            ToolWritten::Applied => {
                let stamp = found.as_ref().map_or(0, |row| row.stamp).saturating_add(1);
                let registered_at = match (&spec, &found) {
                    (None, Some(row)) => row.registered_at,
                    _ => at,
                };
                let spec = match (spec, found) {
                    (Some(spec), _) => spec,
                    (None, Some(row)) => row.spec,
                    (None, None) => return Err(ServiceError::Internal("a tool without a registration")),
                };
                let row = ToolRow { name: name.clone(), revision, stamp, paused, deleted, spec, registered_at };
                Ok(Some(tool_of(row)?))
            }
        }
    }
}

/// Whether a registration says the same in other words: defaults written out, or left out.
fn says_the_same(stored: &str, spec: &ToolSpec) -> bool {
    let written_out = |spec: &ToolSpec| ToolSpec {
        verification: Some(spec.verification_rule(spec.effect)),
        on_suspected_duplicate: Some(spec.duplicate_rule(spec.effect)),
        ..spec.clone()
    };
    serde_json::from_str::<ToolSpec>(stored).is_ok_and(|stored| written_out(&stored) == written_out(spec))
}

fn check_revision(row: Option<&ToolRow>, expected: Option<u32>) -> Result<(), ServiceError> {
    let found = row.filter(|row| !row.deleted).map_or(0, |row| row.revision);
    match expected {
        Some(expected) if expected != found => Err(ServiceError::StaleTool { found }),
        _ => Ok(()),
    }
}
