//! Migrations: embedded, append-only, and compared with what a database says it has applied.

use std::borrow::Cow;

use sqlx::migrate::{AppliedMigration, Migrate, MigrateError, Migration, MigrationType, Migrator};
use sqlx::postgres::{PgConnection, PgPool};
use sqlx::sqlite::SqliteConnection;
use sqlx::{Connection as _, SqlSafeStr as _};

use super::{Result, StoreError};

/// The newest migration that this program knows, of both backends.
pub const LATEST: i64 = 14;

/// Where applied migrations are listed: the migrator's own default.
const TABLE: &str = "_sqlx_migrations";
const SQLITE_HAS_TABLE: &str =
    "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = '_sqlx_migrations')";
const POSTGRES_HAS_TABLE: &str = "SELECT to_regclass('_sqlx_migrations') IS NOT NULL";

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
    if sqlx::query_scalar(SQLITE_HAS_TABLE).fetch_one(&mut *tx).await? {
        compare(&applied(&mut *tx).await?, SQLITE)?;
    }
    migrator(SQLITE).run(&mut *tx).await.map_err(explain)?;
    tx.commit().await?;
    Ok(())
}

/// Brings a Postgres database to [`LATEST`] under the migrator's advisory lock, each migration in
/// a transaction.
///
/// # Errors
/// As for [`sqlite`], except that migrations before a failed one stay.
pub async fn postgres(pool: &PgPool) -> Result<()> {
    // A connection of its own: after an error the migrator leaves its lock to the session's end.
    let mut connection = pool.acquire().await?.detach();
    if sqlx::query_scalar(POSTGRES_HAS_TABLE).fetch_one(&mut connection).await? {
        compare(&applied(&mut connection).await?, POSTGRES)?;
    }
    migrator(POSTGRES).run(&mut connection).await.map_err(explain)?;
    connection.close().await?;
    Ok(())
}

/// Whether a SQLite database is exactly at [`LATEST`]. Writes nothing.
///
/// # Errors
/// [`StoreError::Schema`] where it is not.
pub async fn check_sqlite(connection: &mut SqliteConnection) -> Result<()> {
    let found = if sqlx::query_scalar(SQLITE_HAS_TABLE).fetch_one(&mut *connection).await? {
        applied(connection).await?
    } else {
        Vec::new()
    };
    complete(&found, SQLITE)
}

/// Whether a Postgres database is exactly at [`LATEST`]. Writes nothing.
///
/// # Errors
/// [`StoreError::Schema`] where it is not.
pub async fn check_postgres(pool: &PgPool) -> Result<()> {
    let mut connection = pool.acquire().await?;
    let found = if sqlx::query_scalar(POSTGRES_HAS_TABLE).fetch_one(&mut *connection).await? {
        applied(&mut *connection).await?
    } else {
        Vec::new()
    };
    complete(&found, POSTGRES)
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
    let has_table: bool = sqlx::query_scalar(SQLITE_HAS_TABLE).fetch_one(&mut *connection).await?;
    if has_table { level(&applied(connection).await?, SQLITE) } else { Ok(Level::Empty) }
}

/// Where a Postgres database's schema is. Writes nothing.
///
/// # Errors
/// As for [`sqlite_level`].
pub async fn postgres_level(connection: &mut PgConnection) -> Result<Level> {
    let has_table: bool = sqlx::query_scalar(POSTGRES_HAS_TABLE).fetch_one(&mut *connection).await?;
    if has_table { level(&applied(connection).await?, POSTGRES) } else { Ok(Level::Empty) }
}

fn level(applied: &[AppliedMigration], scripts: &[Script]) -> Result<Level> {
    compare(applied, scripts)?;
    let Some(newest) = applied.iter().map(|found| found.version).max() else { return Ok(Level::Empty) };
    Ok(if complete(applied, scripts).is_ok() { Level::Current } else { Level::Behind(newest) })
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

/// Refuses what this program did not write: newer, unknown or changed migrations.
fn compare(applied: &[AppliedMigration], scripts: &[Script]) -> Result<()> {
    let newest = applied.iter().map(|found| found.version).max().unwrap_or(0);
    if newest > LATEST {
        return Err(StoreError::Schema(format!(
            "the database has schema {newest}, this program knows schemas up to {LATEST}: start a newer program"
        )));
    }
    for found in applied {
        let Some(script) = scripts.iter().find(|script| script.0 == found.version) else {
            return Err(explain(MigrateError::VersionMissing(found.version)));
        };
        if migration(script).checksum != found.checksum {
            return Err(explain(MigrateError::VersionMismatch(found.version)));
        }
    }
    Ok(())
}

/// [`compare`], and nothing is missing.
fn complete(applied: &[AppliedMigration], scripts: &[Script]) -> Result<()> {
    compare(applied, scripts)?;
    match scripts.iter().find(|script| !applied.iter().any(|found| found.version == script.0)) {
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

    fn found(script: &Script) -> AppliedMigration {
        AppliedMigration { version: script.0, checksum: migration(script).checksum }
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
        let all: Vec<_> = SQLITE.iter().map(found).collect();
        assert!(complete(&all, SQLITE).is_ok());
        let error = complete(&[], SQLITE).unwrap_err();
        assert_eq!(error.to_string(), "the database has no migration 1 (effects): migrate it first");
    }

    #[test]
    fn newer_and_changed_databases_are_refused() {
        let mut newer: Vec<_> = SQLITE.iter().map(found).collect();
        newer.push(AppliedMigration { version: LATEST + 7, checksum: Cow::Borrowed(b"x") });
        let error = compare(&newer, SQLITE).unwrap_err();
        assert!(
            matches!(&error, StoreError::Schema(text) if text.contains(&format!("schema {}", LATEST + 7))),
            "{error}"
        );
        let schema = format!("schema {}", LATEST + 7);
        assert!(matches!(&error, StoreError::Schema(text) if text.contains(&schema)), "{error}");

        let changed = AppliedMigration { version: 1, checksum: Cow::Borrowed(b"x") };
        let error = compare(&[changed], SQLITE).unwrap_err();
        assert!(matches!(&error, StoreError::Schema(text) if text.contains("another content")), "{error}");
    }
}
