//! Known secrets in receipts (law 11): what an adapter or a vendor was given to sign or to ask with is masked
//! in free text before anything is stored. Fields that must stay exact are never altered: a secret in one of
//! them makes the receipt unusable.

use std::fmt;
use std::ops::Range;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD_NO_PAD, URL_SAFE_NO_PAD};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;

use super::mask::MASK;
use super::ports::SigningSecret;
use crate::domain::receipt::{CheckedReceipt, Receipt};
use crate::limits;

/// Why a receipt can't be redacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unredactable {
    /// A secret stands where nothing may be altered.
    Exact,
    /// Once masked it is no receipt any more: too long, or two keys became one.
    Form,
}

/// The secrets that the writer of a receipt could know, in the forms in which they could be written.
#[derive(Clone, Default)]
pub struct KnownSecrets(Vec<Box<str>>);

impl fmt::Debug for KnownSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("KnownSecrets").field(&self.0.len()).finish()
    }
}

impl KnownSecrets {
    /// Adds what webhooks are signed with.
    pub fn add_signing(&mut self, secret: &SigningSecret) {
        self.add_bytes(secret.bytes());
        self.add_form(secret.text());
    }

    /// Adds a secret that is a text.
    pub fn add(&mut self, value: &str) {
        self.add_form(value.to_owned());
        if value.len() >= limits::REDACT_ANYWHERE_BYTES {
            self.add_bytes(value.as_bytes());
            self.add_form(utf8_percent_encode(value, NON_ALPHANUMERIC).to_string());
            // As it stands in JSON that is told as a text.
            let quoted = serde_json::to_string(value).unwrap_or_default();
            self.add_form(quoted.trim_matches('"').to_owned());
        }
        if let Ok(secret) = SigningSecret::parse(value) {
            self.add_signing(&secret);
        }
        // `Bearer …` and the like.
        if let Some((_, last)) = value.rsplit_once(' ').filter(|(_, last)| last.len() >= limits::REDACT_ANYWHERE_BYTES)
        {
            self.add(last);
        }
    }

    fn add_bytes(&mut self, bytes: &[u8]) {
        self.add_form(STANDARD_NO_PAD.encode(bytes));
        self.add_form(URL_SAFE_NO_PAD.encode(bytes));
        self.add_form(hex::encode(bytes));
        self.add_form(hex::encode_upper(bytes));
        if let Ok(text) = std::str::from_utf8(bytes) {
            self.add_form(text.to_owned());
        }
    }

    fn add_form(&mut self, form: String) {
        if !form.is_empty() && !self.0.iter().any(|known| **known == form) {
            self.0.push(form.into());
        }
    }

    /// Masks what is free text in a receipt: its message, and every text and key in `structured` and
    /// `artifacts`. What has no secret in it stays as it is, byte for byte.
    ///
    /// # Errors
    /// A secret stands where nothing may be altered, or what is left is no receipt.
    pub fn redact(&self, checked: &CheckedReceipt) -> Result<CheckedReceipt, Unredactable> {
        let receipt = &checked.receipt;
        let maps = [&receipt.resource_versions, &receipt.integrity];
        let entries = maps.into_iter().flatten().flat_map(|(key, value)| [key.as_str(), value.as_str()]);
        let names = [receipt.receipt_id.as_str(), receipt.source.as_str()];
        if entries.chain(names).any(|text| self.is_in_exact(text)) {
            return Err(Unredactable::Exact);
        }
        let message = self.masked(&receipt.message);
        let structured = self.masked_json(&receipt.structured)?;
        let artifacts =
            receipt.artifacts.iter().map(|artifact| self.masked_json(artifact)).collect::<Result<Vec<_>, _>>()?;
        if message.is_none() && structured.is_none() && artifacts.iter().all(Option::is_none) {
            return Ok(checked.clone());
        }
        let mut redacted = Receipt::clone(receipt);
        redacted.message = message.unwrap_or(redacted.message);
        redacted.structured = structured.unwrap_or(redacted.structured);
        for (kept, masked) in redacted.artifacts.iter_mut().zip(artifacts) {
            if let Some(masked) = masked {
                *kept = masked;
            }
        }
        redacted.check().map_err(|_| Unredactable::Form)
    }

    /// Whether a secret stands in a text that must stay exact. Short ones are not looked for: they are
    /// found in ordinary words.
    #[must_use]
    pub fn is_in_exact(&self, text: &str) -> bool {
        self.0.iter().any(|form| form.len() >= limits::REDACT_WORD_BYTES && !spans(form, text).is_empty())
    }

    /// The text with its secrets masked; `None` if there are none.
    fn masked(&self, text: &str) -> Option<String> {
        let mut found: Vec<Range<usize>> = self.0.iter().flat_map(|form| spans(form, text)).collect();
        if found.is_empty() {
            return None;
        }
        found.sort_unstable_by_key(|span| span.start);
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for span in found {
            // Of secrets that overlap, or touch, nothing is left between the masks.
            if span.start > done || (span.start == done && done == 0) {
                out.push_str(text.get(done..span.start).unwrap_or_default());
                out.push_str(MASK);
            }
            done = done.max(span.end);
        }
        out.push_str(text.get(done..).unwrap_or_default());
        Some(out)
    }

    /// JSON with the secrets in its texts and keys masked and everything else as it was; `None` if there are
    /// none. A number is no text and can't be masked.
    fn masked_json(&self, raw: &RawValue) -> Result<Option<Box<RawValue>>, Unredactable> {
        let text = raw.get();
        let mut out = String::new();
        let (mut copied, mut at) = (0, 0);
        while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
            let token = Token::first_of(rest);
            let end = at.saturating_add(token.bytes());
            match token {
                Token::Text(literal) => {
                    let value: String = serde_json::from_str(literal).map_err(|_| Unredactable::Form)?;
                    if let Some(masked) = self.masked(&value) {
                        out.push_str(text.get(copied..at).unwrap_or_default());
                        out.push_str(&serde_json::to_string(&masked).map_err(|_| Unredactable::Form)?);
                        copied = end;
                    }
                }
                Token::Number(digits) if self.is_in_exact(digits) => return Err(Unredactable::Exact),
                Token::Number(_) | Token::Other(_) => {}
            }
            at = end;
        }
        if copied == 0 {
            return Ok(None);
        }
        out.push_str(text.get(copied..).unwrap_or_default());
        RawValue::from_string(out).map(Some).map_err(|_| Unredactable::Form)
    }
}

/// A piece of JSON that is known to be well-formed.
enum Token<'a> {
    /// With its quotes.
    Text(&'a str),
    Number(&'a str),
    /// The length in bytes.
    Other(usize),
}

impl<'a> Token<'a> {
    fn first_of(rest: &'a str) -> Self {
        let bytes = rest.as_bytes();
        match bytes.first() {
            Some(b'"') => {
                let mut escaped = false;
                let end = bytes.iter().skip(1).position(|byte| {
                    let closes = *byte == b'"' && !escaped;
                    escaped = *byte == b'\\' && !escaped;
                    closes
                });
                Self::Text(end.and_then(|end| rest.get(..end.saturating_add(2))).unwrap_or(rest))
            }
            Some(b'-' | b'0'..=b'9') => {
                let is_number = |byte: &u8| matches!(byte, b'-' | b'+' | b'.' | b'e' | b'E' | b'0'..=b'9');
                let end = bytes.iter().position(|byte| !is_number(byte)).unwrap_or(bytes.len());
                Self::Number(rest.get(..end).unwrap_or(rest))
            }
            // Up to the next text or number. Outside texts JSON is ASCII.
            _ => {
                let next = bytes.iter().skip(1).position(|byte| matches!(byte, b'"' | b'-' | b'0'..=b'9'));
                Self::Other(next.map_or(bytes.len(), |next| next.saturating_add(1)))
            }
        }
    }

    const fn bytes(&self) -> usize {
        match self {
            Self::Text(text) | Self::Number(text) => text.len(),
            Self::Other(bytes) => *bytes,
        }
    }
}

/// Where a secret stands in a text: anywhere if it is long, as a word of its own if it is not, and as the
/// whole text if it is very short.
fn spans(form: &str, text: &str) -> Vec<Range<usize>> {
    if form.len() < limits::REDACT_WORD_BYTES {
        let whole = (text.trim() == form).then_some(0..text.len());
        return whole.into_iter().collect();
    }
    let is_word = |span: &Range<usize>| {
        let before = text.get(..span.start).and_then(|before| before.chars().next_back());
        let after = text.get(span.end..).and_then(|after| after.chars().next());
        ![before, after].into_iter().flatten().any(char::is_alphanumeric)
    };
    let found = text.match_indices(form).map(|(start, found)| start..start.saturating_add(found.len()));
    found.filter(|span| form.len() >= limits::REDACT_ANYWHERE_BYTES || is_word(span)).collect()
}

#[cfg(test)]
mod tests;
