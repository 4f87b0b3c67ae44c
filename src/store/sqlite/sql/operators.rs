//! What operators read.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("QUEUE_STATE", QUEUE_STATE),
    ("QUEUE_CONTRADICTED", QUEUE_CONTRADICTED),
    ("QUEUE_DOUBT", QUEUE_DOUBT),
    ("QUEUE_OVERDUE", QUEUE_OVERDUE),
    ("DOUBTFUL_TOOLS", DOUBTFUL_TOOLS),
    ("EVIDENCE", EVIDENCE),
];

/// Open effects of tenant ?1 in state ?5, created until ?6, after (?2, ?3), at most ?4.
pub const QUEUE_STATE: &str = "
SELECT created_us, effect, state, due_us, deadline_us, contradicted, tool FROM open_effects
WHERE tenant = ?1 AND state = ?5 AND created_us <= ?6 AND (created_us, effect) > (?2, ?3)
ORDER BY created_us, effect LIMIT ?4";

/// Contradicted effects of tenant ?1 after (?2, ?3), at most ?4.
pub const QUEUE_CONTRADICTED: &str = "
SELECT created_us, effect, state, due_us, deadline_us, contradicted, tool FROM open_effects
WHERE tenant = ?1 AND contradicted = 1 AND (created_us, effect) > (?2, ?3)
ORDER BY created_us, effect LIMIT ?4";

/// Doubtful effects of tenant ?1 within the bounds (?5) of each tool, after (?2, ?3), at most ?4.
pub const QUEUE_DOUBT: &str = "
SELECT o.created_us, o.effect, o.state, o.due_us, o.deadline_us, o.contradicted, o.tool
FROM jsonb_each(?5) AS w
CROSS JOIN open_effects AS o
WHERE o.tenant = ?1 AND o.state = 5 AND o.tool = w.value ->> 'tool'
  AND o.created_us <= w.value ->> 'created_until_us' AND (o.deadline_us IS NULL OR o.deadline_us <= w.value ->> 'doubt_until_us')
  AND (o.created_us, o.effect) > (?2, ?3)
ORDER BY o.created_us, o.effect LIMIT ?4";

/// Effects of tenant ?1 that are due at ?5, of the ?6 that are so for the longest time over all
/// tenants, after (?2, ?3), at most ?4.
pub const QUEUE_OVERDUE: &str = "
SELECT w.created_us, w.effect, w.state, w.due_us, w.deadline_us, w.contradicted, w.tool FROM (
    SELECT tenant, created_us, effect, state, due_us, deadline_us, contradicted, tool FROM open_effects
    WHERE due_us <= ?5 ORDER BY due_us LIMIT ?6
) AS w
WHERE w.tenant = ?1 AND (w.created_us, w.effect) > (?2, ?3)
ORDER BY w.created_us, w.effect LIMIT ?4";

/// The tools of doubtful effects of tenant ?1, at most ?2: from each to the next one by the index.
pub const DOUBTFUL_TOOLS: &str = "
WITH RECURSIVE w(tool) AS (
    SELECT min(tool) FROM open_effects WHERE tenant = ?1 AND state = 5
    UNION ALL
    SELECT (SELECT min(o.tool) FROM open_effects o WHERE o.tenant = ?1 AND o.state = 5 AND o.tool > w.tool)
    FROM w WHERE w.tool IS NOT NULL
)
SELECT tool FROM w WHERE tool IS NOT NULL LIMIT ?2";

/// What was recorded at the revisions ?3 of effect (?1, ?2), in no order.
pub const EVIDENCE: &str = "
SELECT revision, entry, life, receipt FROM entries
WHERE tenant = ?1 AND effect = ?2 AND revision IN (SELECT value FROM jsonb_each(?3))";
