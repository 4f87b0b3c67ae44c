//! Statements of elapsed limits.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[("RUN_WAITS", RUN_WAITS), ("WAIT_END", WAIT_END), ("WAIT_BEGIN", WAIT_BEGIN)];

/// The first ?3 waits of run ?2 of tenant ?1.
pub const RUN_WAITS: &str = "
SELECT began_us, ends_us FROM run_waits WHERE tenant = ?1 AND run_id = ?2 ORDER BY began_us LIMIT ?3";

/// Ends the wait of effect ?3 of run ?2 of tenant ?1 at ?4.
pub const WAIT_END: &str = "
UPDATE run_waits SET ends_us = ?4
WHERE tenant = ?1 AND run_id = ?2 AND effect = ?3 AND (ends_us IS NULL OR ends_us > ?4)";

/// A wait of effect ?3 of run ?2 of tenant ?1, with revision ?4, from ?5 until ?6.
pub const WAIT_BEGIN: &str = "
INSERT INTO run_waits (tenant, run_id, effect, revision, began_us, ends_us) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
