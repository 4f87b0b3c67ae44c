//! Profiles, and the sessions bound to them.

/// Declares a profile.
pub(in crate::store::postgres) const PROFILE_ADD: &str = "\
INSERT INTO profiles (tenant, profile_id, components, declared_us, declared_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING";

/// A profile.
pub(in crate::store::postgres) const PROFILE: &str =
    "SELECT components, declared_us, declared_by FROM profiles WHERE tenant = $1 AND profile_id = $2";

/// A bound session.
pub(in crate::store::postgres) const SESSION: &str =
    "SELECT profile_id, bound_us, bound_by FROM sessions WHERE tenant = $1 AND session_id = $2";

/// Binds a session.
pub(in crate::store::postgres) const SESSION_BIND: &str = "\
INSERT INTO sessions (tenant, session_id, profile_id, bound_us, bound_by) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT DO NOTHING";

/// What sessions are bound to until the transaction ends: an adoption waits for it, or it for the
/// adoption. Rows are locked in the order of the input.
pub(in crate::store::postgres) const SESSIONS_HOLD: &str = "\
SELECT s.tenant, s.session_id, s.profile_id
FROM unnest($1::text[], $2::text[]) AS i(tenant, session_id)
JOIN sessions s ON s.tenant = i.tenant AND s.session_id = i.session_id
FOR SHARE OF s";

/// A session for an adoption, held against intents of it and other adoptions.
pub(in crate::store::postgres) const SESSION_TAKE: &str =
    "SELECT profile_id FROM sessions WHERE tenant = $1 AND session_id = $2 FOR UPDATE";

/// Binds a session to another profile.
pub(in crate::store::postgres) const SESSION_MOVE: &str = "\
UPDATE sessions SET profile_id = $3, bound_us = $4, bound_by = $5 WHERE tenant = $1 AND session_id = $2";

/// Effects of a session that are neither settled nor mere proposals.
pub(in crate::store::postgres) const SESSION_UNRESOLVED: &str = "\
SELECT o.state, count(*) FROM entries e
JOIN open_effects o ON o.tenant = e.tenant AND o.effect = e.effect
WHERE e.tenant = $1 AND e.session_id = $2 AND o.state NOT IN (1, 8, 9, 10)
GROUP BY o.state ORDER BY o.state";

/// An adoption on record.
pub(in crate::store::postgres) const ADOPTION: &str = "\
SELECT previous_profile, profile_id, request, adopted_us, adopted_by FROM adoptions
WHERE tenant = $1 AND session_id = $2 AND idempotency_key = $3";

/// Records an adoption.
pub(in crate::store::postgres) const ADOPTION_ADD: &str = "\
INSERT INTO adoptions (tenant, session_id, idempotency_key, previous_profile, profile_id, request, adopted_us, adopted_by)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8)";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("PROFILE_ADD", PROFILE_ADD),
    ("PROFILE", PROFILE),
    ("SESSION", SESSION),
    ("SESSION_BIND", SESSION_BIND),
    ("SESSIONS_HOLD", SESSIONS_HOLD),
    ("SESSION_TAKE", SESSION_TAKE),
    ("SESSION_MOVE", SESSION_MOVE),
    ("SESSION_UNRESOLVED", SESSION_UNRESOLVED),
    ("ADOPTION", ADOPTION),
    ("ADOPTION_ADD", ADOPTION_ADD),
];
