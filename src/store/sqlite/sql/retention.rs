//! Pruning. A tombstone is revision 1 with no entry, created before all times, so that no list walks over it.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("NEXT_TENANT", NEXT_TENANT),
    ("OLD_EFFECTS", OLD_EFFECTS),
    ("PRUNE_BURY", PRUNE_BURY),
    ("PRUNE_REST", PRUNE_REST),
    ("BURIED", BURIED),
];

/// The tenant after ?1.
pub const NEXT_TENANT: &str = "SELECT tenant FROM entries WHERE tenant > ?1 ORDER BY tenant LIMIT 1";

/// Effects of tenant ?1 after (?2, ?3) and before ?4, at most ?5.
pub const OLD_EFFECTS: &str = "
SELECT e.created_us, e.effect,
       EXISTS (SELECT 1 FROM open_effects o WHERE o.tenant = e.tenant AND o.effect = e.effect)
       OR EXISTS (SELECT 1 FROM entries r WHERE r.tenant = e.tenant AND r.run_id = e.run_id AND r.run_id IS NOT NULL
                  AND r.created_us >= ?4)
       OR EXISTS (SELECT 1 FROM entries s WHERE s.tenant = e.tenant AND s.session_id = e.session_id
                  AND s.session_id IS NOT NULL AND s.created_us >= ?4) AS stays
FROM entries e
WHERE e.tenant = ?1 AND e.created_us IS NOT NULL AND (e.created_us, e.effect) > (?2, ?3) AND e.created_us < ?4
ORDER BY e.created_us, e.effect LIMIT ?5";

/// One row in place of all of effect (?1, ?2), where its newest entry is still ?3: state ?4, tombstone ?5, hash ?6.
/// Not the row that the checkpoints stand at, nor one that they have still to see: numbers would be given anew.
pub const PRUNE_BURY: &str = "
UPDATE entries SET state = ?4, created_us = -9223372036854775808, run_id = NULL, session_id = NULL, intent = '', life = ?5, entry = '',
                   receipt = NULL, result = NULL, prev_hash = ?3, hash = ?6
WHERE tenant = ?1 AND effect = ?2 AND revision = 1
  AND ?3 = (SELECT n.hash FROM entries n WHERE n.tenant = ?1 AND n.effect = ?2 ORDER BY n.revision DESC LIMIT 1)
  AND NOT EXISTS (SELECT 1 FROM open_effects o WHERE o.tenant = ?1 AND o.effect = ?2)
  AND EXISTS (
    SELECT 1 FROM checkpoint_mark m
    WHERE m.one = 1 AND (m.moved = 0 OR (
        NOT (m.tenant = ?1 AND m.effect = ?2)
        AND EXISTS (SELECT 1 FROM entries a WHERE a.rowid = m.moved AND a.tenant = m.tenant AND a.effect = m.effect
                    AND a.revision = m.revision)
        AND m.moved > (SELECT h.rowid FROM entries h WHERE h.tenant = ?1 AND h.effect = ?2
                       ORDER BY h.revision DESC LIMIT 1))))";

/// All others of it go.
pub const PRUNE_REST: &str = "DELETE FROM entries WHERE tenant = ?1 AND effect = ?2 AND revision > 1";

/// The tombstone of each key (?1) by its number.
pub const BURIED: &str = "
WITH wanted AS MATERIALIZED (
    SELECT key AS number, value ->> 'tenant' AS tenant, unhex(value ->> 'effect', '-') AS effect
    FROM jsonb_each(?1)
)
SELECT w.number, e.life, e.prev_hash, e.hash FROM wanted w
CROSS JOIN entries e ON e.tenant = w.tenant AND e.effect = w.effect AND e.revision = 1 AND e.entry = ''";
