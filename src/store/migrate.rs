//! Migrations: embedded, append-only, and compared with what a database says it has applied.

use std::borrow::Cow;
use std::time::Duration;

use sqlx::migrate::{AppliedMigration, Migrate, MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnection, PgExecutor};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, SqlSafeStr as _};

use super::{Result, StoreError};

/// The newest migration that this program knows, of both backends.
pub const LATEST: i64 = 17;

/// Where applied migrations are listed: the migrator's own default.
const TABLE: &str = "_sqlx_migrations";
const SQLITE_HAS_TABLE: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_sqlx_migrations')";
const POSTGRES_HAS_TABLE: &str = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";

/// Migrations that the programs before them can work beside begin so (`docs/upgrade.md`).
const EXPAND: &str = "expand_";
/// What is on record there. The migrator's own question would leave statements with a name behind.
const POSTGRES_APPLIED: &str = "SELECT version, checksum, description, success FROM _sqlx_migrations ORDER BY version";
const NEWER: &str = "SELECT version, description FROM _sqlx_migrations WHERE version > $1 ORDER BY version";
/// A migration may take as long as it takes, and so may another process' that is waited for.
const PATIENTLY: &str = "SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0";
/// A lock that is waited for stands in the way of every statement on its table that comes after.
const BRIEFLY: &str = "SET lock_timeout = '2s'";
/// How often a migration is tried that meets a lock.
const LOCK_TRIES: u32 = 10;
/// What the others may do between two tries.
const LOCK_PAUSE: Duration = Duration::from_secs(1);

/// One migration file: number, name, content.
type Script = (i64, &'static str, &'static str);

const SQLITE: &[Script] = &[
    (1, "effects", include_str!("../../migrations/sqlite/0001_effects.sql")),
    (2, "tool_secrets", include_str!("../../migrations/sqlite/0002_tool_secrets.sql")),
    (3, "receipts", include_str!("../../migrations/sqlite/0003_receipts.sql")),
    (4, "approvals", include_str!("../../migrations/sqlite/0004_approvals.sql")),
    (5, "profiles", include_str!("../../migrations/sqlite/0005_profiles.sql")),
    (6, "recovery", include_str!("../../migrations/sqlite/0006_recovery.sql")),
    (7, "operators", include_str!("../../migrations/sqlite/0007_operators.sql")),
    (8, "alias_keys", include_str!("../../migrations/sqlite/0008_alias_keys.sql")),
    (9, "elapsed", include_str!("../../migrations/sqlite/0009_elapsed.sql")),
    (10, "checkpoints", include_str!("../../migrations/sqlite/0010_checkpoints.sql")),
    (11, "doubts", include_str!("../../migrations/sqlite/0011_doubts.sql")),
    (12, "events", include_str!("../../migrations/sqlite/0012_events.sql")),
    (13, "subscriptions", include_str!("../../migrations/sqlite/0013_subscriptions.sql")),
    (14, "retention", include_str!("../../migrations/sqlite/0014_retention.sql")),
    (15, "expand_wall", include_str!("../../migrations/sqlite/0015_expand_wall.sql")),
    (16, "expand_proposer", include_str!("../../migrations/sqlite/0016_expand_proposer.sql")),
    (17, "expand_plans", include_str!("../../migrations/sqlite/0017_expand_plans.sql")),
];
const POSTGRES: &[Script] = &[
    (1, "effects", include_str!("../../migrations/postgres/0001_effects.sql")),
    (2, "tool_secrets", include_str!("../../migrations/postgres/0002_tool_secrets.sql")),
    (3, "receipts", include_str!("../../migrations/postgres/0003_receipts.sql")),
    (4, "approvals", include_str!("../../migrations/postgres/0004_approvals.sql")),
    (5, "profiles", include_str!("../../migrations/postgres/0005_profiles.sql")),
    (6, "recovery", include_str!("../../migrations/postgres/0006_recovery.sql")),
    (7, "operators", include_str!("../../migrations/postgres/0007_operators.sql")),
    (8, "alias_keys", include_str!("../../migrations/postgres/0008_alias_keys.sql")),
    (9, "elapsed", include_str!("../../migrations/postgres/0009_elapsed.sql")),
    (10, "checkpoints", include_str!("../../migrations/postgres/0010_checkpoints.sql")),
    (11, "doubts", include_str!("../../migrations/postgres/0011_doubts.sql")),
    (12, "events", include_str!("../../migrations/postgres/0012_events.sql")),
    (13, "subscriptions", include_str!("../../migrations/postgres/0013_subscriptions.sql")),
    (14, "retention", include_str!("../../migrations/postgres/0014_retention.sql")),
    (15, "expand_wall", include_str!("../../migrations/postgres/0015_expand_wall.sql")),
    (16, "expand_proposer", include_str!("../../migrations/postgres/0016_expand_proposer.sql")),
    (17, "expand_plans", include_str!("../../migrations/postgres/0017_expand_plans.sql")),
];

/// How many migrations this program knows, of each backend.
pub const COUNT: usize = SQLITE.len();

/// Brings a SQLite database to [`LATEST`], all missing migrations in one transaction. Of several
/// processes that start at once the first migrates and the others wait.
///
/// # Errors
/// [`StoreError::Schema`] for a database that is newer, changed or not ours; what the database
/// answered otherwise. Nothing was changed then.
pub async fn sqlite(connection: &mut SqliteConnection) -> Result<()> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    if let Some(found) = found_sqlite(&mut tx).await?
        && missing(&found, SQLITE)?.is_none()
    {
        return Ok(());
    }
    migrator(SQLITE).run(&mut *tx).await.map_err(explain)?;
    tx.commit().await?;
    Ok(())
}

/// Brings a Postgres database to [`LATEST`] under the migrator's advisory lock, each migration in
/// a transaction. Where nothing is missing it takes no lock and needs no right to make tables.
///
/// # Errors
/// As for [`sqlite`], except that migrations before a failed one stay.
pub async fn postgres(connection: &mut PgConnection) -> Result<()> {
    if let Some(found) = recorded_postgres(connection).await?
        && missing(&found, POSTGRES)?.is_none()
    {
        return Ok(());
    }
    sqlx::raw_sql(PATIENTLY).execute(&mut *connection).await?;
    connection.lock().await.map_err(explain)?;
    sqlx::raw_sql(BRIEFLY).execute(&mut *connection).await?;
    let mut migrator = migrator(POSTGRES);
    migrator.set_locking(false);
    let mut tries = LOCK_TRIES;
    loop {
        tries -= 1;
        match migrator.run(&mut *connection).await {
            Ok(()) => return Ok(()),
            Err(error) if is_lock_timeout(&error) && tries > 0 => {
                tracing::warn!(tries, "a migration met a lock of running work and is tried again");
                tokio::time::sleep(LOCK_PAUSE).await;
            }
            Err(error) => return Err(explain(error)),
        }
    }
}

/// Whether a statement gave up waiting for a lock, or was chosen to end a circle of those who wait.
fn is_lock_timeout(error: &MigrateError) -> bool {
    match error {
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => error
            .as_database_error()
            .is_some_and(|database| matches!(database.code().as_deref(), Some("55P03" | "40P01"))),
        _ => false,
    }
}

/// Whether this program can work on a SQLite database as it is. Writes nothing.
///
/// # Errors
/// [`StoreError::Schema`] where it can't.
pub async fn check_sqlite(connection: &mut SqliteConnection) -> Result<()> {
    complete(&found_sqlite(connection).await?.unwrap_or_default(), SQLITE)
}

/// Whether this program can work on a Postgres database as it is. Writes nothing.
///
/// # Errors
/// [`StoreError::Schema`] where it can't.
pub async fn check_postgres(connection: &mut PgConnection) -> Result<()> {
    check_found(recorded_postgres(connection).await?)
}

/// The same of what was read in transactions of their own.
///
/// # Errors
/// [`StoreError::Schema`] where it can't.
pub fn check_found(found: Option<Found>) -> Result<()> {
    complete(&found.unwrap_or_default(), POSTGRES)
}

/// What a database says it has applied.
#[derive(Debug, Default)]
pub struct Found {
    applied: Vec<AppliedMigration>,
    /// Numbers and names of those after [`LATEST`].
    newer: Vec<(i64, String)>,
}

/// `None`: there is no list.
async fn found_sqlite(connection: &mut SqliteConnection) -> Result<Option<Found>> {
    if !sqlx::query_scalar(SQLITE_HAS_TABLE).fetch_one(&mut *connection).await? {
        return Ok(None);
    }
    let applied = applied(&mut *connection).await?;
    let newer = sqlx::query_as(NEWER).bind(LATEST).fetch_all(connection).await?;
    Ok(Some(Found { applied, newer }))
}

/// The same of Postgres, by one connection.
async fn recorded_postgres(connection: &mut PgConnection) -> Result<Option<Found>> {
    if !has_postgres_table(&mut *connection).await? {
        return Ok(None);
    }
    found_postgres(connection).await.map(Some)
}

/// Whether there is a list.
///
/// # Errors
/// The database can't answer.
pub async fn has_postgres_table(connection: impl PgExecutor<'_>) -> Result<bool> {
    Ok(sqlx::query_scalar(POSTGRES_HAS_TABLE).fetch_one(connection).await?)
}

/// The list.
///
/// # Errors
/// The database can't answer, or a migration failed in the middle.
pub async fn found_postgres(connection: impl PgExecutor<'_>) -> Result<Found> {
    let rows: Vec<(i64, Vec<u8>, String, bool)> = sqlx::query_as(POSTGRES_APPLIED).fetch_all(connection).await?;
    if let Some((version, ..)) = rows.iter().find(|(_, _, _, success)| !success) {
        return Err(explain(MigrateError::Dirty(*version)));
    }
    let newer = rows.iter().filter(|(version, ..)| *version > LATEST);
    let newer = newer.map(|(version, _, name, _)| (*version, name.clone())).collect();
    let applied = |(version, checksum, ..): (i64, Vec<u8>, String, bool)| AppliedMigration {
        version,
        checksum: Cow::Owned(checksum),
    };
    Ok(Found { applied: rows.into_iter().map(applied).collect(), newer })
}

/// Where a database's schema is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Nothing was applied yet.
    Empty,
    /// This is the newest that was applied; the next start goes on.
    Behind(i64),
    /// [`LATEST`].
    Current,
}

/// Where a SQLite database's schema is. Writes nothing.
///
/// # Errors
/// [`StoreError::Schema`] where it is not one of this program.
pub async fn sqlite_level(connection: &mut SqliteConnection) -> Result<Level> {
    level(found_sqlite(connection).await?.as_ref(), SQLITE)
}

/// Where a Postgres database's schema is.
///
/// # Errors
/// As for [`sqlite_level`].
pub fn postgres_level(found: Option<&Found>) -> Result<Level> {
    level(found, POSTGRES)
}

fn level(found: Option<&Found>, scripts: &[Script]) -> Result<Level> {
    let Some(found) = found else { return Ok(Level::Empty) };
    let Some(newest) = found.applied.iter().map(|applied| applied.version).max() else { return Ok(Level::Empty) };
    Ok(if missing(found, scripts)?.is_some() { Level::Behind(newest) } else { Level::Current })
}

fn migrator(scripts: &[Script]) -> Migrator {
    Migrator::with_migrations(scripts.iter().map(migration).collect())
}

fn migration(&(version, name, sql): &Script) -> Migration {
    Migration::new(version, Cow::Borrowed(name), MigrationType::Simple, sql.into_sql_str(), false)
}

async fn applied<C: Migrate + Send>(connection: &mut C) -> Result<Vec<AppliedMigration>> {
    if let Some(version) = connection.dirty_version(TABLE).await.map_err(explain)? {
        return Err(explain(MigrateError::Dirty(version)));
    }
    connection.list_applied_migrations(TABLE).await.map_err(explain)
}

/// Refuses what this program did not write and can't work beside: newer (but for expansions),
/// unknown or changed migrations. Answers the first that is missing.
fn missing<'a>(found: &Found, scripts: &'a [Script]) -> Result<Option<&'a Script>> {
    let newest = found.newer.last().map_or(0, |(version, _)| *version);
    if !found.newer.iter().all(|(_, name)| name.starts_with(EXPAND)) {
        return Err(StoreError::Schema(format!(
            "the database has schema {newest}, this program knows schemas up to {LATEST}: start a newer program"
        )));
    }
    for found in found.applied.iter().filter(|found| found.version <= LATEST) {
        let Some(script) = scripts.iter().find(|script| script.0 == found.version) else {
            return Err(explain(MigrateError::VersionMissing(found.version)));
        };
        if migration(script).checksum != found.checksum {
            return Err(explain(MigrateError::VersionMismatch(found.version)));
        }
    }
    let missing = scripts.iter().find(|script| !found.applied.iter().any(|found| found.version == script.0));
    match missing {
        Some(_) if newest > 0 => Err(StoreError::Schema(format!(
            "the database has schema {newest} with a gap that this program can't fill: start a newer program"
        ))),
        Some(script) => Ok(Some(script)),
        None => {
            if newest > 0 {
                tracing::warn!(
                    schema = newest,
                    known = LATEST,
                    "the schema is newer, and made to let this program work"
                );
            }
            Ok(None)
        }
    }
}

/// [`missing`] finds nothing.
fn complete(found: &Found, scripts: &[Script]) -> Result<()> {
    match missing(found, scripts)? {
        None => Ok(()),
        Some((version, name, _)) => {
            Err(StoreError::Schema(format!("the database has no migration {version} ({name}): migrate it first")))
        }
    }
}

fn explain(error: MigrateError) -> StoreError {
    match error {
        MigrateError::VersionMissing(version) => StoreError::Schema(format!(
            "the database has a migration {version} that this program does not know (it knows schemas up to {LATEST})"
        )),
        MigrateError::VersionMismatch(version) => StoreError::Schema(format!(
            "migration {version} was applied to the database with another content than this program has"
        )),
        MigrateError::Dirty(version) => {
            StoreError::Schema(format!("migration {version} was applied to the database in part"))
        }
        MigrateError::ExecuteMigration(error @ sqlx::Error::Database(_), version) => {
            StoreError::Schema(format!("migration {version} can't be applied to the database: {error}"))
        }
        MigrateError::Execute(error) | MigrateError::ExecuteMigration(error, _) => StoreError::from(error),
        other => StoreError::Schema(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn row(script: &Script) -> AppliedMigration {
        AppliedMigration { version: script.0, checksum: migration(script).checksum }
    }

    /// All that this program knows, and more.
    fn all_and(newer: &[(i64, &str)]) -> Found {
        let mut applied: Vec<_> = SQLITE.iter().map(row).collect();
        applied.extend(
            newer.iter().map(|(version, _)| AppliedMigration { version: *version, checksum: Cow::Borrowed(b"x") }),
        );
        Found { applied, newer: newer.iter().map(|(version, name)| (*version, (*name).to_owned())).collect() }
    }

    #[test]
    fn both_backends_embed_every_file_under_the_same_numbers_and_names() {
        for (folder, scripts) in [("sqlite", SQLITE), ("postgres", POSTGRES)] {
            let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(folder);
            let mut files: Vec<String> = std::fs::read_dir(folder)
                .unwrap()
                .map(|file| file.unwrap().file_name().into_string().unwrap())
                .collect();
            files.sort();
            let embedded: Vec<String> =
                scripts.iter().map(|(version, name, _)| format!("{version:04}_{name}.sql")).collect();
            assert_eq!(files, embedded);
            assert_eq!(scripts.last().unwrap().0, LATEST);
        }
    }

    #[test]
    fn a_database_at_the_latest_schema_is_complete() {
        assert!(complete(&all_and(&[]), SQLITE).is_ok());
        let error = complete(&Found::default(), SQLITE).unwrap_err();
        assert_eq!(error.to_string(), "the database has no migration 1 (effects): migrate it first");
    }

    #[test]
    fn newer_and_changed_databases_are_refused() {
        let refused = |newer: &[(i64, &str)], text: &str| {
            let error = missing(&all_and(newer), SQLITE).unwrap_err();
            assert!(matches!(&error, StoreError::Schema(said) if said.contains(text)), "{error}");
        };
        refused(&[(LATEST + 7, "contract_x")], &format!("schema {}", LATEST + 7));
        refused(&[(LATEST + 1, "expand_x"), (LATEST + 2, "doubts")], &format!("schema {}", LATEST + 2));

        let changed = AppliedMigration { version: 1, checksum: Cow::Borrowed(b"x") };
        let error = missing(&Found { applied: vec![changed], newer: Vec::new() }, SQLITE).unwrap_err();
        assert!(matches!(&error, StoreError::Schema(text) if text.contains("another content")), "{error}");
    }

    #[test]
    fn expansions_of_a_newer_program_let_this_one_work() {
        let mut found = all_and(&[(LATEST + 1, "expand_x"), (LATEST + 2, "expand_y")]);
        assert!(complete(&found, SQLITE).is_ok());
        found.applied.remove(1);
        let error = missing(&found, SQLITE).unwrap_err();
        assert!(matches!(&error, StoreError::Schema(text) if text.contains("a gap")), "{error}");
    }
}
