//! The statements about receipt sources and the quarantine; see [`super::sql`].

/// A source by its name.
pub(super) const SOURCE: &str = "\
SELECT tenant, name, source_id, revision, spec, secrets, changed_us FROM receipt_sources
WHERE tenant = $1 AND name = $2";

/// A source by its address. Two with one address can't be; if they were, neither would be meant.
pub(super) const SOURCE_AT: &str = "\
SELECT tenant, name, source_id, revision, spec, secrets, changed_us FROM receipt_sources
WHERE source_id = $1 LIMIT 2";

/// Sources by name.
pub(super) const SOURCES: &str = "\
SELECT tenant, name, source_id, revision, spec, secrets, changed_us FROM receipt_sources
WHERE tenant = $1 AND name > $2 ORDER BY name LIMIT $3";

/// A new source.
pub(super) const SOURCE_INSERT: &str = "\
INSERT INTO receipt_sources (tenant, name, source_id, revision, spec, secrets, changed_us, changed_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING";

/// A changed source.
pub(super) const SOURCE_UPDATE: &str = "\
UPDATE receipt_sources SET revision = $3, spec = $4, secrets = $5, changed_us = $6, changed_by = $7
WHERE tenant = $1 AND name = $2 AND revision = $3 - 1";

/// What waits of a source is tried again soon.
pub(super) const SOURCE_RETRY: &str = "\
UPDATE quarantine SET next_try_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE tenant = $1 AND source = $2 AND status = 1";

/// Holds a source against new deliveries, for its deletion.
pub(super) const SOURCE_LOCK: &str = "\
SELECT revision FROM receipt_sources WHERE tenant = $1 AND name = $2 FOR UPDATE";

/// Whether a delivery of a source waits.
pub(super) const SOURCE_IN_USE: &str = "\
SELECT EXISTS (SELECT FROM quarantine WHERE tenant = $1 AND source = $2 AND status = 1)";

/// Forgets the decided deliveries of a source.
pub(super) const SOURCE_FORGET: &str = "DELETE FROM quarantine WHERE tenant = $1 AND source = $2 AND status <> 1";

/// Deletes a source.
pub(super) const SOURCE_DELETE: &str = "DELETE FROM receipt_sources WHERE tenant = $1 AND name = $2";

/// One at a time of each tenant, so that the bound holds. What is taken is acknowledged, so a server that
/// would not wait for its disk is overruled here as it is for journals.
pub(super) const QUARANTINE_LOCK: &str = "\
SELECT pg_advisory_xact_lock(hashtextextended('actonce quarantine ' || $1, 0)),
  CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', true) END";

/// The status of a delivery, where it is there.
pub(super) const QUARANTINE_STATUS: &str = "SELECT status FROM quarantine WHERE tenant = $1 AND id = $2";

/// How many deliveries of a tenant wait.
pub(super) const QUARANTINE_COUNT: &str = "SELECT count(*) FROM quarantine WHERE tenant = $1 AND status = 1";

/// A delivery; none where its source is gone.
pub(super) const QUARANTINE_INSERT: &str = "\
INSERT INTO quarantine (tenant, id, source, status, reason, body, body_digest, facts, operation_id, attempts,
  next_try_us, received_us, expires_us)
SELECT tenant, $2, name, 1, $4, $5, $6, $7, $8, 0, $9, $10, $11
FROM receipt_sources WHERE tenant = $1 AND name = $3 FOR SHARE";

/// A delivery.
pub(super) const QUARANTINED: &str = "\
SELECT tenant, id, source, status, reason, body, body_digest, facts, operation_id, attempts, next_try_us, received_us,
  expires_us, decision
FROM quarantine WHERE tenant = $1 AND id = $2";

/// Deliveries with a status.
pub(super) const QUARANTINE_LIST: &str = "\
SELECT tenant, id, source, status, reason, NULL::text, body_digest, facts, operation_id, attempts, next_try_us,
  received_us, expires_us, decision
FROM quarantine WHERE tenant = $1 AND status = $2 AND (received_us, id) > ($3, $4) ORDER BY received_us, id LIMIT $5";

/// Deliveries whose next try has come.
pub(super) const QUARANTINE_DUE: &str = "\
SELECT tenant, id, source, status, reason, body, body_digest, facts, operation_id, attempts, next_try_us, received_us,
  expires_us, decision
FROM quarantine
WHERE next_try_us IS NOT NULL AND next_try_us <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY next_try_us LIMIT $1";

/// When the next try comes, and the time.
pub(super) const QUARANTINE_NEXT: &str = "\
SELECT (SELECT min(next_try_us) FROM quarantine WHERE next_try_us IS NOT NULL),
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// A try.
pub(super) const QUARANTINE_TRY: &str = "\
UPDATE quarantine SET attempts = attempts + 1, reason = coalesce($4, reason), operation_id = coalesce($5, operation_id),
  next_try_us = $6
WHERE tenant = $1 AND id = $2 AND status = 1 AND attempts = $3";

/// A decision.
pub(super) const QUARANTINE_DECIDE: &str = "\
UPDATE quarantine SET status = $3, decision = $4, body = NULL, next_try_us = NULL
WHERE tenant = $1 AND id = $2 AND status = 1";

/// Forgets the older of the decided deliveries.
pub(super) const QUARANTINE_FORGET: &str = "\
DELETE FROM quarantine WHERE tenant = $1 AND id IN (
  SELECT id FROM quarantine WHERE tenant = $1 AND status = $2 ORDER BY received_us DESC, id DESC OFFSET $3)";

/// Removes a delivery that was applied.
pub(super) const QUARANTINE_APPLIED: &str = "DELETE FROM quarantine WHERE tenant = $1 AND id = $2 AND status = 1";

/// Removes deliveries that are too old.
pub(super) const QUARANTINE_EXPIRE: &str = "\
DELETE FROM quarantine WHERE ctid IN (
  SELECT ctid FROM quarantine
  WHERE expires_us <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
  ORDER BY expires_us LIMIT $1 FOR UPDATE SKIP LOCKED)
RETURNING status";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("SOURCE", SOURCE),
    ("SOURCE_AT", SOURCE_AT),
    ("SOURCES", SOURCES),
    ("SOURCE_INSERT", SOURCE_INSERT),
    ("SOURCE_UPDATE", SOURCE_UPDATE),
    ("SOURCE_RETRY", SOURCE_RETRY),
    ("SOURCE_LOCK", SOURCE_LOCK),
    ("SOURCE_IN_USE", SOURCE_IN_USE),
    ("SOURCE_FORGET", SOURCE_FORGET),
    ("SOURCE_DELETE", SOURCE_DELETE),
    ("QUARANTINE_LOCK", QUARANTINE_LOCK),
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
