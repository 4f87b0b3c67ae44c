//! W3C trace context, level 1: what comes in is checked, what goes out is ours.
//!
//! Of a caller's context the trace id, the parent span and the sampled flag are taken. `tracestate` is
//! dropped, as the recommendation allows: its text is somebody else's, and would go to adapters.

use http::{HeaderMap, HeaderValue};

use crate::support::random_id;

/// The header.
pub const TRACEPARENT: &str = "traceparent";

/// Which of the traces that begin here are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling {
    /// So many of a hundred.
    pub percent: u8,
}

impl Sampling {
    /// No trace that begins here is recorded.
    pub const NONE: Self = Self { percent: 0 };

    /// Decided by the trace id alone, so that every replica decides alike.
    fn takes(self, id: u128) -> bool {
        id % 100 < u128::from(self.percent)
    }
}

/// A place in a trace: one span.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    /// The trace; never 0.
    pub id: u128,
    /// This span; never 0.
    pub span: u64,
    /// The span that caused it.
    pub parent: Option<u64>,
    /// Whether the parent is somebody else's.
    pub is_remote: bool,
    /// Whether the trace is recorded.
    pub sampled: bool,
}

impl Trace {
    /// A new trace.
    #[must_use]
    pub fn root(sampling: Sampling) -> Self {
        let id = random_id().as_u128();
        Self { id, span: random_span(), parent: None, is_remote: false, sampled: sampling.takes(id) }
    }

    /// The caller's trace goes on; one that is not valid, or given twice, counts as absent.
    #[must_use]
    pub fn of(headers: &HeaderMap, sampling: Sampling) -> Self {
        let mut given = headers.get_all(TRACEPARENT).iter();
        let parsed = match (given.next(), given.next()) {
            (Some(value), None) => value.to_str().ok().and_then(parse),
            _ => None,
        };
        match parsed {
            Some((id, parent, sampled)) => {
                Self { id, span: random_span(), parent: Some(parent), is_remote: true, sampled }
            }
            None => Self::root(sampling),
        }
    }

    /// A span below this one.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { span: random_span(), parent: Some(self.span), is_remote: false, ..*self }
    }

    /// As a header: who gets it goes on below this span.
    #[must_use]
    pub fn header(&self) -> Option<HeaderValue> {
        HeaderValue::from_bytes(&self.bytes()).ok()
    }

    fn bytes(&self) -> [u8; 55] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        write_hex(&mut text[3..35], self.id);
        write_hex(&mut text[36..52], self.span.into());
        write_hex(&mut text[53..55], u128::from(self.sampled));
        text
    }
}

/// The low digits of a number, as many as fit.
fn write_hex(place: &mut [u8], mut number: u128) {
    for digit in place.iter_mut().rev() {
        let value = u8::try_from(number & 0xf).unwrap_or_default();
        *digit = if value < 10 { b'0'.wrapping_add(value) } else { b'a'.wrapping_add(value - 10) };
        number >>= 4;
    }
}

/// A span id; never 0.
fn random_span() -> u64 {
    // The fixed bits of the id stand in the middle; the low half has two of them, at its top.
    let (high, low) = random_id().as_u64_pair();
    (low ^ high.rotate_left(32)).max(1)
}

fn parse(text: &str) -> Option<(u128, u64, bool)> {
    let mut parts = text.split('-');
    let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    if !(hex(version, 2) && hex(id, 32) && hex(span, 16) && hex(flags, 2)) || version == "ff" {
        return None;
    }
    // Later versions may say more behind the flags.
    if version == "00" && parts.next().is_some() {
        return None;
    }
    let (id, span) = (u128::from_str_radix(id, 16).ok()?, u64::from_str_radix(span, 16).ok()?);
    let flags = u8::from_str_radix(flags, 16).ok()?;
    (id != 0 && span != 0).then_some((id, span, flags & 1 == 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn of(values: &[&str]) -> Trace {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(TRACEPARENT, HeaderValue::from_str(value).unwrap());
        }
        Trace::of(&headers, Sampling::NONE)
    }

    #[test]
    fn a_trace_goes_on() {
        let trace = of(&[SENT]);
        assert_eq!((trace.parent, trace.sampled, trace.is_remote), (Some(0x00f0_67aa_0ba9_02b7), true, true));
        let header = trace.header().unwrap();
        let text = header.to_str().unwrap();
        assert!(text.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && text.ends_with("-01"), "{text}");
        assert_eq!(parse(text), Some((trace.id, trace.span, true)), "what goes out comes in again");
        let child = trace.child();
        assert_eq!((child.id, child.parent), (trace.id, Some(trace.span)));
        assert_ne!(child.span, trace.span);
        // A version to come, with more in it.
        assert_eq!(of(&["01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more"]).id, trace.id);
    }

    #[test]
    fn what_is_not_valid_begins_a_new_trace() {
        let id = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
        for bad in [
            "",
            "x",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-+bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            " 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        ] {
            let trace = of(&[bad]);
            assert!(trace.id != id && trace.id != 0 && trace.parent.is_none() && !trace.sampled, "{bad}");
        }
        assert_ne!(of(&[SENT, SENT]).id, id, "given twice");
    }

    #[test]
    fn sampling_is_a_share() {
        let taken = |percent| (0..1000).filter(|_| Trace::root(Sampling { percent }).sampled).count();
        assert_eq!((taken(0), taken(100)), (0, 1000));
        assert!((200..800).contains(&taken(50)));
    }
}
