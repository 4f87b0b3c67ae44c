//! Statements of recovery.

/// Open effects created until $3, after ($1, $2), at most $4.
pub(in crate::store::postgres) const OPEN_WORK: &str = "\
SELECT tenant, effect, session_id, run_id FROM open_effects
WHERE (tenant, effect) > ($1, $2) AND created_us <= $3 ORDER BY tenant, effect LIMIT $4";

/// Whether each effect is in an executor's hand.
pub(in crate::store::postgres) const CLAIMED: &str = "\
SELECT EXISTS (SELECT FROM recovery_claims c WHERE c.tenant = k.tenant AND c.effect = k.effect
  AND c.expires_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS k(tenant, effect, n) ORDER BY k.n";

/// Takes effect ($1, $2) for executor $3 and $4 seconds.
pub(in crate::store::postgres) const CLAIM: &str = "\
INSERT INTO recovery_claims AS c (tenant, effect, executor, expires_us)
VALUES ($1, $2, $3, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $4::int8 * 1000000)
ON CONFLICT (tenant, effect) DO UPDATE SET executor = excluded.executor, expires_us = excluded.expires_us
WHERE c.executor = excluded.executor
  OR c.expires_us <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Gives effect ($1, $2) back from executor $3.
pub(in crate::store::postgres) const RELEASE: &str =
    "DELETE FROM recovery_claims WHERE tenant = $1 AND effect = $2 AND executor = $3";

/// A new execution.
pub(in crate::store::postgres) const EXECUTION_ADD: &str = "\
INSERT INTO recovery_executions (tenant, execution_id, digest, plan_id, decisions, items, begun_by, begun_us)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";

/// Execution $2 of tenant $1.
pub(in crate::store::postgres) const EXECUTION: &str = "\
SELECT execution_id, digest, plan_id, decisions, items, begun_by, begun_us FROM recovery_executions
WHERE tenant = $1 AND execution_id = $2";

/// Receipts of execution $2 of tenant $1.
pub(in crate::store::postgres) const RECEIPTS: &str = "\
SELECT item, receipt FROM recovery_receipts WHERE tenant = $1 AND execution_id = $2 ORDER BY item";

/// Receipt of item $3 of execution $2 of tenant $1.
pub(in crate::store::postgres) const RECEIPT: &str =
    "SELECT receipt FROM recovery_receipts WHERE tenant = $1 AND execution_id = $2 AND item = $3";

/// Receipt $4 of item $3 of execution $2 of tenant $1, and effect $5 back from executor $6.
pub(in crate::store::postgres) const CLOSE: &str = "\
WITH given_back AS (DELETE FROM recovery_claims WHERE tenant = $1 AND effect = $5 AND executor = $6)
INSERT INTO recovery_receipts (tenant, execution_id, item, receipt) VALUES ($1, $2, $3, $4)
ON CONFLICT DO NOTHING";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("OPEN_WORK", OPEN_WORK),
    ("CLAIMED", CLAIMED),
    ("CLAIM", CLAIM),
    ("RELEASE", RELEASE),
    ("EXECUTION_ADD", EXECUTION_ADD),
    ("EXECUTION", EXECUTION),
    ("RECEIPTS", RECEIPTS),
    ("RECEIPT", RECEIPT),
    ("CLOSE", CLOSE),
];
