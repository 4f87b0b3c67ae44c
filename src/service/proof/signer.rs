//! The key that signs, and JSON Web Signatures (RFC 7515) with Ed25519 (RFC 8037).

use std::fmt;

use aws_lc_rs::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// What stands before the 32 bytes of an Ed25519 public key in DER (RFC 8410).
const SPKI_PREFIX: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The `kid` of a public key: its thumbprint (RFC 7638).
fn kid_of(public: &[u8; 32]) -> String {
    let x = URL_SAFE_NO_PAD.encode(public);
    URL_SAFE_NO_PAD.encode(Sha256::digest(format!("{{\"crv\":\"Ed25519\",\"kty\":\"OKP\",\"x\":\"{x}\"}}")))
}

/// Signs.
pub struct Signer {
    pair: Ed25519KeyPair,
    public: [u8; 32],
    kid: String,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signer({}, [hidden])", self.kid)
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    kid: String,
    typ: String,
}

impl Signer {
    /// Of 32 secret bytes; `None` if the cryptography refuses them.
    #[must_use]
    pub fn from_seed(seed: &[u8; 32]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public: [u8; 32] = pair.public_key().as_ref().try_into().ok()?;
        Some(Self { pair, public, kid: kid_of(&public) })
    }

    /// The name of the key.
    #[must_use]
    pub fn kid(&self) -> &str {
        &self.kid
    }

    /// The public key as a JSON Web Key.
    #[must_use]
    pub fn jwk(&self) -> Value {
        let x = URL_SAFE_NO_PAD.encode(self.public);
        json!({ "kty": "OKP", "crv": "Ed25519", "x": x, "kid": self.kid, "alg": "EdDSA", "use": "sig" })
    }

    /// The public key alone, to check what this one signed.
    #[must_use]
    pub fn public_keys(&self) -> PublicKeys {
        PublicKeys(vec![(self.kid.clone(), self.public)])
    }

    /// Signs a payload for one purpose.
    #[must_use]
    pub fn sign(&self, typ: &str, payload: &str) -> Signed {
        let header = format!("{{\"alg\":\"EdDSA\",\"kid\":\"{}\",\"typ\":\"{typ}\"}}", self.kid);
        let (protected, payload) = (URL_SAFE_NO_PAD.encode(header), URL_SAFE_NO_PAD.encode(payload));
        let signature = self.pair.sign(format!("{protected}.{payload}").as_bytes());
        Signed { protected, payload, signature: URL_SAFE_NO_PAD.encode(signature.as_ref()) }
    }
}

/// A JSON Web Signature in flattened JSON form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Signed {
    /// The protected header, base64url: `alg`, `kid`, `typ`.
    pub protected: String,
    /// What is signed, base64url.
    pub payload: String,
    /// The signature, base64url.
    pub signature: String,
}

impl Signed {
    /// In compact form: three parts with dots.
    #[must_use]
    pub fn compact(&self) -> String {
        format!("{}.{}.{}", self.protected, self.payload, self.signature)
    }

    /// From the compact form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.trim().split('.').map(str::to_owned);
        let (protected, payload, signature) = (parts.next()?, parts.next()?, parts.next()?);
        parts.next().is_none().then_some(Self { protected, payload, signature })
    }

    /// What is signed, whether it is well signed or not.
    #[must_use]
    pub fn unchecked_payload(&self) -> Option<Vec<u8>> {
        URL_SAFE_NO_PAD.decode(&self.payload).ok()
    }
}

/// Keys that signatures are checked with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublicKeys(Vec<(String, [u8; 32])>);

impl PublicKeys {
    /// Reads a key set (JWKS), one JSON Web Key, PEM (`BEGIN PUBLIC KEY`), or the 32 bytes in base64url.
    ///
    /// # Errors
    /// What it is not, in words.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let text = text.trim();
        let keys: Vec<[u8; 32]> = if text.starts_with('{') {
            let document: Value = serde_json::from_str(text).map_err(|_| "is no JSON")?;
            let one = std::slice::from_ref(&document);
            let keys = document.get("keys").and_then(Value::as_array).map_or(one, Vec::as_slice);
            keys.iter().filter(|key| key["kty"] == "OKP" && key["crv"] == "Ed25519").filter_map(of_jwk).collect()
        } else if text.contains("-----BEGIN") {
            of_pem(text)
        } else {
            bytes(URL_SAFE_NO_PAD.decode(text.trim_end_matches('=')).ok()).into_iter().collect()
        };
        if keys.is_empty() {
            return Err("has no Ed25519 public key: give a JWKS, a PEM file, or the key in base64url");
        }
        Ok(Self(keys.into_iter().map(|key| (kid_of(&key), key)).collect()))
    }

    /// Checks a signature for one purpose, and answers what was signed.
    ///
    /// # Errors
    /// What is wrong, in words.
    pub fn open(&self, typ: &str, signed: &Signed) -> Result<Vec<u8>, &'static str> {
        let header = URL_SAFE_NO_PAD.decode(&signed.protected).map_err(|_| "the header is not base64url")?;
        let header: Header = serde_json::from_slice(&header).map_err(|_| "the header can't be read")?;
        if header.alg != "EdDSA" || header.typ != typ {
            return Err("the header names another algorithm or purpose");
        }
        let found = self.0.iter().find(|(kid, _)| *kid == header.kid);
        let (_, key) = found.ok_or("it is signed with a key that is not the public key given")?;
        let signature = URL_SAFE_NO_PAD.decode(&signed.signature).map_err(|_| "the signature is not base64url")?;
        UnparsedPublicKey::new(&ED25519, key)
            .verify(format!("{}.{}", signed.protected, signed.payload).as_bytes(), &signature)
            .map_err(|_| "the signature does not hold")?;
        signed.unchecked_payload().ok_or("the payload is not base64url")
    }
}

fn bytes(decoded: Option<Vec<u8>>) -> Option<[u8; 32]> {
    decoded.and_then(|bytes| bytes.try_into().ok())
}

fn of_jwk(key: &Value) -> Option<[u8; 32]> {
    bytes(URL_SAFE_NO_PAD.decode(key.get("x")?.as_str()?).ok())
}

fn of_pem(text: &str) -> Vec<[u8; 32]> {
    let inside = |part: &str| {
        let (base64, _) = part.split_once("-----END PUBLIC KEY-----")?;
        let base64: String = base64.split_whitespace().collect();
        let der = STANDARD.decode(base64).ok()?;
        bytes(der.strip_prefix(&SPKI_PREFIX).map(<[u8]>::to_vec))
    };
    text.split("-----BEGIN PUBLIC KEY-----").skip(1).filter_map(inside).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_take_the_signature() {
        let signer = Signer::from_seed(&[7; 32]).unwrap();
        let signed = signer.sign("purpose", r#"{"a":1}"#).compact();
        let jwk: jsonwebtoken::jwk::Jwk = serde_json::from_value(signer.jwk()).unwrap();
        let key = jsonwebtoken::DecodingKey::from_jwk(&jwk).unwrap();
        let mut rules = jsonwebtoken::Validation::new(jsonwebtoken::Algorithm::EdDSA);
        rules.required_spec_claims.clear();
        rules.validate_exp = false;
        let read = jsonwebtoken::decode::<Value>(&signed, &key, &rules).unwrap();
        assert_eq!((read.claims, read.header.kid.as_deref()), (json!({ "a": 1 }), Some(signer.kid())));
    }

    #[test]
    fn a_signature_holds_for_its_bytes_its_key_and_its_purpose() {
        let signer = Signer::from_seed(&[7; 32]).unwrap();
        let signed = signer.sign("purpose", "text");
        let keys = signer.public_keys();
        assert_eq!(keys.open("purpose", &signed).unwrap(), b"text");
        assert_eq!(Signed::parse(&signed.compact()), Some(signed.clone()));
        assert!(keys.open("another", &signed).is_err());
        assert!(Signer::from_seed(&[8; 32]).unwrap().public_keys().open("purpose", &signed).is_err());
        let edited = Signed { payload: URL_SAFE_NO_PAD.encode("texT"), ..signed.clone() };
        assert_eq!(keys.open("purpose", &edited), Err("the signature does not hold"));
        // No algorithm but the one.
        let header = format!("{{\"alg\":\"none\",\"kid\":\"{}\",\"typ\":\"purpose\"}}", signer.kid());
        assert!(keys.open("purpose", &Signed { protected: URL_SAFE_NO_PAD.encode(header), ..signed }).is_err());
    }

    #[test]
    fn a_public_key_is_read_in_the_usual_forms() {
        let signer = Signer::from_seed(&[7; 32]).unwrap();
        let der = [SPKI_PREFIX.as_slice(), &signer.public].concat();
        let pem = format!("-----BEGIN PUBLIC KEY-----\n{}\n-----END PUBLIC KEY-----\n", STANDARD.encode(der));
        let set = json!({ "keys": [{ "kty": "RSA" }, signer.jwk()] }).to_string();
        for text in [pem, set, signer.jwk().to_string(), URL_SAFE_NO_PAD.encode(signer.public)] {
            assert_eq!(PublicKeys::parse(&text), Ok(signer.public_keys()), "{text}");
        }
        for text in ["", "{}", "{\"keys\":[]}", "-----BEGIN PUBLIC KEY-----\nAAAA", "short"] {
            assert!(PublicKeys::parse(text).is_err(), "{text}");
        }
    }
}
