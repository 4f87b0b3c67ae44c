//! Aliases: stable names for private values, so that a person can hand a target on without learning
//! them (protocol §6). They are checked, never opened.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

use super::keys::alike;
use crate::domain::ids::{Name, Tenant, prefix};

const DOMAIN: &str = "actonce alias";
const VERSION: &str = "actonce_v1";

/// A private value that an alias stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Field {
    /// The downstream key.
    IdempotencyKey,
    /// The session.
    SessionInstance,
}

impl Field {
    /// The word that stands in the alias.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::IdempotencyKey => "idempotency_key",
            Self::SessionInstance => "session_instance_id",
        }
    }
}

/// Why an alias was not taken. The words never repeat it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AliasFault {
    /// It has not the form of an alias.
    Malformed,
    /// Its key is not in the keyring: never was, or was retired.
    UnknownKey,
    /// It stands for a value of another kind.
    ForeignField,
    /// It stands for another value.
    Foreign,
}

impl AliasFault {
    /// For the problem document.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Malformed => "is not an alias",
            Self::UnknownKey => "was made with a key that is not in the keyring; inspect the effect again",
            Self::ForeignField => "is an alias of another field",
            Self::Foreign => "is not an alias of this effect",
        }
    }
}

/// One to four keys; the first is the active one.
#[derive(Clone)]
pub struct Keyring(Vec<(String, [u8; 32])>);

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|(id, _)| id)).finish()
    }
}

/// What an alias is made of besides the key.
#[derive(Debug, Clone, Copy)]
pub struct Private<'a> {
    /// The tenant.
    pub tenant: &'a Tenant,
    /// The kind of value.
    pub field: Field,
    /// The session it belongs to, if any.
    pub session: Option<&'a Name>,
    /// The value.
    pub value: &'a str,
}

impl Keyring {
    /// A keyring, the active key first; `None` where there is no key.
    #[must_use]
    pub fn new(keys: Vec<(String, [u8; 32])>) -> Option<Self> {
        (!keys.is_empty()).then_some(Self(keys))
    }

    /// The ids, each with a digest by which a key is known again under its id.
    #[must_use]
    pub fn fingerprints(&self) -> Vec<(String, [u8; 32])> {
        let mark = |(id, key): &(String, [u8; 32])| (id.clone(), tag(key, &["actonce alias key", id]));
        self.0.iter().map(mark).collect()
    }

    /// The alias of a private value, by the active key.
    #[must_use]
    pub fn alias(&self, private: &Private<'_>) -> Option<String> {
        let (id, key) = self.0.first()?;
        let tag = URL_SAFE_NO_PAD.encode(tag_of(id, key, private));
        Some(format!("{VERSION}.{id}.{}.{tag}", private.field.as_str()))
    }

    /// Checks that an alias stands for this value.
    ///
    /// # Errors
    /// Why it does not.
    pub fn check(&self, alias: &str, private: &Private<'_>) -> Result<(), AliasFault> {
        let parts: Vec<&str> = alias.split('.').collect();
        let [VERSION, id, field, sent] = parts.as_slice() else { return Err(AliasFault::Malformed) };
        let sent = URL_SAFE_NO_PAD.decode(sent).map_err(|_| AliasFault::Malformed)?;
        if sent.len() != 32 {
            return Err(AliasFault::Malformed);
        }
        if ![Field::IdempotencyKey, Field::SessionInstance].iter().any(|known| known.as_str() == *field) {
            return Err(AliasFault::Malformed);
        }
        let (id, key) = self.0.iter().find(|(known, _)| known == id).ok_or(AliasFault::UnknownKey)?;
        if *field != private.field.as_str() {
            return Err(AliasFault::ForeignField);
        }
        if alike(&sent, &tag_of(id, key, private)) { Ok(()) } else { Err(AliasFault::Foreign) }
    }
}

fn tag_of(id: &str, key: &[u8; 32], private: &Private<'_>) -> [u8; 32] {
    let session = private.session.map_or("", Name::as_str);
    tag(key, &[DOMAIN, VERSION, id, private.field.as_str(), private.tenant.as_str(), session, private.value])
}

fn tag(key: &[u8; 32], parts: &[&str]) -> [u8; 32] {
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else { return [0; 32] };
    for part in parts {
        mac.update(&prefix(part));
        mac.update(part.as_bytes());
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn private<'a>(tenant: &'a Tenant, session: Option<&'a Name>, value: &'a str) -> Private<'a> {
        Private { tenant, field: Field::IdempotencyKey, session, value }
    }

    #[test]
    fn an_alias_stands_for_one_value_under_every_key_of_the_ring() {
        let (tenant, other) = (Tenant::new("a").unwrap(), Tenant::new("b").unwrap());
        let (session, foreign) = (Name::new("s").unwrap(), Name::new("t").unwrap());
        let old = Keyring::new(vec![("k1".to_owned(), [1; 32])]).unwrap();
        let value = private(&tenant, Some(&session), "ao1_x");
        let alias = old.alias(&value).unwrap();
        assert!(alias.starts_with("actonce_v1.k1.idempotency_key."), "{alias}");
        assert!(!alias.contains("ao1_x"));
        // Rotation: add, make active, retire.
        let both = Keyring::new(vec![("k2".to_owned(), [2; 32]), ("k1".to_owned(), [1; 32])]).unwrap();
        let new = Keyring::new(vec![("k2".to_owned(), [2; 32])]).unwrap();
        assert_eq!(both.check(&alias, &value), Ok(()));
        assert_eq!(new.check(&alias, &value), Err(AliasFault::UnknownKey));
        assert!(both.alias(&value).unwrap().starts_with("actonce_v1.k2."));
        // Anything else is another value.
        for wrong in [
            private(&other, Some(&session), "ao1_x"),
            private(&tenant, Some(&foreign), "ao1_x"),
            private(&tenant, None, "ao1_x"),
            private(&tenant, Some(&session), "ao1_y"),
        ] {
            assert_eq!(both.check(&alias, &wrong), Err(AliasFault::Foreign));
        }
        let field = Private { field: Field::SessionInstance, ..value };
        assert_eq!(both.check(&alias, &field), Err(AliasFault::ForeignField));
        for malformed in
            ["", "actonce_v1", "actonce_v2.k1.idempotency_key.AA", &alias[..alias.len() - 1], &format!("{alias}.x")]
        {
            assert_eq!(both.check(malformed, &value), Err(AliasFault::Malformed), "{malformed}");
        }
    }

    #[test]
    fn a_keyring_shows_ids_only() {
        let ring = Keyring::new(vec![("k1".to_owned(), [77; 32])]).unwrap();
        assert_eq!(format!("{ring:?}"), r#"["k1"]"#);
        assert!(Keyring::new(Vec::new()).is_none());
    }
}
