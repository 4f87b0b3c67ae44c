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
    Postgres(PostgresAddress),
}

/// Where a Postgres database is, and how it is reached. Shown as nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct PostgresAddress {
    pub(super) url: Box<str>,
    pub(super) pooling: Pooling,
}

/// What a connection to Postgres is.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum Pooling {
    /// A session: of the server itself, or of a pooler that keeps one for each connection.
    #[default]
    Session,
    /// A way to a pooler that gives every transaction another session.
    Transaction {
        /// An address past the pooler, for what needs a session of its own.
        direct: Option<Box<str>>,
    },
}

impl Pooling {
    /// What is configured.
    ///
    /// # Errors
    /// [`StoreError::Open`]: an address past a pooler that is not there, or one that is none of Postgres.
    pub fn of(transactions: bool, direct: Option<&str>) -> Result<Self> {
        match (transactions, direct) {
            (false, None) => Ok(Self::Session),
            (false, Some(_)) => {
                Err(StoreError::Open("DATABASE_DIRECT_URL is for DATABASE_POOLING=transaction alone".to_owned()))
            }
            (true, Some(direct)) if DatabaseUrl::parse(direct)?.backend() != Backend::Postgres => {
                Err(StoreError::Open("DATABASE_DIRECT_URL must start with postgres://".to_owned()))
            }
            (true, direct) => Ok(Self::Transaction { direct: direct.map(Into::into) }),
        }
    }
}

impl PostgresAddress {
    /// Connections to this URL are sessions.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { url: url.into(), pooling: Pooling::Session }
    }

    /// The same URL, reached so.
    #[must_use]
    pub fn pooled(self, pooling: Pooling) -> Self {
        Self { pooling, ..self }
    }
}

impl fmt::Debug for PostgresAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("postgres://…")
    }
}

impl fmt::Debug for Pooling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Session => "session",
            Self::Transaction { direct: None } => "transaction",
            Self::Transaction { direct: Some(_) } => "transaction, postgres://…",
        })
    }
}

impl DatabaseUrl {
    /// Reads a URL.
    ///
    /// # Errors
    /// [`StoreError::Open`] with the reason. The URL itself is never echoed: it may hold a password.
    pub fn parse(text: &str) -> Result<Self> {
        if text.starts_with("postgres://") || text.starts_with("postgresql://") {
            return Ok(Self::Postgres(PostgresAddress::new(text)));
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

    /// The same database, reached so.
    ///
    /// # Errors
    /// [`StoreError::Open`] where that can't be: it is about Postgres alone.
    pub fn pooled(self, pooling: Pooling) -> Result<Self> {
        match (self, pooling) {
            (Self::Postgres(address), pooling) => Ok(Self::Postgres(address.pooled(pooling))),
            (sqlite, Pooling::Session) => Ok(sqlite),
            (Self::Sqlite(_), Pooling::Transaction { .. }) => {
                Err(refusal("names a SQLite file, and pooling in transactions is for Postgres"))
            }
        }
    }

    /// The same database by a way on which a connection is a session.
    ///
    /// # Errors
    /// [`StoreError::Open`]: it is reached through a pooler, and no other address is known.
    pub fn past_the_pooler(&self) -> Result<Self> {
        match self {
            Self::Postgres(PostgresAddress { pooling: Pooling::Transaction { direct }, .. }) => match direct {
                Some(direct) => Ok(Self::Postgres(PostgresAddress::new(direct))),
                None => Err(StoreError::Open(
                    "this needs a session of its own, and the database is reached through a pooler that gives every \
                     transaction another one: give an address past it, --database-direct-url (DATABASE_DIRECT_URL)"
                        .to_owned(),
                )),
            },
            other => Ok(other.clone()),
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
    /// Whether to bring the schema up to date (and create a missing SQLite file). Without it, and where every way to
    /// the database leads through a pooler that gives sessions away, a database that is behind is refused.
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
        DatabaseUrl::Postgres(address) => {
            Arc::new(PostgresStore::connect(address, options.migrate, options.connections).await?)
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
        let pooling = Pooling::Transaction { direct: Some("postgres://u:hunter2@h/d".into()) };
        let url = DatabaseUrl::parse("postgres://u:hunter2@h/d").unwrap().pooled(pooling.clone()).unwrap();
        assert!(!format!("{url:?}{pooling:?}").contains("hunter2"));
    }

    #[test]
    fn what_needs_a_session_goes_past_the_pooler_or_not_at_all() {
        let at = |url| DatabaseUrl::parse(url).unwrap();
        let (pooled, direct) = (at("postgres://pooler/d"), at("postgres://server/d"));
        assert_eq!(direct.past_the_pooler().unwrap(), direct);
        let both = pooled.clone().pooled(Pooling::Transaction { direct: Some("postgres://server/d".into()) }).unwrap();
        assert_eq!(both.past_the_pooler().unwrap(), direct);
        let alone = pooled.pooled(Pooling::Transaction { direct: None }).unwrap();
        let error = alone.past_the_pooler().unwrap_err().to_string();
        assert!(error.contains("DATABASE_DIRECT_URL"), "{error}");
        let sqlite = at("sqlite:a.db");
        assert_eq!(sqlite.past_the_pooler().unwrap(), sqlite);
        assert!(sqlite.clone().pooled(Pooling::Session).is_ok());
        assert!(sqlite.pooled(Pooling::Transaction { direct: None }).is_err());
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
