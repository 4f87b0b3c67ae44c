//! Restores.

/// All of them.
pub(in crate::store::postgres) const RESTORE_EPOCHS: &str = "\
SELECT number, epoch_id, reason, begun_us, paused, effects, ended_us FROM restore_epochs ORDER BY number";

/// A new one. Of two that begin at once the second waits for the first, and finds its number taken.
pub(in crate::store::postgres) const RESTORE_ADD: &str = "\
INSERT INTO restore_epochs (number, epoch_id, reason, begun_us, paused, effects) VALUES ($1, $2, $3, $4, $5, 0)";

/// Nobody grants a dispatch of a tool until somebody resumes it.
pub(in crate::store::postgres) const RESTORE_TOOLS_PAUSE: &str =
    "UPDATE tools SET paused = TRUE, stamp = stamp + 1 WHERE NOT paused AND NOT deleted";

/// It has ended.
pub(in crate::store::postgres) const RESTORE_END: &str = "\
UPDATE restore_epochs SET ended_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, effects = $2
WHERE number = $1 AND ended_us IS NULL";

/// How many connections of services there are to this database. Other roles' ones are told by their number alone.
pub(in crate::store::postgres) const RESTORE_OTHERS: &str = "\
SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'actonce'
  AND pid <> pg_backend_pid()";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("RESTORE_EPOCHS", RESTORE_EPOCHS),
    ("RESTORE_ADD", RESTORE_ADD),
    ("RESTORE_TOOLS_PAUSE", RESTORE_TOOLS_PAUSE),
    ("RESTORE_END", RESTORE_END),
    ("RESTORE_OTHERS", RESTORE_OTHERS),
];
