//! Every statement, as a constant: reviewable in one place, and prepared by a test against a
//! freshly migrated database.
//!
//! Plans must not depend on what the tables looked like when the statement was first planned:
//! the connections of [`super::PostgresStore`] switch hash joins, merge joins and sequential scans
//! off, so every join below is a nested loop into an index. Where two small sets of one statement
//! meet, `(… IN (SELECT …)) IS TRUE` keeps the planner from turning a hashed lookup into a join.

pub mod approvals;
pub mod bypass;
pub mod checkpoints;
pub mod doubts;
pub mod elapsed;
pub mod feed;
pub mod health;
pub mod inspect;
pub mod operators;
pub mod profiles;
pub mod quotas;
pub mod recovery;
pub mod restore;
pub mod retention;
pub mod seals;
pub mod subscriptions;

/// The database's time in microseconds.
pub(super) const NOW: &str = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Whether the database takes writes: no standby, and not switched to reads.
pub(super) const TAKES_WRITES: &str = "SELECT current_setting('transaction_read_only') = 'off'";

/// Which session of the database a connection has.
pub(super) const BACKEND: &str = "SELECT pg_backend_pid()";

/// Version, what a session is given for commits, whether it flushes, and which database of which server it is.
pub(super) const SERVER: &str = "\
SELECT current_setting('server_version_num')::int4,
  (SELECT reset_val FROM pg_settings WHERE name = 'synchronous_commit'), current_setting('fsync'),
  (SELECT oid::text FROM pg_database WHERE datname = current_database()) || ' ' ||
    extract(epoch FROM pg_postmaster_start_time())::text";

/// Whether a connection has the settings that plans and durability rest on.
pub(super) const HAS_SETTINGS: &str = "\
SELECT current_setting('synchronous_commit') <> 'off' AND current_setting('plan_cache_mode') = 'force_generic_plan'
  AND current_setting('enable_seqscan') = 'off' AND current_setting('enable_hashjoin') = 'off'
  AND current_setting('enable_mergejoin') = 'off' AND current_setting('jit') = 'off'";

/// Whose rows a connection sees from now on: see [`super::wall`].
pub(super) const SAY_TENANTS: &str = "SELECT set_config('actonce.tenants', $1, false)";

/// Whether the policies hold this role: no superuser is held, nor a role with `BYPASSRLS`.
pub(super) const WALL_HOLDS: &str = "SELECT row_security_active('entries')";

/// What commits of many revisions begin with.
///
/// `ready` drops what a tool's stamp or an open twin forbids. `closed` and `kept` take the open row
/// along under its expected revision (and lease end), which is the compare-and-set for effects that
/// are open.
///
/// `input` steps through its arrays side by side: as a table function each would be copied into a store of its own
/// first, and all of them into one more.
macro_rules! with_open_rows {
    () => {
        "\
WITH input AS (
  SELECT unnest($1::text[]) AS tenant, unnest($2::uuid[]) AS effect, unnest($3::int4[]) AS revision,
    unnest($4::int2[]) AS state, unnest($5::int8[]) AS created_us, unnest($6::text[]) AS run_id,
    unnest($7::text[]) AS session_id, unnest($8::text[]) AS intent, unnest($9::text[]) AS life,
    unnest($10::text[]) AS entry, unnest($11::text[]) AS receipt, unnest($12::text[]) AS result,
    unnest($13::bytea[]) AS prev_hash, unnest($14::bytea[]) AS hash, unnest($15::bool[]) AS was_open,
    unnest($16::bool[]) AS stays_open, unnest($17::int4[]) AS fence, unnest($18::int8[]) AS due_us,
    unnest($19::uuid[]) AS duplicate, unnest($20::int8[]) AS open_created_us, unnest($21::bool[]) AS contradicted,
    unnest($22::text[]) AS tool, unnest($23::int8[]) AS lease_seen_us, unnest($24::int8[]) AS tool_stamp,
    unnest($25::int8[]) AS deadline_us, unnest($26::text[]) AS proposed_by
), ready AS MATERIALIZED (
  SELECT * FROM input i
  WHERE (i.tool_stamp IS NULL OR EXISTS (
      SELECT FROM tools t WHERE t.tenant = i.tenant AND t.name = i.tool AND t.stamp = i.tool_stamp AND NOT t.deleted))
    AND (i.duplicate IS NULL OR i.was_open OR NOT EXISTS (
      SELECT FROM open_effects o WHERE o.tenant = i.tenant AND o.duplicate = i.duplicate))
), closed AS (
  DELETE FROM open_effects o USING ready i
  WHERE i.was_open AND NOT i.stays_open AND o.tenant = i.tenant AND o.effect = i.effect
    AND o.revision = i.revision - 1
    AND (i.lease_seen_us IS NULL OR (o.due_us = i.lease_seen_us
      AND o.due_us <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
  RETURNING i.tenant, i.effect, i.revision, i.state, i.life, i.entry, i.receipt, i.result, i.prev_hash, i.hash
), kept AS (
  UPDATE open_effects o SET revision = i.revision, state = i.state, fence = i.fence, due_us = i.due_us,
    deadline_us = i.deadline_us, duplicate = i.duplicate, contradicted = i.contradicted
  FROM ready i
  WHERE i.was_open AND i.stays_open AND o.tenant = i.tenant AND o.effect = i.effect
    AND o.revision = i.revision - 1
    AND (i.lease_seen_us IS NULL OR (o.due_us = i.lease_seen_us
      AND o.due_us <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
  RETURNING i.tenant, i.effect, i.revision, i.state, i.life, i.entry, i.receipt, i.result, i.prev_hash, i.hash
"
    };
}

/// The open rows of those that had none, as far as they were appended; which ones that are has to follow.
macro_rules! opened_rows {
    () => {
        "\
), opened AS (
  INSERT INTO open_effects (tenant, effect, revision, state, fence, due_us, deadline_us, duplicate, created_us,
    contradicted, tool, run_id, session_id, proposed_by)
  SELECT tenant, effect, revision, state, fence, due_us, deadline_us, duplicate, open_created_us, contradicted,
    tool, run_id, session_id, proposed_by
  FROM ready i
  WHERE NOT was_open AND stays_open"
    };
}

/// Writes revisions that new and open effects take: one statement, one transaction, each row applied or left out by
/// itself, but for a new effect that is there already: that fails the whole, by the primary key, and [`COMMIT_EACH`]
/// has to take its place. It is rare (what is known is not proposed anew), and not to ask for it before each row
/// saves a tenth of what the database does.
pub(super) const COMMIT: &str = concat!(
    with_open_rows!(),
    "\
), written AS (
  INSERT INTO entries (tenant, effect, revision, state, life, entry, receipt, result, prev_hash, hash, created_us,
    run_id, session_id, intent)
  SELECT *, NULL::int8, NULL::text, NULL::text, NULL::text FROM closed
  UNION ALL SELECT *, NULL, NULL, NULL, NULL FROM kept
  UNION ALL SELECT tenant, effect, revision, state, life, entry, receipt, result, prev_hash, hash, created_us,
    run_id, session_id, intent
  FROM ready WHERE NOT was_open AND created_us IS NOT NULL
  RETURNING effect
",
    opened_rows!(),
    " AND created_us IS NOT NULL
)
SELECT effect FROM written"
);

/// Writes revisions of any kind: one statement, one transaction, each row applied or left out by itself.
///
/// What `closed` and `kept` return is appended by `changed`, where a conflict can only be corruption and
/// aborts. `fresh` appends new effects, and evidence on settled ones after the newest revision, where
/// the primary key is the compare-and-set; `opened` adds the open rows of those that were appended.
pub(super) const COMMIT_EACH: &str = concat!(
    with_open_rows!(),
    "\
), changed AS (
  INSERT INTO entries (tenant, effect, revision, state, life, entry, receipt, result, prev_hash, hash)
  SELECT * FROM closed UNION ALL SELECT * FROM kept
  RETURNING effect
), fresh AS (
  INSERT INTO entries (tenant, effect, revision, state, created_us, run_id, session_id,
    intent, life, entry, receipt, result, prev_hash, hash)
  SELECT tenant, effect, revision, state, created_us,
    CASE WHEN created_us IS NOT NULL THEN run_id END, CASE WHEN created_us IS NOT NULL THEN session_id END,
    intent, life, entry, receipt, result, prev_hash, hash
  FROM ready i
  WHERE NOT was_open AND (created_us IS NOT NULL OR i.revision - 1 =
    (SELECT max(e.revision) FROM entries e WHERE e.tenant = i.tenant AND e.effect = i.effect))
  ON CONFLICT DO NOTHING
  RETURNING effect
",
    opened_rows!(),
    " AND (i.effect IN (SELECT effect FROM fresh)) IS TRUE
)
SELECT effect FROM changed UNION ALL SELECT effect FROM fresh"
);

/// One new effect (or one piece of evidence on a settled one): what `ready`, `fresh` and `opened` of
/// [`COMMIT_EACH`] do, without arrays. A lone caller pays for nothing that only a batch needs.
pub(super) const COMMIT_FRESH: &str = "\
WITH fresh AS (
  INSERT INTO entries (tenant, effect, revision, state, created_us, run_id, session_id,
    intent, life, entry, receipt, result, prev_hash, hash)
  SELECT $1, $2, $3, $4, $5, CASE WHEN $5::int8 IS NOT NULL THEN $6::text END,
    CASE WHEN $5::int8 IS NOT NULL THEN $7::text END, $8, $9, $10, $11, $12, $13, $14
  WHERE ($15::int8 IS NULL OR EXISTS (
      SELECT FROM tools t WHERE t.tenant = $1 AND t.name = $16 AND t.stamp = $15 AND NOT t.deleted))
    AND ($17::uuid IS NULL OR NOT EXISTS (
      SELECT FROM open_effects o WHERE o.tenant = $1 AND o.duplicate = $17))
    AND ($5::int8 IS NOT NULL OR $3 - 1 =
      (SELECT max(e.revision) FROM entries e WHERE e.tenant = $1 AND e.effect = $2))
  ON CONFLICT DO NOTHING
  RETURNING effect
), opened AS (
  INSERT INTO open_effects (tenant, effect, revision, state, fence, due_us, duplicate, created_us, contradicted,
    tool, run_id, session_id, proposed_by)
  SELECT $1, effect, $3, $4, $18, $19, $17, $20, $21, $16, $6, $7, $23 FROM fresh WHERE $22
)
SELECT effect FROM fresh";

/// One open effect that settles: what `closed` and `changed` of [`COMMIT_EACH`] do.
pub(super) const COMMIT_CLOSED: &str = "\
WITH closed AS (
  DELETE FROM open_effects o
  WHERE o.tenant = $1 AND o.effect = $2 AND o.revision = $3 - 1
    AND ($11::int8 IS NULL OR (o.due_us = $11 AND o.due_us <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint))
  RETURNING o.effect
)
INSERT INTO entries (tenant, effect, revision, state, life, entry, receipt, result, prev_hash, hash)
SELECT $1, effect, $3, $4, $5, $6, $7, $8, $9, $10 FROM closed
RETURNING effect";

/// Renews leases, $6 of them. The rows have to be found by key, even where the planner believes that
/// the table is empty: `IS TRUE` keeps state and time from offering an index, and a limit that it does
/// not know makes it expect few renewals.
pub(super) const RENEW: &str = "\
UPDATE open_effects o SET due_us = greatest(o.due_us, i.until_us)
FROM (SELECT * FROM unnest($1::text[], $2::uuid[], $3::int4[], $4::int4[], $5::int8[])
  AS u(tenant, effect, revision, fence, until_us) LIMIT $6) i
WHERE o.tenant = i.tenant AND o.effect = i.effect AND o.revision = i.revision AND o.fence = i.fence
  AND (o.state = 3 AND o.due_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) IS TRUE
RETURNING o.effect";

/// The rows that make records.
pub(super) const LOAD: &str = "\
SELECT k.n, e.revision::int8, e.intent, e.life, e.receipt, e.result, e.hash, o.due_us
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS k(tenant, effect, n)
JOIN entries e ON e.tenant = k.tenant AND e.effect = k.effect
  AND (e.revision = 1 OR e.receipt IS NOT NULL OR e.result IS NOT NULL OR e.revision =
    (SELECT max(m.revision) FROM entries m WHERE m.tenant = k.tenant AND m.effect = k.effect))
LEFT JOIN open_effects o ON o.tenant = k.tenant AND o.effect = k.effect
ORDER BY k.n, e.revision";

/// The newest revisions.
pub(super) const REVISIONS: &str = "\
SELECT coalesce((SELECT max(m.revision) FROM entries m WHERE m.tenant = k.tenant AND m.effect = k.effect), 0)
FROM unnest($1::text[], $2::uuid[]) WITH ORDINALITY AS k(tenant, effect, n) ORDER BY k.n";

/// The open effect with a duplicate key.
pub(super) const TWIN: &str = "SELECT effect FROM open_effects WHERE tenant = $1 AND duplicate = $2";

/// Open effects that are due. The time is asked once, in a subquery: compared with a function that may
/// change from row to row, the index could not tell where to stop.
pub(super) const DUE: &str = "\
SELECT tenant, effect FROM open_effects
WHERE due_us IS NOT NULL AND due_us <= (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY due_us LIMIT $1";

/// Puts off what is due, $5 rows of it; found by key as in [`RENEW`].
pub(super) const POSTPONE: &str = "\
UPDATE open_effects o SET due_us = i.until_us
FROM (SELECT * FROM unnest($1::text[], $2::uuid[], $3::int4[], $4::int8[])
  AS u(tenant, effect, revision, until_us) LIMIT $5) i
WHERE o.tenant = i.tenant AND o.effect = i.effect AND o.revision = i.revision
  AND (o.due_us <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) IS TRUE
RETURNING o.effect";

/// Who registers a keyring waits for others who do.
pub(super) const ALIAS_KEYS_LOCK: &str = "LOCK TABLE alias_keys IN SHARE ROW EXCLUSIVE MODE";
/// The registry of alias keys: a handful.
pub(super) const ALIAS_KEYS: &str = "SELECT id, fingerprint, retired_us IS NOT NULL FROM alias_keys";
/// Notes new ids.
pub(super) const ALIAS_KEYS_ADD: &str = "\
INSERT INTO alias_keys (id, fingerprint) SELECT * FROM unnest($1::text[], $2::bytea[]) ON CONFLICT DO NOTHING";
/// Retires what is not listed.
pub(super) const ALIAS_KEYS_RETIRE: &str = "\
UPDATE alias_keys SET retired_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE retired_us IS NULL AND NOT id = ANY ($1::text[])";

/// The next time that something is due, and the time now.
pub(super) const NEXT_DUE: &str = "\
SELECT (SELECT due_us FROM open_effects WHERE due_us IS NOT NULL ORDER BY due_us LIMIT 1),
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Lists.
pub(super) const WALK_ALL: &str = "\
SELECT created_us, effect FROM entries
WHERE tenant = $1 AND created_us IS NOT NULL AND (created_us, effect) > ($2, $3)
ORDER BY created_us, effect LIMIT $4";
/// Lists.
pub(super) const WALK_RUN: &str = "\
SELECT created_us, effect FROM entries
WHERE tenant = $1 AND run_id = $5 AND (created_us, effect) > ($2, $3)
ORDER BY created_us, effect LIMIT $4";
/// Lists.
pub(super) const WALK_SESSION: &str = "\
SELECT created_us, effect FROM entries
WHERE tenant = $1 AND session_id = $5 AND (created_us, effect) > ($2, $3)
ORDER BY created_us, effect LIMIT $4";
/// Lists. What is open in a state is found by the index of those alone that say `state >= 0`: see migration 17.
pub(super) const WALK_OPEN: &str = "\
SELECT created_us, effect FROM open_effects
WHERE tenant = $1 AND state = $5 AND state >= 0 AND (created_us, effect) > ($2, $3)
ORDER BY created_us, effect LIMIT $4";
/// Lists.
pub(super) const WALK_CONTRADICTED: &str = "\
SELECT created_us, effect FROM open_effects
WHERE tenant = $1 AND contradicted AND (created_us, effect) > ($2, $3)
ORDER BY created_us, effect LIMIT $4";

/// Effects of a run per state.
pub(super) const RUN_STATES: &str = "\
SELECT s.state, count(*) FROM entries r
CROSS JOIN LATERAL (SELECT e.state FROM entries e WHERE e.tenant = r.tenant AND e.effect = r.effect
  ORDER BY e.revision DESC LIMIT 1) s
WHERE r.tenant = $1 AND r.run_id = $2 GROUP BY s.state ORDER BY s.state";

/// Open effects per state.
pub(super) const OPEN_STATES: &str =
    "SELECT state, count(*), min(created_us) FROM open_effects GROUP BY state ORDER BY state";

/// One effect's journal.
pub(super) const JOURNAL: &str = "\
SELECT revision::int8, entry, prev_hash, hash FROM entries
WHERE tenant = $1 AND effect = $2 AND revision > $3 ORDER BY revision LIMIT $4";

/// All journal rows, for verification.
pub(super) const AUDIT: &str = "\
SELECT tenant, effect, revision::int8, entry, prev_hash, hash, state, intent, life, receipt, result FROM entries
WHERE (tenant, effect, revision) > ($1, $2, $3) ORDER BY tenant, effect, revision LIMIT $4";

/// All open rows, for verification.
pub(super) const OPEN_MARKS: &str = "\
SELECT tenant, effect, revision::int8 FROM open_effects
WHERE (tenant, effect) > ($1, $2) ORDER BY tenant, effect LIMIT $3";

/// A tool's current row.
pub(super) const TOOL: &str = "\
SELECT t.name, t.revision, t.stamp, t.paused, t.deleted, r.spec, r.registered_us
FROM tools t JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name AND r.revision = t.revision
WHERE t.tenant = $1 AND t.name = $2";

/// One revision of a tool.
pub(super) const TOOL_REVISION: &str = "\
SELECT t.name, r.revision, t.stamp, t.paused, t.deleted, r.spec, r.registered_us
FROM tools t JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name AND r.revision = $3
WHERE t.tenant = $1 AND t.name = $2";

/// Tools by name.
pub(super) const TOOLS: &str = "\
SELECT t.name, t.revision, t.stamp, t.paused, t.deleted, r.spec, r.registered_us
FROM tools t JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name AND r.revision = t.revision
WHERE t.tenant = $1 AND t.name > $2 AND NOT t.deleted ORDER BY t.name LIMIT $3";

/// Whether an open effect uses a tool.
pub(super) const TOOL_IN_USE: &str = "\
SELECT EXISTS (SELECT FROM open_effects WHERE tenant = $1 AND tool = $2 AND state NOT IN (8, 9, 10))";

/// A new tool.
pub(super) const TOOL_INSERT: &str = "\
INSERT INTO tools (tenant, name, revision, stamp, paused, deleted) VALUES ($1, $2, $3, 1, $4, $5)
ON CONFLICT DO NOTHING";

/// A changed tool.
pub(super) const TOOL_UPDATE: &str = "\
UPDATE tools SET revision = $3, stamp = stamp + 1, paused = $4, deleted = $5
WHERE tenant = $1 AND name = $2 AND stamp = $6";

/// A registration.
pub(super) const TOOL_REVISION_INSERT: &str = "\
INSERT INTO tool_revisions (tenant, name, revision, spec, registered_us, registered_by)
VALUES ($1, $2, $3, $4, $5, $6)";

/// The newest secret of a tool and the one before it.
pub(super) const TOOL_SECRETS: &str = "\
SELECT number, sealed, created_us, retired_us FROM tool_secrets
WHERE tenant = $1 AND tool = $2 ORDER BY number DESC LIMIT 2";

/// Forgets all secrets of a tool but the newest.
pub(super) const TOOL_SECRETS_PRUNE: &str = "\
DELETE FROM tool_secrets WHERE tenant = $1 AND tool = $2
    AND number < (SELECT max(number) FROM tool_secrets WHERE tenant = $1 AND tool = $2)";

/// From now on the newest secret is the former one.
pub(super) const TOOL_SECRET_RETIRE: &str = "\
UPDATE tool_secrets SET retired_us = (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
WHERE tenant = $1 AND tool = $2 AND retired_us IS NULL";

/// A new secret.
pub(super) const TOOL_SECRET_ADD: &str = "\
INSERT INTO tool_secrets (tenant, tool, number, sealed, created_us)
SELECT $1, $2, coalesce(max(number), 0) + 1, $3, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint
FROM tool_secrets WHERE tenant = $1 AND tool = $2";

/// Forgets all secrets of a tool.
pub(super) const TOOL_SECRETS_DELETE: &str = "DELETE FROM tool_secrets WHERE tenant = $1 AND tool = $2";

/// Tells every replica that listens.
pub(super) const NOTIFY: &str = "SELECT pg_notify('actonce', $1)";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("NOW", NOW),
    ("TAKES_WRITES", TAKES_WRITES),
    ("BACKEND", BACKEND),
    ("SERVER", SERVER),
    ("HAS_SETTINGS", HAS_SETTINGS),
    ("SAY_TENANTS", SAY_TENANTS),
    ("WALL_HOLDS", WALL_HOLDS),
    ("COMMIT", COMMIT),
    ("COMMIT_EACH", COMMIT_EACH),
    ("COMMIT_FRESH", COMMIT_FRESH),
    ("COMMIT_CLOSED", COMMIT_CLOSED),
    ("RENEW", RENEW),
    ("LOAD", LOAD),
    ("REVISIONS", REVISIONS),
    ("TWIN", TWIN),
    ("DUE", DUE),
    ("POSTPONE", POSTPONE),
    ("NEXT_DUE", NEXT_DUE),
    ("ALIAS_KEYS_LOCK", ALIAS_KEYS_LOCK),
    ("ALIAS_KEYS", ALIAS_KEYS),
    ("ALIAS_KEYS_ADD", ALIAS_KEYS_ADD),
    ("ALIAS_KEYS_RETIRE", ALIAS_KEYS_RETIRE),
    ("WALK_ALL", WALK_ALL),
    ("WALK_RUN", WALK_RUN),
    ("WALK_SESSION", WALK_SESSION),
    ("WALK_OPEN", WALK_OPEN),
    ("WALK_CONTRADICTED", WALK_CONTRADICTED),
    ("RUN_STATES", RUN_STATES),
    ("OPEN_STATES", OPEN_STATES),
    ("JOURNAL", JOURNAL),
    ("AUDIT", AUDIT),
    ("OPEN_MARKS", OPEN_MARKS),
    ("TOOL", TOOL),
    ("TOOL_REVISION", TOOL_REVISION),
    ("TOOLS", TOOLS),
    ("TOOL_IN_USE", TOOL_IN_USE),
    ("TOOL_INSERT", TOOL_INSERT),
    ("TOOL_UPDATE", TOOL_UPDATE),
    ("TOOL_REVISION_INSERT", TOOL_REVISION_INSERT),
    ("TOOL_SECRETS", TOOL_SECRETS),
    ("TOOL_SECRETS_PRUNE", TOOL_SECRETS_PRUNE),
    ("TOOL_SECRET_RETIRE", TOOL_SECRET_RETIRE),
    ("TOOL_SECRET_ADD", TOOL_SECRET_ADD),
    ("TOOL_SECRETS_DELETE", TOOL_SECRETS_DELETE),
    ("NOTIFY", NOTIFY),
];

/// Every statement of this backend by name, whichever file it stands in.
pub fn every() -> impl Iterator<Item = &'static (&'static str, &'static str)> {
    let more = [
        approvals::ALL,
        profiles::ALL,
        operators::ALL,
        recovery::ALL,
        elapsed::ALL,
        inspect::ALL,
        doubts::ALL,
        checkpoints::ALL,
        bypass::ALL,
        feed::ALL,
        health::ALL,
        subscriptions::ALL,
        quotas::ALL,
        restore::ALL,
        retention::ALL,
        seals::ALL,
        super::receipts_sql::ALL,
    ];
    ALL.iter().chain(more.into_iter().flatten())
}
