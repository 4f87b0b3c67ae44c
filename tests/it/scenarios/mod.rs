//! Failures that systems of this kind have had, against the whole program. The downstream's own
//! count is the oracle wherever something acts.

mod crowds;
mod faults;
mod heartbeats;
mod kill;
mod lists;
mod lost_answers;
pub(crate) mod outage;
mod replicas;
mod timeouts;

use actonce::app::SQLITE_FILE;
use futures_util::StreamExt as _;
use serde_json::Value;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};

use crate::support::server::program;
use crate::support::{Server, postgres};

/// `actonce journal verify` on the database of a server: its exit code and its report.
pub(crate) fn verification(server: &Server) -> (Option<i32>, Value) {
    let mut command = program();
    command.args(["journal", "verify", "--data-dir"]).arg(server.data_dir());
    if let Some(url) = server.database_url() {
        command.env("DATABASE_URL", url);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text)
        .unwrap_or_else(|error| panic!("{error}: {} {text}{}", output.status, String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), report)
}

/// The report on a database that must be intact.
pub(crate) fn intact(server: &Server) -> Value {
    let (code, report) = verification(server);
    assert_eq!((code, &report["damaged"]), (Some(0), &Value::from(0)), "{report:#}");
    report
}

/// Entries in all journals of a database that is intact.
pub(crate) fn entries(server: &Server) -> u64 {
    intact(server)["entries"].as_u64().expect("a count")
}

/// Runs a statement on the database of a server.
pub(crate) fn sql(server: &Server, statement: &str) {
    if let Some(url) = server.database_url() {
        return postgres::run(url, statement);
    }
    let (file, statement) = (server.data_dir().join(SQLITE_FILE), statement.to_owned());
    let done = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(statement)).execute(&mut connection).await.expect("the statement runs");
            connection.close().await.unwrap();
        });
    });
    done.join().expect("the statement ran");
}

/// The one number that a query on the database of a server answers.
pub(crate) fn count(server: &Server, query: &str) -> i64 {
    let query = AssertSqlSafe(format!("SELECT CAST(({query}) AS bigint)"));
    let (file, url) = (server.data_dir().join(SQLITE_FILE), server.database_url().map(str::to_owned));
    let done = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            if let Some(url) = url {
                let mut connection = PgConnection::connect(&url).await.expect("Postgres answers");
                sqlx::query_scalar(query).fetch_one(&mut connection).await.expect("a number")
            } else {
                let mut connection = SqliteConnectOptions::new().filename(file).connect().await.unwrap();
                sqlx::query_scalar(query).fetch_one(&mut connection).await.expect("a number")
            }
        })
    });
    done.join().expect("the query ran")
}

/// Runs these, so many at a time.
pub(crate) async fn crowd<T>(width: usize, work: impl IntoIterator<Item = impl Future<Output = T>>) -> Vec<T> {
    futures_util::stream::iter(work).buffer_unordered(width).collect().await
}

/// Numbers that look random and are the same in every run.
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Below `sides`.
    pub(crate) const fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}
