//! Reading and making tokens. Pure: the time is an argument.

use std::time::Duration;

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Header, Validation};
use serde_json::{Map, Value};

use super::keys::{Key, SigningKey};
use super::scope::Scopes;
use super::{AuthError, Principal};
use crate::domain::ids::{Name, Tenant};
use crate::{limits, support};

/// What a token must say, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimRules {
    /// The one `iss`.
    pub issuer: String,
    /// What `aud` must be or contain.
    pub audience: String,
    /// The claim with the tenant.
    pub tenant_claim: String,
    /// The claim with the scopes; where `None`, `scope` and, without that, `scopes`.
    pub scopes_claim: Option<String>,
    /// How far the issuer's clock may be from ours. Clocks kept by NTP differ by less than a second; 5
    /// seconds also cover a slow exchange. More would keep every expired token alive for longer.
    pub leeway_seconds: u64,
}

impl ClaimRules {
    /// The leeway where none is configured.
    pub const LEEWAY_SECONDS: u64 = 5;
    /// The tenant's claim where none is configured.
    pub const TENANT_CLAIM: &str = "tenant";

    /// The rules for an issuer and an audience, all else as by default.
    #[must_use]
    pub fn new(issuer: &str, audience: &str) -> Self {
        Self {
            issuer: issuer.to_owned(),
            audience: audience.to_owned(),
            tenant_claim: Self::TENANT_CLAIM.to_owned(),
            scopes_claim: None,
            leeway_seconds: Self::LEEWAY_SECONDS,
        }
    }

    /// `exp` and `nbf` are checked in [`verify`], against a time that is an argument.
    fn validation(&self, algorithm: Algorithm) -> Validation {
        let mut validation = Validation::new(algorithm);
        validation.set_required_spec_claims(&["exp", "iss", "aud", "sub"]);
        validation.set_issuer(&[&self.issuer]);
        validation.set_audience(&[&self.audience]);
        validation.validate_exp = false;
        validation.validate_nbf = false;
        validation
    }

    fn scopes(&self, claims: &Map<String, Value>) -> Result<Scopes, AuthError> {
        let claim = match &self.scopes_claim {
            Some(name) => claims.get(name),
            None => claims.get("scope").or_else(|| claims.get("scopes")),
        };
        // Without the claim the caller is known, but allowed nothing.
        claim.map_or(Ok(Scopes::NONE), |claim| Scopes::from_claim(claim).ok_or(AuthError::BadClaims))
    }
}

/// A token that holds, and until when.
#[derive(Debug)]
pub(super) struct Verified {
    pub(super) principal: Principal,
    /// The last second at which the token is taken, leeway included.
    pub(super) valid_until: u64,
}

/// The header, not yet verified: good for choosing a key and nothing else.
pub(super) fn header(token: &str) -> Result<Header, AuthError> {
    jsonwebtoken::decode_header(token).map_err(|_| AuthError::Malformed)
}

/// Checks signature and claims of a token.
pub(super) fn verify(key: &Key, rules: &ClaimRules, token: &str, now: u64) -> Result<Verified, AuthError> {
    let validation = rules.validation(key.algorithm());
    let claims = jsonwebtoken::decode::<Map<String, Value>>(token, key.verifying(), &validation)
        .map_err(|error| refusal(error.kind()))?
        .claims;
    let expires_at = claims.get("exp").and_then(seconds).ok_or(AuthError::BadClaims)?;
    let valid_until = expires_at.saturating_add(rules.leeway_seconds);
    if now > valid_until {
        return Err(AuthError::Expired);
    }
    if let Some(not_before) = claims.get("nbf") {
        let not_before = seconds(not_before).ok_or(AuthError::BadClaims)?;
        if not_before > now.saturating_add(rules.leeway_seconds) {
            return Err(AuthError::NotYetValid);
        }
    }
    // The library also takes a list of issuers.
    text(&claims, "iss")?;
    let tenant = Tenant::new(text(&claims, &rules.tenant_claim)?).map_err(|_| AuthError::BadClaims)?;
    let subject = Name::new(text(&claims, "sub")?).map_err(|_| AuthError::BadClaims)?;
    // The service writes its own doings under this name; nobody may pass for it.
    if support::is_reserved_principal(&subject) {
        return Err(AuthError::BadClaims);
    }
    Ok(Verified { principal: Principal { tenant, subject, scopes: rules.scopes(&claims)? }, valid_until })
}

fn text<'a>(claims: &'a Map<String, Value>, name: &str) -> Result<&'a str, AuthError> {
    claims.get(name).and_then(Value::as_str).ok_or(AuthError::BadClaims)
}

/// A time in a token (RFC 7519 `NumericDate`): seconds, possibly with a fraction.
fn seconds(claim: &Value) -> Option<u64> {
    claim.as_u64().or_else(|| {
        let fractional = Duration::try_from_secs_f64(claim.as_f64()?).ok()?;
        Some(fractional.as_secs())
    })
}

fn refusal(kind: &ErrorKind) -> AuthError {
    match kind {
        ErrorKind::InvalidToken | ErrorKind::Base64(_) => AuthError::Malformed,
        ErrorKind::InvalidIssuer => AuthError::WrongIssuer,
        ErrorKind::InvalidAudience => AuthError::WrongAudience,
        ErrorKind::MissingRequiredClaim(_)
        | ErrorKind::InvalidClaimFormat(_)
        | ErrorKind::Json(_)
        | ErrorKind::Utf8(_) => AuthError::BadClaims,
        // Everything else is about the key or the signature, and says no.
        _ => AuthError::BadSignature,
    }
}

/// What a new token shall say.
#[derive(Debug, Clone)]
pub struct Grant {
    /// The tenant.
    pub tenant: Tenant,
    /// The principal.
    pub subject: Name,
    /// What it may do.
    pub scopes: Scopes,
    /// How long the token lives.
    pub expires_in_seconds: u64,
}

/// Why a token can't be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MintError {
    /// The subject is the service's own.
    #[error("the subject is reserved for the service itself")]
    ReservedSubject,
    /// The token would live too long, or not at all.
    #[error("a token must live for 1 to {} seconds", limits::TOKEN_LIFETIME_MAX_SECONDS)]
    Lifetime,
    /// The key can't sign.
    #[error("the key can't sign")]
    Signing,
}

/// Makes a token that an [`super::Authenticator`] with this key and these rules takes.
///
/// # Errors
/// When the grant breaks a rule or the key can't sign.
pub fn mint(key: &SigningKey, rules: &ClaimRules, grant: &Grant) -> Result<String, MintError> {
    mint_at(key, rules, grant, super::unix_seconds())
}

pub(super) fn mint_at(key: &SigningKey, rules: &ClaimRules, grant: &Grant, now: u64) -> Result<String, MintError> {
    if support::is_reserved_principal(&grant.subject) {
        return Err(MintError::ReservedSubject);
    }
    if grant.expires_in_seconds == 0 || grant.expires_in_seconds > limits::TOKEN_LIFETIME_MAX_SECONDS {
        return Err(MintError::Lifetime);
    }
    let mut header = Header::new(key.algorithm);
    header.kid.clone_from(&key.kid);
    let mut claims = Map::new();
    let mut set = |name: &str, value: Value| claims.insert(name.to_owned(), value);
    set(&rules.tenant_claim, grant.tenant.as_str().into());
    set(rules.scopes_claim.as_deref().unwrap_or("scope"), grant.scopes.to_string().into());
    set("iss", rules.issuer.as_str().into());
    set("aud", rules.audience.as_str().into());
    set("sub", grant.subject.as_str().into());
    set("iat", now.into());
    set("exp", now.saturating_add(grant.expires_in_seconds).into());
    set("jti", support::random_id().to_string().into());
    jsonwebtoken::encode(&header, &claims, &key.key).map_err(|_| MintError::Signing)
}
