//! Statements of recovery.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("OPEN_WORK", OPEN_WORK),
    ("CLAIMED", CLAIMED),
    ("CLAIM", CLAIM),
    ("RELEASE", RELEASE),
    ("EXECUTION_ADD", EXECUTION_ADD),
    ("EXECUTION", EXECUTION),
    ("RECEIPTS", RECEIPTS),
    ("RECEIPT", RECEIPT),
    ("RECEIPT_ADD", RECEIPT_ADD),
];

/// Open effects created until ?3, after (?1, ?2), at most ?4.
pub const OPEN_WORK: &str = "
SELECT tenant, effect, session_id, run_id FROM open_effects
WHERE (tenant, effect) > (?1, ?2) AND created_us <= ?3 ORDER BY tenant, effect LIMIT ?4";

/// For each key (?1) that is in an executor's hand at ?2: its number.
pub const CLAIMED: &str = "
WITH wanted AS MATERIALIZED (
    SELECT key AS number, value ->> 'tenant' AS tenant, unhex(value ->> 'effect', '-') AS effect
    FROM jsonb_each(?1)
)
SELECT w.number FROM wanted w
CROSS JOIN recovery_claims held ON held.tenant = w.tenant AND held.effect = w.effect
WHERE held.expires_us > ?2";

/// Takes effect (?1, ?2) for executor ?3 until ?4; now is ?5.
pub const CLAIM: &str = "
INSERT INTO recovery_claims (tenant, effect, executor, expires_us) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT (tenant, effect) DO UPDATE SET executor = excluded.executor, expires_us = excluded.expires_us
WHERE recovery_claims.executor = excluded.executor OR recovery_claims.expires_us <= ?5";

/// Gives effect (?1, ?2) back from executor ?3.
pub const RELEASE: &str = "DELETE FROM recovery_claims WHERE tenant = ?1 AND effect = ?2 AND executor = ?3";

/// A new execution.
pub const EXECUTION_ADD: &str = "
INSERT INTO recovery_executions (tenant, execution_id, digest, plan_id, decisions, items, begun_by, begun_us)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";

/// Execution ?2 of tenant ?1.
pub const EXECUTION: &str = "
SELECT execution_id, digest, plan_id, decisions, items, begun_by, begun_us FROM recovery_executions
WHERE tenant = ?1 AND execution_id = ?2";

/// Receipts of execution ?2 of tenant ?1.
pub const RECEIPTS: &str = "
SELECT item, receipt FROM recovery_receipts WHERE tenant = ?1 AND execution_id = ?2 ORDER BY item";

/// Receipt of item ?3 of execution ?2 of tenant ?1.
pub const RECEIPT: &str = "
SELECT receipt FROM recovery_receipts WHERE tenant = ?1 AND execution_id = ?2 AND item = ?3";

/// Receipt ?4 of item ?3 of execution ?2 of tenant ?1.
pub const RECEIPT_ADD: &str = "
INSERT INTO recovery_receipts (tenant, execution_id, item, receipt) VALUES (?1, ?2, ?3, ?4)
ON CONFLICT DO NOTHING";
