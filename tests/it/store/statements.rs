//! Every statement is prepared against a freshly migrated database.

use actonce::store::{postgres, sqlite};
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, SqlSafeStr as _, SqliteConnection};

use super::bed::Bed;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(every_statement_prepares);

fn all_of_postgres() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    use postgres::{receipts_sql, sql};
    let more = [
        sql::approvals::ALL,
        sql::profiles::ALL,
        sql::operators::ALL,
        sql::recovery::ALL,
        sql::feed::ALL,
        receipts_sql::ALL,
    ];
    sql::ALL.iter().chain(more.into_iter().flatten())
}

fn all_of_sqlite() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    use sqlite::{receipts_sql, sql};
    let more = [
        sql::approvals::ALL,
        sql::profiles::ALL,
        sql::operators::ALL,
        sql::recovery::ALL,
        sql::feed::ALL,
        receipts_sql::ALL,
    ];
    sql::ALL.iter().chain(more.into_iter().flatten())
}

async fn every_statement_prepares(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let url = bed.url();
    if bed.is_sqlite() {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        for (name, statement) in all_of_sqlite() {
            let prepared = connection.prepare(AssertSqlSafe(*statement).into_sql_str()).await;
            assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
        }
        connection.close().await.unwrap();
    } else {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        for (name, statement) in all_of_postgres() {
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
        include_str!("../../../src/store/postgres/sql/recovery.rs"),
        include_str!("../../../src/store/postgres/sql/feed.rs"),
        include_str!("../../../src/store/postgres/sql/subscriptions.rs"),
        include_str!("../../../src/store/postgres/receipts_sql.rs"),
    );
    let constants = source.matches("\npub(super) const ").count()
        + source.matches("\npub(in crate::store::postgres) const ").count();
    let mut names: Vec<&str> = all_of_postgres().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), all_of_postgres().count()), (constants, constants));
    for (name, statement) in all_of_postgres() {
        assert!(source.contains(&format!("const {name}: &str")), "{name}");
        let highest = (1..=30).rev().find(|number| statement.contains(&format!("${number}"))).unwrap_or(0);
        assert!((1..=highest).all(|number| statement.contains(&format!("${number}"))), "{name}: a gap");
    }
}
