//! What is sent and what is answered. Each request type checks itself into a service request.

pub mod approval;
pub mod dry_run;
pub mod effect;
pub mod grant;
pub mod intent;
pub mod outcome;
pub mod profile;
pub mod queue;
pub mod receipts;
pub mod reconciliation;
pub mod recovery;
pub mod resolution;
pub mod subscription;
pub mod timing;
pub mod tool;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::problem::{Problem, ProblemType};
use crate::domain::fault::Fault;
use crate::domain::ids::Name;

/// Collects the faults of a request, so that all are told at once.
#[derive(Debug, Default)]
pub struct Faults(Vec<Fault>);

impl Faults {
    /// Notes a fault.
    pub fn add(&mut self, pointer: &str, reason: &str) {
        self.0.push(Fault::new(pointer, reason));
    }

    /// Notes faults found below a pointer.
    pub fn under(&mut self, pointer: &str, faults: Vec<Fault>) {
        self.0
            .extend(faults.into_iter().map(|fault| Fault::new(&format!("{pointer}{}", fault.pointer), &fault.reason)));
    }

    /// A name, or a fault.
    pub fn name(&mut self, pointer: &str, text: &str) -> Option<Name> {
        Name::new(text).map_err(|fault| self.add(pointer, &fault.to_string())).ok()
    }

    /// An optional name, or a fault.
    pub fn optional(&mut self, pointer: &str, text: Option<&String>) -> Option<Name> {
        text.and_then(|text| self.name(pointer, text))
    }

    /// The problem that tells all faults.
    #[must_use]
    pub fn problem(self) -> Problem {
        Problem::new(ProblemType::InvalidRequest, "The request has faults; nothing was stored.").faults(self.0)
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Tells a member that is `null` from one that is absent.
pub(super) fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}
