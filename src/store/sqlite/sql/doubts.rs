//! Waking doubts that are already open.

/// Every statement by name.
pub const ALL: &[(&str, &str)] = &[
    ("DOUBT_WAKES", DOUBT_WAKES),
    ("DOUBT_WAKE_PUT", DOUBT_WAKE_PUT),
    ("DOUBT_WAKE_ADVANCE", DOUBT_WAKE_ADVANCE),
    ("DOUBT_WAKE_END", DOUBT_WAKE_END),
    ("DOUBT_PAGE", DOUBT_PAGE),
    ("DOUBTS_WAKE", DOUBTS_WAKE),
];

/// What is to be done, at most ?1.
pub const DOUBT_WAKES: &str = "
SELECT tenant, tool, stamp, after_us, after_effect FROM doubt_wakes ORDER BY tenant, tool LIMIT ?1";

/// Doubts of tool ?2 of tenant ?1 are to be woken from the beginning, as of stamp ?3.
pub const DOUBT_WAKE_PUT: &str = "
INSERT INTO doubt_wakes (tenant, tool, stamp, after_us, after_effect)
VALUES (?1, ?2, ?3, -9223372036854775808, x'')
ON CONFLICT (tenant, tool) DO UPDATE SET
    stamp = excluded.stamp, after_us = excluded.after_us, after_effect = excluded.after_effect";

/// Up to (?6, ?7) they are awake, if it was (?4, ?5) before.
pub const DOUBT_WAKE_ADVANCE: &str = "
UPDATE doubt_wakes SET after_us = ?6, after_effect = ?7
WHERE tenant = ?1 AND tool = ?2 AND stamp = ?3 AND after_us = ?4 AND after_effect = ?5";

/// All are awake, if it was (?4, ?5) before.
pub const DOUBT_WAKE_END: &str = "
DELETE FROM doubt_wakes WHERE tenant = ?1 AND tool = ?2 AND stamp = ?3 AND after_us = ?4 AND after_effect = ?5";

/// Doubts of tool ?2 of tenant ?1 after (?3, ?4), at most ?5.
pub const DOUBT_PAGE: &str = "
SELECT created_us, effect FROM open_effects
WHERE tenant = ?1 AND tool = ?2 AND state = 5 AND (created_us, effect) > (?3, ?4)
ORDER BY created_us, effect LIMIT ?5";

/// Doubts of tool ?2 of tenant ?1 after (?3, ?4) up to (?5, ?6) are due at ?7.
pub const DOUBTS_WAKE: &str = "
UPDATE open_effects SET due_us = ?7
WHERE tenant = ?1 AND tool = ?2 AND state = 5 AND (created_us, effect) > (?3, ?4)
  AND (created_us, effect) <= (?5, ?6) AND due_us > ?7";
