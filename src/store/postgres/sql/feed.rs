//! Statements of the feed of events.
//!
//! The horizon is asked in the statement that reads: the oldest transaction of the same snapshot that is
//! still under way. Everything below it is committed or gone, and what begins later gets a higher number.
//! The intent is a subquery and no join: whatever the planner believes, it is found by its whole key.

/// Entries of tenant $1 from ($2, $3, $4) on, at most $5.
pub(in crate::store::postgres) const FEED: &str = "\
SELECT e.moved, e.effect, e.revision::int8, e.entry, e.hash,
  (SELECT i.intent FROM entries i WHERE i.tenant = e.tenant AND i.effect = e.effect AND i.revision = 1)
FROM entries e
WHERE e.tenant = $1 AND (e.moved, e.effect, e.revision) >= ($2, $3, $4) AND e.moved <
  (SELECT o.base_xid + pg_snapshot_xmin(pg_current_snapshot())::text::int8 FROM feed_origin o WHERE o.one = 1)
ORDER BY e.moved, e.effect, e.revision LIMIT $5";

/// The last entry of tenant $1 that FEED shows.
pub(in crate::store::postgres) const FEED_END: &str = "\
SELECT e.moved, e.effect, e.revision::int8, e.entry, e.hash,
  (SELECT i.intent FROM entries i WHERE i.tenant = e.tenant AND i.effect = e.effect AND i.revision = 1)
FROM entries e
WHERE e.tenant = $1 AND e.moved <
  (SELECT o.base_xid + pg_snapshot_xmin(pg_current_snapshot())::text::int8 FROM feed_origin o WHERE o.one = 1)
ORDER BY e.moved DESC, e.effect DESC, e.revision DESC LIMIT 1";

/// Whether effect $2 of tenant $1 was pruned.
pub(in crate::store::postgres) const FEED_PRUNED: &str = "\
SELECT EXISTS (SELECT FROM entries e WHERE e.tenant = $1 AND e.effect = $2 AND e.revision = 1 AND e.entry = '')";

/// Whether each tenant's feed goes on behind a number.
pub(in crate::store::postgres) const FEED_MOVED: &str = "\
SELECT EXISTS (SELECT FROM entries e WHERE e.tenant = k.tenant AND e.moved > k.seen AND e.moved <
  (SELECT o.base_xid + pg_snapshot_xmin(pg_current_snapshot())::text::int8 FROM feed_origin o WHERE o.one = 1))
FROM unnest($1::text[], $2::int8[]) WITH ORDINALITY AS k(tenant, seen, n) ORDER BY k.n";

/// The highest number that was given out, as far as entries and checkpoints tell, and whether this cluster could
/// have given it out. One probe of the index for each tenant.
pub(in crate::store::postgres) const FEED_HIGHEST: &str = "\
WITH RECURSIVE newest AS (
  (SELECT tenant, moved FROM entries ORDER BY tenant DESC, moved DESC, effect DESC, revision DESC LIMIT 1)
  UNION ALL
  SELECT n.tenant, n.moved FROM newest k CROSS JOIN LATERAL (SELECT e.tenant, e.moved FROM entries e
    WHERE e.tenant < k.tenant ORDER BY e.tenant DESC, e.moved DESC, e.effect DESC, e.revision DESC LIMIT 1) n
),
seen AS MATERIALIZED (SELECT greatest((SELECT max(moved) FROM newest),
  (SELECT greatest(m.moved, m.again_to) FROM checkpoint_mark m WHERE m.one = 1), 0) AS highest)
SELECT s.highest, s.highest > 0 AND s.highest >= (SELECT o.base_xid + pg_snapshot_xmax(pg_current_snapshot())::text::int8
  FROM feed_origin o WHERE o.one = 1) FROM seen s";

/// Keeps everybody away from the journal while its numbers get a new base.
pub(in crate::store::postgres) const FEED_LOCK: &str = "LOCK TABLE entries IN ACCESS EXCLUSIVE MODE";

/// The new base.
pub(in crate::store::postgres) const FEED_REBASE: &str = "UPDATE feed_origin SET base_xid = $1 WHERE one = 1";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("FEED", FEED),
    ("FEED_END", FEED_END),
    ("FEED_PRUNED", FEED_PRUNED),
    ("FEED_MOVED", FEED_MOVED),
    ("FEED_HIGHEST", FEED_HIGHEST),
    ("FEED_LOCK", FEED_LOCK),
    ("FEED_REBASE", FEED_REBASE),
];
