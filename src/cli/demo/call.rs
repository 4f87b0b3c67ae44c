//! A call of an agent, and the operation that is made of it.

use serde_json::value::RawValue;

use crate::domain::ids::Name;
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
}

/// A call under the name that makes it one act, the same on every retry.
#[derive(Debug)]
pub(super) struct Operation<'a> {
    pub(super) id: Name,
    pub(super) call: &'a Call,
    pub(super) lease_seconds: u32,
}
