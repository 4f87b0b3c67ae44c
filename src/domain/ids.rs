//! Names and keys.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::limits;

/// Why a text is not a valid name. The offending text itself is never echoed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NameFault {
    /// The text is empty.
    #[error("must not be empty")]
    Empty,
    /// The text is longer than [`limits::NAME_BYTES`].
    #[error("must be at most {0} bytes of UTF-8")]
    TooLong(usize),
    /// The text starts or ends with white space.
    #[error("must not start or end with white space")]
    Padded,
    /// The text has a control character (NUL among them).
    #[error("must not contain control characters")]
    Control,
}

/// Checks a name: 1 to `max` bytes, no control characters, no surrounding white space.
///
/// # Errors
/// The first rule that the text breaks.
pub fn check_name(text: &str, max: usize) -> Result<(), NameFault> {
    if text.is_empty() {
        Err(NameFault::Empty)
    } else if text.len() > max {
        Err(NameFault::TooLong(max))
    } else if text.chars().any(char::is_control) {
        Err(NameFault::Control)
    } else if text.trim().len() != text.len() {
        Err(NameFault::Padded)
    } else {
        Ok(())
    }
}

/// A checked name of at most [`limits::NAME_BYTES`] bytes: an operation id, tool, target, run,
/// session, call, profile or worker (protocol §12).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Name(Arc<str>);

impl Name {
    /// Checks and keeps a name.
    ///
    /// # Errors
    /// See [`check_name`].
    pub fn new(text: &str) -> Result<Self, NameFault> {
        check_name(text, limits::NAME_BYTES)?;
        Ok(Self(Arc::from(text)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Name {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::text::parsed(deserializer, Self::new)
    }
}

/// The wall around all data (protocol §1). Comes from a verified token, never from a body or URL.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Tenant(Arc<str>);

impl Tenant {
    /// Checks and keeps a tenant name.
    ///
    /// # Errors
    /// See [`check_name`].
    pub fn new(text: &str) -> Result<Self, NameFault> {
        check_name(text, limits::TENANT_BYTES)?;
        Ok(Self(Arc::from(text)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tenant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The key of one effect in the store: the tenant and 128 bits of SHA-256 over tenant and
/// operation id. It is computed, never minted, so that a client that lost every answer still
/// names the same effect; the full operation id stands in the record and is compared on load.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct EffectKey {
    /// The tenant.
    pub tenant: Tenant,
    /// The computed id.
    pub effect: Uuid,
}

impl EffectKey {
    /// The key of an operation id.
    #[must_use]
    pub fn of(tenant: &Tenant, operation_id: &Name) -> Self {
        let mut hash = Sha256::new();
        hash.update(b"actonce effect v1");
        hash.update(prefix(tenant.as_str()));
        hash.update(tenant.as_str());
        hash.update(operation_id.as_str());
        let digest: [u8; 32] = hash.finalize().into();
        let mut half = [0_u8; 16];
        half.copy_from_slice(&digest[..16]);
        Self { tenant: tenant.clone(), effect: Uuid::from_bytes(half) }
    }
}

/// The length of a text as 8 bytes, so that joined texts can't be split in two ways.
pub(crate) fn prefix(text: &str) -> [u8; 8] {
    u64::try_from(text.len()).unwrap_or(u64::MAX).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded_and_clean() {
        assert_eq!(Name::new(""), Err(NameFault::Empty));
        assert_eq!(Name::new(" a"), Err(NameFault::Padded));
        assert_eq!(Name::new("a\0b"), Err(NameFault::Control));
        assert!(Name::new(&"é".repeat(128)).is_ok());
        assert_eq!(Name::new(&"é".repeat(129)), Err(NameFault::TooLong(256)));
    }

    #[test]
    fn keys_depend_on_both_parts_and_their_border() {
        let name = |t: &str| Name::new(t).unwrap();
        let tenant = |t: &str| Tenant::new(t).unwrap();
        let key = EffectKey::of(&tenant("ab"), &name("c"));
        assert_eq!(key, EffectKey::of(&tenant("ab"), &name("c")));
        assert_ne!(key.effect, EffectKey::of(&tenant("a"), &name("bc")).effect);
        assert_ne!(key.effect, EffectKey::of(&tenant("ab"), &name("d")).effect);
    }
}
