//! Restores.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("RESTORE_EPOCHS", RESTORE_EPOCHS),
    ("RESTORE_ADD", RESTORE_ADD),
    ("RESTORE_TOOLS_PAUSE", RESTORE_TOOLS_PAUSE),
    ("RESTORE_END", RESTORE_END),
];

/// All of them.
pub const RESTORE_EPOCHS: &str = "
SELECT number, epoch_id, reason, begun_us, paused, effects, ended_us FROM restore_epochs
WHERE number > 0 ORDER BY number";

/// A new one.
pub const RESTORE_ADD: &str = "
INSERT INTO restore_epochs (number, epoch_id, reason, begun_us, paused, effects) VALUES (?1, ?2, ?3, ?4, ?5, 0)";

/// Nobody grants a dispatch of a tool until somebody resumes it.
pub const RESTORE_TOOLS_PAUSE: &str = "
UPDATE tools SET paused = 1, stamp = stamp + 1 WHERE NOT paused AND NOT deleted";

/// It has ended at ?3.
pub const RESTORE_END: &str = "
UPDATE restore_epochs SET ended_us = ?3, effects = ?2 WHERE number = ?1 AND ended_us IS NULL";
