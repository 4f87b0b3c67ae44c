//! Tokens that must be taken, and the many that must not.

mod key_sets;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};

use super::token::mint_at;
use super::*;

const NOW: u64 = 1_900_000_000;
const SECRET: &[u8] = b"a secret of 32 bytes, for tests!";
const RSA: &[u8] = include_bytes!("../../../tests/data/keys/test-rsa.private.pem");
const RSA_PUBLIC: &[u8] = include_bytes!("../../../tests/data/keys/test-rsa.public.pem");
const P256: &[u8] = include_bytes!("../../../tests/data/keys/test-p256.private.pem");
const P256_PUBLIC: &[u8] = include_bytes!("../../../tests/data/keys/test-p256.public.pem");
const P384: &[u8] = include_bytes!("../../../tests/data/keys/test-p384.private.pem");
const P384_PUBLIC: &[u8] = include_bytes!("../../../tests/data/keys/test-p384.public.pem");
const ED25519: &[u8] = include_bytes!("../../../tests/data/keys/test-ed25519.private.pem");
const ED25519_PUBLIC: &[u8] = include_bytes!("../../../tests/data/keys/test-ed25519.public.pem");

fn rules() -> ClaimRules {
    ClaimRules::new("issuer", "actonce")
}

fn settings(keys: Vec<Key>) -> Settings {
    Settings { keys, key_set: None, claims: rules() }
}

fn hmac(kid: Option<&str>) -> Key {
    Key::from_secret(kid, Algorithm::HS256, SECRET).unwrap()
}

async fn verifier() -> Arc<Authenticator> {
    Authenticator::start(settings(vec![hmac(None)])).await.unwrap()
}

fn grant() -> Grant {
    Grant {
        tenant: Tenant::new("acme").unwrap(),
        subject: Name::new("agent-7").unwrap(),
        scopes: [Scope::EffectsWrite, Scope::EffectsRead].into_iter().collect(),
        expires_in_seconds: 60,
    }
}

fn claims() -> Value {
    json!({
        "iss": "issuer", "aud": "actonce", "sub": "agent-7", "exp": NOW + 60, "tenant": "acme",
        "scope": "effects:write effects:read",
    })
}

/// A token with these claims under the test secret.
fn signed(claims: &Value) -> String {
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(SECRET).unwrap()).unwrap()
}

/// What becomes of a token that differs from a good one in these claims; `null` removes one.
async fn with(changes: Value) -> Result<Arc<Principal>, AuthError> {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        if value.is_null() {
            claims.as_object_mut().unwrap().remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    verifier().await.authenticate_at(&signed(&claims), NOW).await
}

#[tokio::test]
async fn a_good_token_becomes_a_principal() {
    let principal = with(json!({})).await.unwrap();
    assert_eq!(principal.tenant.as_str(), "acme");
    assert_eq!(principal.subject.as_str(), "agent-7");
    assert_eq!(principal.scopes, grant().scopes);
    let listed = with(json!({"scope": null, "scopes": ["effects:read"], "aud": ["x", "actonce"]})).await.unwrap();
    assert_eq!(listed.scopes, Scopes::NONE.with(Scope::EffectsRead));
    assert!(with(json!({"scope": null})).await.unwrap().scopes.is_empty());
    assert!(with(json!({"exp": 1_900_000_060.5})).await.is_ok());
}

#[tokio::test]
async fn every_required_claim_is_required() {
    for claim in ["iss", "aud", "exp", "sub", "tenant"] {
        assert_eq!(with(json!({claim: null})).await, Err(AuthError::BadClaims), "without {claim}");
        assert_eq!(with(json!({claim: {"a": 1}})).await, Err(AuthError::BadClaims), "strange {claim}");
    }
    assert_eq!(with(json!({"iss": "other"})).await, Err(AuthError::WrongIssuer));
    assert_eq!(with(json!({"iss": ["issuer", "other"]})).await, Err(AuthError::BadClaims));
    assert_eq!(with(json!({"aud": "other"})).await, Err(AuthError::WrongAudience));
    assert_eq!(with(json!({"aud": []})).await, Err(AuthError::WrongAudience));
    assert_eq!(with(json!({"scope": 7})).await, Err(AuthError::BadClaims));
}

#[tokio::test]
async fn names_are_checked_and_the_services_own_is_refused() {
    assert_eq!(with(json!({"tenant": "a".repeat(129)})).await, Err(AuthError::BadClaims));
    assert_eq!(with(json!({"tenant": " a"})).await, Err(AuthError::BadClaims));
    assert_eq!(with(json!({"sub": "a\u{0}b"})).await, Err(AuthError::BadClaims));
    assert_eq!(with(json!({"sub": ""})).await, Err(AuthError::BadClaims));
    assert_eq!(with(json!({"sub": "actonce"})).await, Err(AuthError::BadClaims));
    assert_eq!(with(json!({"sub": "source:vendor"})).await, Err(AuthError::BadClaims));
}

#[tokio::test]
async fn times_have_a_small_leeway_and_no_more() {
    assert!(with(json!({"exp": NOW - 5})).await.is_ok());
    assert_eq!(with(json!({"exp": NOW - 6})).await, Err(AuthError::Expired));
    assert_eq!(with(json!({"exp": 0})).await, Err(AuthError::Expired));
    assert_eq!(with(json!({"exp": -1})).await, Err(AuthError::BadClaims));
    assert_eq!(with(json!({"exp": "1900000060"})).await, Err(AuthError::BadClaims));
    assert!(with(json!({"nbf": NOW + 5})).await.is_ok());
    assert_eq!(with(json!({"nbf": NOW + 6})).await, Err(AuthError::NotYetValid));
    assert_eq!(with(json!({"nbf": "soon"})).await, Err(AuthError::BadClaims));
    assert!(with(json!({"exp": u64::MAX})).await.is_ok());
}

#[tokio::test]
async fn the_algorithm_is_the_keys_and_never_the_tokens() {
    // The public key, which everyone has, used as a secret.
    let verifier =
        Authenticator::start(settings(vec![Key::from_public_pem(Some("rsa"), Algorithm::RS256, RSA_PUBLIC).unwrap()]));
    let verifier = verifier.await.unwrap();
    let mut header = Header::new(Algorithm::HS256);
    header.kid = Some("rsa".to_owned());
    let secret = EncodingKey::from_secret(RSA_PUBLIC).unwrap();
    let confused = jsonwebtoken::encode(&header, &claims(), &secret).unwrap();
    assert_eq!(verifier.authenticate_at(&confused, NOW).await, Err(AuthError::BadSignature));
    // The right key, but another algorithm of its family.
    let other = Key::from_private_pem(Some("rsa"), Algorithm::PS256, RSA).unwrap();
    let other = mint_at(other.signing().unwrap(), &rules(), &grant(), NOW).unwrap();
    assert_eq!(verifier.authenticate_at(&other, NOW).await, Err(AuthError::BadSignature));
    // No algorithm at all.
    for none in ["none", "None", "NONE", ""] {
        let header = URL_SAFE_NO_PAD.encode(json!({"alg": none, "typ": "JWT"}).to_string());
        let token = format!("{header}.{}.", URL_SAFE_NO_PAD.encode(claims().to_string()));
        assert_eq!(verifier.authenticate_at(&token, NOW).await, Err(AuthError::Malformed), "{none}");
    }
}

#[tokio::test]
async fn a_key_that_the_token_brings_or_names_elsewhere_is_ignored() {
    let mut header = Header::new(Algorithm::ES256);
    let own = Key::from_private_pem(None, Algorithm::ES256, P256).unwrap();
    let own = &own.signing().unwrap().key;
    header.jwk = Some(jsonwebtoken::jwk::Jwk::from_encoding_key(own, Algorithm::ES256).unwrap());
    header.jku = Some("https://attacker.example/jwks.json".to_owned());
    let token = jsonwebtoken::encode(&header, &claims(), own).unwrap();
    assert_eq!(verifier().await.authenticate_at(&token, NOW).await, Err(AuthError::BadSignature));
}

#[tokio::test]
async fn texts_that_are_no_tokens_are_refused() {
    let verifier = verifier().await;
    let good = signed(&claims());
    assert_eq!(verifier.authenticate_at("", NOW).await, Err(AuthError::Missing));
    for text in ["x", "a.b", "a.b.c", "a.b.c.d", &format!("{good}.x"), "é.é.é"] {
        assert_eq!(verifier.authenticate_at(text, NOW).await, Err(AuthError::Malformed), "{text}");
    }
    assert_eq!(verifier.authenticate_at(&"x".repeat(limits::TOKEN_BYTES + 1), NOW).await, Err(AuthError::Malformed));
    // The same header and signature around other claims.
    let mut parts: Vec<_> = good.split('.').map(str::to_owned).collect();
    parts[1] = URL_SAFE_NO_PAD.encode(claims().to_string().replace("acme", "evil"));
    assert_eq!(verifier.authenticate_at(&parts.join("."), NOW).await, Err(AuthError::BadSignature));
    parts[2].clear();
    assert_eq!(verifier.authenticate_at(&parts.join("."), NOW).await, Err(AuthError::BadSignature));
    let other = EncodingKey::from_secret(b"another secret of 32 bytes......").unwrap();
    let forged = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims(), &other).unwrap();
    assert_eq!(verifier.authenticate_at(&forged, NOW).await, Err(AuthError::BadSignature));
}

#[tokio::test]
async fn the_token_names_its_key() {
    let (one, two) = (hmac(Some("one")), Key::from_secret(Some("two"), Algorithm::HS256, &[2; 32]).unwrap());
    let verifier = Authenticator::start(settings(vec![one, two.clone()])).await.unwrap();
    let token = mint_at(two.signing().unwrap(), &rules(), &grant(), NOW).unwrap();
    assert!(verifier.authenticate_at(&token, NOW).await.is_ok());
    assert_eq!(verifier.authenticate_at(&signed(&claims()), NOW).await, Err(AuthError::UnknownKey), "no name");
    let swapped = Key::from_secret(Some("one"), Algorithm::HS256, &[2; 32]).unwrap();
    let token = mint_at(swapped.signing().unwrap(), &rules(), &grant(), NOW).unwrap();
    assert_eq!(verifier.authenticate_at(&token, NOW).await, Err(AuthError::BadSignature), "another's name");
    let gone = Key::from_secret(Some("three"), Algorithm::HS256, &[2; 32]).unwrap();
    let token = mint_at(gone.signing().unwrap(), &rules(), &grant(), NOW).unwrap();
    assert_eq!(verifier.authenticate_at(&token, NOW).await, Err(AuthError::UnknownKey));
}

#[tokio::test]
async fn every_algorithm_signs_and_verifies() {
    use Algorithm::{ES256, ES384, EdDSA, HS256, HS384, HS512, PS256, PS384, PS512, RS256, RS384, RS512};
    let long = [9; 64];
    let mut pairs: Vec<(Key, Key)> = [HS256, HS384, HS512]
        .map(|algorithm| Key::from_secret(None, algorithm, &long).unwrap())
        .map(|key| (key.clone(), key))
        .into();
    let rsa = [RS256, RS384, RS512, PS256, PS384, PS512].map(|algorithm| (algorithm, RSA, RSA_PUBLIC));
    let curves = [(ES256, P256, P256_PUBLIC), (ES384, P384, P384_PUBLIC), (EdDSA, ED25519, ED25519_PUBLIC)];
    for (algorithm, private, public) in rsa.into_iter().chain(curves) {
        let private = Key::from_private_pem(None, algorithm, private).unwrap();
        pairs.push((private.clone(), private.clone()));
        pairs.push((private, Key::from_public_pem(None, algorithm, public).unwrap()));
    }
    for (private, public) in pairs {
        let verifier = Authenticator::start(settings(vec![public.clone()])).await.unwrap();
        let token = mint_at(private.signing().unwrap(), &rules(), &grant(), NOW).unwrap();
        let principal = verifier.authenticate_at(&token, NOW).await;
        assert_eq!(principal.map(|found| found.scopes), Ok(grant().scopes), "{public:?}");
        let mut torn = token.into_bytes();
        let middle = torn.len() - 20;
        torn[middle] = if torn[middle] == b'A' { b'B' } else { b'A' };
        let torn = String::from_utf8(torn).unwrap();
        assert_eq!(verifier.authenticate_at(&torn, NOW).await, Err(AuthError::BadSignature), "{public:?}");
    }
}

#[tokio::test]
async fn claim_names_are_configurable() {
    let mut rules = rules();
    rules.tenant_claim = "https://acme.example/org".to_owned();
    rules.scopes_claim = Some("scp".to_owned());
    let verifier = Authenticator::start(Settings { claims: rules.clone(), ..settings(vec![hmac(None)]) });
    let verifier = verifier.await.unwrap();
    let token = mint_at(hmac(None).signing().unwrap(), &rules, &grant(), NOW).unwrap();
    let principal = verifier.authenticate_at(&token, NOW).await.unwrap();
    assert_eq!((principal.tenant.as_str(), principal.scopes), ("acme", grant().scopes));
    assert_eq!(verifier.authenticate_at(&signed(&claims()), NOW).await, Err(AuthError::BadClaims));
}

#[tokio::test]
async fn a_remembered_token_still_expires() {
    let verifier = verifier().await;
    let token = signed(&claims());
    let first = verifier.authenticate_at(&token, NOW).await.unwrap();
    let second = verifier.authenticate_at(&token, NOW + 65).await.unwrap();
    assert!(Arc::ptr_eq(&first, &second), "remembered");
    assert_eq!(verifier.authenticate_at(&token, NOW + 66).await, Err(AuthError::Expired));
}

#[tokio::test]
async fn minting_has_its_rules_and_uses_the_wall_clock() {
    let key = hmac(Some("dev"));
    let key = key.signing().unwrap();
    let token = mint(key, &rules(), &grant()).unwrap();
    assert!(verifier().await.authenticate(&token).await.is_ok());
    assert_ne!(token, mint(key, &rules(), &grant()).unwrap(), "no two tokens are the same");
    for subject in ["actonce", "source:vendor"] {
        let reserved = Grant { subject: Name::new(subject).unwrap(), ..grant() };
        assert_eq!(mint(key, &rules(), &reserved), Err(MintError::ReservedSubject));
    }
    for seconds in [0, limits::TOKEN_LIFETIME_MAX_SECONDS + 1] {
        let grant = Grant { expires_in_seconds: seconds, ..grant() };
        assert_eq!(mint(key, &rules(), &grant), Err(MintError::Lifetime));
    }
}

#[tokio::test]
async fn without_keys_there_is_no_start() {
    assert!(matches!(Authenticator::start(settings(vec![])).await, Err(StartError::NoKeys)));
}

#[test]
fn the_bearer_scheme_is_read_in_any_case() {
    assert_eq!(bearer("Bearer abc"), Ok("abc"));
    assert_eq!(bearer("bearer  abc "), Ok("abc"));
    assert_eq!(bearer("Bearer"), Err(AuthError::Missing));
    assert_eq!(bearer("Basic abc"), Err(AuthError::Malformed));
    assert_eq!(bearer(""), Err(AuthError::Malformed));
}
