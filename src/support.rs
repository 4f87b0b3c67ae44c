//! The two things a pure program can't make: randomness, and names for itself.

use uuid::Uuid;

use crate::domain::ids::{Name, NameFault};

/// A random id. The one source of randomness for ids.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one source")]
pub fn random_id() -> Uuid {
    Uuid::new_v4()
}

/// The principal under which the service itself acts. No token can have it: see `auth`.
///
/// # Errors
/// Never; the name is valid.
pub fn service_principal() -> Result<Name, NameFault> {
    Name::new("actonce")
}
