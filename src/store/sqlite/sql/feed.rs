//! Statements of the feed of events. Rows are numbered in the order in which the one writer wrote them, and are
//! walked in that order: an index that begins with the tenant would cost every write.

/// Entries of tenant ?1 from row ?2 on, at most ?3 of the next ?4 rows of anybody; with them row ?2, and the last
/// one that was looked at, whoever they belong to.
pub const FEED: &str = "
WITH own AS MATERIALIZED (
    SELECT s.number FROM (
        SELECT e.rowid AS number, e.tenant FROM entries e NOT INDEXED WHERE e.rowid >= ?2 ORDER BY e.rowid LIMIT ?4
    ) AS s
    WHERE s.tenant = ?1 ORDER BY s.number LIMIT ?3
),
wanted AS MATERIALIZED (
    SELECT number FROM own
    UNION SELECT ?2
    UNION SELECT coalesce(
        (SELECT e.rowid FROM entries e NOT INDEXED WHERE e.rowid >= ?2 ORDER BY e.rowid LIMIT 1 OFFSET ?4 - 1),
        (SELECT max(e.rowid) FROM entries e NOT INDEXED))
    WHERE (SELECT count(*) FROM own) < ?3
)
SELECT e.rowid AS number, e.effect, e.revision, e.hash,
       CASE WHEN e.tenant = ?1 THEN e.entry END AS entry,
       CASE WHEN e.tenant = ?1 THEN (SELECT i.intent FROM entries i
            WHERE i.tenant = e.tenant AND i.effect = e.effect AND i.revision = 1) END AS intent,
       e.tenant = ?1 AS is_own, (SELECT max(n.rowid) FROM entries n NOT INDEXED) AS newest
FROM wanted w CROSS JOIN entries e NOT INDEXED ON e.rowid = w.number ORDER BY e.rowid";

/// The last entry of anybody, as tenant ?1 sees it.
pub const FEED_END: &str = "
SELECT newest.rowid AS number, newest.effect, newest.revision, newest.hash,
       CASE WHEN newest.tenant = ?1 THEN newest.entry END AS entry,
       CASE WHEN newest.tenant = ?1 THEN (SELECT i.intent FROM entries i
            WHERE i.tenant = newest.tenant AND i.effect = newest.effect AND i.revision = 1) END AS intent,
       newest.tenant = ?1 AS is_own
FROM entries newest NOT INDEXED ORDER BY newest.rowid DESC LIMIT 1";

/// Whether effect ?1 was pruned, whoever it belonged to: one probe for each tenant.
pub const FEED_PRUNED: &str = "
WITH RECURSIVE tenants(tenant) AS (
    SELECT min(tenant) FROM entries
    UNION ALL
    SELECT (SELECT min(e.tenant) FROM entries e WHERE e.tenant > t.tenant) FROM tenants t WHERE t.tenant IS NOT NULL
)
SELECT EXISTS (SELECT 1 FROM tenants t CROSS JOIN entries e
               ON e.tenant = t.tenant AND e.effect = ?1 AND e.revision = 1 AND e.entry = '')";

/// The newest row of anybody.
pub const FEED_NEWEST: &str = "SELECT max(e.rowid) FROM entries e NOT INDEXED";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] =
    &[("FEED", FEED), ("FEED_END", FEED_END), ("FEED_NEWEST", FEED_NEWEST), ("FEED_PRUNED", FEED_PRUNED)];
