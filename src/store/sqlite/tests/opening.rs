use super::*;
use crate::store::migrate::LATEST;

async fn refusal(path: &std::path::Path, migrate: bool) -> StoreError {
    SqliteStore::connect(path, migrate).await.unwrap_err()
}

#[tokio::test]
async fn a_missing_folder_and_file_are_made_only_to_migrate() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/ä %3F?/actonce.db");
    let error = refusal(&path, false).await;
    assert!(matches!(&error, StoreError::Open(text) if text.contains("actonce.db")), "{error}");
    assert!(!folder.path().join("a").exists());
    SqliteStore::connect(&path, true).await.unwrap().close().await;
    let store = SqliteStore::connect(&path, false).await.unwrap();
    assert_eq!(store.backend(), Backend::Sqlite);
    store.announce("c").await.unwrap();
    store.listen(mpsc::channel(1).0).await.unwrap();
    store.close().await;
}

#[tokio::test]
async fn an_empty_file_is_refused_unless_it_is_migrated() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("actonce.db");
    std::fs::write(&path, "").unwrap();
    assert!(matches!(refusal(&path, false).await, StoreError::Schema(_)));
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 0);
    SqliteStore::connect(&path, true).await.unwrap().close().await;
}

#[tokio::test]
async fn what_is_not_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("text");
    std::fs::write(&text, "not a database, and long enough to be taken for one".repeat(99)).unwrap();
    for migrate in [false, true] {
        assert!(matches!(refusal(&text, migrate).await, StoreError::Open(_)));
    }
    assert!(matches!(refusal(folder.path(), true).await, StoreError::Open(_)));

    let foreign = folder.path().join("foreign");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&foreign).create_if_missing(true);
    let pool = SqlitePool::connect_with(options).await.unwrap();
    sqlx::raw_sql("CREATE TABLE entries (a)").execute(&pool).await.unwrap();
    pool.close().await;
    for migrate in [false, true] {
        assert!(matches!(refusal(&foreign, migrate).await, StoreError::Schema(_)));
    }
}

#[tokio::test]
async fn newer_and_changed_schemas_are_refused() {
    let bed = bed().await;
    bed.execute(sqlx::AssertSqlSafe(format!(
        "INSERT INTO _sqlx_migrations SELECT {}, description, installed_on, success, checksum, execution_time
         FROM _sqlx_migrations WHERE version = 1",
        LATEST + 1
    )))
    .await;
    for migrate in [false, true] {
        let error = refusal(&bed.path, migrate).await;
        assert!(matches!(&error, StoreError::Schema(text) if text.contains("newer program")), "{error}");
    }
    bed.execute("DELETE FROM _sqlx_migrations WHERE version > 1; UPDATE _sqlx_migrations SET checksum = x'00'").await;
    for migrate in [false, true] {
        let error = refusal(&bed.path, migrate).await;
        assert!(matches!(&error, StoreError::Schema(text) if text.contains("another content")), "{error}");
    }
}

#[tokio::test]
async fn processes_that_start_together_migrate_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("actonce.db");
    let open = || SqliteStore::connect(&path, true);
    let (a, b, c) = tokio::join!(open(), open(), open());
    for store in [a, b, c] {
        store.unwrap().close().await;
    }
}

#[tokio::test]
async fn commits_are_flushed_and_readers_can_not_write() {
    let bed = bed().await;
    let effective = "SELECT journal_mode || ' ' || synchronous || ' ' || foreign_keys
                     FROM pragma_journal_mode, pragma_synchronous, pragma_foreign_keys";
    let mut lent = bed.store.writer.lend().await.unwrap();
    let writer: String = sqlx::query_scalar(effective).fetch_one(&mut lent.connection).await.unwrap();
    let reader: String = sqlx::query_scalar(effective).fetch_one(&bed.store.readers).await.unwrap();
    // Not given back: another one is opened, with the same settings.
    drop(lent);
    let mut lent = bed.store.writer.lend().await.unwrap();
    let again: String = sqlx::query_scalar(effective).fetch_one(&mut lent.connection).await.unwrap();
    assert_eq!([writer, reader, again], ["wal 2 1"; 3]);
    assert!(sqlx::raw_sql("DELETE FROM clock").execute(&bed.store.readers).await.is_err());
}

#[tokio::test]
async fn the_clock_never_goes_back() {
    let bed = bed().await;
    let before = bed.store.now().await.unwrap();
    bed.revise(&create("a", 1)).await;
    let kept = bed.count("SELECT latest_us FROM clock").await;
    assert!(kept >= before.micros());

    // Another process, with a wall clock a day ahead.
    let ahead = before.plus_seconds(86_400).micros();
    bed.execute(sqlx::AssertSqlSafe(format!("UPDATE clock SET latest_us = {ahead}"))).await;
    bed.revise(&create("b", 1)).await;
    assert!(bed.store.now().await.unwrap().micros() >= ahead);
    assert!(bed.count("SELECT latest_us FROM clock").await >= ahead);
    bed.store.close().await;

    let again = SqliteStore::connect(&bed.path, true).await.unwrap();
    let mut last = again.now().await.unwrap();
    assert!(last.micros() >= ahead);
    for _ in 0..1_000 {
        let now = again.now().await.unwrap();
        assert!(now >= last);
        last = now;
    }
    again.close().await;
}
