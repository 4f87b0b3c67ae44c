//! Signed checkpoints.

/// The oldest transaction in flight: what is older can't become more.
pub(in crate::store::postgres) const HORIZON: &str = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint";

/// How far the checkpoints are.
pub(in crate::store::postgres) const MARK: &str =
    "SELECT moved, tenant, effect, revision, again_to FROM checkpoint_mark WHERE one = 1";

/// Moves the mark to ($1, $2, $3, $4, $5) where it is ($6, $7, $8, $9, $10).
pub(in crate::store::postgres) const MARK_SET: &str = "\
UPDATE checkpoint_mark SET moved = $1, tenant = $2, effect = $3, revision = $4, again_to = $5
WHERE one = 1 AND moved = $6 AND tenant = $7 AND effect = $8 AND revision = $9
  AND again_to IS NOT DISTINCT FROM $10";

/// Rows written after ($1, $2, $3, $4) and before $5, as they were written, at most $6.
pub(in crate::store::postgres) const MOVED: &str = "\
SELECT moved, tenant, effect, revision, hash FROM entries
WHERE (moved, tenant, effect, revision) > ($1, $2, $3, $4) AND moved >= $1 AND moved < $5
ORDER BY moved, tenant, effect, revision LIMIT $6";

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
    ("MOVED", MOVED),
    ("CHECKPOINT_NEWEST", CHECKPOINT_NEWEST),
    ("CHECKPOINT_ADD", CHECKPOINT_ADD),
    ("CHECKPOINTS", CHECKPOINTS),
    ("CHECKPOINT_OF", CHECKPOINT_OF),
    ("ENTRY_HASHES", ENTRY_HASHES),
];
