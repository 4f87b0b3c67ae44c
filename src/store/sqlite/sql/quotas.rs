//! Counting what a tenant has open.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[("OPEN_UP_TO", OPEN_UP_TO), ("OPEN_BY_PRINCIPAL", OPEN_BY_PRINCIPAL)];

/// Effects of tenant ?1 that are not settled, counted up to ?2: no more rows than that are looked at. Settled ones that
/// are contradicted stand in the same table, under the states from 8 on.
pub const OPEN_UP_TO: &str = "
SELECT count(*) FROM (SELECT 1 FROM open_effects WHERE tenant = ?1 AND state < 8 LIMIT ?2) AS w";

/// How many of them each principal has proposed, those with the most first: one look at the tenant's rows for all of them,
/// up to ?2, and ?3 principals.
pub const OPEN_BY_PRINCIPAL: &str = "
SELECT proposed_by, count(*) FROM (
    SELECT proposed_by FROM open_effects WHERE tenant = ?1 AND state < 8 LIMIT ?2) AS w
WHERE proposed_by IS NOT NULL
GROUP BY proposed_by ORDER BY count(*) DESC LIMIT ?3";
