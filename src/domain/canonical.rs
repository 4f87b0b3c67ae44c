//! The arguments digest: SHA-256 over RFC 8785 canonical JSON, with one stricter rule.
//!
//! RFC 8785 prints every number as a double, so two ids of 17 or more digits can become one text.
//! Here an integer beyond ±2^53 (written without fraction or exponent) keeps its digits, so two
//! different integers never share a digest. Everything else is the RFC: keys sorted by UTF-16
//! code units, minimal escapes, `1.0` equal to `1`, `null` different from absent.
//!
//! The same walk refuses what no JSON reader agrees on: duplicate keys, lone surrogates, NUL, and
//! nesting beyond [`limits::JSON_DEPTH`].

use std::borrow::Cow;
use std::fmt::Write as _;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::limits;

/// The name of the digest algorithm, kept in every intent.
pub const ALGORITHM: &str = "sha256-jcs-int53";

/// What a digest in its public form begins with.
const PREFIX: &str = "sha256:";

/// Beyond this magnitude a double skips integers.
const EXACT: u64 = 1 << 53;

/// Why a JSON value was refused, and where (an RFC 6901 pointer below the value).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at {pointer:?}")]
pub struct JsonFault {
    /// Where, relative to the value.
    pub pointer: String,
    /// What is wrong, without the offending text.
    pub reason: &'static str,
}

/// A digest in its public form, `sha256:` and 64 lower-case hex digits.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct Sha256Digest(String);

impl Sha256Digest {
    /// The digest of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hash(Sha256::digest(bytes).into())
    }

    /// A hash that was made already.
    #[must_use]
    pub fn from_hash(hash: [u8; 32]) -> Self {
        // Every change has several of these, and `hex::encode` pushes one `char` after the other.
        let mut digits = [0_u8; 64];
        let mut text = String::with_capacity(PREFIX.len() + digits.len());
        text.push_str(PREFIX);
        if hex::encode_to_slice(hash, &mut digits).is_ok() {
            text.push_str(std::str::from_utf8(&digits).unwrap_or_default());
        }
        Self(text)
    }

    /// Reads the public form.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix(PREFIX)?;
        let valid = digits.len() == 64 && digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        valid.then(|| Self(text.to_owned()))
    }

    /// The public form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The 64 hex digits alone.
    #[must_use]
    pub fn hex(&self) -> &str {
        self.0.trim_start_matches(PREFIX)
    }
}

impl<'de> Deserialize<'de> for Sha256Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        super::text::parsed(deserializer, |text| {
            Self::parse(text).ok_or("must be `sha256:` and 64 lower-case hex digits")
        })
    }
}

/// A JSON value in canonical form, with the members of its top object kept apart so that identity
/// fields can be picked without a second parse.
#[derive(Debug, Clone)]
pub struct Canonical {
    text: String,
    members: Option<Vec<(String, String)>>,
}

impl Canonical {
    /// Canonicalizes a raw JSON value.
    ///
    /// # Errors
    /// Duplicate keys, NUL, lone surrogates, too deep, a number that is not finite.
    pub fn of(raw: &RawValue) -> Result<Self, JsonFault> {
        let mut path = Vec::new();
        if raw.get().starts_with('{') {
            let members = canonical_members(raw, &mut path)?;
            let mut text = String::with_capacity(raw.get().len());
            write_object(&mut text, &members);
            Ok(Self { text, members: Some(members) })
        } else {
            let mut text = String::with_capacity(raw.get().len());
            write_value(raw, &mut text, &mut path)?;
            Ok(Self { text, members: None })
        }
    }

    /// The canonical text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The digest of the canonical text.
    #[must_use]
    pub fn digest(&self) -> Sha256Digest {
        Sha256Digest::of(self.text.as_bytes())
    }

    /// The digest over the named top-level members alone; absent ones count as absent. A value
    /// that is not an object counts whole.
    #[must_use]
    pub fn digest_of_fields(&self, fields: &[String]) -> Sha256Digest {
        match &self.members {
            None => self.digest(),
            Some(members) => {
                let kept: Vec<_> = members.iter().filter(|(key, _)| fields.contains(key)).cloned().collect();
                let mut text = String::new();
                write_object(&mut text, &kept);
                Sha256Digest::of(text.as_bytes())
            }
        }
    }
}

/// Checks a raw JSON value by the same rules as [`Canonical::of`], without keeping anything.
///
/// # Errors
/// As [`Canonical::of`].
pub fn check(raw: &RawValue) -> Result<(), JsonFault> {
    Canonical::of(raw).map(drop)
}

fn fault(path: &[String], reason: &'static str) -> JsonFault {
    let mut pointer = String::new();
    for step in path {
        let _ = write!(pointer, "/{}", step.replace('~', "~0").replace('/', "~1"));
    }
    JsonFault { pointer, reason }
}

fn write_value(raw: &RawValue, out: &mut String, path: &mut Vec<String>) -> Result<(), JsonFault> {
    let text = raw.get();
    match text.as_bytes().first() {
        Some(b'{') => {
            let members = canonical_members(raw, path)?;
            write_object(out, &members);
        }
        Some(b'[') => {
            deeper(path)?;
            let items: Items<'_> = read(text, path)?;
            out.push('[');
            for (index, item) in items.0.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                path.push(index.to_string());
                write_value(item, out, path)?;
                path.pop();
            }
            out.push(']');
        }
        // What is well-formed and has no escape has nothing to escape either: it is canonical as it stands.
        Some(b'"') if !text.contains('\\') => out.push_str(text),
        Some(b'"') => {
            let string: Cow<'_, str> = read_string(text, path)?;
            write_string(out, &string);
        }
        Some(b't' | b'f' | b'n') => out.push_str(text),
        _ => write_number(text, out, path)?,
    }
    Ok(())
}

fn deeper(path: &[String]) -> Result<(), JsonFault> {
    if path.len() >= limits::JSON_DEPTH { Err(fault(path, "is nested too deeply")) } else { Ok(()) }
}

fn canonical_members(raw: &RawValue, path: &mut Vec<String>) -> Result<Vec<(String, String)>, JsonFault> {
    deeper(path)?;
    let members: Members<'_> = read(raw.get(), path)?;
    let mut list = Vec::with_capacity(members.0.len());
    for (key, value) in members.0 {
        if key.contains('\0') {
            return Err(fault(path, "has a member name with a NUL character"));
        }
        path.push(key.into_owned());
        let mut text = String::with_capacity(value.get().len());
        write_value(value, &mut text, path)?;
        list.push((path.pop().unwrap_or_default(), text));
    }
    // RFC 8785 §3.2.3: by UTF-16 code units, which differs from UTF-8 order beyond the BMP.
    list.sort_by(|(a, _), (b, _)| a.encode_utf16().cmp(b.encode_utf16()));
    if let Some(pair) = list.windows(2).find(|pair| pair[0].0 == pair[1].0) {
        path.push(pair[0].0.clone());
        return Err(fault(path, "is given twice"));
    }
    Ok(list)
}

fn write_object(out: &mut String, members: &[(String, String)]) {
    out.push('{');
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        write_string(out, key);
        out.push(':');
        out.push_str(value);
    }
    out.push('}');
}

fn write_string(out: &mut String, text: &str) {
    if text.bytes().all(|b| b >= b' ' && b != b'"' && b != b'\\') {
        out.push('"');
        out.push_str(text);
        out.push('"');
    } else {
        // serde_json escapes exactly what RFC 8785 §3.2.2.2 asks for; a string always serializes.
        out.push_str(&serde_json::to_string(text).unwrap_or_default());
    }
}

fn write_number(text: &str, out: &mut String, path: &[String]) -> Result<(), JsonFault> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_integer = digits.bytes().all(|b| b.is_ascii_digit());
    if is_integer && digits.parse::<u64>().map_or(true, |magnitude| magnitude > EXACT) {
        out.push_str(text);
        return Ok(());
    }
    let number: f64 = text.parse().map_err(|_| fault(path, "is not a number"))?;
    if !number.is_finite() {
        return Err(fault(path, "is a number beyond the range of a double"));
    }
    out.push_str(ryu_js::Buffer::new().format_finite(number));
    Ok(())
}

fn read<'a, T: Deserialize<'a>>(text: &'a str, path: &[String]) -> Result<T, JsonFault> {
    serde_json::from_str(text).map_err(|_| fault(path, "is not well-formed JSON (a lone surrogate, perhaps)"))
}

fn read_string<'a>(text: &'a str, path: &[String]) -> Result<Cow<'a, str>, JsonFault> {
    let Text(string) = read(text, path)?;
    if string.contains('\0') { Err(fault(path, "has a NUL character")) } else { Ok(string) }
}

#[derive(Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

struct Items<'a>(Vec<&'a RawValue>);

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Seq;
        impl<'de> Visitor<'de> for Seq {
            type Value = Items<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array")
            }
            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element::<&'de RawValue>()? {
                    items.push(item);
                }
                Ok(Items(items))
            }
        }
        deserializer.deserialize_seq(Seq)
    }
}

struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map;
        impl<'de> Visitor<'de> for Map {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((Text(key), value)) = map.next_entry::<Text<'de>, &'de RawValue>()? {
                    members.push((key, value));
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Map)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> Result<String, JsonFault> {
        let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
        Canonical::of(&raw).map(|c| c.text().to_owned())
    }

    #[test]
    fn sorts_by_utf16_and_escapes_minimally() {
        assert_eq!(
            canonical(r#"{ "\u20ac":1, "\r":2, "\ufb33":3, "1":4, "\ud83d\ude00":5, "\u0080":6, "\u00f6":7 }"#)
                .unwrap(),
            "{\"\\r\":2,\"1\":4,\"\u{80}\":6,\"ö\":7,\"€\":1,\"\u{1F600}\":5,\"\u{fb33}\":3}"
        );
        assert_eq!(canonical(r#""\u000f\n\u0008\"\\\/\u00e9""#).unwrap(), "\"\\u000f\\n\\b\\\"\\\\/é\"");
    }

    #[test]
    fn strings_with_nothing_to_escape_are_the_same_by_either_way() {
        for text in ["", "plain", "\u{7f}", "é\u{1F600}", "a\"b", "a\\b", "\u{1f}", "tab\t", "/"] {
            let mut written = String::new();
            write_string(&mut written, text);
            let sent = serde_json::to_string(text).unwrap();
            assert_eq!(written, sent);
            assert_eq!(canonical(&sent).unwrap(), sent);
            // The same text with every character escaped that may be.
            let escaped: Vec<String> = text.encode_utf16().map(|unit| format!("\\u{unit:04x}")).collect();
            assert_eq!(canonical(&format!("\"{}\"", escaped.concat())).unwrap(), sent);
        }
        assert!(serde_json::from_str::<Box<RawValue>>("\"a\u{1}b\"").is_err(), "a bare control character");
        assert!(serde_json::from_str::<Box<RawValue>>("\"a\0b\"").is_err());
    }

    #[test]
    fn numbers_follow_the_rfc_except_for_large_integers() {
        for (sent, kept) in [
            ("1", "1"),
            ("1.0", "1"),
            ("-0", "0"),
            ("0.000001", "0.000001"),
            ("1E30", "1e+30"),
            ("333333333.33333329", "333333333.3333333"),
            ("9007199254740992", "9007199254740992"),
            ("9007199254740993", "9007199254740993"),
            ("-9007199254740993", "-9007199254740993"),
            ("1152921504606846976", "1152921504606846976"),
            ("1152921504606847000", "1152921504606847000"),
            ("123456789012345678901234567890", "123456789012345678901234567890"),
        ] {
            assert_eq!(canonical(sent).unwrap(), kept, "{sent}");
        }
        assert!(canonical("1e400").is_err());
    }

    #[test]
    fn refuses_what_readers_disagree_on_and_says_where() {
        let at = |text: &str| canonical(text).unwrap_err().pointer;
        assert_eq!(at(r#"{"a":{"b/c":[1,{"d":1,"d":2}]}}"#), "/a/b~1c/1/d");
        assert_eq!(at(r#"{"a":"x\u0000"}"#), "/a");
        assert_eq!(at(r#"{"a":["\ud800"]}"#), "/a/0");
        assert!(canonical(&format!("{}1{}", "[".repeat(64), "]".repeat(64))).is_ok());
        assert!(canonical(&format!("{}1{}", "[".repeat(65), "]".repeat(65))).is_err());
    }

    #[test]
    fn identity_fields_pick_members() {
        let of = |text: &str| {
            let raw: Box<RawValue> = serde_json::from_str(text).unwrap();
            Canonical::of(&raw).unwrap().digest_of_fields(&["a".to_owned(), "c".to_owned()])
        };
        assert_eq!(of(r#"{"a":1,"b":2}"#), of(r#"{"b":3,"a":1.0}"#));
        assert_ne!(of(r#"{"a":1,"c":null}"#), of(r#"{"a":1}"#));
    }
}
