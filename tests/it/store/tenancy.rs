//! Every key starts with the tenant: rows of different tenants never meet, and tenants can be spread over
//! databases (docs/scaling.md).

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{Connection as _, PgConnection, SqliteConnection};

use super::bed::Bed;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(every_key_and_unique_index_starts_with_the_tenant);

/// Tables that belong to a database and not to a tenant. Each shard has its own.
const OF_THE_DATABASE: [(&str, &str); 6] = [
    ("_sqlx_migrations", "the schema of this database"),
    ("alias_keys", "ids of the deployment's keys, the same in every database of the deployment"),
    ("checkpoint_mark", "one row: how far this database's checkpoints have come"),
    ("restore_epochs", "restores of this database as a whole"),
    ("feed_origin", "Postgres alone, one row: what this database adds to its transaction numbers"),
    ("clock", "SQLite alone, one row: the latest time that this database gave out"),
];

/// Table, index or key, its first column.
const POSTGRES: &str = "\
SELECT t.relname::text, i.relname::text, a.attname::text FROM pg_index x
JOIN pg_class t ON t.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid
JOIN pg_namespace n ON n.oid = t.relnamespace AND n.nspname = current_schema()
LEFT JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = x.indkey[0]
WHERE x.indisunique OR x.indisprimary OR x.indisexclusion";
const POSTGRES_TABLES: &str = "SELECT tablename::text FROM pg_tables WHERE schemaname = current_schema()";
/// Table, reference, its first column.
const POSTGRES_REFERENCES: &str = "\
SELECT c.conrelid::regclass::text, c.conname::text, a.attname::text FROM pg_constraint c
JOIN pg_attribute a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1] WHERE c.contype = 'f'";
const SQLITE: &str = "\
SELECT t.name, i.name, c.name FROM sqlite_schema t, pragma_index_list(t.name) i, pragma_index_info(i.name) c
WHERE t.type = 'table' AND i.\"unique\" AND c.seqno = 0
UNION ALL
SELECT t.name, 'primary key', c.name FROM sqlite_schema t, pragma_table_info(t.name) c WHERE t.type = 'table' AND c.pk = 1";
const SQLITE_TABLES: &str = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'";
const SQLITE_REFERENCES: &str = "\
SELECT t.name, 'reference', f.\"from\" FROM sqlite_schema t, pragma_foreign_key_list(t.name) f
WHERE t.type = 'table' AND f.seq = 0";

type Key = (String, String, Option<String>);

async fn every_key_and_unique_index_starts_with_the_tenant(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (keys, tables, references): (Vec<Key>, Vec<String>, Vec<Key>) = if bed.is_sqlite() {
        let mut connection = SqliteConnection::connect(&bed.url()).await.unwrap();
        (
            sqlx::query_as(SQLITE).fetch_all(&mut connection).await.unwrap(),
            sqlx::query_scalar(SQLITE_TABLES).fetch_all(&mut connection).await.unwrap(),
            sqlx::query_as(SQLITE_REFERENCES).fetch_all(&mut connection).await.unwrap(),
        )
    } else {
        let mut connection = PgConnection::connect(&bed.url()).await.unwrap();
        (
            sqlx::query_as(POSTGRES).fetch_all(&mut connection).await.unwrap(),
            sqlx::query_scalar(POSTGRES_TABLES).fetch_all(&mut connection).await.unwrap(),
            sqlx::query_as(POSTGRES_REFERENCES).fetch_all(&mut connection).await.unwrap(),
        )
    };
    let excepted: BTreeMap<&str, &str> = OF_THE_DATABASE.into_iter().collect();
    let mut keyed = BTreeSet::new();
    for (table, key, first) in &keys {
        if !excepted.contains_key(table.as_str()) {
            assert_eq!(first.as_deref(), Some("tenant"), "{table}: {key} does not start with the tenant");
            keyed.insert(table.as_str());
        }
    }
    let of_tenants: BTreeSet<&str> =
        tables.iter().map(String::as_str).filter(|table| !excepted.contains_key(table)).collect();
    assert!(of_tenants.len() > 15, "{of_tenants:?}");
    assert_eq!(keyed, of_tenants, "each table has such a key");
    let of_the_other = if bed.is_sqlite() { "feed_origin" } else { "clock" };
    for (table, why) in excepted.iter().filter(|(table, _)| **table != of_the_other) {
        assert!(tables.iter().any(|found| found == table), "{table} ({why}) is no more: take it from the list");
    }
    for (table, reference, first) in &references {
        assert_eq!(first.as_deref(), Some("tenant"), "{table}: {reference} leaves the tenant");
    }
}
