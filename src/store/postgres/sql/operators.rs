//! What operators read.

/// Open effects in a state, created until a time.
pub(in crate::store::postgres) const QUEUE_STATE: &str = "\
SELECT created_us, effect, state, due_us, deadline_us, contradicted, tool FROM open_effects
WHERE tenant = $1 AND state = $5 AND state >= 0 AND created_us <= $6 AND (created_us, effect) > ($2, $3)
ORDER BY created_us, effect LIMIT $4";

/// Contradicted effects.
pub(in crate::store::postgres) const QUEUE_CONTRADICTED: &str = "\
SELECT created_us, effect, state, due_us, deadline_us, contradicted, tool FROM open_effects
WHERE tenant = $1 AND contradicted AND (created_us, effect) > ($2, $3)
ORDER BY created_us, effect LIMIT $4";

/// Doubtful effects, within the bounds of each tool.
pub(in crate::store::postgres) const QUEUE_DOUBT: &str = "\
SELECT o.created_us, o.effect, o.state, o.due_us, o.deadline_us, o.contradicted, o.tool
FROM unnest($5::text[], $6::int8[], $7::int8[]) AS b(tool, created_until_us, doubt_until_us)
CROSS JOIN LATERAL (
  SELECT created_us, effect, state, due_us, deadline_us, contradicted, tool FROM open_effects d
  WHERE d.tenant = $1 AND d.state = 5 AND d.tool = b.tool AND d.created_us <= b.created_until_us
    AND (d.deadline_us IS NULL OR d.deadline_us <= b.doubt_until_us) AND (d.created_us, d.effect) > ($2, $3)
  ORDER BY d.created_us, d.effect LIMIT $4) o
ORDER BY o.created_us, o.effect LIMIT $4";

/// Effects that are overdue, of the $6 that are so for the longest time over all tenants: sweeps leave
/// none behind but those that they can't move.
pub(in crate::store::postgres) const QUEUE_OVERDUE: &str = "\
SELECT created_us, effect, state, due_us, deadline_us, contradicted, tool FROM (
  SELECT tenant, created_us, effect, state, due_us, deadline_us, contradicted, tool FROM open_effects
  WHERE due_us IS NOT NULL AND due_us <= $5 ORDER BY due_us LIMIT $6) o
WHERE o.tenant = $1 AND (o.created_us, o.effect) > ($2, $3)
ORDER BY o.created_us, o.effect LIMIT $4";

/// The tools of doubtful effects: from each to the next one by the index.
pub(in crate::store::postgres) const DOUBTFUL_TOOLS: &str = "\
WITH RECURSIVE t AS (
  (SELECT tool FROM open_effects WHERE tenant = $1 AND state = 5 ORDER BY tool LIMIT 1)
  UNION ALL
  SELECT (SELECT o.tool FROM open_effects o WHERE o.tenant = $1 AND o.state = 5 AND o.tool > t.tool
    ORDER BY o.tool LIMIT 1)
  FROM t WHERE t.tool IS NOT NULL)
SELECT tool FROM t WHERE tool IS NOT NULL LIMIT $2";

/// What was recorded at some revisions.
pub(in crate::store::postgres) const EVIDENCE: &str = "\
SELECT revision::int8, entry, life, receipt FROM entries
WHERE tenant = $1 AND effect = $2 AND revision = ANY($3::int4[]) ORDER BY revision";

/// All statements by name, for the tests that prepare each and read its plan.
pub const ALL: &[(&str, &str)] = &[
    ("QUEUE_STATE", QUEUE_STATE),
    ("QUEUE_CONTRADICTED", QUEUE_CONTRADICTED),
    ("QUEUE_DOUBT", QUEUE_DOUBT),
    ("QUEUE_OVERDUE", QUEUE_OVERDUE),
    ("DOUBTFUL_TOOLS", DOUBTFUL_TOOLS),
    ("EVIDENCE", EVIDENCE),
];
