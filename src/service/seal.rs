//! Sealing: what is kept and must not be readable in the database, such as secrets of tools.
//!
//! AES-256-GCM-SIV with a random nonce, which stays safe even if a nonce should ever come twice. The
//! key is derived from the data key for each domain, so what is sealed for one purpose opens for no
//! other; what it belongs to is bound as associated data, so a row that is copied elsewhere opens
//! nowhere. The first bytes say how and under which data key it was sealed:
//!
//! ```text
//! format (1) | key id (1) | nonce (12) | ciphertext and tag
//! ```

use std::fmt;

use crate::domain::data_key::{derived, key_id};
use crate::domain::ids::EffectKey;
use crate::domain::ids::prefix;
use crate::engine::fresh::Seals;
use crate::support::random_bytes;
use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};

const FORMAT: u8 = 1;
const HEAD: usize = 2 + NONCE_LEN;

/// Why something can't be sealed or opened. It never says what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// It was sealed under another data key, for something else, or it is damaged.
    #[error("it can't be opened: another data key, another place, or damaged")]
    Unopenable,
    /// The operating system has no randomness, or the cipher refuses.
    #[error("it can't be sealed")]
    Unsealable,
}

/// Seals and opens.
#[derive(Clone)]
pub struct Sealer {
    /// The data keys, the active one first.
    keys: Vec<[u8; 32]>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl Sealer {
    /// Seals under a data key.
    #[must_use]
    pub fn new(active: [u8; 32]) -> Self {
        Self { keys: vec![active] }
    }

    /// Opens what was sealed under another data key, too.
    #[must_use]
    pub fn with_former(mut self, former: [u8; 32]) -> Self {
        self.keys.push(former);
        self
    }

    /// A ring of data keys, the active one first.
    #[must_use]
    pub fn of_ring(active: [u8; 32], others: impl IntoIterator<Item = [u8; 32]>) -> Self {
        others.into_iter().fold(Self::new(active), Self::with_former)
    }

    /// The ids of the data keys, the active one first.
    pub fn key_ids(&self) -> impl Iterator<Item = u8> + '_ {
        self.keys.iter().map(key_id)
    }

    /// How everything begins that is sealed now.
    #[must_use]
    pub fn head(&self) -> Option<[u8; 2]> {
        self.key_ids().next().map(|id| [FORMAT, id])
    }

    /// The id of the data key that something was sealed under, by its first bytes; `None` where nobody knows the format.
    #[must_use]
    pub const fn key_id_of(start: &[u8]) -> Option<u8> {
        match start {
            [FORMAT, id, ..] => Some(*id),
            _ => None,
        }
    }

    /// Seals for a domain, bound to what it belongs to.
    ///
    /// # Errors
    /// `Unsealable`.
    pub fn seal(&self, domain: &str, associated: &[&str], plaintext: &[u8]) -> Result<Vec<u8>, SealError> {
        let active = self.keys.first().ok_or(SealError::Unsealable)?;
        let nonce: [u8; NONCE_LEN] = random_bytes().map_err(|_| SealError::Unsealable)?;
        let head = [FORMAT, key_id(active)];
        let mut content = plaintext.to_vec();
        cipher(active, domain)
            .and_then(|cipher| {
                let aad = Aad::from(bound(head, associated));
                cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut content).ok()
            })
            .ok_or(SealError::Unsealable)?;
        Ok([&head[..], &nonce, &content].concat())
    }

    /// Opens what was sealed for the same domain and the same associated texts.
    ///
    /// # Errors
    /// `Unopenable`.
    pub fn open(&self, domain: &str, associated: &[&str], sealed: &[u8]) -> Result<Vec<u8>, SealError> {
        let (head, content) = sealed.split_at_checked(HEAD).ok_or(SealError::Unopenable)?;
        let (&[format, id], nonce) = head.split_first_chunk::<2>().ok_or(SealError::Unopenable)?;
        if format != FORMAT {
            return Err(SealError::Unopenable);
        }
        let nonce: [u8; NONCE_LEN] = nonce.try_into().map_err(|_| SealError::Unopenable)?;
        // Ids of different keys may be equal; the tag tells them apart.
        let opened = self.keys.iter().filter(|key| key_id(key) == id).find_map(|key| {
            let mut content = content.to_vec();
            let aad = Aad::from(bound([format, id], associated));
            let opened =
                cipher(key, domain)?.open_in_place(Nonce::assume_unique_for_key(nonce), aad, &mut content).ok()?.len();
            content.truncate(opened);
            Some(content)
        });
        opened.ok_or(SealError::Unopenable)
    }
}

fn cipher(key: &[u8; 32], domain: &str) -> Option<LessSafeKey> {
    let key = derived(key, "actonce seal v1", domain)?;
    UnboundKey::new(&AES_256_GCM_SIV, &key).ok().map(LessSafeKey::new)
}

/// The head and the associated texts, joined so that they can't be split in two ways.
fn bound(head: [u8; 2], associated: &[&str]) -> Vec<u8> {
    let mut bytes = head.to_vec();
    for part in associated {
        bytes.extend_from_slice(&prefix(part));
        bytes.extend_from_slice(part.as_bytes());
    }
    bytes
}

/// What retained arguments are sealed for.
pub(super) const ARGUMENTS: &str = "retained arguments";

/// Where the arguments of an effect belong.
fn place(key: &EffectKey) -> [String; 2] {
    [key.tenant.as_str().to_owned(), key.effect.to_string()]
}

impl Sealer {
    /// Opens the retained arguments of an effect; `None` where they can't be.
    pub(super) fn arguments(&self, key: &EffectKey, sealed: &[u8]) -> Option<String> {
        let [tenant, effect] = place(key);
        let bytes = self.open(ARGUMENTS, &[&tenant, &effect], sealed).ok()?;
        String::from_utf8(bytes).ok()
    }
}

impl Seals for Sealer {
    fn seal(&self, key: &EffectKey, arguments: &str) -> Option<Vec<u8>> {
        let [tenant, effect] = place(key);
        Self::seal(self, ARGUMENTS, &[&tenant, &effect], arguments.as_bytes()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_opens_where_it_belongs_and_nowhere_else() {
        let sealer = Sealer::new([7; 32]);
        let sealed = sealer.seal("tool secret", &["a", "bc"], b"hunter2").unwrap();
        assert_eq!(sealer.open("tool secret", &["a", "bc"], &sealed).unwrap(), b"hunter2");
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
        for (domain, associated) in [
            ("arguments", &["a", "bc"][..]),
            ("tool secret", &["ab", "c"]),
            ("tool secret", &["a", "b", "c"]),
            ("tool secret", &["a"]),
            ("tool secret", &[]),
        ] {
            assert_eq!(sealer.open(domain, associated, &sealed), Err(SealError::Unopenable));
        }
        assert!(Sealer::new([8; 32]).open("tool secret", &["a", "bc"], &sealed).is_err());
        for place in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[place] ^= 1;
            assert!(sealer.open("tool secret", &["a", "bc"], &damaged).is_err(), "byte {place}");
            assert!(sealer.open("tool secret", &["a", "bc"], &sealed[..place]).is_err(), "cut at {place}");
        }
        let again = sealer.seal("tool secret", &["a", "bc"], b"hunter2").unwrap();
        assert_ne!(sealed, again, "each has a nonce of its own");
        assert_eq!(sealer.open("d", &[], &sealer.seal("d", &[], b"").unwrap()).unwrap(), b"");
        assert_eq!(format!("{sealer:?}"), "[hidden]");
    }

    #[test]
    fn a_data_key_can_be_replaced() {
        let old = Sealer::new([7; 32]).seal("d", &["x"], b"old").unwrap();
        for former in 0..=255 {
            let rotated = Sealer::new([former; 32]).with_former([7; 32]);
            assert_eq!(rotated.open("d", &["x"], &old).unwrap(), b"old");
            let new = rotated.seal("d", &["x"], b"new").unwrap();
            assert_eq!(Sealer::new([former; 32]).open("d", &["x"], &new).unwrap(), b"new");
        }
    }
}
