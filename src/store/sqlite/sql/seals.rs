//! What is kept sealed. Text is taken for the bytes that it is written with.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("SEALED_TOOL_SECRETS", SEALED_TOOL_SECRETS),
    ("SEALED_ARGUMENTS", SEALED_ARGUMENTS),
    ("SEALED_SOURCES", SEALED_SOURCES),
    ("SEALED_SUBSCRIPTIONS", SEALED_SUBSCRIPTIONS),
    ("RESEAL_TOOL_SECRET", RESEAL_TOOL_SECRET),
    ("RESEAL_ARGUMENTS", RESEAL_ARGUMENTS),
    ("RESEAL_SOURCE", RESEAL_SOURCE),
    ("RESEAL_SUBSCRIPTION", RESEAL_SUBSCRIPTION),
    ("INSPECT_SEALED", INSPECT_SEALED),
];

/// Rows after (?1, ?2), at most ?3; with their content where they begin with something else than ?4.
macro_rules! page {
    ($table:literal, $owner:literal, $number:literal, $sealed:literal, $source:literal, $key:literal, $after:literal) => {
        concat!(
            "SELECT tenant, ",
            $owner,
            " AS owner, ",
            $number,
            " AS number, ",
            "substr(CAST(",
            $sealed,
            " AS BLOB), 1, 3) AS start, ",
            "CASE WHEN substr(CAST(",
            $sealed,
            " AS BLOB), 1, 2) <> ?4 THEN CAST(",
            $sealed,
            " AS BLOB) END AS content, ",
            $source,
            " AS source FROM ",
            $table,
            " WHERE (",
            $key,
            ") > (",
            $after,
            ") AND ",
            $sealed,
            " IS NOT NULL ",
            "ORDER BY ",
            $key,
            " LIMIT ?3"
        )
    };
}

/// Secrets of tools after number ?5 of tool ?2.
pub const SEALED_TOOL_SECRETS: &str =
    page!("tool_secrets", "tool", "number", "sealed", "NULL", "tenant, tool, number", "?1, ?2, ?5");

/// Retained arguments.
pub const SEALED_ARGUMENTS: &str =
    page!("retained_arguments", "effect", "0", "sealed", "NULL", "tenant, effect", "?1, ?2");

/// Secrets of receipt sources.
pub const SEALED_SOURCES: &str =
    page!("receipt_sources", "name", "0", "secrets", "source_id", "tenant, name", "?1, ?2");

/// Secrets of subscriptions.
pub const SEALED_SUBSCRIPTIONS: &str =
    page!("subscriptions", "subscription_id", "0", "secrets", "NULL", "tenant, subscription_id", "?1, ?2");

/// Puts ?4 in place of ?3 for secret ?5 of tool (?1, ?2).
pub const RESEAL_TOOL_SECRET: &str = "
UPDATE tool_secrets SET sealed = ?4 WHERE tenant = ?1 AND tool = ?2 AND sealed = ?3 AND number = ?5";

/// Puts ?4 in place of ?3 for the arguments of effect (?1, ?2).
pub const RESEAL_ARGUMENTS: &str = "
UPDATE retained_arguments SET sealed = ?4 WHERE tenant = ?1 AND effect = ?2 AND sealed = ?3";

/// Puts ?4 in place of ?3 for the secrets of source (?1, ?2).
pub const RESEAL_SOURCE: &str = "
UPDATE receipt_sources SET secrets = CAST(?4 AS TEXT)
WHERE tenant = ?1 AND name = ?2 AND CAST(secrets AS BLOB) = ?3";

/// Puts ?4 in place of ?3 for the secrets of subscription (?1, ?2).
pub const RESEAL_SUBSCRIPTION: &str = "
UPDATE subscriptions SET secrets = CAST(?4 AS TEXT)
WHERE tenant = ?1 AND subscription_id = ?2 AND CAST(secrets AS BLOB) = ?3";

/// How many of at most ?1 rows of each table begin alike.
pub const INSPECT_SEALED: &str = "
SELECT 0, start, count(*) FROM (SELECT substr(sealed, 1, 3) AS start FROM tool_secrets LIMIT ?1) GROUP BY start
UNION ALL
SELECT 1, start, count(*) FROM (SELECT substr(sealed, 1, 3) AS start FROM retained_arguments LIMIT ?1) GROUP BY start
UNION ALL
SELECT 2, start, count(*) FROM (SELECT substr(CAST(secrets AS BLOB), 1, 3) AS start FROM receipt_sources
                                WHERE secrets IS NOT NULL LIMIT ?1) GROUP BY start
UNION ALL
SELECT 3, start, count(*) FROM (SELECT substr(CAST(secrets AS BLOB), 1, 3) AS start FROM subscriptions LIMIT ?1)
GROUP BY start";
