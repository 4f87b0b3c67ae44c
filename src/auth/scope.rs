//! Scopes: what a principal may do (protocol §11).

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::Value;

/// One permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Scope {
    /// `effects:write`: record intents, claim, report outcomes.
    EffectsWrite,
    /// `effects:read`: read effects, journals and runs.
    EffectsRead,
    /// `effects:approve`: approve or deny proposals.
    EffectsApprove,
    /// `effects:reconcile`: inspect and reconcile unknown outcomes.
    EffectsReconcile,
    /// `effects:resolve`: decide by hand, with evidence.
    EffectsResolve,
    /// `receipts:write`: bring receipts from outside.
    ReceiptsWrite,
    /// `tools:write`: register tools.
    ToolsWrite,
    /// `recovery:operate`: read and execute recovery plans.
    RecoveryOperate,
    /// `events:read`: read the events and subscribe to them.
    EventsRead,
    /// `timing:read`: read recent timings.
    TimingRead,
}

impl Scope {
    /// Every scope, in the order of the protocol.
    pub const ALL: [Self; 10] = [
        Self::EffectsWrite,
        Self::EffectsRead,
        Self::EffectsApprove,
        Self::EffectsReconcile,
        Self::EffectsResolve,
        Self::ReceiptsWrite,
        Self::ToolsWrite,
        Self::RecoveryOperate,
        Self::EventsRead,
        Self::TimingRead,
    ];

    /// The word in tokens and documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::EffectsWrite => "effects:write",
            Self::EffectsRead => "effects:read",
            Self::EffectsApprove => "effects:approve",
            Self::EffectsReconcile => "effects:reconcile",
            Self::EffectsResolve => "effects:resolve",
            Self::ReceiptsWrite => "receipts:write",
            Self::ToolsWrite => "tools:write",
            Self::RecoveryOperate => "recovery:operate",
            Self::EventsRead => "events:read",
            Self::TimingRead => "timing:read",
        }
    }

    /// The scope of a word, if it is one of ours.
    #[must_use]
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == word)
    }

    const fn bit(self) -> u16 {
        match self {
            Self::EffectsWrite => 1,
            Self::EffectsRead => 1 << 1,
            Self::EffectsApprove => 1 << 2,
            Self::EffectsReconcile => 1 << 3,
            Self::EffectsResolve => 1 << 4,
            Self::ReceiptsWrite => 1 << 5,
            Self::ToolsWrite => 1 << 6,
            Self::RecoveryOperate => 1 << 7,
            Self::EventsRead => 1 << 8,
            Self::TimingRead => 1 << 9,
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A set of scopes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Scopes(u16);

impl Scopes {
    /// No scope: known, but allowed nothing.
    pub const NONE: Self = Self(0);

    /// Every scope.
    #[must_use]
    pub fn all() -> Self {
        Scope::ALL.into_iter().collect()
    }

    /// Whether the set has a scope.
    #[must_use]
    pub const fn contains(self, scope: Scope) -> bool {
        self.0 & scope.bit() != 0
    }

    /// The set and one more.
    #[must_use]
    pub const fn with(self, scope: Scope) -> Self {
        Self(self.0 | scope.bit())
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The scopes of the set, in the order of the protocol.
    pub fn iter(self) -> impl Iterator<Item = Scope> {
        Scope::ALL.into_iter().filter(move |scope| self.contains(*scope))
    }

    /// Reads words separated by white space. Unknown words are ignored: an issuer may serve other
    /// services too, and a scope of theirs must not lock a token out of ours.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        text.split_whitespace().filter_map(Scope::parse).collect()
    }

    /// Reads a claim: one text with words, or an array of words. `None` for anything else.
    #[must_use]
    pub fn from_claim(claim: &Value) -> Option<Self> {
        match claim {
            Value::String(text) => Some(Self::from_text(text)),
            Value::Array(words) => words.iter().try_fold(Self::NONE, |scopes, word| {
                let word = word.as_str()?;
                Some(Scope::parse(word).map_or(scopes, |scope| scopes.with(scope)))
            }),
            _ => None,
        }
    }
}

impl FromIterator<Scope> for Scopes {
    fn from_iter<I: IntoIterator<Item = Scope>>(scopes: I) -> Self {
        scopes.into_iter().fold(Self::NONE, Self::with)
    }
}

impl fmt::Display for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, scope) in self.iter().enumerate() {
            if place > 0 {
                f.write_str(" ")?;
            }
            f.write_str(scope.as_str())?;
        }
        Ok(())
    }
}

impl fmt::Debug for Scopes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Scopes({self})")
    }
}

impl Serialize for Scopes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.iter().map(Scope::as_str))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_scope_is_its_own_bit_and_word() {
        let mut seen = Scopes::NONE;
        for scope in Scope::ALL {
            assert!(!seen.contains(scope), "{scope} shares a bit");
            assert_eq!(Scope::parse(scope.as_str()), Some(scope));
            seen = seen.with(scope);
        }
        assert_eq!(seen, Scopes::all());
        assert_eq!(Scopes::from_text(&seen.to_string()), seen);
    }

    #[test]
    fn unknown_scopes_are_ignored_and_strange_claims_are_not_scopes() {
        let read = Scopes::NONE.with(Scope::EffectsRead);
        assert_eq!(Scopes::from_text("openid  effects:read effects:Write"), read);
        assert_eq!(Scopes::from_claim(&json!(["effects:read", "email"])), Some(read));
        assert_eq!(Scopes::from_claim(&json!(["effects:read effects:write"])), Some(Scopes::NONE));
        assert_eq!(Scopes::from_claim(&json!(["effects:read", 7])), None);
        assert_eq!(Scopes::from_claim(&json!({"effects:read": true})), None);
        assert_eq!(Scopes::from_claim(&json!(null)), None);
    }
}
