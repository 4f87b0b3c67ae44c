//! Signed checkpoints.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("MARK", MARK),
    ("MARK_SET", MARK_SET),
    ("ROW_AT", ROW_AT),
    ("MOVED", MOVED),
    ("CHECKPOINT_NEWEST", CHECKPOINT_NEWEST),
    ("CHECKPOINT_ADD", CHECKPOINT_ADD),
    ("CHECKPOINTS", CHECKPOINTS),
    ("CHECKPOINT_OF", CHECKPOINT_OF),
    ("ENTRY_HASHES", ENTRY_HASHES),
];

/// How far the checkpoints are.
pub const MARK: &str = "SELECT moved, tenant, effect, revision FROM checkpoint_mark WHERE one = 1";

/// Moves the mark to (?1, ?2, ?3, ?4) where it is (?5, ?6, ?7, ?8).
pub const MARK_SET: &str = "
UPDATE checkpoint_mark SET moved = ?1, tenant = ?2, effect = ?3, revision = ?4
WHERE one = 1 AND moved = ?5 AND tenant = ?6 AND effect = ?7 AND revision = ?8";

/// Whether row ?1 is still revision ?4 of effect (?2, ?3).
pub const ROW_AT: &str = "
SELECT EXISTS (SELECT 1 FROM entries WHERE rowid = ?1 AND tenant = ?2 AND effect = ?3 AND revision = ?4)";

/// Rows after ?1 as they were written, at most ?2.
pub const MOVED: &str = "
SELECT rowid AS moved, tenant, effect, revision, hash FROM entries WHERE rowid > ?1 ORDER BY rowid LIMIT ?2";

/// The newest checkpoint of tenant ?1.
pub const CHECKPOINT_NEWEST: &str = "
SELECT number, jws FROM checkpoints WHERE tenant = ?1 ORDER BY number DESC LIMIT 1";

/// A new one.
pub const CHECKPOINT_ADD: &str = "
INSERT INTO checkpoints (tenant, number, at_us, jws, leaves) VALUES (?1, ?2, ?3, ?4, ?5)";

/// Checkpoints after (?1, ?2), at most ?3.
pub const CHECKPOINTS: &str = "
SELECT tenant, number, at_us, jws, leaves FROM checkpoints WHERE (tenant, number) > (?1, ?2)
ORDER BY tenant, number LIMIT ?3";

/// The first one of tenant ?1 that has leaf ?3, among ?4 made at ?2 or later.
pub const CHECKPOINT_OF: &str = "
SELECT tenant, number, at_us, jws, leaves FROM (
    SELECT tenant, number, at_us, jws, leaves FROM checkpoints
    WHERE tenant = ?1 AND at_us >= ?2 ORDER BY at_us, number LIMIT ?4
) AS w WHERE instr(leaves, ?3) > 0 LIMIT 1";

/// The hash at each revision (?1) by its number.
pub const ENTRY_HASHES: &str = "
WITH wanted AS MATERIALIZED (
    SELECT key AS number, value ->> 'tenant' AS tenant, unhex(value ->> 'effect', '-') AS effect,
           value ->> 'revision' AS revision
    FROM jsonb_each(?1)
)
SELECT w.number, e.hash FROM wanted w
CROSS JOIN entries e ON e.tenant = w.tenant AND e.effect = w.effect AND e.revision = w.revision";
