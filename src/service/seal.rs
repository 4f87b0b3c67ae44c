//! Sealing of what is kept in the database for a while and is nobody's business: AES-256-GCM under
//! keys derived from the data key.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

use super::keys::DataKey;
use crate::domain::ids::EffectKey;
use crate::engine::fresh::Seals;
use crate::support::random_bytes;

/// The form of what is sealed: this byte, a salt, the ciphertext and its tag.
const VERSION: u8 = 1;
/// Bytes of the salt. Each message has a key of its own, so no number of messages wears a key out.
const SALT: usize = 24;

/// What retained arguments are sealed for.
pub const ARGUMENTS: &str = "retained arguments";

/// Seals and opens.
#[derive(Debug, Clone)]
pub struct Sealer(DataKey);

impl Sealer {
    /// A sealer under a data key.
    #[must_use]
    pub const fn new(data_key: DataKey) -> Self {
        Self(data_key)
    }

    /// Seals a text for one use (`domain`) and one place (`associated`); `None` when the system has no
    /// randomness to give.
    #[must_use]
    pub fn seal(&self, domain: &str, associated: &[u8], plaintext: &[u8]) -> Option<Vec<u8>> {
        let salt: [u8; SALT] = random_bytes().ok()?;
        let mut bytes = plaintext.to_vec();
        self.key(domain, &salt)?.seal_in_place_append_tag(nonce(), Aad::from(associated), &mut bytes).ok()?;
        let mut sealed = Vec::with_capacity(bytes.len().saturating_add(SALT + 1));
        sealed.push(VERSION);
        sealed.extend_from_slice(&salt);
        sealed.extend_from_slice(&bytes);
        Some(sealed)
    }

    /// Opens what was sealed for the same use and place under the same data key.
    #[must_use]
    pub fn open(&self, domain: &str, associated: &[u8], sealed: &[u8]) -> Option<Vec<u8>> {
        let (version, rest) = sealed.split_first()?;
        let (salt, bytes) = rest.split_at_checked(SALT)?;
        if *version != VERSION {
            return None;
        }
        let mut bytes = bytes.to_vec();
        let plaintext = self.key(domain, salt)?.open_in_place(nonce(), Aad::from(associated), &mut bytes).ok()?;
        Some(plaintext.to_vec())
    }

    fn key(&self, domain: &str, salt: &[u8]) -> Option<LessSafeKey> {
        let bytes = self.0.derive("actonce seal v1", &[domain, &hex::encode(salt)]);
        UnboundKey::new(&AES_256_GCM, &bytes).ok().map(LessSafeKey::new)
    }
}

/// Each key seals one message, so one nonce is enough.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

/// Where the arguments of an effect belong.
pub(super) fn place(key: &EffectKey) -> Vec<u8> {
    [key.effect.as_bytes().as_slice(), key.tenant.as_str().as_bytes()].concat()
}

impl Seals for Sealer {
    fn seal(&self, key: &EffectKey, arguments: &str) -> Option<Vec<u8>> {
        Self::seal(self, ARGUMENTS, &place(key), arguments.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_only_what_was_sealed_here() {
        let sealer = Sealer::new(DataKey::new([7; 32]));
        let sealed = sealer.seal("a", b"place", b"secret").unwrap();
        assert_eq!(sealer.open("a", b"place", &sealed).unwrap(), b"secret");
        assert!(!sealed.windows(6).any(|window| window == b"secret"));
        assert_ne!(sealer.seal("a", b"place", b"secret").unwrap(), sealed, "no two are alike");
        assert_eq!(sealer.open("b", b"place", &sealed), None, "another use");
        assert_eq!(sealer.open("a", b"other", &sealed), None, "another place");
        assert_eq!(Sealer::new(DataKey::new([8; 32])).open("a", b"place", &sealed), None, "another key");
        for index in 0..sealed.len() {
            let mut spoiled = sealed.clone();
            spoiled[index] ^= 1;
            assert_eq!(sealer.open("a", b"place", &spoiled), None, "byte {index}");
            assert_eq!(sealer.open("a", b"place", &sealed[..index]), None, "cut at {index}");
        }
        assert_eq!(sealer.open("a", b"", &sealer.seal("a", b"", b"").unwrap()).unwrap(), b"");
    }
}
