//! What stays of an effect that was pruned, and for how long nothing is.
//!
//! A settled effect is replayed for as long as its tenant's window says. After it, one row stays in place of all of
//! them: under the same key that refuses a second effect of that name, with enough to tell the same content from
//! another one, and with the last hash of the chain. So what was pruned can never run again, and is never taken for
//! what somebody removed.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::canonical::Sha256Digest;
use super::command::Propose;
use super::ids::{Name, Tenant, prefix};
use super::record::Record;
use super::state::{EffectClass, State};
use super::time::Timestamp;

/// Seconds of a day: windows are whole days.
pub const DAY_SECONDS: u32 = 86_400;
/// Longest window that can be named.
pub const DAYS_MAX: u32 = 36_500;

/// How long settled effects are kept whole.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Retention {
    /// Of tenants that are not named; `None`: for ever.
    pub default_days: Option<u32>,
    /// Of these; `None`: for ever.
    pub tenants: BTreeMap<Tenant, Option<u32>>,
}

impl Retention {
    /// The days that a tenant's effects are kept at least; `None`: for ever.
    ///
    /// `asked` is what somebody asks for now: it never shortens what the configuration promises, and stands alone
    /// where that says nothing.
    #[must_use]
    pub fn days(&self, tenant: &Tenant, asked: Option<u32>) -> Option<u32> {
        match (self.tenants.get(tenant), self.default_days, asked) {
            (Some(None), _, _) => None,
            (Some(Some(promised)), _, asked) => Some(asked.map_or(*promised, |asked| asked.max(*promised))),
            (None, Some(promised), asked) => Some(asked.map_or(promised, |asked| asked.max(promised))),
            (None, None, asked) => asked,
        }
    }
}

/// What stays: the document whose bytes are kept and hashed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tombstone {
    /// Its own revision: one more than the effect had.
    pub revision: u32,
    /// When it was pruned, by database time.
    pub pruned_at: Timestamp,
    /// What the effect had come to.
    pub state: State,
    /// For `failed`: whether the downstream was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executed: Option<bool>,
    /// The effect class.
    pub effect: EffectClass,
    /// Digest of tool, target, and of what made the identity of the arguments.
    pub content: Sha256Digest,
    /// The argument fields that made the identity, where the tool named some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity_fields: Option<Vec<String>>,
}

impl Tombstone {
    /// What stays of an effect. `None` for one that has to stay whole: it is not settled, evidence contradicts it, or
    /// it changed later than `before`.
    #[must_use]
    pub fn of(record: &Record, before: Timestamp, now: Timestamp) -> Option<Self> {
        let (life, intent) = (&record.life, &record.intent);
        // An effect of one revision was never settled; the store's compare-and-set rests on that.
        if life.is_open() || life.updated_at >= before || life.revision < 2 {
            return None;
        }
        Some(Self {
            revision: life.revision.checked_add(1)?,
            pruned_at: now,
            state: life.state,
            executed: life.executed,
            effect: intent.class,
            content: content(&intent.tool, &intent.target, intent.identity_digest()),
            identity_fields: intent.identity.as_ref().map(|identity| identity.fields.clone()),
        })
    }

    /// The parts in which a proposal differs from what was pruned.
    #[must_use]
    pub fn differs(&self, propose: &Propose) -> Vec<&'static str> {
        let mut parts = Vec::new();
        if propose.class.is_some_and(|class| class != self.effect) {
            parts.push("effect");
        }
        let by_fields = self.identity_fields.as_ref().zip(propose.arguments.as_ref());
        let digest = by_fields.map(|(fields, arguments)| arguments.digest_of_fields(fields));
        let digest = digest.as_ref().unwrap_or(&propose.arguments_digest);
        if content(&propose.tool, &propose.target, digest) != self.content {
            parts.push("tool, target or arguments");
        }
        parts
    }
}

fn content(tool: &Name, target: &Name, identity: &Sha256Digest) -> Sha256Digest {
    let mut bytes = Sha256::new();
    bytes.update(b"actonce content v1");
    for part in [tool.as_str(), target.as_str(), identity.as_str()] {
        bytes.update(prefix(part));
        bytes.update(part);
    }
    Sha256Digest::of(&bytes.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_shortens_what_was_promised() {
        let tenant = |name: &str| Tenant::new(name).unwrap();
        let named = [(tenant("keeps"), None), (tenant("year"), Some(365))];
        let promised = Retention { default_days: Some(30), tenants: named.into_iter().collect() };
        let silent = Retention::default();
        for (retention, name, asked, days) in [
            (&promised, "keeps", Some(1), None),
            (&promised, "year", Some(1), Some(365)),
            (&promised, "year", Some(400), Some(400)),
            (&promised, "other", Some(1), Some(30)),
            (&promised, "other", None, Some(30)),
            (&silent, "other", None, None),
            (&silent, "other", Some(1), Some(1)),
        ] {
            assert_eq!(retention.days(&tenant(name), asked), days, "{name} {asked:?}");
        }
    }
}
