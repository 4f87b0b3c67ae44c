//! Keys. A key has one algorithm, given with it; what a token says about its algorithm is only
//! ever compared with that.

use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, ThumbprintHash};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, EncodingKey};

use super::AuthError;

/// RSA keys are of 2048 to 8192 bits, as the verifier takes no others.
const RSA_BYTES: std::ops::RangeInclusive<usize> = 256..=1024;

/// Why a key can't be used. Says nothing about the key's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyFault {
    /// An HMAC secret that can be guessed offline from one token.
    #[error("the secret must have at least {0} bytes for this algorithm")]
    SecretTooShort(usize),
    /// A PEM file used as a secret: whoever has the public key could sign.
    #[error("this is a PEM key, not a secret; give it as a key file with its algorithm")]
    SecretIsPem,
    /// An HMAC algorithm for a PEM key, or another one for a secret.
    #[error("the algorithm doesn't fit this kind of key")]
    OtherFamily,
    /// Not a PEM public key.
    #[error("must be a PEM file with a public key (`BEGIN PUBLIC KEY`)")]
    NotPublic,
    /// Not a PEM private key.
    #[error("must be a PEM file with a private key in PKCS#8 form (`BEGIN PRIVATE KEY`)")]
    NotPrivate,
    /// A key on another curve than the algorithm's.
    #[error("the key is on another curve than the algorithm's")]
    OtherCurve,
    /// An RSA key shorter than 2048 bits or longer than 8192.
    #[error("an RSA key must have 2048 to 8192 bits")]
    RsaSize,
    /// Not a key.
    #[error("can't be read as a key")]
    Unreadable,
}

/// What signs tokens.
#[derive(Clone)]
pub struct SigningKey {
    pub(super) kid: Option<String>,
    pub(super) algorithm: Algorithm,
    pub(super) key: EncodingKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({:?}, {:?}, [hidden])", self.kid, self.algorithm)
    }
}

/// What verifies tokens, and signs them where a secret or a private key was given.
#[derive(Clone)]
pub struct Key {
    kid: Option<String>,
    algorithm: Algorithm,
    verifying: DecodingKey,
    signing: Option<SigningKey>,
    /// Names the key's content, to see whether a fetched key set differs.
    thumbprint: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({:?}, {:?}, [hidden])", self.kid, self.algorithm)
    }
}

impl Key {
    /// A shared secret (HS256, HS384, HS512), at least as long as the hash (RFC 7518, 3.2).
    ///
    /// # Errors
    /// When it is no secret, too short, or the algorithm is no HMAC.
    pub fn from_secret(kid: Option<&str>, algorithm: Algorithm, secret: &[u8]) -> Result<Self, KeyFault> {
        let least = match algorithm {
            Algorithm::HS256 => 32,
            Algorithm::HS384 => 48,
            Algorithm::HS512 => 64,
            _ => return Err(KeyFault::OtherFamily),
        };
        if secret.trim_ascii_start().starts_with(b"-----BEGIN") {
            return Err(KeyFault::SecretIsPem);
        }
        if secret.len() < least {
            return Err(KeyFault::SecretTooShort(least));
        }
        let signing = EncodingKey::from_secret(secret).map_err(|_| KeyFault::Unreadable)?;
        let verifying = DecodingKey::from_secret(secret).map_err(|_| KeyFault::Unreadable)?;
        Self::checked(kid, algorithm, verifying, Some(signing))
    }

    /// A public key in PEM form.
    ///
    /// # Errors
    /// When it is no public key, or doesn't fit the algorithm.
    pub fn from_public_pem(kid: Option<&str>, algorithm: Algorithm, pem: &[u8]) -> Result<Self, KeyFault> {
        // The parser also takes private keys and certificates here, and guesses.
        if !has_label(pem, "PUBLIC KEY") || has_label(pem, "PRIVATE KEY") {
            return Err(KeyFault::NotPublic);
        }
        let parsed = match algorithm.family() {
            AlgorithmFamily::Hmac => return Err(KeyFault::OtherFamily),
            AlgorithmFamily::Rsa => DecodingKey::from_rsa_pem(pem),
            AlgorithmFamily::Ec => DecodingKey::from_ec_pem(pem),
            AlgorithmFamily::Ed => DecodingKey::from_ed_pem(pem),
        };
        Self::checked(kid, algorithm, parsed.map_err(|_| KeyFault::Unreadable)?, None)
    }

    /// A private key in PEM form: signs, and verifies what it signed.
    ///
    /// # Errors
    /// When it is no private key, or doesn't fit the algorithm.
    pub fn from_private_pem(kid: Option<&str>, algorithm: Algorithm, pem: &[u8]) -> Result<Self, KeyFault> {
        if !has_label(pem, "PRIVATE KEY") {
            return Err(KeyFault::NotPrivate);
        }
        let parsed = match algorithm.family() {
            AlgorithmFamily::Hmac => return Err(KeyFault::OtherFamily),
            AlgorithmFamily::Rsa => EncodingKey::from_rsa_pem(pem),
            AlgorithmFamily::Ec => EncodingKey::from_ec_pem(pem),
            AlgorithmFamily::Ed => EncodingKey::from_ed_pem(pem),
        };
        let signing = parsed.map_err(|_| KeyFault::Unreadable)?;
        let public = Jwk::from_encoding_key(&signing, algorithm).map_err(|_| KeyFault::Unreadable)?;
        let verifying = DecodingKey::from_jwk(&public).map_err(|_| KeyFault::Unreadable)?;
        Self::checked(kid, algorithm, verifying, Some(signing))
    }

    /// A public key of a key set.
    pub(super) fn from_jwk(kid: Option<&str>, algorithm: Algorithm, jwk: &Jwk) -> Result<Self, KeyFault> {
        let verifying = DecodingKey::from_jwk(jwk).map_err(|_| KeyFault::Unreadable)?;
        Self::checked(kid, algorithm, verifying, None)
    }

    fn checked(
        kid: Option<&str>,
        algorithm: Algorithm,
        verifying: DecodingKey,
        signing: Option<EncodingKey>,
    ) -> Result<Self, KeyFault> {
        if verifying.family() != algorithm.family() {
            return Err(KeyFault::OtherFamily);
        }
        // Reads the key back, so that a broken one fails at start and not at the first token.
        let jwk = Jwk::from_decoding_key(&verifying, Some(algorithm)).map_err(|_| KeyFault::Unreadable)?;
        match &jwk.algorithm {
            AlgorithmParameters::EllipticCurve(point) => match (algorithm, &point.curve) {
                (Algorithm::ES256, EllipticCurve::P256) | (Algorithm::ES384, EllipticCurve::P384) => {}
                _ => return Err(KeyFault::OtherCurve),
            },
            AlgorithmParameters::RSA(rsa) => {
                let modulus = URL_SAFE_NO_PAD.decode(&rsa.n).map_err(|_| KeyFault::Unreadable)?;
                let leading = modulus.iter().take_while(|byte| **byte == 0).count();
                if !RSA_BYTES.contains(&(modulus.len() - leading)) {
                    return Err(KeyFault::RsaSize);
                }
            }
            AlgorithmParameters::OctetKey(_) | AlgorithmParameters::OctetKeyPair(_) => {}
            _ => return Err(KeyFault::Unreadable),
        }
        let thumbprint = jwk.thumbprint(ThumbprintHash::SHA256).map_err(|_| KeyFault::Unreadable)?;
        let kid = kid.map(str::to_owned);
        let signing = signing.map(|key| SigningKey { kid: kid.clone(), algorithm, key });
        Ok(Self { kid, algorithm, verifying, signing, thumbprint })
    }

    /// The key id, if the key has one.
    #[must_use]
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// The key's one algorithm.
    #[must_use]
    pub const fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// What signs with this key, where that is known here.
    #[must_use]
    pub const fn signing(&self) -> Option<&SigningKey> {
        self.signing.as_ref()
    }

    pub(super) const fn verifying(&self) -> &DecodingKey {
        &self.verifying
    }

    fn is_same(&self, other: &Self) -> bool {
        self.kid == other.kid && self.algorithm == other.algorithm && self.thumbprint == other.thumbprint
    }
}

/// Whether a PEM text has a block whose label ends so.
fn has_label(pem: &[u8], label: &str) -> bool {
    String::from_utf8_lossy(pem).lines().any(|line| {
        line.trim().strip_prefix("-----BEGIN ").and_then(|rest| rest.strip_suffix("-----")).is_some_and(|found| {
            found == label || found.strip_suffix(label).is_some_and(|before| before.ends_with(' '))
        })
    })
}

/// All keys that count at one moment. The generation changes with the keys.
#[derive(Debug)]
pub(super) struct KeySet {
    pub(super) generation: u64,
    keys: Vec<Arc<Key>>,
}

impl KeySet {
    pub(super) const fn new(generation: u64, keys: Vec<Arc<Key>>) -> Self {
        Self { generation, keys }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    pub(super) const fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether exactly these keys are in the set, in whatever order.
    pub(super) fn holds(&self, keys: &[Arc<Key>]) -> bool {
        self.keys.len() == keys.len() && keys.iter().all(|key| self.keys.iter().any(|mine| mine.is_same(key)))
    }

    /// The key for a token: the one that the token names, or the only one, if one of the two has
    /// no name. The algorithm of the token must be the key's; it never selects one.
    pub(super) fn select(&self, kid: Option<&str>, algorithm: Algorithm) -> Result<&Key, AuthError> {
        let named = kid.and_then(|kid| self.keys.iter().find(|key| key.kid() == Some(kid)));
        let key = match (named, self.keys.as_slice()) {
            (Some(key), _) => key,
            (None, [only]) if kid.is_none() || only.kid().is_none() => only,
            (None, []) => return Err(AuthError::KeysUnavailable),
            (None, _) => return Err(AuthError::UnknownKey),
        };
        if key.algorithm == algorithm { Ok(key) } else { Err(AuthError::BadSignature) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RSA: &[u8] = include_bytes!("../../tests/data/keys/test-rsa.public.pem");
    const SHORT_RSA: &[u8] = include_bytes!("../../tests/data/keys/test-rsa-1024.public.pem");
    const RSA_PRIVATE: &[u8] = include_bytes!("../../tests/data/keys/test-rsa.private.pem");
    const P384: &[u8] = include_bytes!("../../tests/data/keys/test-p384.public.pem");

    #[test]
    fn a_key_must_fit_its_algorithm() {
        let public = |algorithm, pem| Key::from_public_pem(None, algorithm, pem).err();
        assert_eq!(public(Algorithm::RS256, RSA), None);
        assert_eq!(public(Algorithm::PS512, RSA), None);
        assert_eq!(public(Algorithm::HS256, RSA), Some(KeyFault::OtherFamily));
        assert_eq!(public(Algorithm::ES256, RSA), Some(KeyFault::Unreadable));
        assert_eq!(public(Algorithm::RS256, SHORT_RSA), Some(KeyFault::RsaSize));
        assert_eq!(public(Algorithm::RS256, RSA_PRIVATE), Some(KeyFault::NotPublic));
        assert_eq!(public(Algorithm::ES384, P384), None);
        assert_eq!(public(Algorithm::ES256, P384), Some(KeyFault::OtherCurve));
        assert_eq!(Key::from_private_pem(None, Algorithm::RS256, RSA).err(), Some(KeyFault::NotPrivate));
    }

    #[test]
    fn a_public_key_is_never_a_secret() {
        let secret = |algorithm, secret| Key::from_secret(None, algorithm, secret).err();
        assert_eq!(secret(Algorithm::HS256, RSA), Some(KeyFault::SecretIsPem));
        assert_eq!(secret(Algorithm::HS256, &[7; 31]), Some(KeyFault::SecretTooShort(32)));
        assert_eq!(secret(Algorithm::HS512, &[7; 63]), Some(KeyFault::SecretTooShort(64)));
        assert_eq!(secret(Algorithm::RS256, &[7; 64]), Some(KeyFault::OtherFamily));
        assert_eq!(secret(Algorithm::HS256, &[7; 32]), None);
    }

    #[test]
    fn keys_show_nothing_of_themselves() {
        let key = Key::from_secret(Some("a"), Algorithm::HS256, b"0123456789abcdef0123456789abcdef").unwrap();
        assert_eq!(format!("{key:?}"), r#"Key(Some("a"), HS256, [hidden])"#);
        assert_eq!(format!("{:?}", key.signing().unwrap()), r#"SigningKey(Some("a"), HS256, [hidden])"#);
    }

    #[test]
    fn keys_are_chosen_by_name_or_because_there_is_one() {
        let key = |kid: Option<&str>, byte| Arc::new(Key::from_secret(kid, Algorithm::HS256, &[byte; 32]).unwrap());
        let chosen = |set: &KeySet, kid| set.select(kid, Algorithm::HS256).map(|key| key.thumbprint.clone());
        let one = KeySet::new(1, vec![key(Some("a"), 1)]);
        assert!(chosen(&one, Some("a")).is_ok() && chosen(&one, None).is_ok());
        assert_eq!(chosen(&one, Some("b")), Err(AuthError::UnknownKey));
        assert_eq!(one.select(Some("a"), Algorithm::HS384).err(), Some(AuthError::BadSignature));
        let unnamed = KeySet::new(1, vec![key(None, 1)]);
        assert!(chosen(&unnamed, Some("b")).is_ok());
        let two = KeySet::new(1, vec![key(Some("a"), 1), key(Some("b"), 2)]);
        assert_ne!(chosen(&two, Some("a")).unwrap(), chosen(&two, Some("b")).unwrap());
        assert_eq!(chosen(&two, None), Err(AuthError::UnknownKey));
        assert_eq!(chosen(&KeySet::new(1, vec![]), None), Err(AuthError::KeysUnavailable));
        assert!(two.holds(&[key(Some("b"), 2), key(Some("a"), 1)]));
        assert!(!two.holds(&[key(Some("a"), 1), key(Some("b"), 3)]));
        assert!(!two.holds(&[key(Some("a"), 1)]));
    }
}
