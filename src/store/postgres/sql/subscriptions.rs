//! Statements of subscriptions and their messages. Rows are read by the names of their columns.

/// Subscription $2 of tenant $1.
pub(in crate::store::postgres) const SUBSCRIPTION: &str =
    "SELECT * FROM subscriptions WHERE tenant = $1 AND subscription_id = $2";

/// Subscriptions of tenant $1 after $2, at most $3.
pub(in crate::store::postgres) const SUBSCRIPTIONS: &str = "\
SELECT * FROM subscriptions WHERE tenant = $1 AND subscription_id > $2 ORDER BY subscription_id LIMIT $3";

/// Two new ones of a tenant must not both be the last that it may have.
pub(in crate::store::postgres) const SUBSCRIPTIONS_LOCK: &str = "LOCK TABLE subscriptions IN SHARE ROW EXCLUSIVE MODE";

/// A new one, unless its tenant has $10 of them.
pub(in crate::store::postgres) const SUBSCRIPTION_ADD: &str = "\
INSERT INTO subscriptions (tenant, subscription_id, revision, spec, secrets, enabled, cursor_number, cursor_effect,
  cursor_revision, failures, pause_us, next_us, is_full, lease_us, created_us, created_by, changed_us)
SELECT $1, $2, 1, $3, $4, $5, $6, $7, $8, 0, 0, 0, false, 0,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, $9,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE (SELECT count(*) FROM subscriptions c WHERE c.tenant = $1) < $10 ON CONFLICT DO NOTHING";

/// A changed one: revision $3 after the one before it.
pub(in crate::store::postgres) const SUBSCRIPTION_CHANGE: &str = "\
UPDATE subscriptions SET revision = $3, spec = $4, secrets = $5, enabled = $6, reason = $7, pause_us = 0, next_us = 0,
  changed_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE tenant = $1 AND subscription_id = $2 AND revision = $3 - 1";

/// Deletes one at revision $3.
pub(in crate::store::postgres) const SUBSCRIPTION_DELETE: &str =
    "DELETE FROM subscriptions WHERE tenant = $1 AND subscription_id = $2 AND revision = $3";

/// Its messages with it.
pub(in crate::store::postgres) const MESSAGES_DELETE: &str =
    "DELETE FROM deliveries WHERE tenant = $1 AND subscription_id = $2";

/// Tenants with an enabled subscription, at most $1; those of endpoints that failed last by themselves.
pub(in crate::store::postgres) const SUBSCRIBED: &str = "\
SELECT tenant, failures > 0, min(greatest(next_us, pause_us, lease_us)) FROM subscriptions WHERE enabled
GROUP BY tenant, failures > 0 LIMIT $1";

/// Takes at most $3 subscriptions for holder $1 and $2 seconds: those that failed last ($4), or the others.
pub(in crate::store::postgres) const SUBSCRIPTIONS_CLAIM: &str = "\
WITH clock AS MATERIALIZED (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us),
ready AS MATERIALIZED (
  SELECT c.tenant, c.subscription_id FROM subscriptions c
  WHERE c.enabled AND (c.failures > 0) = $4 AND c.pause_us <= (SELECT now_us FROM clock) AND c.lease_us <= (SELECT now_us FROM clock)
    AND (c.next_us <= (SELECT now_us FROM clock) OR (NOT c.is_full AND EXISTS (SELECT FROM entries e
      WHERE e.tenant = c.tenant AND (e.moved, e.effect, e.revision) > (c.cursor_number, c.cursor_effect, c.cursor_revision)
        AND e.moved < (SELECT o.base_xid + pg_snapshot_xmin(pg_current_snapshot())::text::int8
          FROM feed_origin o WHERE o.one = 1))))
  ORDER BY c.pause_us LIMIT $3 FOR UPDATE SKIP LOCKED)
UPDATE subscriptions s SET holder = $1, lease_us = (SELECT now_us FROM clock) + $2::int8 * 1000000
FROM ready r WHERE s.tenant = r.tenant AND s.subscription_id = r.subscription_id
RETURNING s.*";

/// Holds one on for holder $3 and $4 seconds.
pub(in crate::store::postgres) const SUBSCRIPTION_HOLD: &str = "\
UPDATE subscriptions SET lease_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $4::int8 * 1000000
WHERE tenant = $1 AND subscription_id = $2 AND holder = $3 AND enabled RETURNING *";

/// Gives one back from holder $3; full means $4 messages.
pub(in crate::store::postgres) const SUBSCRIPTION_RELEASE: &str = "\
UPDATE subscriptions s SET holder = NULL, lease_us = 0,
  next_us = coalesce((SELECT min(d.due_us) FROM deliveries d
    WHERE d.tenant = $1 AND d.subscription_id = $2 AND d.dead_us IS NULL), 9223372036854775807),
  is_full = (SELECT count(*) FROM deliveries d
    WHERE d.tenant = $1 AND d.subscription_id = $2 AND d.dead_us IS NULL) >= $4
WHERE s.tenant = $1 AND s.subscription_id = $2 AND s.holder = $3";

/// Gives back what holder $1 has of the enabled ones.
pub(in crate::store::postgres) const SUBSCRIPTIONS_RELEASE: &str = "\
UPDATE subscriptions SET holder = NULL, lease_us = 0, next_us = 0 WHERE enabled AND holder = $1";

/// Moves a cursor from ($3, $4, $5) to ($6, $7, $8), and has it looked at: whoever made messages may not live to send
/// them.
pub(in crate::store::postgres) const SUBSCRIPTION_MOVE: &str = "\
UPDATE subscriptions SET cursor_number = $6, cursor_effect = $7, cursor_revision = $8, next_us = 0
WHERE tenant = $1 AND subscription_id = $2 AND cursor_number = $3 AND cursor_effect = $4 AND cursor_revision = $5";

/// New messages. Each is due at once, one microsecond after the one before it: that keeps their order.
pub(in crate::store::postgres) const MESSAGES_ADD: &str = "\
INSERT INTO deliveries (tenant, subscription_id, message_id, type, body, attempts, due_us, created_us)
SELECT $1, $2, m.id, m.type, m.body, 0, c.now_us + m.n, c.now_us
FROM unnest($3::text[], $4::text[], $5::text[]) WITH ORDINALITY AS m(id, type, body, n),
  (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint - cardinality($3::text[]) AS now_us) c
ON CONFLICT DO NOTHING";

/// Messages that are due, at most $3.
pub(in crate::store::postgres) const MESSAGES_DUE: &str = "\
SELECT * FROM deliveries WHERE tenant = $1 AND subscription_id = $2 AND dead_us IS NULL
  AND due_us <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) ORDER BY due_us LIMIT $3";

/// Forgets a message that was delivered.
pub(in crate::store::postgres) const MESSAGE_DONE: &str =
    "DELETE FROM deliveries WHERE tenant = $1 AND subscription_id = $2 AND message_id = $3";

/// A message that failed after $4 attempts: $5, and again in $6 microseconds.
pub(in crate::store::postgres) const MESSAGE_AGAIN: &str = "\
UPDATE deliveries SET attempts = $4 + 1, last_result = $5,
  last_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  due_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $6
WHERE tenant = $1 AND subscription_id = $2 AND message_id = $3 AND attempts = $4 AND dead_us IS NULL";

/// A message that failed after $4 attempts and is given up.
pub(in crate::store::postgres) const MESSAGE_DEAD: &str = "\
UPDATE deliveries SET attempts = $4 + 1, last_result = $5,
  last_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
  dead_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE tenant = $1 AND subscription_id = $2 AND message_id = $3 AND attempts = $4 AND dead_us IS NULL";

/// The row of failures: one more and a pause of $3 microseconds, or none.
pub(in crate::store::postgres) const SUBSCRIPTION_TRIED: &str = "\
UPDATE subscriptions SET failures = CASE WHEN $3::int8 IS NULL THEN 0 ELSE failures + 1 END,
  pause_us = CASE WHEN $3::int8 IS NULL THEN 0
    ELSE (extract(epoch FROM clock_timestamp()) * 1000000)::bigint + $3::int8 END
WHERE tenant = $1 AND subscription_id = $2 AND ($3::int8 IS NOT NULL OR failures > 0)";

/// Disables one because of $3.
pub(in crate::store::postgres) const SUBSCRIPTION_DISABLE: &str = "\
UPDATE subscriptions SET enabled = false, reason = $3,
  changed_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE tenant = $1 AND subscription_id = $2 AND enabled";

/// Messages that wait, and those that were given up.
pub(in crate::store::postgres) const MESSAGES_COUNT: &str = "\
SELECT count(*) FILTER (WHERE dead_us IS NULL), count(*) FILTER (WHERE dead_us IS NOT NULL)
FROM deliveries WHERE tenant = $1 AND subscription_id = $2";

/// Messages that were given up, after ($3, $4), at most $5.
pub(in crate::store::postgres) const MESSAGES_DEAD: &str = "\
SELECT * FROM deliveries WHERE tenant = $1 AND subscription_id = $2 AND dead_us IS NOT NULL
  AND (dead_us, message_id) > ($3, $4) ORDER BY dead_us, message_id LIMIT $5";

/// Makes dead messages due, those of $3 or the first $4.
pub(in crate::store::postgres) const MESSAGES_RESEND: &str = "\
UPDATE deliveries d SET dead_us = NULL, attempts = 0, due_us = c.now_us + c.n
FROM (SELECT message_id, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us,
    row_number() OVER (ORDER BY dead_us, message_id) AS n
  FROM deliveries WHERE tenant = $1 AND subscription_id = $2 AND dead_us IS NOT NULL
    AND ($3::text[] IS NULL OR message_id = ANY ($3::text[])) ORDER BY dead_us, message_id LIMIT $4) c
WHERE d.tenant = $1 AND d.subscription_id = $2 AND d.message_id = c.message_id AND d.dead_us IS NOT NULL";

/// Has one looked at.
pub(in crate::store::postgres) const SUBSCRIPTION_WAKE: &str = "\
UPDATE subscriptions SET next_us = 0, pause_us = 0 WHERE tenant = $1 AND subscription_id = $2";

/// For enabled subscriptions, at most $1: their longest due message, and the first entry that no message was made of.
pub(in crate::store::postgres) const OUTSTANDING: &str = "\
SELECT (SELECT min(d.due_us) FROM deliveries d WHERE d.tenant = s.tenant AND d.subscription_id = s.subscription_id
    AND d.dead_us IS NULL AND d.due_us <= (extract(epoch FROM now()) * 1000000)::bigint),
  CASE WHEN NOT s.is_full THEN (SELECT e.entry FROM entries e WHERE e.tenant = s.tenant
    AND (e.moved, e.effect, e.revision) > (s.cursor_number, s.cursor_effect, s.cursor_revision)
    ORDER BY e.moved, e.effect, e.revision LIMIT 1) END
FROM subscriptions s WHERE s.enabled LIMIT $1";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("SUBSCRIPTION", SUBSCRIPTION),
    ("SUBSCRIPTIONS", SUBSCRIPTIONS),
    ("SUBSCRIPTIONS_LOCK", SUBSCRIPTIONS_LOCK),
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
    ("MESSAGES_ADD", MESSAGES_ADD),
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
