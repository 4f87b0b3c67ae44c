//! Who calls: tokens become principals (protocol §1, §11).
//!
//! Token times are the one place where the wall clock counts: an issuer outside writes them in
//! absolute time. They decide who may ask, never what is true of an effect (law 13).

mod cache;
mod jwks;
mod keys;
mod scope;
#[cfg(test)]
mod tests;
mod token;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

pub use jsonwebtoken::Algorithm;
use jsonwebtoken::crypto::CryptoProvider;
use tokio_util::sync::CancellationToken;

pub use self::jwks::{KeySetError, KeySetSettings, KeySetSource, probe as probe_key_set};
pub use self::keys::{Key, KeyFault, SigningKey};
pub use self::scope::{Scope, Scopes};
pub use self::token::{ClaimRules, Grant, MintError, mint};

use self::cache::TokenCache;
use self::jwks::KeySource;
use self::keys::KeySet;
use crate::domain::ids::{Name, Tenant};
use crate::limits;

/// Who calls: taken from a verified token and nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The wall around what it can see.
    pub tenant: Tenant,
    /// Its name within the tenant.
    pub subject: Name,
    /// What it may do.
    pub scopes: Scopes,
}

/// Why a token is refused. Holds nothing of the token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthError {
    /// No token.
    Missing,
    /// Not a token.
    Malformed,
    /// Signed with a key that isn't known.
    UnknownKey,
    /// The signature, or the algorithm, isn't the key's.
    BadSignature,
    /// `exp` has passed.
    Expired,
    /// `nbf` is to come.
    NotYetValid,
    /// Another `iss`.
    WrongIssuer,
    /// Another `aud`.
    WrongAudience,
    /// A claim is missing, or not what it must be.
    BadClaims,
    /// The issuer's keys can't be had now. Asking again later may help.
    KeysUnavailable,
}

impl AuthError {
    /// The reason, in words for the client.
    #[must_use]
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Missing => "a bearer token is required",
            Self::Malformed => "the token can't be read",
            Self::UnknownKey => "the token is signed with an unknown key",
            Self::BadSignature => "the token's signature doesn't hold",
            Self::Expired => "the token has expired",
            Self::NotYetValid => "the token isn't valid yet",
            Self::WrongIssuer => "the token is from another issuer",
            Self::WrongAudience => "the token is for another audience",
            Self::BadClaims => "the token lacks a required claim, or has one that isn't allowed",
            Self::KeysUnavailable => "the issuer's keys can't be had at the moment",
        }
    }
}

impl fmt::Display for AuthError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.reason())
    }
}

impl std::error::Error for AuthError {}

/// The token in the value of an `Authorization` header.
///
/// # Errors
/// `Malformed` when the scheme isn't `Bearer`, `Missing` when nothing follows it.
pub fn bearer(header: &str) -> Result<&str, AuthError> {
    let (scheme, token) = header.trim().split_once(' ').unwrap_or((header.trim(), ""));
    if !scheme.eq_ignore_ascii_case("bearer") {
        return Err(AuthError::Malformed);
    }
    let token = token.trim_start();
    if token.is_empty() { Err(AuthError::Missing) } else { Ok(token) }
}

/// How tokens are verified.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Keys from the configuration.
    pub keys: Vec<Key>,
    /// The issuer's key set.
    pub key_set: Option<KeySetSettings>,
    /// What a token must say.
    pub claims: ClaimRules,
}

/// Why tokens can't be verified at all.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Neither keys nor a key set are configured.
    #[error("no key for tokens is configured")]
    NoKeys,
    /// There is only the key set, in a file, and it can't be read.
    #[error("the key set for tokens can't be had, and no other key is configured: {0}")]
    KeySet(#[from] KeySetError),
    /// The program was built without cryptography.
    #[error("this build can't check signatures")]
    NoCryptography,
}

/// Turns tokens into principals.
pub struct Authenticator {
    rules: ClaimRules,
    configured: Vec<Arc<Key>>,
    source: Option<KeySource>,
    keys: RwLock<Arc<KeySet>>,
    /// The generation of `keys`, to be read without the lock.
    generation: AtomicU64,
    cache: TokenCache,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator").field("rules", &self.rules).field("keys", &self.keys()).finish_non_exhaustive()
    }
}

impl Authenticator {
    /// Reads the keys. An issuer that does not answer yet keeps nobody from starting: until its keys were read
    /// once, every token that names none of the configured keys gets [`AuthError::KeysUnavailable`].
    ///
    /// # Errors
    /// When there is no key, or the only ones are in a file that can't be read.
    pub async fn start(settings: Settings) -> Result<Arc<Self>, StartError> {
        if CryptoProvider::try_get_default().is_none() {
            return Err(StartError::NoCryptography);
        }
        let configured: Vec<_> = settings.keys.into_iter().map(Arc::new).collect();
        let source = settings.key_set.map(KeySource::new).transpose()?;
        let this = Self {
            rules: settings.claims,
            keys: RwLock::new(Arc::new(KeySet::new(0, configured.clone()))),
            configured,
            source,
            generation: AtomicU64::new(0),
            cache: TokenCache::new(),
        };
        match this.refresh().await {
            Err(error) if this.configured.is_empty() && !this.waits_for_issuer() => return Err(error.into()),
            Ok(()) if this.keys().is_empty() => return Err(StartError::NoKeys),
            _ => {}
        }
        Ok(Arc::new(this))
    }

    fn waits_for_issuer(&self) -> bool {
        self.source.as_ref().is_some_and(KeySource::is_remote)
    }

    /// Whether any token can be verified: not so while the keys of an issuer were never read.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        !self.keys().is_empty()
    }

    /// Who presents this token.
    ///
    /// # Errors
    /// Why it is refused.
    pub async fn authenticate(&self, bearer: &str) -> Result<Arc<Principal>, AuthError> {
        self.authenticate_at(bearer, unix_seconds()).await
    }

    async fn authenticate_at(&self, bearer: &str, now: u64) -> Result<Arc<Principal>, AuthError> {
        if bearer.is_empty() {
            return Err(AuthError::Missing);
        }
        if bearer.len() > limits::TOKEN_BYTES {
            return Err(AuthError::Malformed);
        }
        let digest = cache::digest(bearer);
        if let Some(known) = self.cache.get(&digest, self.generation.load(Ordering::Acquire), now) {
            return Ok(known);
        }
        let header = token::header(bearer)?;
        let kid = header.kid.as_deref();
        let mut keys = self.keys();
        let mut unknown = AuthError::UnknownKey;
        if let (Err(AuthError::UnknownKey), Some(_), Some(source)) = (keys.select(kid, header.alg), kid, &self.source) {
            source.want().await;
            keys = self.keys();
            if source.has_failed() {
                unknown = AuthError::KeysUnavailable;
            }
        }
        let key = keys.select(kid, header.alg).map_err(|error| match error {
            AuthError::UnknownKey => unknown,
            other => other,
        })?;
        let verified = token::verify(key, &self.rules, bearer, now)?;
        let principal = Arc::new(verified.principal);
        self.cache.put(digest, Arc::clone(&principal), verified.valid_until, keys.generation);
        Ok(principal)
    }

    /// Keeps the key set fresh until `stop`. Without it nothing is read after the start.
    pub async fn refresh_loop(self: Arc<Self>, stop: CancellationToken) {
        let Some(source) = &self.source else { return stop.cancelled().await };
        let refreshing = async {
            loop {
                source.due().await;
                // Logged and counted where it happens; the keys that were there stay.
                drop(self.refresh().await);
            }
        };
        stop.run_until_cancelled(refreshing).await;
    }

    async fn refresh(&self) -> Result<(), KeySetError> {
        let Some(source) = &self.source else { return Ok(()) };
        let result = source.read(|fetched| self.install(fetched)).await;
        if let Err(error) = &result {
            metrics::counter!("jwks_refresh_failures_total").increment(1);
            tracing::warn!(%error, "the key set for tokens can't be read; the keys known before stay");
        }
        result
    }

    /// Puts fetched keys in the place of the ones fetched before. A configured key outranks a
    /// fetched one of the same name. Equal keys change nothing, so that remembered tokens stay.
    fn install(&self, fetched: Vec<Arc<Key>>) {
        let mut keys = self.configured.clone();
        for key in fetched {
            if key.kid().is_none() || !keys.iter().any(|taken| taken.kid() == key.kid()) {
                keys.push(key);
            }
        }
        let mut current = self.keys.write().unwrap_or_else(PoisonError::into_inner);
        if current.holds(&keys) {
            return;
        }
        let next = KeySet::new(current.generation + 1, keys);
        tracing::info!(keys = next.len(), generation = next.generation, "the keys for tokens changed");
        self.generation.store(next.generation, Ordering::Release);
        *current = Arc::new(next);
    }

    fn keys(&self) -> Arc<KeySet> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The wall clock in microseconds, to be compared with other clocks.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "what times of tokens are compared with; see the module")]
pub fn wall_clock_us() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

/// The wall clock. A clock before 1970 tells nothing, so then every token counts as expired.
#[expect(clippy::disallowed_methods, reason = "tokens carry absolute times of an issuer outside; see the module")]
fn unix_seconds() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(u64::MAX, |since| since.as_secs())
}
