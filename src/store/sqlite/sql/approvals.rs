//! Retained arguments and standing grants.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("RETAIN", RETAIN),
    ("FORGET", FORGET),
    ("RETAINED", RETAINED),
    ("GRANT_TAKE", GRANT_TAKE),
    ("GRANT_USED", GRANT_USED),
    ("GRANT_ADD", GRANT_ADD),
    ("GRANT", GRANT),
    ("GRANTS", GRANTS),
    ("GRANTS_LIVE", GRANTS_LIVE),
    ("GRANT_REVOKE", GRANT_REVOKE),
];

/// Keeps the sealed arguments ?3 of effect (?1, ?2).
pub const RETAIN: &str = "INSERT INTO retained_arguments (tenant, effect, sealed) VALUES (?1, ?2, ?3)";

/// Lets the retained arguments of effect (?1, ?2) go.
pub const FORGET: &str = "DELETE FROM retained_arguments WHERE tenant = ?1 AND effect = ?2";

/// The sealed arguments of effect (?1, ?2).
pub const RETAINED: &str = "SELECT sealed FROM retained_arguments WHERE tenant = ?1 AND effect = ?2";

/// Counts a use of grant ?2 of tenant ?1, if it may still be used at ?3.
pub const GRANT_TAKE: &str = "
UPDATE grants SET uses = uses + 1
WHERE tenant = ?1 AND grant_id = ?2 AND revoked_us IS NULL AND uses < max_uses AND expires_us > ?3";

/// Records a use of grant ?2 of tenant ?1 by effect ?3 at ?4.
pub const GRANT_USED: &str = "INSERT INTO grant_uses (tenant, grant_id, effect, used_us) VALUES (?1, ?2, ?3, ?4)";

/// Adds grant ?2 of tenant ?1 for tool ?3: terms ?4, most uses ?5, made at ?6, until ?7, unless ?8 are live.
pub const GRANT_ADD: &str = "
INSERT INTO grants (tenant, grant_id, tool, terms, uses, max_uses, created_us, expires_us)
SELECT ?1, ?2, ?3, ?4, 0, ?5, ?6, ?7
WHERE (SELECT count(*) FROM grants g WHERE g.tenant = ?1 AND g.tool = ?3 AND g.revoked_us IS NULL
       AND g.uses < g.max_uses AND g.expires_us > ?6) < ?8
ON CONFLICT DO NOTHING";

/// Grant ?2 of tenant ?1.
pub const GRANT: &str = "
SELECT grant_id, tool, terms, uses, max_uses, created_us, expires_us, revoked_us, revoked_by FROM grants
WHERE tenant = ?1 AND grant_id = ?2";

/// Grants of tenant ?1 after (?2, ?3), at most ?4.
pub const GRANTS: &str = "
SELECT grant_id, tool, terms, uses, max_uses, created_us, expires_us, revoked_us, revoked_by FROM grants
WHERE tenant = ?1 AND (created_us, grant_id) > (?2, ?3) ORDER BY created_us, grant_id LIMIT ?4";

/// Grants of tenant ?1 for tool ?2 that may still be used at ?3, at most ?4.
pub const GRANTS_LIVE: &str = "
SELECT grant_id, tool, terms, uses, max_uses, created_us, expires_us, revoked_us, revoked_by FROM grants
WHERE tenant = ?1 AND tool = ?2 AND revoked_us IS NULL AND uses < max_uses AND expires_us > ?3
ORDER BY expires_us, grant_id LIMIT ?4";

/// Ends grant ?2 of tenant ?1 at ?3 by ?4.
pub const GRANT_REVOKE: &str = "
UPDATE grants SET revoked_us = coalesce(revoked_us, ?3), revoked_by = coalesce(revoked_by, ?4)
WHERE tenant = ?1 AND grant_id = ?2";
