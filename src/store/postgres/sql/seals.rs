//! What is kept sealed. Text is taken for the bytes that it is written with.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("SEALED_TOOL_SECRETS", SEALED_TOOL_SECRETS),
    ("SEALED_ARGUMENTS", SEALED_ARGUMENTS),
    ("SEALED_SOURCES", SEALED_SOURCES),
    ("SEALED_SUBSCRIPTIONS", SEALED_SUBSCRIPTIONS),
    ("RESEAL_TOOL_SECRETS", RESEAL_TOOL_SECRETS),
    ("RESEAL_ARGUMENTS", RESEAL_ARGUMENTS),
    ("RESEAL_SOURCES", RESEAL_SOURCES),
    ("RESEAL_SUBSCRIPTIONS", RESEAL_SUBSCRIPTIONS),
    ("INSPECT_SEALED", INSPECT_SEALED),
];

/// Rows after ($1, $2), at most $3; with their content where they begin with something else than $4.
macro_rules! page {
    ($table:literal, $owner:literal, $number:literal, $bytes:literal, $source:literal, $key:literal, $after:literal) => {
        concat!(
            "SELECT tenant, ",
            $owner,
            ", ",
            $number,
            "::bigint, substr(",
            $bytes,
            ", 1, 3), ",
            "CASE WHEN substr(",
            $bytes,
            ", 1, 2) <> $4::bytea THEN ",
            $bytes,
            " END, ",
            $source,
            "::uuid FROM ",
            $table,
            " WHERE (",
            $key,
            ") > (",
            $after,
            ") AND ",
            $bytes,
            " IS NOT NULL ",
            "ORDER BY ",
            $key,
            " LIMIT $3::bigint"
        )
    };
}

/// Puts what was sealed anew ($4) in place of what was seen ($3), row by row ($1, $2). It waits for nobody while it holds a
/// row, so that no change of an effect can come to a deadlock with it: what somebody else holds comes at the next look.
macro_rules! reseal {
    ($table:literal, $owner:literal, $kind:literal, $sealed:literal, $bytes:literal, $fresh:literal) => {
        concat!(
            "WITH wanted AS MATERIALIZED (SELECT * FROM unnest($1::text[], $2::",
            $kind,
            "[], $3::bytea[], $4::bytea[])",
            " AS w(tenant, owner, seen, fresh)), ",
            "held AS MATERIALIZED (SELECT t.tenant, t.",
            $owner,
            " AS owner, w.fresh FROM wanted w JOIN ",
            $table,
            " t ON t.tenant = w.tenant AND t.",
            $owner,
            " = w.owner WHERE ",
            $bytes,
            " = w.seen",
            " FOR UPDATE OF t SKIP LOCKED) ",
            "UPDATE ",
            $table,
            " t SET ",
            $sealed,
            " = ",
            $fresh,
            " FROM held h WHERE t.tenant = h.tenant AND t.",
            $owner,
            " = h.owner"
        )
    };
}

/// Secrets of tools after number $5 of tool $2.
pub(in crate::store::postgres) const SEALED_TOOL_SECRETS: &str =
    page!("tool_secrets", "tool", "number", "sealed", "NULL", "tenant, tool, number", "$1, $2, $5::bigint");

/// Retained arguments.
pub(in crate::store::postgres) const SEALED_ARGUMENTS: &str =
    page!("retained_arguments", "effect", "0", "sealed", "NULL", "tenant, effect", "$1, $2");

/// Secrets of receipt sources.
pub(in crate::store::postgres) const SEALED_SOURCES: &str =
    page!("receipt_sources", "name", "0", "convert_to(secrets, 'UTF8')", "source_id", "tenant, name", "$1, $2");

/// Secrets of subscriptions.
pub(in crate::store::postgres) const SEALED_SUBSCRIPTIONS: &str = page!(
    "subscriptions",
    "subscription_id",
    "0",
    "convert_to(secrets, 'UTF8')",
    "NULL",
    "tenant, subscription_id",
    "$1, $2"
);

/// Secrets of tools by number $5.
pub(in crate::store::postgres) const RESEAL_TOOL_SECRETS: &str = "
WITH wanted AS MATERIALIZED (
  SELECT * FROM unnest($1::text[], $2::text[], $3::bytea[], $4::bytea[], $5::int8[])
  AS w(tenant, tool, seen, fresh, number)
), held AS MATERIALIZED (
  SELECT t.tenant, t.tool, t.number, w.fresh FROM wanted w
  JOIN tool_secrets t ON t.tenant = w.tenant AND t.tool = w.tool AND t.number = w.number
  WHERE t.sealed = w.seen FOR UPDATE OF t SKIP LOCKED
)
UPDATE tool_secrets t SET sealed = h.fresh FROM held h
WHERE t.tenant = h.tenant AND t.tool = h.tool AND t.number = h.number";

/// Retained arguments.
pub(in crate::store::postgres) const RESEAL_ARGUMENTS: &str =
    reseal!("retained_arguments", "effect", "uuid", "sealed", "t.sealed", "h.fresh");

/// Secrets of receipt sources.
pub(in crate::store::postgres) const RESEAL_SOURCES: &str = reseal!(
    "receipt_sources",
    "name",
    "text",
    "secrets",
    "convert_to(t.secrets, 'UTF8')",
    "convert_from(h.fresh, 'UTF8')"
);

/// Secrets of subscriptions.
pub(in crate::store::postgres) const RESEAL_SUBSCRIPTIONS: &str = reseal!(
    "subscriptions",
    "subscription_id",
    "uuid",
    "secrets",
    "convert_to(t.secrets, 'UTF8')",
    "convert_from(h.fresh, 'UTF8')"
);

/// How many of at most $1 rows of each table begin alike.
pub(in crate::store::postgres) const INSPECT_SEALED: &str = "
SELECT 0, start, count(*) FROM (SELECT substr(sealed, 1, 3) AS start FROM tool_secrets LIMIT $1) t GROUP BY start
UNION ALL
SELECT 1, start, count(*) FROM (SELECT substr(sealed, 1, 3) AS start FROM retained_arguments LIMIT $1) a GROUP BY start
UNION ALL
SELECT 2, start, count(*) FROM (SELECT substr(convert_to(secrets, 'UTF8'), 1, 3) AS start FROM receipt_sources
                                WHERE secrets IS NOT NULL LIMIT $1) r GROUP BY start
UNION ALL
SELECT 3, start, count(*) FROM (SELECT substr(convert_to(secrets, 'UTF8'), 1, 3) AS start FROM subscriptions LIMIT $1) s
GROUP BY start";
