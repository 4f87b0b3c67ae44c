//! Opening a store by its URL.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::percent_decode_str;

use super::postgres::PostgresStore;
use super::sqlite::SqliteStore;
use super::{Backend, Result, Store, StoreError};

/// A database URL that was understood. Shown without its credentials.
#[derive(Clone, PartialEq, Eq)]
pub enum DatabaseUrl {
    /// `sqlite:PATH`, with `sqlite://PATH` as another way to write it.
    Sqlite(PathBuf),
    /// `postgres://…` or `postgresql://…`, kept as it is.
    Postgres(Box<str>),
}

impl DatabaseUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`StoreError::Open`] with the reason. The URL itself is never echoed: it may hold a password.
    pub fn parse(text: &str) -> Result<Self> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(text.into()));
        }
        let Some(path) = text.strip_prefix("sqlite:") else {
            return Err(refusal("must start with sqlite:, postgres:// or postgresql://"));
        };
        let path = path.strip_prefix("//").unwrap_or(path);
        if path.contains('?') {
            return Err(refusal("takes no options after a SQLite path"));
        }
        let path = percent_decode_str(path).decode_utf8().map_err(|_| refusal("is not UTF-8"))?;
        match &*path {
            "" => Err(refusal("names no SQLite file")),
            ":memory:" => Err(refusal("names a SQLite database in memory, which would forget what it acknowledged")),
            // SQLite itself would read these as a URI, with options of its own.
            path if path.starts_with("file:") => Err(refusal("must name a SQLite file by its plain path")),
            path if path.contains('\0') => Err(refusal("must not contain NUL")),
            path => Ok(Self::Sqlite(PathBuf::from(path))),
        }
    }

    /// Which backend it names.
    #[must_use]
    pub const fn backend(&self) -> Backend {
        match self {
            Self::Sqlite(_) => Backend::Sqlite,
            Self::Postgres(_) => Backend::Postgres,
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(_) => f.write_str("postgres://…"),
        }
    }
}

fn refusal(reason: &str) -> StoreError {
    StoreError::Open(format!("the database URL {reason}"))
}

/// How to open a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpenOptions {
    /// Whether to bring the schema up to date (and create a missing SQLite file). Without it a
    /// database that is behind is refused.
    pub migrate: bool,
    /// Connections to a Postgres server, besides the one that commits. SQLite has a fixed few.
    pub connections: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self { migrate: true, connections: 8 }
    }
}

/// Opens the store that a URL names.
///
/// # Errors
/// [`StoreError::Open`] where the database can't be opened as configured, [`StoreError::Schema`]
/// where its schema is not one that this program can work on, [`StoreError::Unavailable`] else.
pub async fn open(url: &DatabaseUrl, options: OpenOptions) -> Result<Arc<dyn Store>> {
    Ok(match url {
        DatabaseUrl::Sqlite(path) => Arc::new(SqliteStore::connect(path, options.migrate).await?),
        DatabaseUrl::Postgres(url) => {
            Arc::new(PostgresStore::connect(url, options.migrate, options.connections).await?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_a_backend() {
        let sqlite = |path: &str| DatabaseUrl::Sqlite(PathBuf::from(path));
        assert_eq!(DatabaseUrl::parse("sqlite:data/a.db").unwrap(), sqlite("data/a.db"));
        assert_eq!(DatabaseUrl::parse("sqlite:///var/a%20b.db").unwrap(), sqlite("/var/a b.db"));
        assert_eq!(DatabaseUrl::parse("sqlite:/var/ä.db").unwrap(), sqlite("/var/ä.db"));
        for url in ["postgres://u:p@h/d", "postgresql://h/d?sslmode=require"] {
            assert_eq!(DatabaseUrl::parse(url).unwrap().backend(), Backend::Postgres);
        }
    }

    #[test]
    fn what_is_refused_is_not_echoed() {
        for url in [
            "",
            "mysql://u:hunter2@h/d",
            "sqlite:",
            "sqlite://",
            "sqlite::memory:",
            "sqlite:%3Amemory%3A",
            "sqlite:file:hunter2",
            "sqlite:hunter2?mode=memory",
            "sqlite:hunter2%00",
        ] {
            let error = DatabaseUrl::parse(url).unwrap_err();
            assert!(matches!(error, StoreError::Open(_)));
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
        assert!(!format!("{:?}", DatabaseUrl::parse("postgres://u:hunter2@h/d").unwrap()).contains("hunter2"));
    }

    #[tokio::test]
    async fn opens_a_file() {
        let folder = tempfile::tempdir().unwrap();
        let url = DatabaseUrl::Sqlite(folder.path().join("a.db"));
        let store = open(&url, OpenOptions::default()).await.unwrap();
        assert_eq!(store.backend(), Backend::Sqlite);
        store.close().await;
    }
}
