//! Filling in a request: every value is encoded for the place where it stands, or refused. Nothing
//! that a caller chose can change where a request goes or what it asks.

use std::time::Duration;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::Value;

use super::{FetchRequest, MAX_BYTES};
use crate::config::Secret;
use crate::domain::adapter::NoAnswer;
use crate::domain::declarative::subject::Subject;
use crate::domain::declarative::template::{Field, Piece, Template, UrlTemplate, is_plain};
use crate::domain::declarative::{Inquiry, ReadMethod};
use crate::domain::ids::Name;
use crate::limits;

/// Everything but the unreserved characters of RFC 3986.
const RESERVED: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What is in force after registration and still doesn't hold.
const BROKEN: NoAnswer = NoAnswer::Contract("the request template can't be read");
const ABSENT: NoAnswer = NoAnswer::Contract("the request needs a value that this effect does not have");
const NOT_PLAIN: NoAnswer = NoAnswer::Contract("a value has characters that can't stand inside other text");
const NOT_HERE: NoAnswer = NoAnswer::Contract("a value can't stand in its place of the request");
const TOO_LARGE: NoAnswer = NoAnswer::Contract("the request is too large with its values");

/// Gives the secret of a name for a host.
pub(super) type Reveal<'a> = &'a mut dyn FnMut(&str, &str) -> Option<Secret<String>>;

/// A request that was filled in.
pub(super) struct Filled {
    pub(super) method: ReadMethod,
    pub(super) url: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Option<String>,
    /// Who is asked, for receipts and verifications.
    pub(super) source: Name,
}

impl Filled {
    pub(super) fn into_request(self, timeout: Duration) -> FetchRequest {
        let method = match self.method {
            ReadMethod::Get => Method::GET,
            ReadMethod::Head => Method::HEAD,
            ReadMethod::Post => Method::POST,
        };
        let body = self.body.unwrap_or_default().into_bytes();
        FetchRequest { method, url: self.url, headers: self.headers, body, timeout, max_bytes: MAX_BYTES }
    }
}

pub(super) fn render(inquiry: &Inquiry, subject: &Subject, reveal: Reveal<'_>) -> Result<Filled, NoAnswer> {
    let template = UrlTemplate::parse(&inquiry.url).map_err(|_| BROKEN)?;
    let url = url(&template, subject)?;
    let mut headers = Vec::with_capacity(inquiry.headers.len().saturating_add(1));
    for (name, value) in &inquiry.headers {
        headers.push((name.clone(), header(value, &template.host, subject, reveal)?));
    }
    let body = match &inquiry.body {
        None => None,
        Some(body) => {
            headers.push(("content-type".to_owned(), "application/json".to_owned()));
            let text = serde_json::to_string(&filled_body(body, subject)?).map_err(|_| BROKEN)?;
            if text.len() > limits::TEMPLATE_BODY_BYTES {
                return Err(TOO_LARGE);
            }
            Some(text)
        }
    };
    Ok(Filled { method: inquiry.method, url, headers, body, source: source(inquiry.method, &template.host)? })
}

/// `GET api.example.org`: nothing of the effect, and short enough for a name.
fn source(method: ReadMethod, host: &str) -> Result<Name, NoAnswer> {
    let mut text = format!("{} {host}", method.as_str());
    text.truncate(limits::NAME_BYTES);
    Name::new(&text).map_err(|_| BROKEN)
}

fn url(template: &UrlTemplate, subject: &Subject) -> Result<String, NoAnswer> {
    let mut url = template.origin.clone();
    for segment in &template.segments {
        url.push('/');
        url.push_str(&path_part(segment, subject)?);
    }
    for (index, (key, value)) in template.query.iter().enumerate() {
        if index == 0 && template.segments.is_empty() {
            url.push('/');
        }
        url.push(if index == 0 { '?' } else { '&' });
        url.push_str(key);
        if let Some(value) = value {
            url.push('=');
            url.push_str(&fill(value, subject, |value| Ok(utf8_percent_encode(value, &RESERVED).to_string()))?);
        }
    }
    if url.len() > limits::FILLED_URL_BYTES { Err(TOO_LARGE) } else { Ok(url) }
}

fn path_part(template: &Template, subject: &Subject) -> Result<String, NoAnswer> {
    match template.pieces() {
        [Piece::Path(field)] => {
            let value = value(subject, field)?;
            let segments: Result<Vec<String>, NoAnswer> = value.split('/').map(segment).collect();
            Ok(segments?.join("/"))
        }
        _ => fill(template, subject, segment),
    }
}

/// One segment. Every reader of URLs takes `.` and `..` for steps, also when they are encoded; and an
/// empty one could make a list of a thing.
fn segment(value: &str) -> Result<String, NoAnswer> {
    match value {
        "" | "." | ".." => Err(NOT_HERE),
        _ => Ok(utf8_percent_encode(value, &RESERVED).to_string()),
    }
}

/// A value of an effect, which is never empty: an empty filter would ask for everything.
fn value(subject: &Subject, field: &Field) -> Result<String, NoAnswer> {
    subject.value(field).filter(|value| !value.is_empty()).ok_or(ABSENT)
}

/// Fills in a template without secrets: a placeholder that is all of it takes any value through
/// `encode`, others take plain values alone.
fn fill(
    template: &Template,
    subject: &Subject,
    encode: impl Fn(&str) -> Result<String, NoAnswer>,
) -> Result<String, NoAnswer> {
    let mut text = String::new();
    for piece in template.pieces() {
        match piece {
            Piece::Literal(literal) => text.push_str(literal),
            Piece::Field(field) if template.is_mixed() => text.push_str(&plain(subject, field)?),
            Piece::Field(field) => text.push_str(&encode(&value(subject, field)?)?),
            Piece::Path(_) | Piece::Secret(_) => return Err(BROKEN),
        }
    }
    Ok(text)
}

fn plain(subject: &Subject, field: &Field) -> Result<String, NoAnswer> {
    let value = value(subject, field)?;
    if is_plain(&value) { Ok(value) } else { Err(NOT_PLAIN) }
}

fn header(text: &str, host: &str, subject: &Subject, reveal: Reveal<'_>) -> Result<String, NoAnswer> {
    let template = Template::in_header(text).map_err(|_| BROKEN)?;
    let mut line = String::new();
    for piece in template.pieces() {
        match piece {
            Piece::Literal(literal) => line.push_str(literal),
            Piece::Field(field) if template.is_mixed() => line.push_str(&plain(subject, field)?),
            Piece::Field(field) => line.push_str(&value(subject, field)?),
            Piece::Secret(name) => {
                let secret = reveal(host, name).ok_or(NoAnswer::NoSecret)?;
                if !is_header_text(secret.expose()) {
                    return Err(NoAnswer::NoSecret);
                }
                line.push_str(secret.expose());
            }
            Piece::Path(_) => return Err(BROKEN),
        }
    }
    if line.len() > limits::HEADER_BYTES {
        Err(TOO_LARGE)
    } else if is_header_text(&line) {
        Ok(line)
    } else {
        Err(NOT_HERE)
    }
}

fn is_header_text(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) && text.trim() == text
}

fn filled_body(template: &Value, subject: &Subject) -> Result<Value, NoAnswer> {
    Ok(match template {
        Value::String(text) => {
            let template = Template::in_body(text).map_err(|_| BROKEN)?;
            Value::String(fill(&template, subject, |value| Ok(value.to_owned()))?)
        }
        Value::Array(items) => {
            Value::Array(items.iter().map(|item| filled_body(item, subject)).collect::<Result<_, _>>()?)
        }
        Value::Object(members) => {
            let members = members.iter().map(|(name, item)| Ok((name.clone(), filled_body(item, subject)?)));
            Value::Object(members.collect::<Result<_, NoAnswer>>()?)
        }
        other => other.clone(),
    })
}

#[cfg(test)]
mod tests;

#[cfg(test)]
pub(super) use tests::subject as subject_for_tests;
