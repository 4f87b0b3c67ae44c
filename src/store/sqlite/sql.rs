//! Every statement of the SQLite backend, as constants. A test prepares each of them and reads the
//! query plans.
//!
//! A driver call costs a change of threads, so a whole batch goes in as one JSON parameter and
//! `jsonb_each` takes it apart. UUIDs stand there in their usual writing. Parameters are numbered
//! without gaps inside each statement of a script: the driver counts them that way.

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

/// Every statement of this file by name.
pub const ALL: &[(&str, &str)] = &[
    ("BEGIN", BEGIN),
    ("ROLLBACK", ROLLBACK),
    ("JOURNAL_MODE", JOURNAL_MODE),
    ("CLOCK", CLOCK),
    ("TICK", TICK),
    ("LOOK", LOOK),
    ("WRITE", WRITE),
    ("LOAD", LOAD),
    ("REVISIONS", REVISIONS),
    ("TWIN", TWIN),
    ("DUE", DUE),
    ("POSTPONE", POSTPONE),
    ("NEXT_DUE", NEXT_DUE),
    ("ALIAS_KEYS", ALIAS_KEYS),
    ("ALIAS_KEY_ADD", ALIAS_KEY_ADD),
    ("ALIAS_KEY_RETIRE", ALIAS_KEY_RETIRE),
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
    ("TOOL_STAMP", TOOL_STAMP),
    ("TOOL_IN_USE", TOOL_IN_USE),
    ("TOOL_PUT", TOOL_PUT),
    ("TOOL_REVISION_ADD", TOOL_REVISION_ADD),
    ("TOOL_SECRETS", TOOL_SECRETS),
    ("TOOL_SECRETS_PRUNE", TOOL_SECRETS_PRUNE),
    ("TOOL_SECRET_RETIRE", TOOL_SECRET_RETIRE),
    ("TOOL_SECRET_ADD", TOOL_SECRET_ADD),
    ("TOOL_SECRETS_DELETE", TOOL_SECRETS_DELETE),
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

/// Starts every transaction that writes: it reads under the write lock.
pub const BEGIN: &str = "BEGIN IMMEDIATE";

/// Ends one that has nothing to write.
pub const ROLLBACK: &str = "ROLLBACK";

/// Answers the journal mode that is in effect.
pub const JOURNAL_MODE: &str = "PRAGMA journal_mode = WAL";

/// The latest time that was given out.
pub const CLOCK: &str = "SELECT latest_us FROM clock";

/// Keeps a time as given out.
pub const TICK: &str = "UPDATE clock SET latest_us = max(latest_us, ?1)";

/// Begins, and answers what is there for each change of a batch (?1) by its number.
pub const LOOK: &str = "
BEGIN IMMEDIATE;

WITH change AS MATERIALIZED (
    SELECT key AS number,
           value ->> 'tenant' AS tenant,
           unhex(value ->> 'effect', '-') AS effect,
           value ->> 'revision' AS revision,
           unhex(value ->> 'duplicate', '-') AS duplicate,
           value ->> 'tool' AS tool
    FROM jsonb_each(?1)
)
SELECT c.number,
       (SELECT max(e.revision) FROM entries e WHERE e.tenant = c.tenant AND e.effect = c.effect) AS newest,
       EXISTS (SELECT 1 FROM entries e
               WHERE e.tenant = c.tenant AND e.effect = c.effect AND e.revision = c.revision) AS taken,
       o.revision AS open_revision, o.state, o.fence, o.due_us,
       t.stamp, t.deleted,
       twin.effect IS NOT NULL AS twin,
       (SELECT latest_us FROM clock) AS latest_us
FROM change c
LEFT JOIN open_effects o ON o.tenant = c.tenant AND o.effect = c.effect
LEFT JOIN tools t ON t.tenant = c.tenant AND t.name = c.tool
LEFT JOIN open_effects twin
    ON twin.tenant = c.tenant AND twin.duplicate = c.duplicate AND twin.duplicate IS NOT NULL
    AND twin.effect <> c.effect";

/// Writes the applied changes of a batch (?1) and the time, and commits. Long columns lie one after the other
/// in one blob (?2) and are named by [start, length]: no escaping, every byte as it was.
pub const WRITE: &str = "
INSERT INTO entries (tenant, effect, revision, state, created_us, run_id, session_id,
                     intent, life, entry, receipt, result, prev_hash, hash)
SELECT value ->> 'tenant',
       unhex(value ->> 'effect', '-'),
       value ->> 'revision',
       value ->> 'state',
       value ->> 'created_us',
       CASE WHEN value ->> 'created_us' IS NOT NULL THEN value ->> 'run_id' END,
       CASE WHEN value ->> 'created_us' IS NOT NULL THEN value ->> 'session_id' END,
       CAST(substr(?2, value ->> '$.intent[0]', value ->> '$.intent[1]') AS TEXT),
       CAST(substr(?2, value ->> '$.life[0]', value ->> '$.life[1]') AS TEXT),
       CAST(substr(?2, value ->> '$.entry[0]', value ->> '$.entry[1]') AS TEXT),
       CAST(substr(?2, value ->> '$.receipt[0]', value ->> '$.receipt[1]') AS TEXT),
       CAST(substr(?2, value ->> '$.result[0]', value ->> '$.result[1]') AS TEXT),
       substr(?2, value ->> '$.prev_hash[0]', value ->> '$.prev_hash[1]'),
       substr(?2, value ->> '$.hash[0]', value ->> '$.hash[1]')
FROM jsonb_each(?1, '$.revised');

DELETE FROM open_effects WHERE (tenant, effect) IN (
    SELECT value ->> 'tenant', unhex(value ->> 'effect', '-')
    FROM jsonb_each(?1, '$.revised') WHERE value ->> '$.open.fence' IS NULL
);

INSERT INTO open_effects (tenant, effect, revision, state, fence, due_us, deadline_us, duplicate, created_us,
                          contradicted, tool, run_id, session_id, proposed_by)
SELECT value ->> 'tenant',
       unhex(value ->> 'effect', '-'),
       value ->> 'revision',
       value ->> 'state',
       value ->> '$.open.fence',
       value ->> '$.open.due_us',
       value ->> '$.open.deadline_us',
       unhex(value ->> '$.open.duplicate', '-'),
       value ->> '$.open.created_us',
       value ->> '$.open.contradicted',
       value ->> '$.open.tool',
       value ->> 'run_id',
       value ->> 'session_id',
       value ->> '$.open.proposed_by'
FROM jsonb_each(?1, '$.revised') WHERE value ->> '$.open.fence' IS NOT NULL
ON CONFLICT (tenant, effect) DO UPDATE SET
    revision = excluded.revision, state = excluded.state, fence = excluded.fence,
    due_us = excluded.due_us, deadline_us = excluded.deadline_us, duplicate = excluded.duplicate, created_us = excluded.created_us,
    contradicted = excluded.contradicted, tool = excluded.tool, run_id = excluded.run_id,
    session_id = excluded.session_id;

UPDATE open_effects SET due_us = max(due_us, renewed.until_us)
FROM (
    SELECT value ->> 'tenant' AS tenant, unhex(value ->> 'effect', '-') AS effect,
           value ->> 'until_us' AS until_us
    FROM jsonb_each(?1, '$.renewed')
) AS renewed
WHERE open_effects.tenant = renewed.tenant AND open_effects.effect = renewed.effect;

UPDATE clock SET latest_us = max(latest_us, ?1 ->> 'now_us');

COMMIT";

/// The rows that a record needs, for each key (?1) by its number, in no order.
pub const LOAD: &str = "
WITH wanted AS MATERIALIZED (
    SELECT key AS number, value ->> 'tenant' AS tenant, unhex(value ->> 'effect', '-') AS effect
    FROM jsonb_each(?1)
)
SELECT w.number, e.revision, e.intent, e.life, e.receipt, e.result, e.hash, o.due_us
FROM wanted w
CROSS JOIN entries e ON e.tenant = w.tenant AND e.effect = w.effect
LEFT JOIN open_effects o ON o.tenant = w.tenant AND o.effect = w.effect
WHERE e.revision = 1 OR e.receipt IS NOT NULL OR e.result IS NOT NULL
   OR e.revision = (SELECT max(n.revision) FROM entries n WHERE n.tenant = w.tenant AND n.effect = w.effect)";

/// The newest revision for each key (?1) by its number.
pub const REVISIONS: &str = "
WITH wanted AS MATERIALIZED (
    SELECT key AS number, value ->> 'tenant' AS tenant, unhex(value ->> 'effect', '-') AS effect
    FROM jsonb_each(?1)
)
SELECT w.number, coalesce(max(e.revision), 0) AS revision
FROM wanted w
LEFT JOIN entries e ON e.tenant = w.tenant AND e.effect = w.effect
GROUP BY w.number";

/// The open effect of tenant ?1 with duplicate key ?2.
pub const TWIN: &str = "
SELECT effect FROM open_effects WHERE tenant = ?1 AND duplicate = ?2 AND duplicate IS NOT NULL";

/// Open effects that are due at ?1, at most ?2.
pub const DUE: &str = "
SELECT tenant, effect FROM open_effects WHERE due_us <= ?1 ORDER BY due_us LIMIT ?2";

/// Puts off what is due at ?2, as a document ?1 tells: one statement, one transaction.
pub const POSTPONE: &str = "
UPDATE open_effects AS o SET due_us = c.value ->> '$.until_us'
FROM json_each(?1) AS c
WHERE o.tenant = c.value ->> '$.tenant' AND o.effect = unhex(replace(c.value ->> '$.effect', '-', ''))
  AND o.revision = c.value ->> '$.revision' AND o.due_us <= ?2
RETURNING effect";

/// The registry of alias keys: a handful.
pub const ALIAS_KEYS: &str = "SELECT id, fingerprint, retired_us IS NOT NULL FROM alias_keys";
/// Notes a new id.
pub const ALIAS_KEY_ADD: &str = "INSERT OR IGNORE INTO alias_keys (id, fingerprint) VALUES (?1, ?2)";
/// Retires an id.
pub const ALIAS_KEY_RETIRE: &str = "UPDATE alias_keys SET retired_us = ?2 WHERE id = ?1";

/// When the next open effect is due.
pub const NEXT_DUE: &str = "SELECT min(due_us) FROM open_effects WHERE due_us IS NOT NULL";

/// Effects of tenant ?1 after (?2, ?3), at most ?4.
pub const WALK_ALL: &str = "
SELECT created_us, effect FROM entries
WHERE tenant = ?1 AND created_us IS NOT NULL AND (created_us, effect) > (?2, ?3)
ORDER BY created_us, effect LIMIT ?4";

/// Effects of tenant ?1 and run ?5 after (?2, ?3), at most ?4.
pub const WALK_RUN: &str = "
SELECT created_us, effect FROM entries
WHERE tenant = ?1 AND run_id = ?5 AND run_id IS NOT NULL AND (created_us, effect) > (?2, ?3)
ORDER BY created_us, effect LIMIT ?4";

/// Effects of tenant ?1 and session ?5 after (?2, ?3), at most ?4.
pub const WALK_SESSION: &str = "
SELECT created_us, effect FROM entries
WHERE tenant = ?1 AND session_id = ?5 AND session_id IS NOT NULL AND (created_us, effect) > (?2, ?3)
ORDER BY created_us, effect LIMIT ?4";

/// Open effects of tenant ?1 in state ?5 after (?2, ?3), at most ?4.
pub const WALK_OPEN: &str = "
SELECT created_us, effect FROM open_effects
WHERE tenant = ?1 AND state = ?5 AND (created_us, effect) > (?2, ?3)
ORDER BY created_us, effect LIMIT ?4";

/// Contradicted effects of tenant ?1 after (?2, ?3), at most ?4.
pub const WALK_CONTRADICTED: &str = "
SELECT created_us, effect FROM open_effects
WHERE tenant = ?1 AND contradicted = 1 AND (created_us, effect) > (?2, ?3)
ORDER BY created_us, effect LIMIT ?4";

/// How many effects of tenant ?1 and run ?2 are in each state.
pub const RUN_STATES: &str = "
WITH newest AS MATERIALIZED (
    SELECT (SELECT e.state FROM entries e WHERE e.tenant = made.tenant AND e.effect = made.effect
            ORDER BY e.revision DESC LIMIT 1) AS state
    FROM entries made
    WHERE made.tenant = ?1 AND made.run_id = ?2 AND made.run_id IS NOT NULL
)
SELECT state, count(*) AS effects FROM newest GROUP BY state ORDER BY state";

/// How many open effects are in each state, over all tenants.
pub const OPEN_STATES: &str = "
SELECT state, count(*) AS effects, min(created_us) AS created_us
FROM open_effects GROUP BY state ORDER BY state";

/// Journal rows of effect (?1, ?2) after revision ?3, at most ?4.
pub const JOURNAL: &str = "
SELECT revision, entry, prev_hash, hash FROM entries
WHERE tenant = ?1 AND effect = ?2 AND revision > ?3 ORDER BY revision LIMIT ?4";

/// All journal rows after (?1, ?2, ?3), at most ?4. The tenant comes as bytes: what is stored as text may be none.
pub const AUDIT: &str = "
SELECT tenant, effect, revision, state, intent, life, entry, receipt, result, prev_hash, hash
FROM entries WHERE (tenant, effect, revision) > (CAST(?1 AS TEXT), ?2, ?3)
ORDER BY tenant, effect, revision LIMIT ?4";

/// All open rows after (?1, ?2), at most ?3.
pub const OPEN_MARKS: &str = "
SELECT tenant, effect, revision FROM open_effects WHERE (tenant, effect) > (?1, ?2)
ORDER BY tenant, effect LIMIT ?3";

/// Tool ?2 of tenant ?1 at its current revision.
pub const TOOL: &str = "
SELECT t.name, r.revision, t.stamp, t.paused, t.deleted, r.spec, r.registered_us
FROM tools t
LEFT JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name AND r.revision = t.revision
WHERE t.tenant = ?1 AND t.name = ?2";

/// Tool ?2 of tenant ?1 at revision ?3.
pub const TOOL_REVISION: &str = "
SELECT t.name, r.revision, t.stamp, t.paused, t.deleted, r.spec, r.registered_us
FROM tools t
JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name
WHERE t.tenant = ?1 AND t.name = ?2 AND r.revision = ?3";

/// Tools of tenant ?1 after name ?2, at most ?3.
pub const TOOLS: &str = "
SELECT t.name, r.revision, t.stamp, t.paused, t.deleted, r.spec, r.registered_us
FROM tools t
LEFT JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name AND r.revision = t.revision
WHERE t.tenant = ?1 AND t.name > ?2 AND t.deleted = 0
ORDER BY t.name LIMIT ?3";

/// The stamp of tool ?2 of tenant ?1.
pub const TOOL_STAMP: &str = "SELECT stamp FROM tools WHERE tenant = ?1 AND name = ?2";

/// Whether an open effect of tenant ?1 that is not settled uses tool ?2. A settled one is open
/// only because it is contradicted.
pub const TOOL_IN_USE: &str = "
SELECT EXISTS (SELECT 1 FROM open_effects WHERE tenant = ?1 AND tool = ?2 AND state NOT IN (8, 9, 10))";

/// Writes tool ?2 of tenant ?1: revision ?3, stamp ?4, paused ?5, deleted ?6.
pub const TOOL_PUT: &str = "
INSERT INTO tools (tenant, name, revision, stamp, paused, deleted) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (tenant, name) DO UPDATE SET
    revision = excluded.revision, stamp = excluded.stamp, paused = excluded.paused,
    deleted = excluded.deleted";

/// Adds revision ?3 of tool ?2 of tenant ?1: ?4 at ?5 by ?6.
pub const TOOL_REVISION_ADD: &str = "
INSERT INTO tool_revisions (tenant, name, revision, spec, registered_us, registered_by)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)";

/// The newest secret of tool ?2 of tenant ?1 and the one before it.
pub const TOOL_SECRETS: &str = "
SELECT number, sealed, created_us, retired_us FROM tool_secrets
WHERE tenant = ?1 AND tool = ?2 ORDER BY number DESC LIMIT 2";

/// Forgets all secrets of tool ?2 of tenant ?1 but the newest.
pub const TOOL_SECRETS_PRUNE: &str = "
DELETE FROM tool_secrets WHERE tenant = ?1 AND tool = ?2
    AND number < (SELECT max(number) FROM tool_secrets WHERE tenant = ?1 AND tool = ?2)";

/// From ?3 on the newest secret of tool ?2 of tenant ?1 is the former one.
pub const TOOL_SECRET_RETIRE: &str = "
UPDATE tool_secrets SET retired_us = ?3 WHERE tenant = ?1 AND tool = ?2 AND retired_us IS NULL";

/// Adds the secret ?4 of tool ?2 of tenant ?1 at ?3.
pub const TOOL_SECRET_ADD: &str = "
INSERT INTO tool_secrets (tenant, tool, number, sealed, created_us)
SELECT ?1, ?2, coalesce(max(number), 0) + 1, ?4, ?3 FROM tool_secrets WHERE tenant = ?1 AND tool = ?2";

/// Forgets all secrets of tool ?2 of tenant ?1.
pub const TOOL_SECRETS_DELETE: &str = "DELETE FROM tool_secrets WHERE tenant = ?1 AND tool = ?2";
