//! Every statement is prepared against a freshly migrated database.

use actonce::store::{postgres, sqlite};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqlSafeStr as _, SqliteConnection};

use super::bed::Bed;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(every_statement_prepares);

async fn every_statement_prepares(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let url = bed.url();
    if bed.is_sqlite() {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        for (name, statement) in sqlite::sql::every() {
            let prepared = connection.prepare(AssertSqlSafe(*statement).into_sql_str()).await;
            assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
        }
        connection.close().await.unwrap();
    } else {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        for (name, statement) in postgres::sql::every() {
            let prepared = connection.prepare(AssertSqlSafe(*statement).into_sql_str()).await;
            assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
        }
        connection.close().await.unwrap();
    }
}

#[test]
fn every_statement_of_postgres_is_listed_once() {
    let source = concat!(
        include_str!("../../../src/store/postgres/sql.rs"),
        include_str!("../../../src/store/postgres/sql/approvals.rs"),
        include_str!("../../../src/store/postgres/sql/profiles.rs"),
        include_str!("../../../src/store/postgres/sql/operators.rs"),
        include_str!("../../../src/store/postgres/sql/bypass.rs"),
        include_str!("../../../src/store/postgres/sql/restore.rs"),
        include_str!("../../../src/store/postgres/sql/retention.rs"),
        include_str!("../../../src/store/postgres/sql/seals.rs"),
        include_str!("../../../src/store/postgres/sql/recovery.rs"),
        include_str!("../../../src/store/postgres/sql/feed.rs"),
        include_str!("../../../src/store/postgres/sql/health.rs"),
        include_str!("../../../src/store/postgres/sql/quotas.rs"),
        include_str!("../../../src/store/postgres/sql/subscriptions.rs"),
        include_str!("../../../src/store/postgres/sql/elapsed.rs"),
        include_str!("../../../src/store/postgres/sql/inspect.rs"),
        include_str!("../../../src/store/postgres/sql/checkpoints.rs"),
        include_str!("../../../src/store/postgres/sql/doubts.rs"),
        include_str!("../../../src/store/postgres/receipts_sql.rs"),
    );
    let constants = source.matches("\npub(super) const ").count()
        + source.matches("\npub(in crate::store::postgres) const ").count();
    let mut names: Vec<&str> = postgres::sql::every().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), postgres::sql::every().count()), (constants, constants));
    for (name, statement) in postgres::sql::every() {
        assert!(source.contains(&format!("const {name}: &str")), "{name}");
        let highest = (1..=30).rev().find(|number| statement.contains(&format!("${number}"))).unwrap_or(0);
        assert!((1..=highest).all(|number| statement.contains(&format!("${number}"))), "{name}: a gap");
    }
}
