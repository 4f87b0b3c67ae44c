//! A fault in what a client sent: where it is and what is wrong, never the text itself.

use serde::Serialize;

/// One fault, with an RFC 6901 pointer to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Fault {
    /// Where, as a JSON pointer into the request body, or `header:NAME`, `query:NAME`, `path:NAME`.
    pub pointer: String,
    /// What is wrong.
    pub reason: String,
}

impl Fault {
    /// A fault.
    #[must_use]
    pub fn new(pointer: &str, reason: &str) -> Self {
        Self { pointer: pointer.to_owned(), reason: reason.to_owned() }
    }
}
