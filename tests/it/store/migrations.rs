//! Migrations: once, in order, and only onto what this program knows.

use std::time::{Duration, Instant};

use actonce::store::StoreError;
use actonce::store::migrate::{COUNT, LATEST};

use sqlx::{Connection as _, PgConnection};

use super::bed::Bed;
use super::effects::Maker;
use crate::support::{StoreUnderTest, both_stores};

/// Every table of both backends, those first that refer to others.
const TABLES: [&str; 25] = [
    "subscriptions",
    "deliveries",
    "retained_arguments",
    "grant_uses",
    "grants",
    "adoptions",
    "sessions",
    "profiles",
    "quarantine",
    "receipt_sources",
    "entries",
    "open_effects",
    "tools",
    "tool_revisions",
    "tool_secrets",
    "alias_keys",
    "checkpoints",
    "checkpoint_mark",
    "recovery_executions",
    "recovery_receipts",
    "recovery_claims",
    "run_waits",
    "doubt_wakes",
    "restore_epochs",
    "_sqlx_migrations",
];

both_stores!(
    migrating_again_changes_nothing,
    processes_that_start_together_migrate_once,
    a_newer_schema_is_refused,
    an_expansion_of_a_newer_program_is_no_obstacle,
    a_migration_with_another_content_is_refused,
    an_unknown_or_unfinished_migration_is_refused,
    a_database_that_is_behind_is_refused_unless_it_is_migrated,
    a_foreign_database_is_refused_and_left_alone,
);

async fn refusal(bed: &Bed) -> String {
    let mut texts = Vec::new();
    for migrate in [false, true] {
        match bed.try_open(migrate).await {
            Err(StoreError::Schema(text)) => texts.push(text),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(texts[0], texts[1]);
    texts.remove(0)
}

async fn migrating_again_changes_nothing(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let maker = Maker::external("tenant", bed.now().await);
    bed.revise(&maker.create("a").0).await;
    let before = bed.count("SELECT count(*) FROM _sqlx_migrations").await;
    assert_eq!(usize::try_from(before).unwrap(), COUNT);
    for migrate in [true, false, true] {
        bed.try_open(migrate).await.unwrap();
    }
    assert_eq!(bed.count("SELECT count(*) FROM _sqlx_migrations").await, before);
    assert_eq!(bed.rows().await, (1, 1));
}

async fn processes_that_start_together_migrate_once(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    // Back to nothing, as it is before the first start.
    for table in TABLES {
        bed.execute(&format!("DROP TABLE {table}")).await;
    }
    bed.execute(if bed.is_sqlite() { "DROP TABLE clock" } else { "DROP TABLE feed_origin" }).await;
    bed.store.close().await;
    let opened = tokio::join!(bed.try_open(true), bed.try_open(true), bed.try_open(true), bed.try_open(true));
    for opened in [opened.0, opened.1, opened.2, opened.3] {
        opened.unwrap();
    }
    let applied = bed.count("SELECT count(*) FROM _sqlx_migrations").await;
    assert_eq!(usize::try_from(applied).unwrap(), COUNT);
}

async fn a_newer_schema_is_refused(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    bed.execute(&format!(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         SELECT {}, 'contract_x', success, checksum, execution_time FROM _sqlx_migrations WHERE version = {LATEST}",
        LATEST + 1
    ))
    .await;
    let text = refusal(&bed).await;
    assert!(text.contains(&format!("schema {}", LATEST + 1)) && text.contains("newer program"), "{text}");
}

async fn an_expansion_of_a_newer_program_is_no_obstacle(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let add = |version: i64, name: &str| {
        format!(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
             SELECT {version}, '{name}', success, {}, execution_time FROM _sqlx_migrations WHERE version = {LATEST}",
            bed.bytes(&[7; 48])
        )
    };
    bed.execute(&add(LATEST + 1, "expand_x")).await;
    for migrate in [true, false] {
        bed.try_open(migrate).await.unwrap();
    }
    bed.execute(&add(LATEST + 2, "contract_x")).await;
    assert!(refusal(&bed).await.contains(&format!("schema {}", LATEST + 2)));
}

/// A lock that a migration can't get stands in the way of all that come after it: it gives up soon, lets
/// the others through, and tries again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_waits_for_running_work_without_stopping_it() {
    if !StoreUnderTest::has_postgres() {
        return;
    }
    let bed = Bed::new(StoreUnderTest::Postgres).await;
    for table in TABLES.into_iter().filter(|table| *table != "_sqlx_migrations") {
        bed.execute(&format!("DROP TABLE {table}")).await;
    }
    bed.execute("DROP TABLE feed_origin").await;
    bed.execute("DELETE FROM _sqlx_migrations").await;
    let mut running = PgConnection::connect(&bed.url()).await.unwrap();
    let mut transaction = running.begin().await.unwrap();
    sqlx::raw_sql("LOCK TABLE _sqlx_migrations IN SHARE MODE").execute(&mut *transaction).await.unwrap();
    let began = Instant::now();
    let (opened, longest) = tokio::join!(bed.try_open(true), async {
        let mut longest = Duration::ZERO;
        while began.elapsed() < Duration::from_secs(4) {
            let asked = Instant::now();
            // It needs a lock that stands behind the migration's.
            bed.execute("BEGIN; LOCK TABLE _sqlx_migrations IN SHARE MODE; COMMIT").await;
            longest = longest.max(asked.elapsed());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        transaction.rollback().await.unwrap();
        longest
    });
    opened.unwrap();
    assert!(longest < Duration::from_millis(3500), "others were kept for {longest:?}");
    assert!(began.elapsed() > Duration::from_secs(4));
    bed.try_open(false).await.unwrap();
}

async fn a_migration_with_another_content_is_refused(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    bed.execute(&format!("UPDATE _sqlx_migrations SET checksum = {}", bed.bytes(&[0; 48]))).await;
    let text = refusal(&bed).await;
    assert!(text.contains("migration 1") && text.contains("another content"), "{text}");
}

async fn an_unknown_or_unfinished_migration_is_refused(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    bed.execute(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         SELECT 0, description, success, checksum, execution_time FROM _sqlx_migrations WHERE version = 1",
    )
    .await;
    assert!(refusal(&bed).await.contains("migration 0"));
    bed.execute("DELETE FROM _sqlx_migrations WHERE version = 0; UPDATE _sqlx_migrations SET success = FALSE").await;
    assert!(refusal(&bed).await.contains("in part"));
}

async fn a_database_that_is_behind_is_refused_unless_it_is_migrated(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    for table in TABLES {
        bed.execute(&format!("DROP TABLE {table}")).await;
    }
    bed.execute(if bed.is_sqlite() { "DROP TABLE clock" } else { "DROP TABLE feed_origin" }).await;
    match bed.try_open(false).await {
        Err(StoreError::Schema(text)) => assert!(text.contains("no migration 1"), "{text}"),
        other => panic!("{other:?}"),
    }
    bed.try_open(true).await.unwrap();
    bed.try_open(false).await.unwrap();
}

async fn a_foreign_database_is_refused_and_left_alone(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    for table in TABLES {
        bed.execute(&format!("DROP TABLE {table}")).await;
    }
    bed.execute("CREATE TABLE entries (a integer); INSERT INTO entries VALUES (7)").await;
    for migrate in [false, true] {
        match bed.try_open(migrate).await {
            Err(StoreError::Schema(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(bed.count("SELECT a FROM entries").await, 7);
}
