//! A store on an empty database, and a way past it to the tables.

use std::path::PathBuf;
use std::sync::Arc;

use actonce::domain::ids::EffectKey;
use actonce::domain::record::Record;
use actonce::domain::time::Timestamp;
use actonce::store::open::{DatabaseUrl, OpenOptions, open};
use actonce::store::{ChangeSet, Committed, RevisionRow, Store, StoreError};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::{StoreUnderTest, postgres};

/// A store with a database of its own.
pub(crate) struct Bed {
    pub(crate) store: Arc<dyn Store>,
    place: Place,
}

enum Place {
    Sqlite { path: PathBuf, _folder: TempDir },
    Postgres(String),
}

impl Bed {
    pub(crate) async fn new(store: StoreUnderTest) -> Self {
        let place = match store {
            StoreUnderTest::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                Place::Sqlite { path: folder.path().join("actonce.db"), _folder: folder }
            }
            StoreUnderTest::Postgres => Place::Postgres(postgres::fresh_database().expect("there is a Postgres")),
        };
        let store = place.open(true).await.unwrap();
        Self { store, place }
    }

    /// Another store on the same database: what another process of the service has.
    pub(crate) async fn another(&self) -> Arc<dyn Store> {
        self.place.open(true).await.unwrap()
    }

    /// Opens the database as it is, and closes it again.
    pub(crate) async fn try_open(&self, migrate: bool) -> Result<(), StoreError> {
        let store = self.place.open(migrate).await?;
        store.close().await;
        Ok(())
    }

    /// The database's URL, as `DATABASE_URL` takes it.
    pub(crate) fn url(&self) -> String {
        match &self.place {
            Place::Sqlite { path, .. } => format!("sqlite:{}", path.display()),
            Place::Postgres(url) => url.clone(),
        }
    }

    /// Whether it is SQLite.
    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self.place, Place::Sqlite { .. })
    }

    /// Runs statements past the store.
    pub(crate) async fn execute(&self, sql: &str) {
        let sql = AssertSqlSafe(sql.to_owned());
        match &self.place {
            Place::Sqlite { path, .. } => {
                let mut connection = sqlite(path).await;
                sqlx::raw_sql(sql).execute(&mut connection).await.expect("the statement runs");
                connection.close().await.unwrap();
            }
            Place::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                sqlx::raw_sql(sql).execute(&mut connection).await.expect("the statement runs");
                connection.close().await.unwrap();
            }
        }
    }

    /// The one number that a query answers.
    pub(crate) async fn count(&self, sql: &str) -> i64 {
        let sql = AssertSqlSafe(format!("SELECT CAST(({sql}) AS bigint)"));
        match &self.place {
            Place::Sqlite { path, .. } => {
                let mut connection = sqlite(path).await;
                let found = sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a number");
                connection.close().await.unwrap();
                found
            }
            Place::Postgres(url) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                let found = sqlx::query_scalar(sql).fetch_one(&mut connection).await.expect("a number");
                connection.close().await.unwrap();
                found
            }
        }
    }

    /// How many rows the tables of effects have.
    pub(crate) async fn rows(&self) -> (i64, i64) {
        (self.count("SELECT count(*) FROM entries").await, self.count("SELECT count(*) FROM open_effects").await)
    }

    /// A UUID as a literal.
    pub(crate) fn id(&self, id: Uuid) -> String {
        if self.is_sqlite() { format!("x'{}'", id.simple()) } else { format!("'{id}'::uuid") }
    }

    /// Bytes as a literal.
    pub(crate) fn bytes(&self, bytes: &[u8]) -> String {
        let hex = hex::encode(bytes);
        if self.is_sqlite() { format!("x'{hex}'") } else { format!("'\\x{hex}'::bytea") }
    }

    /// The condition that names the rows of an effect.
    pub(crate) fn of(&self, key: &EffectKey) -> String {
        format!("tenant = '{}' AND effect = {}", key.tenant, self.id(key.effect))
    }

    /// The database's time.
    pub(crate) async fn now(&self) -> Timestamp {
        self.store.now().await.unwrap()
    }

    pub(crate) async fn commit(&self, batch: &[ChangeSet]) -> Vec<Committed> {
        self.store.commit(batch).await.unwrap()
    }

    pub(crate) async fn revise(&self, row: &RevisionRow) -> Committed {
        self.commit(&[revise(row)]).await[0]
    }

    pub(crate) async fn load(&self, key: &EffectKey) -> Option<Record> {
        self.store.load(std::slice::from_ref(key)).await.unwrap().remove(0).unwrap()
    }
}

impl Place {
    async fn open(&self, migrate: bool) -> Result<Arc<dyn Store>, StoreError> {
        let url = match self {
            Self::Sqlite { path, .. } => DatabaseUrl::Sqlite(path.clone()),
            Self::Postgres(url) => DatabaseUrl::parse(url).unwrap(),
        };
        open(&url, OpenOptions { migrate, connections: 4 }).await
    }
}

async fn sqlite(path: &std::path::Path) -> sqlx::SqliteConnection {
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(path).foreign_keys(false);
    options.busy_timeout(std::time::Duration::from_secs(10)).connect().await.unwrap()
}

/// A row as a change.
pub(crate) fn revise(row: &RevisionRow) -> ChangeSet {
    ChangeSet::Revise(Box::new(row.clone()))
}
