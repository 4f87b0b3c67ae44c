//! Looks from outside. Those that write touch no row: what they find out is whether they may.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("INSPECT_SERVER", INSPECT_SERVER),
    ("INSPECT_APPEND", INSPECT_APPEND),
    ("INSPECT_REGISTER", INSPECT_REGISTER),
    ("INSPECT_MOVE", INSPECT_MOVE),
    ("INSPECT_TAKE", INSPECT_TAKE),
    ("INSPECT_TOOLS", INSPECT_TOOLS),
];

/// What a commit rests on.
pub(in crate::store::postgres) const INSPECT_SERVER: &str = "
SELECT current_setting('server_version_num'), current_setting('fsync'), current_setting('synchronous_commit'),
       current_setting('full_page_writes'), pg_is_in_recovery()::text, current_setting('transaction_read_only')";

/// May entries be appended?
pub(in crate::store::postgres) const INSPECT_APPEND: &str = "INSERT INTO entries SELECT * FROM entries WHERE false";

/// May tools be registered?
pub(in crate::store::postgres) const INSPECT_REGISTER: &str = "
INSERT INTO tool_revisions SELECT * FROM tool_revisions WHERE false";

/// May deadlines be moved?
pub(in crate::store::postgres) const INSPECT_MOVE: &str = "UPDATE open_effects SET due_us = due_us WHERE false";

/// May settled effects leave?
pub(in crate::store::postgres) const INSPECT_TAKE: &str = "DELETE FROM open_effects WHERE false";

/// Tools of all tenants that have an adapter, at most $1.
pub(in crate::store::postgres) const INSPECT_TOOLS: &str = "
SELECT t.tenant, t.name, r.spec FROM tools t
JOIN tool_revisions r ON r.tenant = t.tenant AND r.name = t.name AND r.revision = t.revision
WHERE NOT t.deleted AND r.spec LIKE '%\"adapter\"%' ORDER BY t.tenant, t.name LIMIT $1";
