//! A write that is taken back.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[("PROBE_ENTRY", PROBE_ENTRY), ("PROBE_OPEN", PROBE_OPEN)];

/// An entry of nobody: no tenant has this name.
pub const PROBE_ENTRY: &str = "
INSERT INTO entries (tenant, effect, revision, state, created_us, intent, life, entry, prev_hash, hash)
VALUES ('', ?1, 1, 1, 0, 'probe', ?2, 'probe', x'', x'')";

/// Its row among the open effects.
pub const PROBE_OPEN: &str = "
INSERT INTO open_effects (tenant, effect, revision, state, fence, created_us, contradicted, tool)
VALUES ('', ?1, 1, 1, 0, 0, 0, 'probe')";
