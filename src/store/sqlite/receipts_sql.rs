//! The statements about receipt sources and the quarantine; see [`super::sql`].

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("SOURCE", SOURCE),
    ("SOURCE_AT", SOURCE_AT),
    ("SOURCES", SOURCES),
    ("SOURCE_INSERT", SOURCE_INSERT),
    ("SOURCE_UPDATE", SOURCE_UPDATE),
    ("SOURCE_RETRY", SOURCE_RETRY),
    ("SOURCE_REVISION", SOURCE_REVISION),
    ("SOURCE_IN_USE", SOURCE_IN_USE),
    ("SOURCE_FORGET", SOURCE_FORGET),
    ("SOURCE_DELETE", SOURCE_DELETE),
    ("QUARANTINE_STATUS", QUARANTINE_STATUS),
    ("QUARANTINE_COUNT", QUARANTINE_COUNT),
    ("QUARANTINE_INSERT", QUARANTINE_INSERT),
    ("QUARANTINED", QUARANTINED),
    ("QUARANTINE_LIST", QUARANTINE_LIST),
    ("QUARANTINE_DUE", QUARANTINE_DUE),
    ("QUARANTINE_NEXT", QUARANTINE_NEXT),
    ("QUARANTINE_TRY", QUARANTINE_TRY),
    ("QUARANTINE_DECIDE", QUARANTINE_DECIDE),
    ("QUARANTINE_FORGET", QUARANTINE_FORGET),
    ("QUARANTINE_APPLIED", QUARANTINE_APPLIED),
    ("QUARANTINE_EXPIRE", QUARANTINE_EXPIRE),
];

/// Source ?2 of tenant ?1.
pub const SOURCE: &str = "
SELECT tenant, name, source_id, revision, spec, secrets, changed_us FROM receipt_sources
WHERE tenant = ?1 AND name = ?2";

/// The source with address ?1. Two with one address can't be; if they were, neither would be meant.
pub const SOURCE_AT: &str = "
SELECT tenant, name, source_id, revision, spec, secrets, changed_us FROM receipt_sources
WHERE source_id = ?1 LIMIT 2";

/// Sources of tenant ?1 after name ?2, at most ?3.
pub const SOURCES: &str = "
SELECT tenant, name, source_id, revision, spec, secrets, changed_us FROM receipt_sources
WHERE tenant = ?1 AND name > ?2 ORDER BY name LIMIT ?3";

/// A new source.
pub const SOURCE_INSERT: &str = "
INSERT INTO receipt_sources (tenant, name, source_id, revision, spec, secrets, changed_us, changed_by)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8) ON CONFLICT DO NOTHING";

/// Source ?2 of tenant ?1 at its revision ?3.
pub const SOURCE_UPDATE: &str = "
UPDATE receipt_sources SET revision = ?3, spec = ?4, secrets = ?5, changed_us = ?6, changed_by = ?7
WHERE tenant = ?1 AND name = ?2 AND revision = ?3 - 1";

/// What waits of source ?2 of tenant ?1 is tried again at ?3.
pub const SOURCE_RETRY: &str = "
UPDATE quarantine SET next_try_us = ?3 WHERE tenant = ?1 AND source = ?2 AND status = 1";

/// The revision of source ?2 of tenant ?1.
pub const SOURCE_REVISION: &str = "SELECT revision FROM receipt_sources WHERE tenant = ?1 AND name = ?2";

/// Whether a delivery of source ?2 of tenant ?1 waits.
pub const SOURCE_IN_USE: &str = "
SELECT EXISTS (SELECT 1 FROM quarantine WHERE tenant = ?1 AND source = ?2 AND status = 1)";

/// Forgets the decided deliveries of source ?2 of tenant ?1.
pub const SOURCE_FORGET: &str = "DELETE FROM quarantine WHERE tenant = ?1 AND source = ?2 AND status <> 1";

/// Deletes source ?2 of tenant ?1.
pub const SOURCE_DELETE: &str = "DELETE FROM receipt_sources WHERE tenant = ?1 AND name = ?2";

/// The status of delivery ?2 of tenant ?1, where it is there.
pub const QUARANTINE_STATUS: &str = "SELECT status FROM quarantine WHERE tenant = ?1 AND id = ?2";

/// How many deliveries of tenant ?1 wait.
pub const QUARANTINE_COUNT: &str = "SELECT count(*) FROM quarantine WHERE tenant = ?1 AND status = 1";

/// A delivery of source ?3; none where that is gone.
pub const QUARANTINE_INSERT: &str = "
INSERT INTO quarantine (tenant, id, source, status, reason, body, body_digest, facts, operation_id, attempts,
                        next_try_us, received_us, expires_us)
SELECT tenant, ?2, name, 1, ?4, ?5, ?6, ?7, ?8, 0, ?9, ?10, ?11
FROM receipt_sources WHERE tenant = ?1 AND name = ?3";

/// Delivery ?2 of tenant ?1.
pub const QUARANTINED: &str = "
SELECT tenant, id, source, status, reason, body, body_digest, facts, operation_id, attempts, next_try_us,
       received_us, expires_us, decision
FROM quarantine WHERE tenant = ?1 AND id = ?2";

/// Deliveries of tenant ?1 with status ?2 after (?3, ?4), at most ?5.
pub const QUARANTINE_LIST: &str = "
SELECT tenant, id, source, status, reason, NULL AS body, body_digest, facts, operation_id, attempts, next_try_us,
       received_us, expires_us, decision
FROM quarantine WHERE tenant = ?1 AND status = ?2 AND (received_us, id) > (?3, ?4)
ORDER BY received_us, id LIMIT ?5";

/// Deliveries whose next try has come at ?1, at most ?2.
pub const QUARANTINE_DUE: &str = "
SELECT tenant, id, source, status, reason, body, body_digest, facts, operation_id, attempts, next_try_us,
       received_us, expires_us, decision
FROM quarantine WHERE next_try_us IS NOT NULL AND next_try_us <= ?1 ORDER BY next_try_us LIMIT ?2";

/// When the next try comes.
pub const QUARANTINE_NEXT: &str = "
SELECT next_try_us FROM quarantine WHERE next_try_us IS NOT NULL ORDER BY next_try_us LIMIT 1";

/// A try of delivery ?2 of tenant ?1 that was tried ?3 times.
pub const QUARANTINE_TRY: &str = "
UPDATE quarantine SET attempts = attempts + 1, reason = coalesce(?4, reason),
                      operation_id = coalesce(?5, operation_id), next_try_us = ?6
WHERE tenant = ?1 AND id = ?2 AND status = 1 AND attempts = ?3";

/// A decision about delivery ?2 of tenant ?1.
pub const QUARANTINE_DECIDE: &str = "
UPDATE quarantine SET status = ?3, decision = ?4, body = NULL, next_try_us = NULL
WHERE tenant = ?1 AND id = ?2 AND status = 1";

/// Forgets the deliveries of tenant ?1 with status ?2 but the newest ?3.
pub const QUARANTINE_FORGET: &str = "
DELETE FROM quarantine WHERE tenant = ?1 AND id IN (
    SELECT id FROM quarantine WHERE tenant = ?1 AND status = ?2
    ORDER BY received_us DESC, id DESC LIMIT -1 OFFSET ?3)";

/// Removes delivery ?2 of tenant ?1, which was applied.
pub const QUARANTINE_APPLIED: &str = "DELETE FROM quarantine WHERE tenant = ?1 AND id = ?2 AND status = 1";

/// Removes deliveries that are too old at ?1, at most ?2.
pub const QUARANTINE_EXPIRE: &str = "
DELETE FROM quarantine WHERE rowid IN (
    SELECT rowid FROM quarantine WHERE expires_us <= ?1 ORDER BY expires_us LIMIT ?2)
RETURNING status";
