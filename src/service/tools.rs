//! Registration of tools.

use std::sync::Arc;

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::fault::Fault;
use crate::domain::ids::Name;
use crate::domain::tool::{Tool, ToolSpec};
use crate::engine::tools::tool_of;
use crate::limits;
use crate::store::{ToolRow, ToolWrite, ToolWritten};

/// A tool after a change, and whether it is new.
#[derive(Debug)]
pub struct ToolChanged {
    /// The tool as it is now.
    pub tool: Arc<Tool>,
    /// Whether the name was free before.
    pub created: bool,
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
        let faults = spec.faults();
        if !faults.is_empty() {
            return Err(ServiceError::Invalid(faults));
        }
        let paused = spec.paused;
        // Pausing is apart from the registration: it must not make approvals stale.
        let spec = ToolSpec { paused: false, ..spec };
        let text = serde_json::to_string(&spec).map_err(|_| ServiceError::Internal("a tool can't be serialized"))?;
        if text.len() > limits::TOOL_BYTES {
            return Err(ServiceError::Invalid(vec![Fault::new("", "must be at most 131072 bytes in all")]));
        }
        for _ in 0..limits::COMMIT_RETRIES {
            let row = self.engine().store().tool(&caller.tenant, name).await?;
            check_revision(row.as_ref(), expected_revision)?;
            let known = row.as_ref().filter(|row| !row.deleted);
            let same_spec = known.is_some_and(|row| row.spec == text || says_the_same(&row.spec, &spec));
            if let (Some(row), true) = (known, same_spec)
                && row.paused == paused
            {
                return Ok(ToolChanged { tool: tool_of(row.clone())?, created: false });
            }
            let revision = row.as_ref().map_or(0, |row| row.revision).saturating_add(u32::from(!same_spec));
            let created = known.is_none();
            let new_spec = (!same_spec).then(|| text.clone());
            if let Some(tool) = self.write(caller, name, row, (revision, new_spec, paused, false)).await? {
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
        let after = match cursor {
            Some(cursor) => {
                let name = self.data_key.open_cursor(&caller.tenant, "tools", cursor);
                Some(name.and_then(|name| Name::new(&name).ok()).ok_or_else(super::lists::bad_cursor)?)
            }
            None => None,
        };
        let rows = self.engine().store().tools(&caller.tenant, after.as_ref(), limit.saturating_add(1)).await?;
        let page = usize::try_from(limit).unwrap_or(usize::MAX);
        let more = rows.len() > page;
        let mut tools = Vec::with_capacity(rows.len());
        for row in rows.into_iter().take(page) {
            tools.push(tool_of(row)?);
        }
        let next = tools
            .last()
            .filter(|_| more)
            .map(|tool| self.data_key.seal_cursor(&caller.tenant, "tools", tool.name.as_str()));
        Ok((tools, next))
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
            if let Some(tool) = self.write(caller, name, Some(row), (revision, None, paused, false)).await? {
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
            if self.write(caller, name, Some(row), (revision, None, false, true)).await?.is_some() {
                return Ok(());
            }
        }
        Err(ServiceError::Capacity("the tool is changed by too many at once"))
    }

    async fn live_tool(&self, caller: &Principal, name: &Name) -> Result<ToolRow, ServiceError> {
        let row = self.engine().store().tool(&caller.tenant, name).await?;
        row.filter(|row| !row.deleted).ok_or(ServiceError::NotFound)
    }

    /// Writes revision, registration, paused and deleted; `None` when somebody else was first.
    async fn write(
        &self,
        caller: &Principal,
        name: &Name,
        found: Option<ToolRow>,
        (revision, spec, paused, deleted): (u32, Option<String>, bool, bool),
    ) -> Result<Option<Arc<Tool>>, ServiceError> {
        let store = self.engine().store();
        let at = self.engine().clock().now();
        let written = store
            .write_tool(&ToolWrite {
                tenant: caller.tenant.clone(),
                name: name.clone(),
                expected_stamp: found.as_ref().map(|row| row.stamp),
                revision,
                spec: spec.clone(),
                paused,
                deleted,
                by: caller.subject.clone(),
                at,
            })
            .await?;
        self.engine().tools().forget(&caller.tenant, name);
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
