//! Many effects at a glance.

/// Intent and newest state of each effect.
pub(in crate::store::postgres) const GLANCES: &str = "\
SELECT
  (SELECT e.intent FROM entries e WHERE e.tenant = k.tenant AND e.effect = k.effect AND e.revision = 1),
  (SELECT e.state FROM entries e WHERE e.tenant = k.tenant AND e.effect = k.effect ORDER BY e.revision DESC LIMIT 1)
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS k(tenant, effect, n) ORDER BY k.n";

/// The same of effects of tenant $1 created after ($2, $3) and before $4, at most $5.
pub(in crate::store::postgres) const CREATED: &str = "\
SELECT f.created_us, f.effect, f.intent,
  (SELECT e.state FROM entries e WHERE e.tenant = f.tenant AND e.effect = f.effect ORDER BY e.revision DESC LIMIT 1)
FROM entries f
WHERE f.tenant = $1 AND f.created_us IS NOT NULL AND (f.created_us, f.effect) > ($2, $3) AND f.created_us < $4
ORDER BY f.created_us, f.effect LIMIT $5";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[("GLANCES", GLANCES), ("CREATED", CREATED)];
