//! How connections come to what they are set to.
//!
//! A session keeps its settings: they are asked for as it begins, and whose rows it sees is said once for many
//! statements. Behind a pooler that gives every transaction another session nothing is kept for us, and what others
//! said may still stand. There every use is one transaction, and what it is set to is said in the message that begins
//! it: no statement can come before that, and all of it ends with the transaction.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::{SETTING, Tenants};

/// What a transaction ends with behind a pooler. A transaction that failed, or that is not there any more, ends without
/// an error at `COMMIT`; it has no savepoint.
const COMMIT_WHAT_IS_THERE: &str = "SAVEPOINT ended; COMMIT";

/// See the module.
#[derive(Debug, Clone)]
pub(in crate::store::postgres) enum Manner {
    /// A connection is a session.
    Sessions,
    /// Every transaction sets itself, by this text.
    Transactions(Arc<str>),
}

impl Manner {
    /// Transactions that set themselves to these.
    pub(in crate::store::postgres) fn transactions(settings: &[(&str, &str)]) -> Self {
        let text: String = settings
            .iter()
            .map(|(name, value)| match *value {
                // What the session would be reset to, whatever others have set it to.
                "DEFAULT" => format!("SET LOCAL {name} TO DEFAULT; "),
                value => format!("SET LOCAL {name} = {}; ", literal(value)),
            })
            .collect();
        Self::Transactions(text.into())
    }

    /// Whether every use is a transaction.
    pub(super) const fn is_of_transactions(&self) -> bool {
        matches!(self, Self::Transactions(_))
    }

    /// Begins a transaction and sets it, in one round trip.
    pub(super) fn begin(&self, whose: &Tenants<'_>) -> AssertSqlSafe<String> {
        let settings = match self {
            Self::Sessions => "",
            Self::Transactions(settings) => settings,
        };
        AssertSqlSafe(format!("BEGIN; {settings}SET LOCAL {SETTING} = {}", literal(&whose.text())))
    }

    /// Ends one.
    pub(super) const fn commit(&self) -> &'static str {
        match self {
            Self::Sessions => "COMMIT",
            Self::Transactions(_) => COMMIT_WHAT_IS_THERE,
        }
    }
}

/// A text as a literal, however the server takes backslashes.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literals_hold_what_they_are_given() {
        assert_eq!(literal("o'br\\ien\n"), "E'o''br\\\\ien\n'");
    }

    #[test]
    fn a_transaction_is_set_before_anything_else_is_said() {
        let of_nobody = |manner: &Manner| manner.begin(&Tenants::Nobody).0;
        assert_eq!(of_nobody(&Manner::Sessions), "BEGIN; SET LOCAL actonce.tenants = E'nobody'");
        let pooled = Manner::transactions(&[("jit", "off"), ("synchronous_commit", "DEFAULT")]);
        assert_eq!(
            of_nobody(&pooled),
            "BEGIN; SET LOCAL jit = E'off'; SET LOCAL synchronous_commit TO DEFAULT; SET LOCAL actonce.tenants = E'nobody'"
        );
    }
}
