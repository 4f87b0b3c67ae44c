//! What is derived from the data key: downstream keys, list cursors, keys for sealing.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use crate::domain::ids::{Name, Tenant, prefix};

/// The key of this deployment: 32 secret bytes.
#[derive(Clone)]
pub struct DataKey([u8; 32]);

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl DataKey {
    /// A key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// A key of its own for one use.
    pub(super) fn derive(&self, domain: &str, parts: &[&str]) -> [u8; 32] {
        self.tag(domain, parts)
    }

    fn tag(&self, domain: &str, parts: &[&str]) -> [u8; 32] {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(&self.0) else { return [0; 32] };
        mac.update(domain.as_bytes());
        for part in parts {
            mac.update(&prefix(part));
            mac.update(part.as_bytes());
        }
        mac.finalize().into_bytes().into()
    }

    /// The key that a client sends downstream: derived from tenant and operation id, so that it is
    /// the same on every attempt. It is kept with the effect and survives a change of this key.
    #[must_use]
    pub fn idempotency_key(&self, tenant: &Tenant, operation_id: &Name) -> Box<str> {
        let tag = self.tag("actonce downstream key v1", &[tenant.as_str(), operation_id.as_str()]);
        format!("ao1_{}", URL_SAFE_NO_PAD.encode(tag)).into()
    }

    /// Seals a cursor for one tenant and one filter.
    #[must_use]
    pub fn seal_cursor(&self, tenant: &Tenant, filter: &str, position: &str) -> String {
        let tag = self.tag("actonce cursor v1", &[tenant.as_str(), filter, position]);
        URL_SAFE_NO_PAD.encode([&tag[..16], position.as_bytes()].concat())
    }

    /// Opens a cursor; `None` if it was not sealed for this tenant and filter.
    #[must_use]
    pub fn open_cursor(&self, tenant: &Tenant, filter: &str, cursor: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (sent, position) = bytes.split_at_checked(16)?;
        let position = std::str::from_utf8(position).ok()?;
        let tag = self.tag("actonce cursor v1", &[tenant.as_str(), filter, position]);
        // A constant-time comparison: every byte is looked at.
        let differs = sent.iter().zip(&tag[..16]).fold(0_u8, |sum, (a, b)| sum | (a ^ b));
        (differs == 0).then(|| position.to_owned())
    }
}

/// Hidden text to embed in what a tool creates, so that a lookup can find it (protocol §4).
#[must_use]
pub fn marker(idempotency_key: &str) -> String {
    format!("<!-- actonce:{idempotency_key} -->")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_bound_and_keys_are_stable() {
        let key = DataKey::new([7; 32]);
        let (a, b) = (Tenant::new("a").unwrap(), Tenant::new("b").unwrap());
        let cursor = key.seal_cursor(&a, "state=x", "12:34");
        assert_eq!(key.open_cursor(&a, "state=x", &cursor).as_deref(), Some("12:34"));
        assert_eq!(key.open_cursor(&b, "state=x", &cursor), None);
        assert_eq!(key.open_cursor(&a, "state=y", &cursor), None);
        let operation = Name::new("op").unwrap();
        assert_eq!(key.idempotency_key(&a, &operation), key.idempotency_key(&a, &operation));
        assert_ne!(key.idempotency_key(&a, &operation), key.idempotency_key(&b, &operation));
    }
}
