//! One call of an agent, and the operations made of it.

use serde_json::value::RawValue;

use crate::domain::canonical::Sha256Digest;
use crate::domain::ids::{Name, NameFault};
use crate::domain::state::EffectClass;

/// What an agent wants to have done.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) run_id: Name,
    /// The model's name for the call.
    pub(super) id: Option<Name>,
    pub(super) tool: Name,
    pub(super) effect: EffectClass,
    pub(super) target: Name,
    pub(super) arguments: Box<RawValue>,
    pub(super) digest: Sha256Digest,
}

/// A call under the name that makes it one act, the same on every retry.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    pub(super) id: Name,
    pub(super) call: &'a Call,
    pub(super) lease_seconds: u32,
}

impl Call {
    /// The name that the service itself would derive for this call (protocol §4), with a suffix.
    pub(super) fn operation(&self, suffix: &str, lease_seconds: u32) -> Result<Operation<'_>, NameFault> {
        let id = Name::new(&format!("{}:{}:{}:{suffix}", self.run_id, self.tool, self.digest.hex()))?;
        Ok(Operation { id, call: self, lease_seconds })
    }
}
