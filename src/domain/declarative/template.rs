//! Texts with placeholders, and the places where they may stand.
//!
//! A placeholder is either the whole of its place (a path segment, a query value, a header, a text of
//! the body) and takes any value, encoded for that place; or it stands inside other text, and then it
//! takes plain values alone, because the text around it may be of a language that we don't know.

use super::super::ids::Name;

/// What a placeholder stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Field {
    /// `operation_id`
    OperationId,
    /// `tool`
    Tool,
    /// `target`
    Target,
    /// `run_id`
    RunId,
    /// `idempotency_key`
    IdempotencyKey,
    /// `marker`
    Marker,
    /// `arguments_digest`
    ArgumentsDigest,
    /// `attempt`
    Attempt,
    /// `dispatched_at`
    DispatchedAt,
    /// `receipt.receipt_id`
    ReceiptId,
    /// `receipt.structured.a.b`
    Structured(Vec<String>),
}

impl Field {
    fn parse(name: &str) -> Option<Self> {
        Some(match name {
            "operation_id" => Self::OperationId,
            "tool" => Self::Tool,
            "target" => Self::Target,
            "run_id" => Self::RunId,
            "idempotency_key" => Self::IdempotencyKey,
            "marker" => Self::Marker,
            "arguments_digest" => Self::ArgumentsDigest,
            "attempt" => Self::Attempt,
            "dispatched_at" => Self::DispatchedAt,
            "receipt.receipt_id" => Self::ReceiptId,
            _ => {
                let path: Vec<String> =
                    name.strip_prefix("receipt.structured.")?.split('.').map(str::to_owned).collect();
                return path.iter().all(|step| is_word(step)).then_some(Self::Structured(path));
            }
        })
    }

    /// Whether it needs a receipt.
    #[must_use]
    pub const fn is_of_receipt(&self) -> bool {
        matches!(self, Self::ReceiptId | Self::Structured(_))
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// As it stands.
    Literal(String),
    /// `{{name}}`
    Field(Field),
    /// `{{name|path}}`: a value with slashes that separate path segments.
    Path(Field),
    /// `{{secret.NAME}}`
    Secret(String),
}

/// A text with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

impl Template {
    /// Reads a text.
    ///
    /// # Errors
    /// A placeholder that is unknown or not closed.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("{{") {
            let (inside, after) = after.split_once("}}").ok_or("has a placeholder that is not closed")?;
            literal(before, &mut pieces)?;
            pieces.push(placeholder(inside.trim())?);
            rest = after;
        }
        literal(rest, &mut pieces)?;
        Ok(Self(pieces))
    }

    /// Its parts.
    #[must_use]
    pub fn pieces(&self) -> &[Piece] {
        &self.0
    }

    /// Whether a placeholder in it stands inside other text.
    #[must_use]
    pub fn is_mixed(&self) -> bool {
        self.0.len() > 1
    }

    fn literals(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|piece| if let Piece::Literal(text) = piece { Some(text.as_str()) } else { None })
    }

    fn has_secret(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Secret(_)))
    }

    fn has_path(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Path(_)))
    }

    /// Whether it needs a receipt.
    #[must_use]
    pub fn needs_receipt(&self) -> bool {
        self.0.iter().any(|piece| matches!(piece, Piece::Field(field) | Piece::Path(field) if field.is_of_receipt()))
    }

    /// Reads a text of the body.
    ///
    /// # Errors
    /// As [`Template::parse`], or a placeholder that may not stand there.
    pub fn in_body(text: &str) -> Result<Self, &'static str> {
        Self::parse(text)?.without_secret_and_path()
    }

    /// Reads the value of a header.
    ///
    /// # Errors
    /// As [`Template::parse`], or something that may not stand there.
    pub fn in_header(text: &str) -> Result<Self, &'static str> {
        let template = Self::parse(text)?;
        if template.has_path() {
            Err("has `|path`, which stands for segments of the URL alone")
        } else if template.literals().any(|text| !text.bytes().all(|byte| (b' '..=b'~').contains(&byte))) {
            Err("must be printable ASCII on one line")
        } else if text.trim() != text || text.is_empty() {
            Err("must not be empty, or start or end with white space")
        } else {
            Ok(template)
        }
    }

    fn without_secret_and_path(self) -> Result<Self, &'static str> {
        if self.has_secret() {
            Err("has a secret; secrets stand in headers alone")
        } else if self.has_path() {
            Err("has `|path`, which stands for segments of the URL alone")
        } else {
            Ok(self)
        }
    }
}

fn literal(text: &str, pieces: &mut Vec<Piece>) -> Result<(), &'static str> {
    if text.contains("}}") {
        return Err("has `}}` without `{{`");
    }
    if !text.is_empty() {
        pieces.push(Piece::Literal(text.to_owned()));
    }
    Ok(())
}

fn placeholder(inside: &str) -> Result<Piece, &'static str> {
    const UNKNOWN: &str = "has an unknown placeholder";
    if let Some(name) = inside.strip_prefix("secret.") {
        return if Name::new(name).is_ok() && name.split('.').all(is_word) {
            Ok(Piece::Secret(name.to_owned()))
        } else {
            Err("has a secret whose name is not made of letters, digits, `_`, `-` and `.`")
        };
    }
    match inside.split_once('|') {
        None => Field::parse(inside).map(Piece::Field).ok_or(UNKNOWN),
        Some((name, modifier)) if modifier.trim() == "path" => {
            Field::parse(name.trim()).map(Piece::Path).ok_or(UNKNOWN)
        }
        Some(_) => Err(UNKNOWN),
    }
}

/// A URL whose path segments and query values may have placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UrlTemplate {
    /// Scheme and authority.
    pub origin: String,
    /// The host alone.
    pub host: String,
    /// The path, without its first slash.
    pub segments: Vec<Template>,
    /// The query: keys as they stand, and their values where there is a `=`.
    pub query: Vec<(String, Option<Template>)>,
}

impl UrlTemplate {
    /// Reads a URL.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains('#') {
            return Err("must not have a fragment");
        }
        let scheme = ["https://", "http://"].into_iter().find(|scheme| text.starts_with(scheme));
        let scheme = scheme.ok_or("must start with `https://`")?;
        let rest = text.strip_prefix(scheme).unwrap_or_default();
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, rest) = rest.split_at_checked(end).unwrap_or((rest, ""));
        let host = host_of(authority)?;
        let (path, query) = match rest.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (rest, None),
        };
        let segments = match path.strip_prefix('/') {
            Some(path) => path.split('/').map(segment).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        let query = match query {
            Some(query) => query.split('&').map(parameter).collect::<Result<_, _>>()?,
            None => Vec::new(),
        };
        Ok(Self { origin: format!("{scheme}{authority}"), host, segments, query })
    }

    /// Whether it needs a receipt.
    #[must_use]
    pub fn needs_receipt(&self) -> bool {
        let values = self.query.iter().filter_map(|(_, value)| value.as_ref());
        self.segments.iter().chain(values).any(Template::needs_receipt)
    }
}

fn host_of(authority: &str) -> Result<String, &'static str> {
    const WRONG: &str = "must have a host, without placeholders and without user information";
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !authority.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_name = |host: &str| host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'));
    let is_v6 = |host: &str| host.bytes().all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.'));
    let valid = match host.strip_prefix('[') {
        Some(inside) => inside.strip_suffix(']').is_some_and(|inside| !inside.is_empty() && is_v6(inside)),
        None => !host.is_empty() && is_name(host),
    };
    let port_valid =
        port.is_none_or(|port| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok());
    if valid && port_valid { Ok(host.to_ascii_lowercase()) } else { Err(WRONG) }
}

fn segment(text: &str) -> Result<Template, &'static str> {
    let template = Template::parse(text)?;
    if template.has_secret() {
        return Err("has a secret; secrets stand in headers alone");
    }
    if template.has_path() && template.is_mixed() {
        return Err("has `|path` inside other text");
    }
    if !template.literals().all(|text| is_encoded(text, b"!$&'()*+,;=:@")) {
        return Err("has a character that must be percent-encoded");
    }
    // Readers of URLs take `%2e` for a dot here.
    let plain = text.to_ascii_lowercase().replace("%2e", ".");
    if plain == "." || plain == ".." { Err("must not have the segments `.` and `..`") } else { Ok(template) }
}

fn parameter(text: &str) -> Result<(String, Option<Template>), &'static str> {
    let (key, value) = match text.split_once('=') {
        Some((key, value)) => (key, Some(value)),
        None => (text, None),
    };
    if key.contains("{{") {
        return Err("has a placeholder that is neither a path segment nor a query value");
    }
    let value = value.map(|value| Template::parse(value)?.without_secret_and_path()).transpose()?;
    let literals = value.iter().flat_map(Template::literals);
    if literals.chain([key]).all(|text| is_encoded(text, b"!$'()*+,;=:@/?[]")) {
        Ok((key.to_owned(), value))
    } else {
        Err("has a character that must be percent-encoded")
    }
}

/// Whether a text has unreserved characters, the given ones and whole percent-encodings alone.
fn is_encoded(text: &str, also: &[u8]) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().all(|(at, byte)| match byte {
        b'%' => matches!(bytes.get(at.saturating_add(1)..at.saturating_add(3)), Some(hex) if hex.iter().all(u8::is_ascii_hexdigit)),
        _ => byte.is_ascii_alphanumeric() || b"-._~".contains(byte) || also.contains(byte),
    })
}

/// Whether a value may stand inside other text: nothing that any language could take for a sign of its
/// own.
#[must_use]
pub fn is_plain(value: &str) -> bool {
    value.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric())
        && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_known_and_closed() {
        let piece = |text: &str| Template::parse(text).map(|template| template.pieces().to_vec());
        assert_eq!(piece("{{ target }}"), Ok(vec![Piece::Field(Field::Target)]));
        assert_eq!(piece("{{target|path}}"), Ok(vec![Piece::Path(Field::Target)]));
        assert_eq!(piece("a{b}c"), Ok(vec![Piece::Literal("a{b}c".to_owned())]));
        let step = |text: &str| text.to_owned();
        assert_eq!(
            piece("{{receipt.structured.a.b-c}}"),
            Ok(vec![Piece::Field(Field::Structured(vec![step("a"), step("b-c")]))])
        );
        for wrong in [
            "{{",
            "{{x}}",
            "{{}}",
            "{{target",
            "target}}",
            "{{target|raw}}",
            "{{receipt.structured.}}",
            "{{secret.}}",
            "{{secret.a b}}",
            "{{arguments}}",
            "{{{target}}}x}}",
        ] {
            assert!(piece(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn urls_have_a_fixed_host_and_no_way_out() {
        for right in [
            "https://api.example.org",
            "https://api.example.org/",
            "http://127.0.0.1:8080/a/{{target}}/b.json?x={{operation_id}}&y[z]=1&flag",
            "https://[::1]:8443/{{target|path}}?q=a:{{idempotency_key}}",
            "https://api.example.org/a%2Fb/x{{target}}",
        ] {
            assert!(UrlTemplate::parse(right).is_ok(), "{right}: {:?}", UrlTemplate::parse(right));
        }
        for wrong in [
            "ftp://a/b",
            "https://",
            "https:///a",
            "https://{{target}}/a",
            "https://a.{{target}}/x",
            "https://u:p@a/x",
            "https://a/x#y",
            "https://a/../b",
            "https://a/%2E%2e/b",
            "https://a/./b",
            "https://a/b c",
            "https://a/b\\c",
            "https://a/b\r\nc",
            "https://a/ä",
            "https://a/x?{{target}}=1",
            "https://a/x?a={{secret.k}}",
            "https://a/{{secret.k}}",
            "https://a/x{{target|path}}",
            "https://a/x?y={{target|path}}",
            "https://a/%2",
            "https://a:99999/",
            "https://a:b/",
            "https://a/{b}",
            "https://a/x?y=\"",
            "https://a/{{target",
            "https://a\\b/",
        ] {
            assert!(UrlTemplate::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn headers_are_one_line_of_printable_ascii() {
        assert!(Template::in_header("Bearer {{secret.key}}").is_ok());
        for wrong in ["", " a", "a ", "a\r\nb", "a\nb", "ä", "a\0", "{{target|path}}", "\t"] {
            assert!(Template::in_header(wrong).is_err(), "{wrong:?}");
        }
    }
}
