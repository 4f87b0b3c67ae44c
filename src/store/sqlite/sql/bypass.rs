//! Many effects at a glance.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[("GLANCES", GLANCES), ("CREATED", CREATED)];

/// Intent and newest state of each effect (?1) by its number.
pub const GLANCES: &str = "
WITH wanted AS MATERIALIZED (
    SELECT key AS number, value ->> 'tenant' AS tenant, unhex(value ->> 'effect', '-') AS effect
    FROM jsonb_each(?1)
)
SELECT w.number,
       (SELECT e.intent FROM entries e WHERE e.tenant = w.tenant AND e.effect = w.effect AND e.revision = 1) AS intent,
       (SELECT e.state FROM entries e WHERE e.tenant = w.tenant AND e.effect = w.effect
        ORDER BY e.revision DESC LIMIT 1) AS state
FROM wanted w";

/// The same of effects of tenant ?1 created after (?2, ?3) and before ?4, at most ?5.
pub const CREATED: &str = "
SELECT f.created_us, f.effect, f.intent,
       (SELECT e.state FROM entries e WHERE e.tenant = f.tenant AND e.effect = f.effect
        ORDER BY e.revision DESC LIMIT 1) AS state
FROM entries f
WHERE f.tenant = ?1 AND f.created_us IS NOT NULL AND (f.created_us, f.effect) > (?2, ?3) AND f.created_us < ?4
ORDER BY f.created_us, f.effect LIMIT ?5";
