//! Tools as answered.

use serde::Serialize;

use crate::domain::time::Timestamp;
use crate::domain::tool::{Tool, ToolSpec};

/// A registered tool.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ToolView {
    /// Its name.
    name: String,
    /// Grows with every change of the registration; also the `ETag`.
    revision: u32,
    /// When this revision was registered.
    #[schema(value_type = String, format = DateTime)]
    registered_at: Timestamp,
    /// The registration.
    #[serde(flatten)]
    #[schema(value_type = Object)]
    spec: ToolSpec,
}

impl From<&Tool> for ToolView {
    fn from(tool: &Tool) -> Self {
        let spec = ToolSpec {
            paused: tool.paused,
            // What was left to a default is answered as it is understood.
            verification: Some(tool.spec.verification_rule(tool.spec.effect)),
            on_suspected_duplicate: Some(tool.spec.duplicate_rule(tool.spec.effect)),
            ..tool.spec.clone()
        };
        Self { name: tool.name.as_str().to_owned(), revision: tool.revision, registered_at: tool.registered_at, spec }
    }
}
