//! Times in the form that requests carry.

use std::time::Duration;

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

#[expect(clippy::disallowed_methods, reason = "a client has a wall clock; nothing is decided by it")]
fn wall_clock() -> OffsetDateTime {
    OffsetDateTime::now_utc()
}

/// Now, as RFC 3339.
pub(crate) fn now() -> String {
    wall_clock().format(&Rfc3339).unwrap()
}

/// A time before now, as RFC 3339.
pub(crate) fn ago(past: Duration) -> String {
    (wall_clock() - past).format(&Rfc3339).unwrap()
}

/// Seconds since 1970, as tokens carry them.
pub(crate) fn unix_seconds() -> i64 {
    wall_clock().unix_timestamp()
}
