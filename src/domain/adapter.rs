//! Adapters: the application's own word on what became of an act (protocol §7).

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::canonical::Sha256Digest;
use super::declarative::DeclarativeSpec;
use super::fault::Fault;
use super::ids::Name;
use super::object;
use super::receipt::{CheckedReceipt, Verification};
use crate::limits;

/// What a tool registers about its adapter. It has either a `url`, which is sent signed webhooks, or a
/// `request`, a template of a plain HTTP request with conditions over the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AdapterSpec {
    /// The application's endpoint. HTTPS, unless the configuration allows plain HTTP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// A declarative adapter.
    #[serde(default, deserialize_with = "object::optional", skip_serializing_if = "Option::is_none")]
    pub request: Option<DeclarativeSpec>,
    /// The Standard Webhooks secret (`whsec_…`), write-only: kept sealed apart from the registration.
    // Not `skip_serializing`: the API's description would leave it out.
    #[serde(default, skip_serializing_if = "WriteOnly::stays")]
    #[schema(value_type = Option<String>, write_only)]
    pub secret: Option<WriteOnly>,
    /// Names a secret of the configuration instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<String>,
    /// Whether it validates receipts.
    #[serde(default)]
    pub validate: bool,
    /// Whether it looks operations up.
    #[serde(default)]
    pub lookup: bool,
    /// Whether it makes the fresh read of law 5.
    #[serde(default)]
    pub verify: bool,
    /// Whether its "no" is authoritative: only then can an absence earn a retry (law 6).
    #[serde(default)]
    pub authoritative: bool,
    /// How long one call may take (1 to 300 s).
    #[serde(default = "default_timeout")]
    pub timeout_seconds: u32,
}

const fn default_timeout() -> u32 {
    limits::ADAPTER_TIMEOUT_DEFAULT_SECONDS
}

/// A text that is taken and never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct WriteOnly(String);

impl WriteOnly {
    /// Hides a text.
    #[must_use]
    pub fn new(text: &str) -> Self {
        Self(text.to_owned())
    }

    /// The text. Call it where it is used.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl WriteOnly {
    /// It never goes out.
    #[expect(clippy::ref_option, reason = "serde calls it with what it has")]
    const fn stays(_: &Option<Self>) -> bool {
        true
    }
}

impl Serialize for WriteOnly {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_none()
    }
}

impl fmt::Debug for WriteOnly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[hidden]")
    }
}

impl<'de> Deserialize<'de> for WriteOnly {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Self)
    }
}

impl AdapterSpec {
    /// Checks what the types can't say, pointers relative to the adapter. Whether there is a secret at all
    /// is for the service to see: one that is stored stays.
    #[must_use]
    pub fn faults(&self) -> Vec<Fault> {
        let mut faults = Vec::new();
        let mut check = |ok: bool, pointer: &str, reason: &str| {
            if !ok {
                faults.push(Fault::new(pointer, reason));
            }
        };
        match (&self.url, &self.request) {
            (Some(_), Some(_)) => check(false, "/request", "can't stand beside `url`"),
            (None, None) => check(false, "/url", "is required, or a `request`"),
            (Some(url), None) => {
                check(url.len() <= limits::URL_BYTES, "/url", "must be at most 2048 bytes");
                check(self.secret.is_none() || self.secret_ref.is_none(), "/secret", "can't stand beside `secret_ref`");
            }
            (None, Some(_)) => {
                check(self.secret.is_none(), "/secret", "a declarative adapter names its secrets");
                check(self.secret_ref.is_none(), "/secret_ref", "a declarative adapter names its secrets");
            }
        }
        if let Some(name) = &self.secret_ref {
            check(Name::new(name).is_ok(), "/secret_ref", "must be a name of 1 to 256 bytes");
        }
        check(
            (1..=limits::ADAPTER_TIMEOUT_MAX_SECONDS).contains(&self.timeout_seconds),
            "/timeout_seconds",
            "must be between 1 and 300",
        );
        check(self.lookup || !self.authoritative, "/authoritative", "needs `lookup`");
        check(self.validate || self.lookup || self.verify, "/lookup", "the adapter must do something");
        if let Some(request) = &self.request {
            faults.extend(self.request_faults(request));
        }
        faults
    }

    /// What a declarative adapter says it does is what it has a request for.
    fn request_faults(&self, request: &DeclarativeSpec) -> Vec<Fault> {
        let mut faults: Vec<Fault> = request.faults();
        for (says, name, question) in [
            (self.validate, "validate", Question::Validate),
            (self.lookup, "lookup", Question::Lookup),
            (self.verify, "verify", Question::Verify),
        ] {
            match (says, request.inquiry(question).is_some()) {
                (true, false) => {
                    faults.push(Fault::new(&format!("/{name}"), &format!("is required, as `{name}` is set")));
                }
                (false, true) => {
                    faults.push(Fault::new(&format!("/{name}"), &format!("is never asked, as `{name}` is not set")));
                }
                _ => {}
            }
        }
        if !self.authoritative {
            let needs = "counts only where the adapter is `authoritative`";
            faults.extend(request.authoritative_rules().map(|pointer| Fault::new(&pointer, needs)));
        }
        faults.into_iter().map(|fault| Fault::new(&format!("/request{}", fault.pointer), &fault.reason)).collect()
    }

    /// Digest of everything that decides what the adapter says; its secret is no part of it.
    #[must_use]
    pub fn fingerprint(&self) -> Sha256Digest {
        Sha256Digest::of(serde_json::to_string(self).unwrap_or_default().as_bytes())
    }
}

/// What an adapter is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Question {
    /// Is this receipt genuine? (`receipt.validate`)
    Validate,
    /// What became of this operation? (`effect.lookup`)
    Lookup,
    /// What is there now? (`effect.verify`)
    Verify,
}

impl Question {
    /// The `type` of the webhook.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Validate => "receipt.validate",
            Self::Lookup => "effect.lookup",
            Self::Verify => "effect.verify",
        }
    }
}

/// What an adapter says became of the operation (protocol §6, table of answers).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It was done; needs a receipt.
    Completed,
    /// The downstream refused or failed it; needs a receipt.
    Failed,
    /// It is not there.
    NotFound,
    /// It was never sent.
    NotSent,
    /// Not decided yet.
    Pending,
    /// It can't say.
    Unsupported,
    /// The receipt or the operation contradicts what is there.
    Conflict,
    /// It is there more than once.
    Multiple,
    /// It was done in part.
    Partial,
    /// What is there belongs to another operation.
    IdentityMismatch,
}

impl Verdict {
    /// The word of the protocol.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::NotFound => "not_found",
            Self::NotSent => "not_sent",
            Self::Pending => "pending",
            Self::Unsupported => "unsupported",
            Self::Conflict => "conflict",
            Self::Multiple => "multiple",
            Self::Partial => "partial",
            Self::IdentityMismatch => "identity_mismatch",
        }
    }
}

/// An answer that kept the contract of protocol §7.
#[derive(Debug, Clone)]
pub struct AdapterAnswer {
    /// What it says.
    pub verdict: Verdict,
    /// Whether the reading was authoritative. Counts only where the tool declares it.
    pub authoritative: bool,
    /// Whether the downstream can no longer accept the original.
    pub is_final: bool,
    /// The receipt, exactly for `completed` and `failed`; its form is checked, its binding is not.
    pub receipt: Option<CheckedReceipt>,
    /// The fresh read, where one was made.
    pub verification: Option<Verification>,
}

/// Why there is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAnswer {
    /// Not within the deadline.
    Timeout,
    /// No connection, or it broke.
    Unreachable,
    /// A status other than 200; the adapter or what is in front of it is in trouble.
    Status,
    /// The address is not one that this service may speak to, or it redirects.
    Forbidden,
    /// The answer breaks the contract.
    Contract(&'static str),
    /// The adapter failed too often and is left alone for a while.
    CircuitOpen,
    /// A secret that it needs is not there.
    NoSecret,
}

impl NoAnswer {
    /// A word for journals, logs and metrics: never content.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Timeout => "timeout",
            Self::Unreachable => "unreachable",
            Self::Status => "bad_status",
            Self::Forbidden => "forbidden_address",
            Self::Contract(_) => "contract_break",
            Self::CircuitOpen => "circuit_open",
            Self::NoSecret => "no_secret",
        }
    }

    /// The clause of the contract that was broken, if one was.
    #[must_use]
    pub const fn clause(self) -> Option<&'static str> {
        match self {
            Self::Contract(clause) => Some(clause),
            _ => None,
        }
    }
}
