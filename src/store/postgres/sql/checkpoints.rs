//! Signed checkpoints.

/// The oldest transaction in flight: what is older can't become more.
pub(in crate::store::postgres) const HORIZON: &str = "\
SELECT o.base_xid + pg_snapshot_xmin(pg_current_snapshot())::text::int8 FROM feed_origin o WHERE o.one = 1";

/// How far the checkpoints are.
pub(in crate::store::postgres) const MARK: &str =
    "SELECT moved, tenant, effect, revision, low, again_to FROM checkpoint_mark WHERE one = 1";

/// Moves the mark to ($1, $2, $3, $4, $5, $6) where it is ($7, $8, $9, $10, $11, $12).
pub(in crate::store::postgres) const MARK_SET: &str = "\
UPDATE checkpoint_mark SET moved = $1, tenant = $2, effect = $3, revision = $4, low = $5, again_to = $6
WHERE one = 1 AND moved = $7 AND tenant = $8 AND effect = $9 AND revision = $10
  AND low IS NOT DISTINCT FROM $11 AND again_to IS NOT DISTINCT FROM $12";

/// Tenants after $1 that have rows written from $2 on and before $3, at most $4. One probe for each tenant.
pub(in crate::store::postgres) const MOVED_TENANTS: &str = "\
WITH RECURSIVE t AS (
  (SELECT e.tenant FROM entries e WHERE e.tenant > $1 ORDER BY e.tenant LIMIT 1)
  UNION ALL
  SELECT (SELECT e.tenant FROM entries e WHERE e.tenant > t.tenant ORDER BY e.tenant LIMIT 1)
  FROM t WHERE t.tenant IS NOT NULL
)
SELECT t.tenant FROM t WHERE t.tenant IS NOT NULL
  AND (SELECT true FROM entries e WHERE e.tenant = t.tenant AND e.moved >= $2 AND e.moved < $3 LIMIT 1)
ORDER BY t.tenant LIMIT $4";

/// Rows of tenant $1 written after ($2, $3, $4) and before $5, as they were written, at most $6.
pub(in crate::store::postgres) const MOVED: &str = "\
SELECT moved, tenant, effect, revision, hash FROM entries
WHERE tenant = $1 AND (moved, effect, revision) > ($2, $3, $4) AND moved < $5
ORDER BY moved, effect, revision LIMIT $6";

/// The newest checkpoint of tenant $1.
pub(in crate::store::postgres) const CHECKPOINT_NEWEST: &str =
    "SELECT number, jws FROM checkpoints WHERE tenant = $1 ORDER BY number DESC LIMIT 1";

/// New ones.
pub(in crate::store::postgres) const CHECKPOINT_ADD: &str = "\
INSERT INTO checkpoints (tenant, number, at_us, jws, leaves)
SELECT * FROM unnest($1::text[], $2::int8[], $3::int8[], $4::text[], $5::bytea[])";

/// Checkpoints after ($1, $2), at most $3.
pub(in crate::store::postgres) const CHECKPOINTS: &str = "\
SELECT tenant, number, at_us, jws, leaves FROM checkpoints WHERE (tenant, number) > ($1, $2)
ORDER BY tenant, number LIMIT $3";

/// The first one of tenant $1 that has leaf $3, among $4 made at $2 or later.
pub(in crate::store::postgres) const CHECKPOINT_OF: &str = "\
SELECT tenant, number, at_us, jws, leaves FROM (
  SELECT tenant, number, at_us, jws, leaves FROM checkpoints
  WHERE tenant = $1 AND at_us >= $2 ORDER BY at_us, number LIMIT $4
) AS made WHERE position($3 IN leaves) > 0 ORDER BY at_us, number LIMIT 1";

/// The hash at each revision.
pub(in crate::store::postgres) const ENTRY_HASHES: &str = "\
SELECT (SELECT e.hash FROM entries e WHERE e.tenant = k.tenant AND e.effect = k.effect AND e.revision = k.revision)
FROM unnest($1::text[], $2::uuid[], $3::int4[]) WITH ORDINALITY AS k(tenant, effect, revision, n) ORDER BY k.n";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("HORIZON", HORIZON),
    ("MARK", MARK),
    ("MARK_SET", MARK_SET),
    ("MOVED_TENANTS", MOVED_TENANTS),
    ("MOVED", MOVED),
    ("CHECKPOINT_NEWEST", CHECKPOINT_NEWEST),
    ("CHECKPOINT_ADD", CHECKPOINT_ADD),
    ("CHECKPOINTS", CHECKPOINTS),
    ("CHECKPOINT_OF", CHECKPOINT_OF),
    ("ENTRY_HASHES", ENTRY_HASHES),
];
