//! Statements of subscriptions and their messages. Rows are read by the names of their columns.

/// Subscription ?2 of tenant ?1.
pub const SUBSCRIPTION: &str = "SELECT * FROM subscriptions WHERE tenant = ?1 AND subscription_id = ?2";

/// Subscriptions of tenant ?1 after ?2, at most ?3.
pub const SUBSCRIPTIONS: &str = "
SELECT * FROM subscriptions WHERE tenant = ?1 AND subscription_id > ?2 ORDER BY subscription_id LIMIT ?3";

/// A new one, unless its tenant has ?10 of them.
pub const SUBSCRIPTION_ADD: &str = "
INSERT OR IGNORE INTO subscriptions (tenant, subscription_id, revision, spec, secrets, enabled, cursor_number,
    cursor_effect, cursor_revision, failures, pause_us, next_us, is_full, lease_us, created_us, created_by, changed_us)
SELECT ?1, ?2, 1, ?3, ?4, ?5, ?6, ?7, ?8, 0, 0, 0, 0, 0, ?11, ?9, ?11
WHERE (SELECT count(*) FROM subscriptions WHERE tenant = ?1) < ?10";

/// A changed one: revision ?3 after the one before it.
pub const SUBSCRIPTION_CHANGE: &str = "
UPDATE subscriptions SET revision = ?3, spec = ?4, secrets = ?5, enabled = ?6, reason = ?7, pause_us = 0, next_us = 0,
    changed_us = ?8
WHERE tenant = ?1 AND subscription_id = ?2 AND revision = ?3 - 1";

/// Deletes one at revision ?3.
pub const SUBSCRIPTION_DELETE: &str = "
DELETE FROM subscriptions WHERE tenant = ?1 AND subscription_id = ?2 AND revision = ?3";

/// The messages of one that goes at revision ?3.
pub const MESSAGES_DELETE: &str = "
DELETE FROM deliveries WHERE tenant = ?1 AND subscription_id = ?2
    AND EXISTS (SELECT 1 FROM subscriptions WHERE tenant = ?1 AND subscription_id = ?2 AND revision = ?3)";

/// Tenants with an enabled subscription, at most ?1; those of endpoints that failed last by themselves.
pub const SUBSCRIBED: &str = "
SELECT tenant, failures > 0 AS is_failing, min(max(next_us, pause_us, lease_us)) AS next_us
FROM subscriptions INDEXED BY subscriptions_enabled
WHERE enabled = 1 AND pause_us >= 0 GROUP BY tenant, failures > 0 LIMIT ?1";

/// Takes at most ?4 subscriptions for holder ?1 at ?2 until ?3: those that failed last (?5), or the others. One that
/// is far behind (?6 rows of anybody) is moved on.
pub const SUBSCRIPTIONS_CLAIM: &str = "
UPDATE subscriptions SET holder = ?1, lease_us = ?3
WHERE (tenant, subscription_id) IN (
    SELECT c.tenant, c.subscription_id FROM subscriptions c INDEXED BY subscriptions_enabled
    WHERE c.enabled = 1 AND (c.failures > 0) = ?5 AND c.pause_us <= ?2 AND c.lease_us <= ?2
      AND (c.next_us <= ?2 OR (c.is_full = 0 AND (
        (SELECT max(n.rowid) FROM entries n NOT INDEXED) - max(c.cursor_number, 0) > ?6
        OR EXISTS (SELECT 1 FROM entries e NOT INDEXED WHERE e.rowid > c.cursor_number AND e.tenant = c.tenant))))
    ORDER BY c.pause_us LIMIT ?4)
RETURNING *";

/// Holds one on for holder ?3 until ?4.
pub const SUBSCRIPTION_HOLD: &str = "
UPDATE subscriptions SET lease_us = ?4
WHERE tenant = ?1 AND subscription_id = ?2 AND holder = ?3 AND enabled = 1 RETURNING *";

/// Gives one back from holder ?3; full means ?4 messages.
pub const SUBSCRIPTION_RELEASE: &str = "
UPDATE subscriptions SET holder = NULL, lease_us = 0,
    next_us = coalesce((SELECT min(d.due_us) FROM deliveries d
        WHERE d.tenant = ?1 AND d.subscription_id = ?2 AND d.dead_us IS NULL), 9223372036854775807),
    is_full = (SELECT count(*) FROM deliveries d
        WHERE d.tenant = ?1 AND d.subscription_id = ?2 AND d.dead_us IS NULL) >= ?4
WHERE tenant = ?1 AND subscription_id = ?2 AND holder = ?3";

/// Gives back what holder ?1 has of the enabled ones.
pub const SUBSCRIPTIONS_RELEASE: &str = "
UPDATE subscriptions INDEXED BY subscriptions_enabled SET holder = NULL, lease_us = 0, next_us = 0
WHERE enabled = 1 AND pause_us >= 0 AND holder = ?1";

/// Moves a cursor from row ?3 to (?4, ?5, ?6), and has it looked at: whoever made messages may not live to send them.
pub const SUBSCRIPTION_MOVE: &str = "
UPDATE subscriptions SET cursor_number = ?4, cursor_effect = ?5, cursor_revision = ?6, next_us = 0
WHERE tenant = ?1 AND subscription_id = ?2 AND cursor_number = ?3";

/// A new message ?3 of type ?4 with the bytes ?5, made at ?6 and due at ?7.
pub const MESSAGE_ADD: &str = "
INSERT OR IGNORE INTO deliveries (tenant, subscription_id, message_id, type, body, attempts, created_us, due_us)
VALUES (?1, ?2, ?3, ?4, ?5, 0, ?6, ?7)";

/// Messages that are due at ?3, at most ?4.
pub const MESSAGES_DUE: &str = "
SELECT * FROM deliveries WHERE tenant = ?1 AND subscription_id = ?2 AND dead_us IS NULL AND due_us <= ?3
ORDER BY due_us LIMIT ?4";

/// Forgets a message that was delivered.
pub const MESSAGE_DONE: &str = "
DELETE FROM deliveries WHERE tenant = ?1 AND subscription_id = ?2 AND message_id = ?3";

/// A message that failed after ?4 attempts at ?6: ?5, and again at ?7.
pub const MESSAGE_AGAIN: &str = "
UPDATE deliveries SET attempts = ?4 + 1, last_result = ?5, last_us = ?6, due_us = ?7
WHERE tenant = ?1 AND subscription_id = ?2 AND message_id = ?3 AND attempts = ?4 AND dead_us IS NULL";

/// A message that failed after ?4 attempts at ?6 and is given up.
pub const MESSAGE_DEAD: &str = "
UPDATE deliveries SET attempts = ?4 + 1, last_result = ?5, last_us = ?6, dead_us = ?6
WHERE tenant = ?1 AND subscription_id = ?2 AND message_id = ?3 AND attempts = ?4 AND dead_us IS NULL";

/// The row of failures: one more and a pause until ?3, or none.
pub const SUBSCRIPTION_TRIED: &str = "
UPDATE subscriptions SET failures = CASE WHEN ?3 IS NULL THEN 0 ELSE failures + 1 END, pause_us = coalesce(?3, 0)
WHERE tenant = ?1 AND subscription_id = ?2 AND (?3 IS NOT NULL OR failures > 0)";

/// Disables one because of ?3 at ?4.
pub const SUBSCRIPTION_DISABLE: &str = "
UPDATE subscriptions SET enabled = 0, reason = ?3, changed_us = ?4
WHERE tenant = ?1 AND subscription_id = ?2 AND enabled = 1";

/// Messages that wait, and those that were given up.
pub const MESSAGES_COUNT: &str = "
SELECT count(*) FILTER (WHERE dead_us IS NULL), count(*) FILTER (WHERE dead_us IS NOT NULL)
FROM deliveries WHERE tenant = ?1 AND subscription_id = ?2";

/// Messages that were given up, after (?3, ?4), at most ?5.
pub const MESSAGES_DEAD: &str = "
SELECT * FROM deliveries WHERE tenant = ?1 AND subscription_id = ?2 AND dead_us IS NOT NULL
    AND (dead_us, message_id) > (?3, ?4) ORDER BY dead_us, message_id LIMIT ?5";

/// Makes dead messages due at ?3, those of the list ?4 or the first ?5.
pub const MESSAGES_RESEND: &str = "
UPDATE deliveries SET dead_us = NULL, attempts = 0, due_us = ?3
WHERE (tenant, subscription_id, message_id) IN (
    SELECT d.tenant, d.subscription_id, d.message_id FROM deliveries d
    WHERE d.tenant = ?1 AND d.subscription_id = ?2 AND d.dead_us IS NOT NULL
      AND (?4 IS NULL OR d.message_id IN (SELECT c.value FROM json_each(?4) AS c))
    ORDER BY d.dead_us, d.message_id LIMIT ?5)";

/// Has one looked at.
pub const SUBSCRIPTION_WAKE: &str = "
UPDATE subscriptions SET next_us = 0, pause_us = 0 WHERE tenant = ?1 AND subscription_id = ?2";

/// For enabled subscriptions, at most ?2: their message that is due longest at ?1, and the first entry that no
/// message was made of, among some (twice ?3).
pub const OUTSTANDING: &str = "
SELECT (SELECT min(d.due_us) FROM deliveries d WHERE d.tenant = s.tenant AND d.subscription_id = s.subscription_id
        AND d.dead_us IS NULL AND d.due_us <= ?1) AS due_us,
    CASE WHEN s.is_full = 0 THEN (SELECT e.entry FROM entries e NOT INDEXED
        WHERE e.rowid > s.cursor_number AND e.rowid <= max(s.cursor_number, 0) + 2 * ?3 AND e.tenant = s.tenant
        ORDER BY e.rowid LIMIT 1) END AS entry
FROM subscriptions s INDEXED BY subscriptions_enabled WHERE s.enabled = 1 AND s.pause_us >= 0 LIMIT ?2";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("SUBSCRIPTION", SUBSCRIPTION),
    ("SUBSCRIPTIONS", SUBSCRIPTIONS),
    ("SUBSCRIPTION_ADD", SUBSCRIPTION_ADD),
    ("SUBSCRIPTION_CHANGE", SUBSCRIPTION_CHANGE),
    ("SUBSCRIPTION_DELETE", SUBSCRIPTION_DELETE),
    ("MESSAGES_DELETE", MESSAGES_DELETE),
    ("SUBSCRIBED", SUBSCRIBED),
    ("SUBSCRIPTIONS_CLAIM", SUBSCRIPTIONS_CLAIM),
    ("SUBSCRIPTION_HOLD", SUBSCRIPTION_HOLD),
    ("SUBSCRIPTION_RELEASE", SUBSCRIPTION_RELEASE),
    ("SUBSCRIPTIONS_RELEASE", SUBSCRIPTIONS_RELEASE),
    ("SUBSCRIPTION_MOVE", SUBSCRIPTION_MOVE),
    ("MESSAGE_ADD", MESSAGE_ADD),
    ("MESSAGES_DUE", MESSAGES_DUE),
    ("MESSAGE_DONE", MESSAGE_DONE),
    ("MESSAGE_AGAIN", MESSAGE_AGAIN),
    ("MESSAGE_DEAD", MESSAGE_DEAD),
    ("SUBSCRIPTION_TRIED", SUBSCRIPTION_TRIED),
    ("SUBSCRIPTION_DISABLE", SUBSCRIPTION_DISABLE),
    ("MESSAGES_COUNT", MESSAGES_COUNT),
    ("MESSAGES_DEAD", MESSAGES_DEAD),
    ("MESSAGES_RESEND", MESSAGES_RESEND),
    ("SUBSCRIPTION_WAKE", SUBSCRIPTION_WAKE),
    ("OUTSTANDING", OUTSTANDING),
];
