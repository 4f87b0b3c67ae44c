//! Counting what a tenant has open.

/// Effects of a tenant that are not settled, counted up to a bound: no more rows than that are looked at. Settled ones
/// that are contradicted stand in the same table, under the states from 8 on.
pub(in crate::store::postgres) const OPEN_UP_TO: &str = "\
SELECT count(*) FROM (SELECT FROM open_effects WHERE tenant = $1 AND state >= 0 AND state < 8 LIMIT $2) AS counted";

/// How many of them each principal has proposed, those with the most first: one look at the tenant's rows for all of them,
/// up to a bound, and as many principals as asked for.
pub(in crate::store::postgres) const OPEN_BY_PRINCIPAL: &str = "\
SELECT proposed_by, count(*) FROM (
  SELECT proposed_by FROM open_effects WHERE tenant = $1 AND state >= 0 AND state < 8 LIMIT $2) AS looked
WHERE proposed_by IS NOT NULL
GROUP BY proposed_by ORDER BY count(*) DESC LIMIT $3";

/// All statements by name, for the tests that prepare each and read its plan.
pub const ALL: &[(&str, &str)] = &[("OPEN_UP_TO", OPEN_UP_TO), ("OPEN_BY_PRINCIPAL", OPEN_BY_PRINCIPAL)];
