//! Looks from outside.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("INSPECT_JOURNAL", INSPECT_JOURNAL),
    ("INSPECT_FLUSH", INSPECT_FLUSH),
    ("INSPECT_WRITE", INSPECT_WRITE),
    ("INSPECT_TOOLS", INSPECT_TOOLS),
];

/// The journal mode of the file.
pub const INSPECT_JOURNAL: &str = "PRAGMA journal_mode";

/// How a commit of this connection is flushed; 2 is FULL.
pub const INSPECT_FLUSH: &str = "PRAGMA synchronous";

/// A write that changes nothing.
pub const INSPECT_WRITE: &str = "UPDATE clock SET latest_us = latest_us";

/// Tools of all tenants that have an adapter, at most ?1.
pub const INSPECT_TOOLS: &str = "
SELECT t.tenant, t.name, r.spec FROM tools t
JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name AND r.revision = t.revision
WHERE t.deleted = 0 AND r.spec LIKE '%\"adapter\"%' ORDER BY t.tenant, t.name LIMIT ?1";
