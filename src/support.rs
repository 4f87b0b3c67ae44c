//! The two things a pure program can't make: randomness, and names for itself.

use std::io;

use uuid::Uuid;

use crate::domain::ids::{Name, NameFault};

/// A random id. The one source of randomness for ids.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "this is the one source")]
pub fn random_id() -> Uuid {
    Uuid::new_v4()
}

/// Random bytes from the operating system, for keys.
///
/// # Errors
/// When the operating system has none to give. There is no weaker source to fall back to.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes)
}

/// The principal under which the service itself acts. No token can have it: see `auth`.
///
/// # Errors
/// Never; the name is valid.
pub fn service_principal() -> Result<Name, NameFault> {
    Name::new("actonce")
}

/// How the principals begin under which receipt sources act. No token can have one: see `auth`.
pub const SOURCE_PRINCIPAL_PREFIX: &str = "source:";

/// Whether the service keeps a principal for itself or for its receipt sources.
#[must_use]
pub fn is_reserved_principal(name: &Name) -> bool {
    let is_service = service_principal().is_ok_and(|service| service == *name);
    is_service || name.as_str().starts_with(SOURCE_PRINCIPAL_PREFIX)
}
