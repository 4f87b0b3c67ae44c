//! Standing grants: an approver's decision made in advance, for intents that are still to come
//! (protocol §8).

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::canonical::Sha256Digest;
use super::ids::Name;
use super::record::Intent;
use super::time::Timestamp;
use super::tool::{AuthorizationMode, Tool};

/// What a grant covers, as its author stated it. Never changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrantTerms {
    /// The tool.
    pub tool: Name,
    /// The tool's revision when the grant was made; no other one is covered.
    pub tool_revision: u32,
    /// The one target that is covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<Name>,
    /// What covered targets begin with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_prefix: Option<Name>,
    /// The one arguments digest that is covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments_digest: Option<Sha256Digest>,
    /// The one run that is covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Name>,
    /// The one session that is covered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_id: Option<Name>,
    /// Why, in the author's words.
    pub reason: String,
    /// Who granted.
    pub author: Name,
    /// Over what was asked for, so that a repeat is known again.
    pub request_digest: Sha256Digest,
}

impl GrantTerms {
    /// Whether an intent of a tool is covered. Where the tool asks for four eyes, nobody's own intents
    /// are covered by a grant of theirs; where it asks for several people, one person's grant is not
    /// enough.
    #[must_use]
    pub fn cover(&self, intent: &Intent, tool: &Tool) -> bool {
        let policy = &tool.spec.authorization;
        let is = |wanted: &Option<Name>, found: Option<&Name>| wanted.is_none() || wanted.as_ref() == found;
        policy.mode == AuthorizationMode::Approval
            && policy.approvals == 1
            && !(policy.four_eyes && self.author == intent.proposer)
            && self.tool == intent.tool
            && self.tool_revision == intent.tool_revision
            && is(&self.target, Some(&intent.target))
            && self.target_prefix.as_ref().is_none_or(|prefix| intent.target.as_str().starts_with(prefix.as_str()))
            && self.arguments_digest.as_ref().is_none_or(|digest| *digest == intent.arguments_digest)
            && is(&self.run_id, intent.run_id.as_ref())
            && is(&self.session_id, intent.session_id.as_ref())
    }
}

/// A grant that was found to be live when it was looked for. The commit that uses it checks again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LiveGrant {
    /// Its id.
    pub id: Uuid,
    /// What it covers.
    pub terms: GrantTerms,
    /// When it ends.
    pub expires_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::domain::canonical::ALGORITHM;
    use crate::domain::state::EffectClass;
    use crate::domain::tool::ToolSpec;

    fn name(text: &str) -> Name {
        Name::new(text).unwrap()
    }

    fn tool(policy: &str) -> Arc<Tool> {
        let spec: ToolSpec =
            serde_json::from_str(&format!(r#"{{"effect":"external","authorization":{policy}}}"#)).unwrap();
        Tool::new(name("refund"), 3, spec, false, 1, Timestamp::from_micros(0))
    }

    fn intent() -> Intent {
        Intent {
            operation_id: name("op"),
            tool: name("refund"),
            tool_revision: 3,
            class: EffectClass::External,
            target: name("order-1001"),
            arguments_digest: Sha256Digest::of(b"arguments"),
            digest_algorithm: ALGORITHM.into(),
            identity: None,
            run_id: Some(name("run")),
            session_id: None,
            call_id: None,
            profile_id: None,
            proposer: name("agent"),
            created_at: Timestamp::from_micros(0),
            idempotency_key: "key".into(),
        }
    }

    fn terms() -> GrantTerms {
        GrantTerms {
            tool: name("refund"),
            tool_revision: 3,
            target: None,
            target_prefix: None,
            arguments_digest: None,
            run_id: None,
            session_id: None,
            reason: "because".to_owned(),
            author: name("ann"),
            request_digest: Sha256Digest::of(b""),
        }
    }

    #[test]
    fn each_term_narrows() {
        let approval = tool(r#"{"mode":"approval"}"#);
        let covers = |terms: GrantTerms| terms.cover(&intent(), &approval);
        assert!(covers(terms()));
        for (good, bad) in [
            (
                GrantTerms { target: Some(name("order-1001")), ..terms() },
                GrantTerms { target: Some(name("order-100")), ..terms() },
            ),
            (
                GrantTerms { target_prefix: Some(name("order-")), ..terms() },
                GrantTerms { target_prefix: Some(name("rder-")), ..terms() },
            ),
            (
                GrantTerms { arguments_digest: Some(Sha256Digest::of(b"arguments")), ..terms() },
                GrantTerms { arguments_digest: Some(Sha256Digest::of(b"others")), ..terms() },
            ),
            (GrantTerms { run_id: Some(name("run")), ..terms() }, GrantTerms { run_id: Some(name("r")), ..terms() }),
            (terms(), GrantTerms { session_id: Some(name("session")), ..terms() }),
            (terms(), GrantTerms { tool_revision: 2, ..terms() }),
            (terms(), GrantTerms { tool: name("charge"), ..terms() }),
        ] {
            assert!(covers(good.clone()), "{good:?}");
            assert!(!covers(bad.clone()), "{bad:?}");
        }
    }

    #[test]
    fn the_policy_of_the_tool_comes_first() {
        let own = GrantTerms { author: name("agent"), ..terms() };
        assert!(!own.cover(&intent(), &tool(r#"{"mode":"approval"}"#)), "four eyes");
        assert!(own.cover(&intent(), &tool(r#"{"mode":"approval","four_eyes":false}"#)));
        assert!(!terms().cover(&intent(), &tool(r#"{"mode":"approval","approvals":2}"#)), "one person is no quorum");
        assert!(!terms().cover(&intent(), &tool(r#"{"mode":"automatic"}"#)), "nothing to be granted");
    }
}
