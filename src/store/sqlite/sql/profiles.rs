//! Profiles, and the sessions bound to them.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("PROFILE_ADD", PROFILE_ADD),
    ("PROFILE", PROFILE),
    ("SESSION", SESSION),
    ("SESSION_BIND", SESSION_BIND),
    ("SESSION_MOVE", SESSION_MOVE),
    ("SESSION_UNRESOLVED", SESSION_UNRESOLVED),
    ("ADOPTION", ADOPTION),
    ("ADOPTION_ADD", ADOPTION_ADD),
];

/// Declares profile ?2 of tenant ?1: components ?3, at ?4 by ?5.
pub const PROFILE_ADD: &str = "
INSERT INTO profiles (tenant, profile_id, components, declared_us, declared_by) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING";

/// Profile ?2 of tenant ?1.
pub const PROFILE: &str = "
SELECT components, declared_us, declared_by FROM profiles WHERE tenant = ?1 AND profile_id = ?2";

/// Session ?2 of tenant ?1.
pub const SESSION: &str = "
SELECT profile_id, bound_us, bound_by FROM sessions WHERE tenant = ?1 AND session_id = ?2";

/// Binds session ?2 of tenant ?1 to profile ?3 at ?4 by ?5.
pub const SESSION_BIND: &str = "
INSERT INTO sessions (tenant, session_id, profile_id, bound_us, bound_by) VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT DO NOTHING";

/// Binds session ?2 of tenant ?1 to another profile ?3 at ?4 by ?5.
pub const SESSION_MOVE: &str = "
UPDATE sessions SET profile_id = ?3, bound_us = ?4, bound_by = ?5 WHERE tenant = ?1 AND session_id = ?2";

/// Effects of session ?2 of tenant ?1 that are neither settled nor mere proposals.
pub const SESSION_UNRESOLVED: &str = "
SELECT o.state, count(*) AS effects
FROM entries e
CROSS JOIN open_effects o ON o.tenant = e.tenant AND o.effect = e.effect
WHERE e.tenant = ?1 AND e.session_id = ?2 AND e.session_id IS NOT NULL AND o.state NOT IN (1, 8, 9, 10)
GROUP BY o.state";

/// The adoption of session ?2 of tenant ?1 under key ?3.
pub const ADOPTION: &str = "
SELECT previous_profile, profile_id, request, adopted_us, adopted_by FROM adoptions
WHERE tenant = ?1 AND session_id = ?2 AND idempotency_key = ?3";

/// Records an adoption of session ?2 of tenant ?1 under key ?3: from ?4 to ?5, as asked by ?6, at ?7 by ?8.
pub const ADOPTION_ADD: &str = "
INSERT INTO adoptions
    (tenant, session_id, idempotency_key, previous_profile, profile_id, request, adopted_us, adopted_by)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
