//! Ids of alias keys: kept, so that a retired id never comes back (protocol §6).

use async_trait::async_trait;

use super::Result;

/// An alias key as it is known again: its id, and a digest under it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AliasKeyMark {
    /// The id.
    pub id: String,
    /// Tells the key from any other, and tells nothing about it.
    pub fingerprint: [u8; 32],
}

/// What came of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeysRegistered {
    /// The keyring is the one in use now; ids that are not in it are retired.
    Applied,
    /// This id was retired before.
    Retired(String),
    /// This id stands for another key.
    Another(String),
}

/// The registry of alias keys.
#[async_trait]
pub trait AliasKeyStore {
    /// Makes a keyring the one in use, in one transaction: new ids are noted, ids that are missing from it are
    /// retired. Nothing is changed where an id is refused.
    async fn register_alias_keys(&self, keys: &[AliasKeyMark]) -> Result<KeysRegistered>;
}

/// The first id that can't be in use: what stands in the registry says otherwise.
pub(super) fn refused(keys: &[AliasKeyMark], known: &[(String, Vec<u8>, bool)]) -> Option<KeysRegistered> {
    keys.iter().find_map(|key| {
        let (_, fingerprint, retired) = known.iter().find(|(id, ..)| *id == key.id)?;
        if *retired {
            Some(KeysRegistered::Retired(key.id.clone()))
        } else {
            (fingerprint.as_slice() != key.fingerprint).then(|| KeysRegistered::Another(key.id.clone()))
        }
    })
}
