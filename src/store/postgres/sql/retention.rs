//! Pruning. A tombstone is revision 1 with no entry, created before all times, so that no list walks over it.

/// The tenant after $1.
pub(in crate::store::postgres) const NEXT_TENANT: &str =
    "SELECT tenant FROM entries WHERE tenant > $1 ORDER BY tenant LIMIT 1";

/// Effects of tenant $1 after ($2, $3) and before $4, at most $5.
pub(in crate::store::postgres) const OLD_EFFECTS: &str = "\
SELECT e.created_us, e.effect,
  EXISTS (SELECT FROM open_effects o WHERE o.tenant = e.tenant AND o.effect = e.effect)
  OR EXISTS (SELECT FROM entries r WHERE r.tenant = e.tenant AND r.run_id = e.run_id AND r.run_id IS NOT NULL
    AND r.created_us >= $4)
  OR EXISTS (SELECT FROM entries s WHERE s.tenant = e.tenant AND s.session_id = e.session_id
    AND s.session_id IS NOT NULL AND s.created_us >= $4)
FROM entries e
WHERE e.tenant = $1 AND e.created_us IS NOT NULL AND e.created_us >= 0 AND (e.created_us, e.effect) > ($2, $3)
  AND e.created_us < $4
ORDER BY e.created_us, e.effect LIMIT $5";

/// Nobody appends an entry behind the ones that go. Taken for one short transaction; readers do not notice.
pub(in crate::store::postgres) const PRUNE_LOCK: &str = "LOCK TABLE entries IN SHARE ROW EXCLUSIVE MODE";

/// How long that is waited for: who appends meanwhile waits behind it.
pub(in crate::store::postgres) const PRUNE_PATIENCE: &str = "SET LOCAL lock_timeout = '2s'";

/// One row in place of all, for each effect whose newest entry is still the one that was seen.
pub(in crate::store::postgres) const PRUNE: &str = "\
WITH input AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::uuid[], $3::bytea[], $4::int2[], $5::text[], $6::bytea[])
  AS i(tenant, effect, head, state, life, hash)
), newest AS MATERIALIZED (
  SELECT i.*, h.hash AS found, h.moved FROM input i CROSS JOIN LATERAL (
    SELECT e.hash, e.moved FROM entries e WHERE e.tenant = i.tenant AND e.effect = i.effect
    ORDER BY e.revision DESC LIMIT 1) h
), ready AS MATERIALIZED (
  SELECT * FROM newest n
  WHERE n.found = n.head
    AND NOT EXISTS (SELECT FROM open_effects o WHERE o.tenant = n.tenant AND o.effect = n.effect)
    AND EXISTS (SELECT FROM checkpoint_mark m WHERE m.one = 1
      AND m.again_to IS NULL AND (m.moved = 0
        OR (n.moved < m.moved AND m.moved <=
          (SELECT o.base_xid + pg_snapshot_xmin(pg_current_snapshot())::text::bigint FROM feed_origin o WHERE o.one = 1))))
), gone AS (
  DELETE FROM entries e USING ready r WHERE e.tenant = r.tenant AND e.effect = r.effect AND e.revision > 1
)
UPDATE entries e SET state = r.state, created_us = '-9223372036854775808'::int8, run_id = NULL, session_id = NULL, intent = '', life = r.life,
  entry = '', receipt = NULL, result = NULL, prev_hash = r.head, hash = r.hash
FROM ready r WHERE e.tenant = r.tenant AND e.effect = r.effect AND e.revision = 1
RETURNING e.effect";

/// Tombstones.
pub(in crate::store::postgres) const BURIED: &str = "\
SELECT e.life, e.prev_hash, e.hash
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS k(tenant, effect, n)
LEFT JOIN entries e ON e.tenant = k.tenant AND e.effect = k.effect AND e.revision = 1 AND e.entry = ''
ORDER BY k.n";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("NEXT_TENANT", NEXT_TENANT),
    ("OLD_EFFECTS", OLD_EFFECTS),
    ("PRUNE_LOCK", PRUNE_LOCK),
    ("PRUNE_PATIENCE", PRUNE_PATIENCE),
    ("PRUNE", PRUNE),
    ("BURIED", BURIED),
];
