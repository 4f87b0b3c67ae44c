//! One test, both stores.

use std::sync::OnceLock;

use super::api::Api;
use super::server::{Options, Server};
use super::{postgres, unique};

/// Makes of `async fn name(store: StoreUnderTest)` the tests `name::sqlite` and `name::postgres`:
///
/// ```ignore
/// both_stores!(a_second_post_changes_nothing);
///
/// async fn a_second_post_changes_nothing(store: StoreUnderTest) {
///     let api = store.tenant();
///     …
/// }
/// ```
macro_rules! both_stores {
    ($($name:ident),+ $(,)?) => {$(
        mod $name {
            use $crate::support::StoreUnderTest;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                Box::pin(super::$name(StoreUnderTest::Sqlite)).await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                if StoreUnderTest::has_postgres() {
                    Box::pin(super::$name(StoreUnderTest::Postgres)).await;
                }
            }
        }
    )+};
}
pub(crate) use both_stores;

/// The store that a test runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StoreUnderTest {
    Sqlite,
    Postgres,
}

impl StoreUnderTest {
    /// The word in the ready line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
        }
    }

    pub(crate) fn has_postgres() -> bool {
        postgres::server().is_some()
    }

    /// The one server of this process on this store. Tests keep apart by tenant, see
    /// [`StoreUnderTest::tenant`]; none of them may stop it.
    pub(crate) fn shared(self) -> &'static Server {
        static SQLITE: OnceLock<Server> = OnceLock::new();
        static POSTGRES: OnceLock<Server> = OnceLock::new();
        match self {
            Self::Sqlite => SQLITE.get_or_init(|| self.server(Options::default())),
            Self::Postgres => POSTGRES.get_or_init(|| self.server(Options::default())),
        }
    }

    /// A client of the shared server, of a tenant that no other test has, with all scopes.
    pub(crate) fn tenant(self) -> Api {
        Api::of(self.shared(), &unique("tenant"))
    }

    /// A server of its own on an empty database.
    pub(crate) fn server(self, options: Options) -> Server {
        let database_url = match self {
            Self::Sqlite => None,
            Self::Postgres => Some(postgres::fresh_database().expect("there is a Postgres")),
        };
        let server = Server::start(Options { database_url, ..options });
        assert_eq!(server.ready().database, self.word());
        server
    }
}
