//! Statements of the feed of events. Rows are numbered in the order in which the one writer wrote them.

/// Entries of tenant ?1 from row ?2 on, at most ?3.
pub const FEED: &str = "
SELECT e.rowid AS number, e.effect, e.revision, e.entry, e.hash,
       (SELECT i.intent FROM entries i WHERE i.tenant = e.tenant AND i.effect = e.effect AND i.revision = 1) AS intent
FROM entries e INDEXED BY entries_feed
WHERE e.tenant = ?1 AND e.rowid >= ?2 ORDER BY e.rowid LIMIT ?3";

/// The last entry of tenant ?1.
pub const FEED_END: &str = "
SELECT e.rowid AS number, e.effect, e.revision, e.entry, e.hash,
       (SELECT i.intent FROM entries i WHERE i.tenant = e.tenant AND i.effect = e.effect AND i.revision = 1) AS intent
FROM entries e INDEXED BY entries_feed
WHERE e.tenant = ?1 ORDER BY e.rowid DESC LIMIT 1";

/// The tenants (?1), by number, whose feed goes on behind a row.
pub const FEED_MOVED: &str = "
SELECT c.key AS number FROM json_each(?1) AS c
WHERE EXISTS (SELECT 1 FROM entries e INDEXED BY entries_feed
    WHERE e.tenant = c.value ->> '$.tenant' AND e.rowid > c.value ->> '$.seen')";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[("FEED", FEED), ("FEED_END", FEED_END), ("FEED_MOVED", FEED_MOVED)];
