//! Verified tokens, remembered: most requests of a client carry the token of the one before.

use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::Principal;
use crate::limits;
use crate::recent::Recent;

/// Names a token without keeping it: who reads this process' memory or a dump of it finds here
/// nothing to call with.
pub(super) type TokenDigest = [u8; 32];

pub(super) fn digest(token: &str) -> TokenDigest {
    Sha256::digest(token).into()
}

#[derive(Clone)]
struct Entry {
    principal: Arc<Principal>,
    valid_until: u64,
    generation: u64,
}

/// A bounded cache of tokens that were verified. Tokens that were refused are not remembered, so
/// nobody without a key can push others out.
pub(super) struct TokenCache {
    entries: Recent<TokenDigest, Entry>,
}

impl TokenCache {
    pub(super) fn new() -> Self {
        Self { entries: Recent::of_values(limits::TOKEN_CACHE) }
    }

    /// Who presented this token before, if it holds still: not expired, and verified under the
    /// same keys as count now. A changed key set thus forgets everything at once.
    pub(super) fn get(&self, digest: &TokenDigest, generation: u64, now: u64) -> Option<Arc<Principal>> {
        let entry = self.entries.get(digest)?;
        if entry.generation == generation && now <= entry.valid_until {
            Some(entry.principal)
        } else {
            self.entries.forget(digest);
            None
        }
    }

    pub(super) fn put(&self, digest: TokenDigest, principal: Arc<Principal>, valid_until: u64, generation: u64) {
        self.entries.insert(digest, Entry { principal, valid_until, generation });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::Scopes;
    use crate::domain::ids::{Name, Tenant};

    #[test]
    fn a_hit_ends_with_the_token_and_with_the_keys() {
        let principal = Arc::new(Principal {
            tenant: Tenant::new("t").unwrap(),
            subject: Name::new("s").unwrap(),
            scopes: Scopes::NONE,
        });
        let cache = TokenCache::new();
        let key = digest("token");
        cache.put(key, Arc::clone(&principal), 100, 1);
        assert!(cache.get(&key, 1, 100).is_some_and(|found| Arc::ptr_eq(&found, &principal)));
        assert!(cache.get(&digest("other"), 1, 100).is_none());
        assert!(cache.get(&key, 1, 101).is_none(), "expired");
        assert!(cache.get(&key, 1, 100).is_none(), "and forgotten");
        cache.put(key, principal, 100, 1);
        assert!(cache.get(&key, 2, 100).is_none(), "other keys");
    }
}
