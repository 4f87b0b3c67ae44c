//! Which database, and how it is reached.

use serde::Serialize;

use super::args::ServeArgs;
use super::file::{Problems, Section};
use super::secret::Secret;
use super::values;

/// What a connection to Postgres is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Pooling {
    /// A session.
    #[default]
    Session,
    /// A way to a pooler that gives every transaction another session.
    Transaction,
}

impl Pooling {
    /// Reads it.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        match text.trim() {
            "session" => Ok(Self::Session),
            "transaction" => Ok(Self::Transaction),
            _ => Err("must be session or transaction"),
        }
    }

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Transaction => "transaction",
        }
    }
}

/// The settings of the database.
pub(super) struct Database {
    pub(super) url: Option<Secret<String>>,
    pub(super) pooling: Pooling,
    pub(super) direct_url: Option<Secret<String>>,
}

impl Database {
    pub(super) fn read(args: &ServeArgs, file: &mut Section, problems: &mut Problems) -> Self {
        let argument = args.database_url.as_ref().map(Secret::expose);
        let url = file.pick(argument, "DATABASE_URL", "database_url", problems);
        let url = url.and_then(|given| given.parse(problems, values::database_url));
        let pooling = file.pick(args.database_pooling.as_ref(), "DATABASE_POOLING", "database_pooling", problems);
        let argument = args.database_direct_url.as_ref().map(Secret::expose);
        let direct = file.pick(argument, "DATABASE_DIRECT_URL", "database_direct_url", problems);
        let found = pooling.as_ref().and_then(|given| given.parse(problems, Pooling::parse));
        let is_postgres = url.as_ref().is_some_and(|url| !url.expose().starts_with("sqlite:"));
        match (&pooling, &direct) {
            (Some(given), _) if found == Some(Pooling::Transaction) && !is_postgres => {
                problems.push(format!("{}: is for Postgres: set DATABASE_URL to the pooler's address", given.from));
            }
            (given, Some(direct)) if found == Some(Pooling::Session) || given.is_none() => {
                problems.push(format!("{}: is for DATABASE_POOLING=transaction alone", direct.from));
            }
            _ => {}
        }
        Self {
            url,
            pooling: found.unwrap_or_default(),
            direct_url: direct.and_then(|given| given.parse(problems, values::postgres_url)),
        }
    }
}
