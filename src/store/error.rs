//! What can go wrong with a store. No status codes here; one place of the HTTP layer maps them.

use sqlx::error::DatabaseError;
use sqlx::sqlite::SqliteError;

/// A failure of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database can't be reached, is overloaded, read-only or full. Nothing was written, or
    /// nobody knows: the caller repeats the same request and gets the recorded answer.
    #[error("the store is unavailable: {0}")]
    Unavailable(#[source] sqlx::Error),
    /// The database refused one of the writes. Nothing was written.
    #[error("the store refused a write: {}", brief(.0))]
    Rejected(sqlx::Error),
    /// A stored row can't be read back.
    #[error(transparent)]
    Corrupt(#[from] Corruption),
    /// The schema is newer than this program, or not ours.
    #[error("{0}")]
    Schema(String),
    /// The database can't be opened as configured.
    #[error("{0}")]
    Open(String),
}

/// A row that can't be read back: which table, which column, which key. Never its content.
#[derive(Debug, Clone, thiserror::Error)]
#[error("corrupt row in {table}.{column}, key {key}")]
pub struct Corruption {
    /// The table.
    pub table: &'static str,
    /// The column.
    pub column: &'static str,
    /// The key, without tenant.
    pub key: String,
}

/// What a log may say of a refused write: a database quotes values in its own text.
fn brief(error: &sqlx::Error) -> String {
    let Some(database) = error.as_database_error() else { return "not by the database".to_owned() };
    let code = database.code().unwrap_or_default();
    database.constraint().map_or_else(|| format!("code {code}"), |name| format!("code {code}, constraint {name}"))
}

impl From<sqlx::Error> for StoreError {
    fn from(error: sqlx::Error) -> Self {
        match &error {
            // A unique or check violation, or a value the database can't take: ours to handle, and
            // the same again would not help.
            sqlx::Error::Database(database) => {
                let refused = database.is_unique_violation()
                    || database.is_check_violation()
                    || database.is_foreign_key_violation()
                    || refuses_value(database.as_ref());
                if refused { Self::Rejected(error) } else { Self::Unavailable(error) }
            }
            _ => Self::Unavailable(error),
        }
    }
}

/// Whether the error's code says that the value is at fault.
fn refuses_value(error: &dyn DatabaseError) -> bool {
    let code = error.code().unwrap_or_default();
    if error.try_downcast_ref::<SqliteError>().is_some() {
        // A number, whose low byte is the primary code: TOOBIG, CONSTRAINT, MISMATCH.
        code.parse::<u32>().is_ok_and(|code| matches!(code & 0xff, 18..=20))
    } else {
        // An SQLSTATE: data exception, integrity constraint violation, raised by a trigger.
        code.starts_with("22") || code.starts_with("23") || code.starts_with("P0")
    }
}

impl StoreError {
    /// Whether a pooled connection turned out to be dead: the same call on a fresh one may work.
    #[must_use]
    pub fn is_broken_connection(&self) -> bool {
        match self {
            Self::Unavailable(sqlx::Error::Io(_) | sqlx::Error::Protocol(_)) => true,
            // 57P01 to 57P03: the server is going away or coming back.
            Self::Unavailable(sqlx::Error::Database(database)) => {
                database.code().is_some_and(|code| code.starts_with("57P0"))
            }
            _ => false,
        }
    }

    /// Whether the connection turned out to be one to a database that takes no writes (25006).
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        match self {
            Self::Unavailable(error) => {
                error.as_database_error().is_some_and(|database| database.code().as_deref() == Some("25006"))
            }
            _ => false,
        }
    }

    /// Whether a unique key was taken by somebody else.
    #[must_use]
    pub fn is_taken_key(&self) -> bool {
        match self {
            Self::Rejected(error) => error.as_database_error().is_some_and(DatabaseError::is_unique_violation),
            _ => false,
        }
    }
}
