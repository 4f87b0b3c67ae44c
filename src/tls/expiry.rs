//! When a certificate ends: its one field that an operator has to know. Only as much DER is read as leads there.

use time::{Date, Month, PrimitiveDateTime, Time};

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const VERSION: u8 = 0xa0;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;

/// One value: its tag, its content, and what stands behind it.
fn value(der: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&[tag, first], rest) = der.split_first_chunk::<2>()?;
    let (length, rest) = match first {
        0..=0x7f => (usize::from(first), rest),
        0x81..=0x84 => {
            let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
            let length = bytes
                .iter()
                .try_fold(0_usize, |length, byte| length.checked_mul(256)?.checked_add(usize::from(*byte)))?;
            (length, rest)
        }
        _ => return None,
    };
    let (content, behind) = rest.split_at_checked(length)?;
    Some((tag, content, behind))
}

fn expect(wanted: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (tag, content, behind) = value(der)?;
    (tag == wanted).then_some((content, behind))
}

/// The end of a certificate (X.509, DER) in seconds since 1970.
pub(super) fn not_after(certificate: &[u8]) -> Option<i64> {
    let (whole, _) = expect(SEQUENCE, certificate)?;
    let (signed, _) = expect(SEQUENCE, whole)?;
    let behind_version = expect(VERSION, signed).map_or(signed, |(_, behind)| behind);
    let (_, behind_serial) = expect(INTEGER, behind_version)?;
    let (_, behind_algorithm) = expect(SEQUENCE, behind_serial)?;
    let (_, behind_issuer) = expect(SEQUENCE, behind_algorithm)?;
    let (validity, _) = expect(SEQUENCE, behind_issuer)?;
    let (_, _, end) = value(validity)?;
    let (tag, text, _) = value(end)?;
    seconds(tag, std::str::from_utf8(text).ok()?)
}

fn seconds(tag: u8, text: &str) -> Option<i64> {
    let digits = text.strip_suffix('Z').filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = match tag {
        UTC_TIME => {
            let (year, rest) = digits.split_at_checked(2)?;
            let year: i32 = year.parse().ok()?;
            (if year < 50 { year + 2000 } else { year + 1900 }, rest)
        }
        GENERALIZED_TIME => {
            let (year, rest) = digits.split_at_checked(4)?;
            (year.parse().ok()?, rest)
        }
        _ => return None,
    };
    let part = |place: usize| rest.get(place..place.saturating_add(2))?.parse::<u8>().ok();
    let date = Date::from_calendar_date(year, Month::try_from(part(0)?).ok()?, part(2)?).ok()?;
    let time = Time::from_hms(part(4)?, part(6)?, part(8)?).ok()?;
    (rest.len() == 10).then(|| PrimitiveDateTime::new(date, time).assume_utc().unix_timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2001, 2, 3);
        params.not_after = rcgen::date_time_ymd(year, 4, 5);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    #[test]
    fn the_end_is_found_in_both_writings() {
        for year in [2002, 2049, 2050, 4000] {
            let end = rcgen::date_time_ymd(year, 4, 5).unix_timestamp();
            assert_eq!(not_after(&certificate(year)), Some(end), "{year}");
        }
    }

    #[test]
    fn what_is_cut_or_no_certificate_has_none() {
        let whole = certificate(2049);
        for length in 0..whole.len() {
            assert_eq!(not_after(&whole[..length]), None, "{length}");
        }
        for nonsense in [&b""[..], b"\x30", b"\x30\x80", b"\x30\x84\xff\xff\xff\xff", b"text"] {
            assert_eq!(not_after(nonsense), None);
        }
        for text in ["491332000000Z", "4904050000Z", "490405000000", "4904050000é0Z"] {
            assert_eq!(seconds(UTC_TIME, text), None, "{text}");
        }
    }
}
