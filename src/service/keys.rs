//! What is derived from the data key: downstream keys, list cursors, keys for sealing.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use uuid::Uuid;

use crate::domain::data_key::key_id;
use crate::domain::ids::{EffectKey, Name, Tenant, prefix};

/// How a downstream key begins.
const DOWNSTREAM_KEY_PREFIX: &str = "ao1_";
/// What a downstream key has behind that: 32 bytes in base64.
const DOWNSTREAM_KEY_DIGITS: usize = 43;
/// What stands before the key in a marker.
const MARKER_PREFIX: &str = "actonce:";

/// The key of this deployment, 32 secret bytes, and others that know what was made under them.
#[derive(Clone)]
pub struct DataKey {
    active: [u8; 32],
    former: Vec<[u8; 32]>,
}

impl fmt::Debug for DataKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl DataKey {
    /// A key of these bytes.
    #[must_use]
    pub const fn new(bytes: [u8; 32]) -> Self {
        Self { active: bytes, former: Vec::new() }
    }

    /// A ring of data keys, the active one first. The others make nothing; they know again what was made under them.
    #[must_use]
    pub fn of_ring(active: [u8; 32], others: impl IntoIterator<Item = [u8; 32]>) -> Self {
        Self { active, former: others.into_iter().collect() }
    }

    /// The active one first.
    fn all(&self) -> impl Iterator<Item = &[u8; 32]> {
        std::iter::once(&self.active).chain(&self.former)
    }

    /// The key that a client sends downstream: derived from tenant and operation id, so that it is
    /// the same on every attempt. It is kept with the effect and survives a change of this key.
    ///
    /// It holds 128 bits that nobody can guess, and behind a pad that takes the data key the effect's
    /// own id: who is told the key by a vendor finds the effect without an index (see
    /// [`Self::places_of_key`]).
    #[must_use]
    pub fn idempotency_key(&self, tenant: &Tenant, operation_id: &Name) -> Box<str> {
        downstream_key(&self.active, tenant, operation_id)
    }

    /// Which key of the ring made this downstream key: its id, or `None` where none of them did.
    #[must_use]
    pub fn maker_of(&self, tenant: &Tenant, operation_id: &Name, sent: &str) -> Option<u8> {
        self.all().find(|key| *downstream_key(key, tenant, operation_id) == *sent).map(key_id)
    }

    /// Where the effect with this downstream key would be, for each key of the ring: none where it is no such key. Only
    /// hints: the key has to be compared with the one that the effect keeps.
    #[must_use]
    pub fn places_of_key(&self, tenant: &Tenant, key: &str) -> Vec<EffectKey> {
        let bytes = key.strip_prefix(DOWNSTREAM_KEY_PREFIX).and_then(|digits| URL_SAFE_NO_PAD.decode(digits).ok());
        let Some((hidden, tag)) = bytes.as_ref().and_then(|bytes| bytes.split_first_chunk::<16>()) else {
            return Vec::new();
        };
        if tag.len() != 16 {
            return Vec::new();
        }
        let effect = |key: &[u8; 32]| Uuid::from_bytes(pad(key, tag, *hidden));
        self.all().map(|key| EffectKey { tenant: tenant.clone(), effect: effect(key) }).collect()
    }

    /// Seals a cursor for one tenant and one filter.
    #[must_use]
    pub fn seal_cursor(&self, tenant: &Tenant, filter: &str, position: &str) -> String {
        let tag = tag_of(&self.active, "actonce cursor v1", &[tenant.as_str(), filter, position]);
        URL_SAFE_NO_PAD.encode([&tag[..16], position.as_bytes()].concat())
    }

    /// Opens a cursor; `None` if it was not sealed for this tenant and filter.
    #[must_use]
    pub fn open_cursor(&self, tenant: &Tenant, filter: &str, cursor: &str) -> Option<String> {
        let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
        let (sent, position) = bytes.split_at_checked(16)?;
        let position = std::str::from_utf8(position).ok()?;
        let tag = |key: &[u8; 32]| tag_of(key, "actonce cursor v1", &[tenant.as_str(), filter, position]);
        self.all().any(|key| alike(sent, &tag(key)[..16])).then(|| position.to_owned())
    }
}

fn tag_of(key: &[u8; 32], domain: &str, parts: &[&str]) -> [u8; 32] {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    mac.update(domain.as_bytes());
    for part in parts {
        mac.update(&prefix(part));
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

fn downstream_key(key: &[u8; 32], tenant: &Tenant, operation_id: &Name) -> Box<str> {
    let tag = tag_of(key, "actonce downstream key v1", &[tenant.as_str(), operation_id.as_str()]);
    let mut bytes = [0_u8; 32];
    bytes[16..].copy_from_slice(&tag[..16]);
    let effect = EffectKey::of(tenant, operation_id).effect;
    let hidden = pad(key, &bytes[16..], *effect.as_bytes());
    bytes[..16].copy_from_slice(&hidden);
    format!("{DOWNSTREAM_KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes)).into()
}

/// Hides 16 bytes, or shows them again.
fn pad(key: &[u8; 32], tag: &[u8], mut bytes: [u8; 16]) -> [u8; 16] {
    let pad = tag_of(key, "actonce downstream key pad v1", &[&hex::encode(tag)]);
    for (byte, pad) in bytes.iter_mut().zip(pad) {
        *byte ^= pad;
    }
    bytes
}

/// Compares in constant time, which a compiler could take from a loop of ours.
#[must_use]
pub(super) fn alike(one: &[u8], other: &[u8]) -> bool {
    aws_lc_rs::constant_time::verify_slices_are_equal(one, other).is_ok()
}

/// Hidden text to embed in what a tool creates, so that a lookup can find it (protocol §4).
#[must_use]
pub fn marker(idempotency_key: &str) -> String {
    format!("<!-- {MARKER_PREFIX}{idempotency_key} -->")
}

/// The downstream key of the marker in a text; `None` where there is none, or where several name
/// different keys: nobody can say which one is meant.
#[must_use]
pub fn marked_key(text: &str) -> Option<&str> {
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let mut found = None;
    for (at, _) in text.match_indices(MARKER_PREFIX) {
        let rest = text.get(at.saturating_add(MARKER_PREFIX.len())..)?;
        let Some(digits) = rest.strip_prefix(DOWNSTREAM_KEY_PREFIX) else { continue };
        let length = digits.bytes().take_while(is_digit).count();
        if length != DOWNSTREAM_KEY_DIGITS {
            continue;
        }
        let key = rest.get(..length.saturating_add(DOWNSTREAM_KEY_PREFIX.len()))?;
        if found.is_some_and(|other| other != key) {
            return None;
        }
        found = Some(key);
    }
    found
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

    #[test]
    fn a_downstream_key_leads_to_its_effect_and_shows_it_to_nobody_else() {
        let key = DataKey::new([7; 32]);
        let (tenant, operation) = (Tenant::new("a").unwrap(), Name::new("op").unwrap());
        let sent = key.idempotency_key(&tenant, &operation);
        let effect = EffectKey::of(&tenant, &operation);
        let only = std::slice::from_ref(&effect);
        assert_eq!(key.places_of_key(&tenant, &sent), only);
        assert_ne!(DataKey::new([8; 32]).places_of_key(&tenant, &sent), only);
        let bytes = URL_SAFE_NO_PAD.decode(&sent[4..]).unwrap();
        assert!(!bytes.windows(16).any(|window| window == effect.effect.as_bytes()));
        for nonsense in ["", "ao1_", "ao1_AAAA", "ao2_", "x"] {
            assert_eq!(key.places_of_key(&tenant, nonsense), []);
        }
    }

    #[test]
    fn what_another_key_of_the_ring_made_is_known_and_nothing_is_made_with_it() {
        let (old, new) = (DataKey::new([7; 32]), DataKey::new([8; 32]));
        let both = DataKey::of_ring([8; 32], [[7; 32]]);
        let (tenant, operation) = (Tenant::new("a").unwrap(), Name::new("op").unwrap());
        let sent = old.idempotency_key(&tenant, &operation);
        assert!(both.places_of_key(&tenant, &sent).contains(&EffectKey::of(&tenant, &operation)));
        assert_eq!(both.maker_of(&tenant, &operation, &sent), Some(key_id(&[7; 32])));
        assert_eq!(new.maker_of(&tenant, &operation, &sent), None);
        assert_eq!(both.idempotency_key(&tenant, &operation), new.idempotency_key(&tenant, &operation));
        let cursor = old.seal_cursor(&tenant, "f", "1");
        assert_eq!(both.open_cursor(&tenant, "f", &cursor).as_deref(), Some("1"));
        assert_eq!(new.open_cursor(&tenant, "f", &cursor), None);
        assert_eq!(both.seal_cursor(&tenant, "f", "1"), new.seal_cursor(&tenant, "f", "1"));
    }

    #[test]
    fn a_marker_is_found_in_its_text_unless_two_differ() {
        let key = DataKey::new([7; 32]);
        let sent = |id: &str| key.idempotency_key(&Tenant::new("a").unwrap(), &Name::new(id).unwrap());
        let (one, two) = (marker(&sent("1")), marker(&sent("2")));
        assert_eq!(marked_key(&format!("Fixed it.\n{one}\n{one}")), Some(&*sent("1")));
        assert_eq!(marked_key(&format!("{one}{two}")), None);
        assert_eq!(marked_key("<!-- actonce:ao1_short --> actonce: actonce:ao1_"), None);
        assert_eq!(marked_key(&format!("{}x", one.trim_end_matches(" -->"))), None);
    }
}
