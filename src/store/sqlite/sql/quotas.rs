//! Counting what a tenant has open.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[("OPEN_UP_TO", OPEN_UP_TO)];

/// Effects of tenant ?1 that are not settled, counted up to ?2: no more rows than that are looked at. Settled ones that
/// are contradicted stand in the same table, under the states from 8 on.
pub const OPEN_UP_TO: &str = "
SELECT count(*) FROM (SELECT 1 FROM open_effects WHERE tenant = ?1 AND state < 8 LIMIT ?2) AS w";
