//! Data keys: what tells one from another, and says nothing of either.

use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::ids::prefix;

/// Bytes that are derived from a data key for one purpose.
pub(crate) fn derived(key: &[u8; 32], label: &str, domain: &str) -> Option<[u8; 32]> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).ok()?;
    mac.update(label.as_bytes());
    mac.update(&prefix(domain));
    mac.update(domain.as_bytes());
    Some(mac.finalize().into_bytes().into())
}

/// One byte that tells data keys apart. It stands in front of everything that was sealed under the key.
#[must_use]
pub fn key_id(key: &[u8; 32]) -> u8 {
    derived(key, "actonce key id v1", "").map_or(0, |tag| tag[0])
}

/// The same as people read it.
#[must_use]
pub fn key_name(id: u8) -> String {
    format!("{id:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_keys_are_what_they_were() {
        // They stand in databases.
        let ids: Vec<String> = [0, 1, 7].map(|byte| key_name(key_id(&[byte; 32]))).into();
        assert_eq!(ids, ["b4", "20", "06"]);
    }
}
