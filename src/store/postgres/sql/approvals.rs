//! Retained arguments and standing grants.

/// Keeps sealed arguments.
pub(in crate::store::postgres) const RETAIN: &str = "\
INSERT INTO retained_arguments (tenant, effect, sealed)
SELECT tenant, effect, sealed FROM unnest($1::text[], $2::uuid[], $3::bytea[]) AS i(tenant, effect, sealed)";

/// Lets retained arguments go.
pub(in crate::store::postgres) const FORGET: &str = "\
DELETE FROM retained_arguments r USING unnest($1::text[], $2::uuid[]) AS i(tenant, effect)
WHERE r.tenant = i.tenant AND r.effect = i.effect";

/// Sealed arguments.
pub(in crate::store::postgres) const RETAINED: &str =
    "SELECT sealed FROM retained_arguments WHERE tenant = $1 AND effect = $2";

/// Counts a use of a grant that may still be used.
pub(in crate::store::postgres) const GRANT_TAKE: &str = "\
UPDATE grants SET uses = uses + 1
WHERE tenant = $1 AND grant_id = $2 AND revoked_us IS NULL AND uses < max_uses
  AND expires_us > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint";

/// Takes a counted use back, in the transaction that counted it.
pub(in crate::store::postgres) const GRANT_RETURN: &str =
    "UPDATE grants SET uses = uses - 1 WHERE tenant = $1 AND grant_id = $2";

/// Records a use.
pub(in crate::store::postgres) const GRANT_USED: &str =
    "INSERT INTO grant_uses (tenant, grant_id, effect, used_us) VALUES ($1, $2, $3, $4)";

/// A new grant, unless there are too many.
pub(in crate::store::postgres) const GRANT_ADD: &str = "\
INSERT INTO grants (tenant, grant_id, tool, terms, uses, max_uses, created_us, expires_us)
SELECT $1, $2, $3, $4, 0, $5, $6, $7
WHERE (SELECT count(*) FROM grants g WHERE g.tenant = $1 AND g.tool = $3 AND g.revoked_us IS NULL
    AND g.uses < g.max_uses AND g.expires_us > (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)) < $8
ON CONFLICT DO NOTHING";

/// A grant.
pub(in crate::store::postgres) const GRANT: &str = "\
SELECT grant_id, tool, terms, uses, max_uses, created_us, expires_us, revoked_us, revoked_by FROM grants
WHERE tenant = $1 AND grant_id = $2";

/// Grants by creation.
pub(in crate::store::postgres) const GRANTS: &str = "\
SELECT grant_id, tool, terms, uses, max_uses, created_us, expires_us, revoked_us, revoked_by FROM grants
WHERE tenant = $1 AND (created_us, grant_id) > ($2, $3) ORDER BY created_us, grant_id LIMIT $4";

/// Grants of a tool that may still be used.
pub(in crate::store::postgres) const GRANTS_LIVE: &str = "\
SELECT grant_id, tool, terms, uses, max_uses, created_us, expires_us, revoked_us, revoked_by FROM grants
WHERE tenant = $1 AND tool = $2 AND revoked_us IS NULL AND uses < max_uses
  AND expires_us > (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
ORDER BY expires_us, grant_id LIMIT $3";

/// Ends a grant.
pub(in crate::store::postgres) const GRANT_REVOKE: &str = "\
UPDATE grants SET revoked_us = coalesce(revoked_us, $3), revoked_by = coalesce(revoked_by, $4)
WHERE tenant = $1 AND grant_id = $2";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] = &[
    ("RETAIN", RETAIN),
    ("FORGET", FORGET),
    ("RETAINED", RETAINED),
    ("GRANT_TAKE", GRANT_TAKE),
    ("GRANT_RETURN", GRANT_RETURN),
    ("GRANT_USED", GRANT_USED),
    ("GRANT_ADD", GRANT_ADD),
    ("GRANT", GRANT),
    ("GRANTS", GRANTS),
    ("GRANTS_LIVE", GRANTS_LIVE),
    ("GRANT_REVOKE", GRANT_REVOKE),
];
