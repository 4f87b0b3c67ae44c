//! A write that is taken back.

/// How long such a write may take.
pub(in crate::store::postgres) const PROBE_LIMITS: &str = "\
SELECT set_config('lock_timeout', '500ms', true), set_config('statement_timeout', '1500ms', true)";

/// An entry of nobody: no tenant has this name.
pub(in crate::store::postgres) const PROBE_ENTRY: &str = "\
INSERT INTO entries (tenant, effect, revision, state, created_us, intent, life, entry, prev_hash, hash)
VALUES ('', $1, 1, 1, 0, 'probe', $2, 'probe', '', '')";

/// Its row among the open effects.
pub(in crate::store::postgres) const PROBE_OPEN: &str = "\
INSERT INTO open_effects (tenant, effect, revision, state, fence, created_us, contradicted, tool)
VALUES ('', $1, 1, 1, 0, 0, false, 'probe')";

/// All statements by name, for the test that prepares each.
pub const ALL: &[(&str, &str)] =
    &[("PROBE_LIMITS", PROBE_LIMITS), ("PROBE_ENTRY", PROBE_ENTRY), ("PROBE_OPEN", PROBE_OPEN)];
