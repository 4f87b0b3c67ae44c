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
        for (name, statement) in sqlite::sql::ALL
            .iter()
            .chain(sqlite::sql::operators::ALL)
            .chain(sqlite::sql::recovery::ALL)
            .chain(sqlite::receipts_sql::ALL)
        {
            let prepared = connection.prepare(AssertSqlSafe(*statement).into_sql_str()).await;
            assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
        }
        connection.close().await.unwrap();
    } else {
        let mut connection = PgConnection::connect(&url).await.unwrap();
        for (name, statement) in postgres::sql::ALL
            .iter()
            .chain(postgres::sql::operators::ALL)
            .chain(postgres::sql::recovery::ALL)
            .chain(postgres::receipts_sql::ALL)
        {
            let prepared = connection.prepare(AssertSqlSafe(*statement).into_sql_str()).await;
            assert!(prepared.is_ok(), "{name}: {:?}", prepared.err());
        }
        connection.close().await.unwrap();
    }
}

#[test]
fn every_statement_of_postgres_is_listed_once() {
    listed_once(include_str!("../../../src/store/postgres/sql.rs"), "\npub(super) const ", postgres::sql::ALL);
    let of_operators = include_str!("../../../src/store/postgres/sql/operators.rs");
    listed_once(of_operators, "\npub(in crate::store::postgres) const ", postgres::sql::operators::ALL);
    let of_receipts = include_str!("../../../src/store/postgres/receipts_sql.rs");
    listed_once(of_receipts, "\npub(super) const ", postgres::receipts_sql::ALL);
}

fn listed_once(source: &str, constant: &str, all: &[(&str, &str)]) {
    let constants = source.matches(constant).count();
    let mut names: Vec<&str> = all.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), all.len()), (constants, constants));
    for (name, statement) in all {
        assert!(source.contains(&format!("const {name}: &str")), "{name}");
        let highest = (1..=30).rev().find(|number| statement.contains(&format!("${number}"))).unwrap_or(0);
        assert!((1..=highest).all(|number| statement.contains(&format!("${number}"))), "{name}: a gap");
    }
}
