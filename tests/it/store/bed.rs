//! A store on an empty database, and a way past it to the tables.

use std::path::PathBuf;
use std::sync::Arc;

use actonce::domain::ids::{EffectKey, Tenant};
use actonce::domain::record::Record;
use actonce::domain::time::Timestamp;
use actonce::store::open::{DatabaseUrl, OpenOptions, Pooling, PostgresAddress, open};
use actonce::store::{ChangeSet, Committed, Renewal, RevisionRow, Store, StoreError};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use tempfile::TempDir;
use uuid::Uuid;

use crate::support::{StoreUnderTest, postgres};

tokio::task_local! {
    /// Set where no change of a [`Bed`] is to be alone in its batch.
    pub(crate) static IN_COMPANY: ();
    /// Set where a [`Bed`] on Postgres is reached as through a pooler that gives every transaction another session.
    pub(crate) static POOLED: ();
    /// Set where a [`Bed`] on Postgres has a role that row-level security does not hold.
    pub(crate) static PAST_THE_WALL: ();
}

/// Makes of `async fn name(store: StoreUnderTest)` another test on Postgres, in a module of its own, with one of the above
/// set.
macro_rules! again_on_postgres {
    ($module:ident, $set:ident: $($name:ident),+) => {
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    use $crate::support::StoreUnderTest;
                    if StoreUnderTest::has_postgres() {
                        let test = Box::pin(super::$name(StoreUnderTest::Postgres));
                        $crate::store::bed::$set.scope((), test).await;
                    }
                }
            )+
        }
    };
}
pub(crate) use again_on_postgres;

/// Makes of `async fn name(store: StoreUnderTest)` three tests: on each store, and on Postgres as through a pooler that
/// gives every transaction another session: every use of a connection is a transaction there.
macro_rules! both_manners {
    ($($name:ident),+ $(,)?) => {
        $crate::support::both_stores!($($name),+);
        $crate::store::bed::again_on_postgres!(in_transactions, POOLED: $($name),+);
    };
}
pub(crate) use both_manners;

/// Makes of it four tests: those, and on Postgres once more with every change in a batch, because a lone change goes
/// another way there.
macro_rules! both_ways {
    ($($name:ident),+ $(,)?) => {
        $crate::store::bed::both_manners!($($name),+);
        $crate::store::bed::again_on_postgres!(in_a_batch, IN_COMPANY: $($name),+);
    };
}
pub(crate) use both_ways;

/// A store with a database of its own.
pub(crate) struct Bed {
    pub(crate) store: Arc<dyn Store>,
    place: Place,
    in_company: bool,
}

enum Place {
    Sqlite { path: PathBuf, _folder: TempDir },
    Postgres(String, Pooling),
}

/// How a test reaches a database of Postgres.
pub(crate) fn pooling(url: &str) -> Pooling {
    let is_pooled = POOLED.try_with(|()| ()).is_ok();
    if is_pooled { Pooling::Transaction { direct: Some(url.into()) } } else { Pooling::Session }
}

/// A database of Postgres, as a test reaches it.
pub(crate) fn address(url: &str) -> PostgresAddress {
    PostgresAddress::new(url).pooled(pooling(url))
}

impl Bed {
    pub(crate) async fn new(store: StoreUnderTest) -> Self {
        let place = match store {
            StoreUnderTest::Sqlite => {
                let folder = tempfile::tempdir().unwrap();
                Place::Sqlite { path: folder.path().join("actonce.db"), _folder: folder }
            }
            StoreUnderTest::Postgres => {
                let url = postgres::fresh_database().expect("there is a Postgres");
                let is_past = PAST_THE_WALL.try_with(|()| ()).is_ok();
                let url = if is_past { postgres::as_admin(&url).expect("there is a superuser") } else { url };
                let pooling = pooling(&url);
                Place::Postgres(url, pooling)
            }
        };
        let store = place.open(true).await.unwrap();
        Self { store, place, in_company: IN_COMPANY.try_with(|()| ()).is_ok() }
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
            Place::Postgres(url, _) => url.clone(),
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
            Place::Postgres(url, _) => {
                let mut connection = PgConnection::connect(url).await.unwrap();
                sqlx::raw_sql(sql).execute(&mut connection).await.expect("the statement runs");
                connection.close().await.unwrap();
            }
        }
    }

    /// Changes what Postgres gives to whoever connects from now on.
    pub(crate) async fn alter_database(&self, change: &str) {
        let Place::Postgres(url, _) = &self.place else { panic!("SQLite has no such settings") };
        let name = url.rsplit('/').next().and_then(|name| name.split('?').next()).unwrap();
        self.execute(&format!("ALTER DATABASE {name} {change}")).await;
    }

    /// Rows count for checkpoints once no older transaction is in flight, of other databases of the server neither.
    pub(crate) async fn all_have_ended(&self) {
        let younger =
            "SELECT count(*) FROM entries WHERE moved >= pg_snapshot_xmin(pg_current_snapshot())::text::bigint";
        while !self.is_sqlite() && self.count(younger).await > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
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
            Place::Postgres(url, _) => {
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
        self.try_commit(batch).await.unwrap()
    }

    pub(crate) async fn try_commit(&self, batch: &[ChangeSet]) -> Result<Vec<Committed>, StoreError> {
        let mut done = self.store.commit(&self.batch(batch)).await?;
        done.truncate(batch.len());
        Ok(done)
    }

    /// The batch as it is committed: where asked for, with a change beside it that is lost.
    pub(crate) fn batch(&self, batch: &[ChangeSet]) -> Vec<ChangeSet> {
        let mut batch = batch.to_vec();
        let row = batch.iter().find_map(|change| match change {
            ChangeSet::Revise(row) => Some(row),
            ChangeSet::Renew(_) => None,
        });
        if let (true, Some(row)) = (self.in_company, row) {
            let key = EffectKey { tenant: row.key.tenant.clone(), effect: Uuid::from_u128(77) };
            let stranger =
                RevisionRow { key, revision: 7, intent: None, was_open: true, open: None, ..(**row).clone() };
            batch.push(revise(&stranger));
        }
        batch
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
            Self::Postgres(url, pooling) => DatabaseUrl::parse(url).unwrap().pooled(pooling.clone()).unwrap(),
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

/// The database's time, put forward: what waiting would do.
impl Bed {
    /// A bed whose database has a clock that can be put forward.
    pub(crate) async fn with_clock(store: StoreUnderTest) -> Self {
        let bed = Self::new(store).await;
        if bed.is_sqlite() {
            return bed;
        }
        // Found before the server's own function of that name by whoever connects from now on.
        bed.execute(
            "CREATE SCHEMA fake;
             CREATE TABLE fake.clock (ahead interval NOT NULL);
             INSERT INTO fake.clock VALUES ('0');
             CREATE FUNCTION fake.clock_timestamp() RETURNS timestamptz LANGUAGE sql VOLATILE AS
               'SELECT pg_catalog.clock_timestamp() + (SELECT ahead FROM fake.clock)'",
        )
        .await;
        bed.alter_database("SET search_path = public, fake, pg_catalog").await;
        bed.store.close().await;
        let store = bed.place.open(true).await.unwrap();
        Self { store, ..bed }
    }

    /// Puts the database's clock forward.
    pub(crate) async fn pass(&self, seconds: u32) {
        if self.is_sqlite() {
            let then = self.now().await.plus_seconds(seconds).micros();
            self.execute(&format!("UPDATE clock SET latest_us = {then}")).await;
            // A store learns of a time that another process has given out at its next commit.
            let nobody = Renewal {
                key: EffectKey { tenant: Tenant::new("nobody").unwrap(), effect: Uuid::nil() },
                revision: 1,
                fence: 1,
                until: Timestamp::from_micros(0),
            };
            assert_eq!(self.commit(&[ChangeSet::Renew(nobody)]).await, [Committed::Lost]);
            assert!(self.now().await.micros() >= then);
        } else {
            self.execute(&format!("UPDATE fake.clock SET ahead = ahead + interval '{seconds} seconds'")).await;
        }
    }
}
