//! Secrets at rest: sealed with a key that is derived from the data key, bound to what they belong to.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::keys::DataKey;
use crate::domain::ids::prefix;

/// How a sealed text begins.
const VERSION: &str = "s1.";

/// Seals and opens: AES-256-GCM under one key per domain, with a random nonce.
#[derive(Clone)]
pub struct Sealer {
    data_key: DataKey,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

/// The cryptography refused. It has no reason that could be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a secret can't be sealed")]
pub struct SealError;

impl Sealer {
    /// A sealer under a data key.
    #[must_use]
    pub const fn new(data_key: DataKey) -> Self {
        Self { data_key }
    }

    fn key(&self, domain: &str) -> Result<RandomizedNonceKey, SealError> {
        let bytes = self.data_key.derive("actonce seal v1", &[domain]);
        RandomizedNonceKey::new(&AES_256_GCM, &bytes).map_err(|_| SealError)
    }

    /// Seals a text. What it belongs to (`associated`) has to be named again to open it.
    ///
    /// # Errors
    /// The cryptography refuses, which it does not for texts of this size.
    pub fn seal(&self, domain: &str, associated: &[&str], plaintext: &[u8]) -> Result<String, SealError> {
        let mut sealed = plaintext.to_vec();
        let nonce = self
            .key(domain)?
            .seal_in_place_append_tag(Aad::from(joined(associated)), &mut sealed)
            .map_err(|_| SealError)?;
        Ok(format!("{VERSION}{}", URL_SAFE_NO_PAD.encode([nonce.as_ref().as_slice(), &sealed].concat())))
    }

    /// Opens what was sealed in this domain for the same thing; `None` for anything else.
    #[must_use]
    pub fn open(&self, domain: &str, associated: &[&str], sealed: &str) -> Option<Vec<u8>> {
        let bytes = URL_SAFE_NO_PAD.decode(sealed.strip_prefix(VERSION)?).ok()?;
        let (nonce, body) = bytes.split_at_checked(NONCE_LEN)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
        let mut body = body.to_vec();
        let plaintext = self.key(domain).ok()?.open_in_place(nonce, Aad::from(joined(associated)), &mut body).ok()?;
        Some(plaintext.to_vec())
    }
}

/// Length first, so that joined texts can't be split in two ways.
fn joined(parts: &[&str]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for part in parts {
        bytes.extend_from_slice(&prefix(part));
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_in_its_place_alone() {
        let sealer = Sealer::new(DataKey::new([7; 32]));
        let sealed = sealer.seal("d", &["tenant", "name"], b"secret").unwrap();
        assert!(!sealed.contains("secret"));
        assert_ne!(sealed, sealer.seal("d", &["tenant", "name"], b"secret").unwrap(), "a nonce is used once");
        assert_eq!(sealer.open("d", &["tenant", "name"], &sealed).as_deref(), Some(&b"secret"[..]));
        assert_eq!(sealer.open("e", &["tenant", "name"], &sealed), None);
        assert_eq!(sealer.open("d", &["tenantn", "ame"], &sealed), None);
        assert_eq!(Sealer::new(DataKey::new([8; 32])).open("d", &["tenant", "name"], &sealed), None);
        let mut changed = sealed.clone().into_bytes();
        let last = changed.len() - 2;
        changed[last] = if changed[last] == b'A' { b'B' } else { b'A' };
        assert_eq!(sealer.open("d", &["tenant", "name"], std::str::from_utf8(&changed).unwrap()), None);
        for nonsense in ["", "s1.", "s1.AAAA", "s2.AAAA"] {
            assert_eq!(sealer.open("d", &[], nonsense), None);
        }
    }
}
