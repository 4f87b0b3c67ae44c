//! Tools as this process knows them. Registered revisions never change and are kept; the current
//! row is trusted for a moment only, and every grant repeats its stamp in the commit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::domain::ids::{Name, Tenant};
use crate::domain::time::Timestamp;
use crate::domain::tool::{Tool, ToolSpec};
use crate::limits;
use crate::recent::Recent;
use crate::store::{Corruption, Store, StoreError, ToolRow};
use crate::telemetry::probe;

/// How long a current row is trusted for answers that write nothing.
const CURRENT_TTL: Duration = Duration::from_secs(1);

type Key = (Tenant, Name);

/// Tenants that may use tools nobody registered.
#[derive(Debug, Clone, Default)]
pub struct AdHocTools {
    /// Every tenant may.
    pub all: bool,
    /// These may.
    pub tenants: Vec<String>,
}

impl AdHocTools {
    pub(super) fn allows(&self, tenant: &Tenant) -> bool {
        self.all || self.tenants.iter().any(|name| name == tenant.as_str())
    }
}

/// The tools.
#[derive(Debug)]
pub struct Tools {
    store: Arc<dyn Store>,
    /// With the time until which each is trusted.
    current: Recent<Key, (Arc<Tool>, Instant)>,
    revisions: Recent<(Tenant, Name, u32), Arc<Tool>>,
    ad_hoc: Arc<Tool>,
}

impl Tools {
    /// No tool known yet.
    #[must_use]
    pub fn new(store: Arc<dyn Store>, ad_hoc_name: Name) -> Self {
        Self {
            store,
            current: Recent::of_values(limits::TOOLS_REMEMBERED),
            revisions: Recent::of_values(limits::TOOLS_REMEMBERED),
            ad_hoc: Tool::new(ad_hoc_name, 0, ToolSpec::ad_hoc(), false, 0, Timestamp::from_micros(0)),
        }
    }

    /// The registration that stands for an unregistered tool.
    #[must_use]
    pub fn ad_hoc(&self) -> Arc<Tool> {
        Arc::clone(&self.ad_hoc)
    }

    /// The tool as registered now; `None` if it is not, or was deleted.
    ///
    /// # Errors
    /// The store can't answer, or the row can't be read back.
    pub async fn current(&self, tenant: &Tenant, name: &Name) -> Result<Option<Arc<Tool>>, StoreError> {
        let key = (tenant.clone(), name.clone());
        let asked = Instant::now();
        if let Some((known, until)) = self.current.get(&key)
            && asked < until
        {
            return Ok(Some(known));
        }
        // An absent tool is asked for again each time, so that a registration elsewhere counts at once.
        let row = probe::read(self.store.tool(tenant, name)).await?.filter(|row| !row.deleted);
        let found = row.map(tool_of).transpose()?;
        if let Some(tool) = &found {
            self.current.insert(key, (Arc::clone(tool), asked + CURRENT_TTL));
        }
        Ok(found)
    }

    /// The tool as it was at a revision; revision 0 is the ad-hoc registration.
    ///
    /// # Errors
    /// The store can't answer, or the revision is gone.
    pub async fn revision(&self, tenant: &Tenant, name: &Name, revision: u32) -> Result<Arc<Tool>, StoreError> {
        if revision == 0 {
            return Ok(self.ad_hoc());
        }
        let key = (tenant.clone(), name.clone(), revision);
        if let Some(known) = self.revisions.get(&key) {
            return Ok(known);
        }
        let row = probe::read(self.store.tool_revision(tenant, name, revision)).await?.ok_or_else(|| Corruption {
            table: "tool_revisions",
            column: "revision",
            key: format!("{name} {revision}"),
        })?;
        let tool = tool_of(row)?;
        self.revisions.insert(key, Arc::clone(&tool));
        Ok(tool)
    }

    /// Forgets the current row: it changed, or a commit found another stamp.
    pub fn forget(&self, tenant: &Tenant, name: &Name) {
        self.current.forget(&(tenant.clone(), name.clone()));
    }
}

/// A tool from its row.
///
/// # Errors
/// The registration can't be read back.
pub fn tool_of(row: ToolRow) -> Result<Arc<Tool>, Corruption> {
    let spec: ToolSpec = serde_json::from_str(&row.spec).map_err(|_| Corruption {
        table: "tool_revisions",
        column: "spec",
        key: format!("{} {}", row.name, row.revision),
    })?;
    Ok(Tool::new(row.name, row.revision, spec, row.paused, row.stamp, row.registered_at))
}
