//! Points in time. Every one that decides something comes from the database (law 13).

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Microseconds since 1970-01-01T00:00:00Z. Shown and stored as RFC 3339 UTC with six decimals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// 0001-01-01T00:00:00Z and the last microsecond of the year 9999: what can be written in UTC with
/// four digits of year.
const FIRST_US: i64 = -62_135_596_800_000_000;
const LAST_US: i64 = 253_402_300_799_999_999;

const DIGITS: [u8; 10] = *b"0123456789";

impl Timestamp {
    /// From microseconds since the epoch.
    #[must_use]
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the epoch.
    #[must_use]
    pub const fn micros(self) -> i64 {
        self.0
    }

    /// This time plus whole seconds.
    #[must_use]
    pub fn plus_seconds(self, seconds: u32) -> Self {
        Self(self.0.saturating_add(i64::from(seconds).saturating_mul(1_000_000)))
    }

    /// This time plus a duration.
    #[must_use]
    pub fn plus(self, time: Duration) -> Self {
        self.plus_micros(i64::try_from(time.as_micros()).unwrap_or(i64::MAX))
    }

    /// This time plus microseconds.
    #[must_use]
    pub fn plus_micros(self, micros: i64) -> Self {
        Self(self.0.saturating_add(micros))
    }

    /// Microseconds from `earlier` to this time; negative if it lies before.
    #[must_use]
    pub fn since(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }

    /// The time from `earlier` to this one; none if it lies before.
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.since(earlier)).unwrap_or(0))
    }

    /// Whole seconds from `now` until this time, rounded up, at least 1.
    #[must_use]
    pub fn seconds_from(self, now: Self) -> u32 {
        let left = self.since(now).max(1);
        u32::try_from(left.saturating_add(999_999) / 1_000_000).unwrap_or(u32::MAX)
    }

    /// Parses RFC 3339; an offset is required. Precision below a microsecond is cut. Times outside the
    /// years 1 to 9999 in UTC are refused.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        let micros = i64::try_from(time.unix_timestamp_nanos().div_euclid(1_000)).ok()?;
        (FIRST_US..=LAST_US).contains(&micros).then_some(Self(micros))
    }
}

impl Timestamp {
    /// The text, written digit by digit: every record, entry and answer has several of these.
    fn text(self) -> [u8; 27] {
        let mut text = *b"0000-00-00T00:00:00.000000Z";
        let seconds = self.0.div_euclid(1_000_000);
        let micros = self.0.rem_euclid(1_000_000);
        // Beyond year 9999 the epoch stands in; no database time comes near it.
        let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
        let (date, clock) = (time.date(), time.time());
        // In 32 bits, which a processor divides in a fraction of the time.
        let small = |number: i64| u32::try_from(number).unwrap_or(0);
        let fields = [
            (0, 4, small(i64::from(date.year()))),
            (5, 2, u32::from(u8::from(date.month()))),
            (8, 2, u32::from(date.day())),
            (11, 2, u32::from(clock.hour())),
            (14, 2, u32::from(clock.minute())),
            (17, 2, u32::from(clock.second())),
            (20, 6, small(micros)),
        ];
        for (start, width, value) in fields {
            let mut rest = value;
            for place in text[start..][..width].iter_mut().rev() {
                *place = DIGITS[usize::try_from(rest % 10).unwrap_or(0)];
                rest /= 10;
            }
        }
        text
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl Serialize for Timestamp {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.text()).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::text::parsed(deserializer, |text| {
            Self::parse(text).ok_or("must be an RFC 3339 date and time with an offset, such as 2026-01-31T12:00:00Z")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_and_read_back_to_the_microsecond() {
        let time = Timestamp::parse("2026-02-28T23:59:59.123456789+02:00").unwrap();
        assert_eq!(time.to_string(), "2026-02-28T21:59:59.123456Z");
        assert_eq!(Timestamp::parse(&time.to_string()), Some(time));
        assert_eq!(Timestamp::parse("2026-02-28T23:59:59"), None);
        assert_eq!(Timestamp::parse("9999-12-31T23:59:59-01:00"), None);
        assert_eq!(Timestamp::parse("0000-01-01T00:00:00+01:00"), None);
        assert_eq!(
            Timestamp::parse("9999-12-31T23:59:59.999999Z").map(|t| t.to_string()).as_deref(),
            Some("9999-12-31T23:59:59.999999Z")
        );
        assert_eq!(Timestamp::from_micros(-1).to_string(), "1969-12-31T23:59:59.999999Z");
    }

    #[test]
    fn seconds_left_round_up_and_never_say_zero() {
        let now = Timestamp::from_micros(0);
        assert_eq!(now.plus_seconds(5).seconds_from(now), 5);
        assert_eq!(Timestamp::from_micros(1).seconds_from(now), 1);
        assert_eq!(now.seconds_from(now.plus_seconds(9)), 1);
    }
}
