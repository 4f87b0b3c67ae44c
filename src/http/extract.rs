//! Extractors whose refusals are problem documents.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::problem::{Problem, ProblemType};
use super::state::AppState;
use crate::auth::{Principal, Scope};
use crate::domain::fault::Fault;
use crate::domain::ids::Name;
use crate::limits;
use crate::telemetry::phase::Phase;
use crate::telemetry::{meters, probe};

/// How much more than the limit is read, and dropped, so that the refusal reaches its client.
const DRAIN_BYTES: usize = 8 * 1024 * 1024;
/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// An authenticated caller.
#[derive(Debug, Clone)]
pub struct Caller(pub Arc<Principal>);

impl Caller {
    /// Requires a scope.
    ///
    /// # Errors
    /// `insufficient-scope`, naming it.
    pub fn require(&self, scope: Scope) -> Result<&Principal, Problem> {
        if self.0.scopes.contains(scope) {
            Ok(&self.0)
        } else {
            Err(Problem::new(ProblemType::InsufficientScope, format!("This needs the scope `{}`.", scope.as_str()))
                .with("required_scope", scope.as_str()))
        }
    }
}

impl FromRequestParts<AppState> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let missing = || Problem::new(ProblemType::Unauthenticated, "Send `Authorization: Bearer TOKEN`.");
        let value = parts.headers.get(header::AUTHORIZATION).ok_or_else(missing)?;
        let text = value.to_str().map_err(|_| missing())?;
        let token = match text.split_once(' ') {
            Some((scheme, token)) if scheme.eq_ignore_ascii_case("bearer") => token.trim(),
            _ => return Err(missing()),
        };
        match probe::watched(Phase::Authentication, state.auth.authenticate(token)).await {
            Ok(principal) => {
                probe::identified(&principal.tenant);
                state.rates.admit(&principal, 1)?;
                probe::admitted();
                Ok(Self(principal))
            }
            Err(error) => {
                meters::not_authenticated();
                Err(Problem::from(&error))
            }
        }
    }
}

/// A caller where there is a bearer token, and nobody where there is none.
#[derive(Debug, Clone)]
pub struct OptionalCaller(pub Option<Caller>);

impl FromRequestParts<AppState> for OptionalCaller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let value = parts.headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let scheme = value.and_then(|value| value.split(' ').next());
        if scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case("bearer")) {
            return Caller::from_request_parts(parts, state).await.map(|caller| Self(Some(caller)));
        }
        Ok(Self(None))
    }
}

/// A body that says it is JSON, as the bytes that came: what is signed is read later.
#[derive(Debug, Clone)]
pub struct SignedBody(pub Bytes);

impl FromRequest<AppState> for SignedBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &AppState) -> Result<Self, Problem> {
        read_json(request, limits::INBOUND_BODY_BYTES).await.map(Self)
    }
}

/// The path parameters in order, percent-decoded: operation ids, runs, tools and the like.
#[derive(Debug, Clone)]
pub struct PathNames<const N: usize>(pub [Name; N]);

impl<const N: usize> FromRequestParts<AppState> for PathNames<N> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let faulty = |reason: &str| {
            Problem::new(ProblemType::InvalidRequest, "A name in the path is not valid.").fault("path:name", reason)
        };
        let params = RawPathParams::from_request_parts(parts, state)
            .await
            .map_err(|_| faulty("must be percent-encoded UTF-8"))?;
        let mut names = Vec::with_capacity(N);
        for (_, text) in params.iter().take(N) {
            names.push(Name::new(text).map_err(|fault| faulty(&fault.to_string()))?);
        }
        names.try_into().map(Self).map_err(|_| faulty("is missing"))
    }
}

/// The first path parameter, percent-decoded: an operation id, a run or a tool.
#[derive(Debug, Clone)]
pub struct PathName(pub Name);

impl FromRequestParts<AppState> for PathName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Problem> {
        let PathNames([name]) = PathNames::<1>::from_request_parts(parts, state).await?;
        Ok(Self(name))
    }
}

/// Query parameters; unknown ones are refused.
#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<T: DeserializeOwned + Send> FromRequestParts<AppState> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Problem> {
        match axum::extract::Query::<T>::try_from_uri(&parts.uri) {
            Ok(axum::extract::Query(query)) => Ok(Self(query)),
            // Names of parameters may be repeated; their values never are.
            Err(rejection) => Err(Problem::new(ProblemType::InvalidRequest, "The query has faults.").fault(
                &query_pointer(&rejection),
                "has an unknown or repeated parameter, or a value of the wrong type",
            )),
        }
    }
}

/// The parameter at fault, by its name alone: the library's text has it behind the first colon, or
/// in back quotes.
fn query_pointer(rejection: &axum::extract::rejection::QueryRejection) -> String {
    let text = rejection.body_text();
    let before = text.split(": ").nth(1).unwrap_or_default();
    let quoted = text.split('`').nth(1).unwrap_or_default();
    let is_name =
        |name: &&str| (1..=32).contains(&name.len()) && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let name = [before, quoted].into_iter().find(is_name);
    name.map_or_else(|| "query".to_owned(), |name| format!("query:{name}"))
}

/// A JSON body: of the right type, within the limit, without duplicate or unknown members.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &AppState) -> Result<Self, Problem> {
        let bytes = read_json(request, limits::BODY_BYTES).await?;
        parse(&bytes).map(Self)
    }
}

/// The items of a batch, not parsed yet: a fault in one is that one's alone.
#[derive(Debug, Clone)]
pub struct Batch(pub Vec<Box<RawValue>>);

#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchBody {
    items: Vec<Box<RawValue>>,
}

impl FromRequest<AppState> for Batch {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &AppState) -> Result<Self, Problem> {
        let bytes = read_json(request, limits::BATCH_BODY_BYTES).await?;
        let body: BatchBody = parse(&bytes)?;
        if body.items.len() > limits::BATCH_ITEMS {
            return Err(Problem::new(ProblemType::TooLarge, "A batch may have at most 200 items.")
                .with("limit_items", limits::BATCH_ITEMS)
                .fault("/items", "has too many items"));
        }
        Ok(Self(body.items))
    }
}

/// A JSON body with a whole recovery plan in it.
#[derive(Debug, Clone)]
pub struct PlanJson<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for PlanJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &AppState) -> Result<Self, Problem> {
        let bytes = read_json(request, limits::RECOVERY_EXECUTION_BODY_BYTES).await?;
        parse(&bytes).map(Self)
    }
}

/// A JSON body that may be absent altogether.
#[derive(Debug, Clone)]
pub struct OptionalJson<T>(pub Option<T>);

impl<T: DeserializeOwned> FromRequest<AppState> for OptionalJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &AppState) -> Result<Self, Problem> {
        let has_type = request.headers().contains_key(header::CONTENT_TYPE);
        let bytes = if has_type {
            read_json(request, limits::BODY_BYTES).await?
        } else {
            read(request, limits::BODY_BYTES).await?
        };
        if bytes.is_empty() { Ok(Self(None)) } else { parse(&bytes).map(|body| Self(Some(body))) }
    }
}

/// Reads a body that says it is JSON.
pub(super) async fn read_json(request: Request, limit: usize) -> Result<Bytes, Problem> {
    if !is_json(request.headers()) {
        return Err(Problem::new(ProblemType::UnsupportedMediaType, "Send `Content-Type: application/json`."));
    }
    read(request, limit).await
}

async fn read(request: Request, limit: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        Problem::new(ProblemType::TooLarge, format!("The body may have at most {limit} bytes."))
            .with("limit_bytes", limit)
    };
    let mut body = request.into_body();
    let mut bytes = Vec::new();
    let mut seen = 0_usize;
    let collect = async {
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame?.into_data() else { continue };
            seen = seen.saturating_add(data.len());
            if seen <= limit {
                bytes.extend_from_slice(&data);
            } else if seen > limit.saturating_add(DRAIN_BYTES) {
                break;
            }
        }
        Ok::<(), axum::Error>(())
    };
    match tokio::time::timeout(BODY_TIMEOUT, collect).await {
        // What is over the limit was read to its end and dropped: a client that is still sending
        // would not read the answer.
        _ if seen > limit => Err(too_large()),
        Err(_) => Err(Problem::new(ProblemType::RequestTimeout, "The body did not arrive in time.")),
        Ok(Ok(())) => Ok(Bytes::from(bytes)),
        Ok(Err(_)) => Err(Problem::new(ProblemType::InvalidRequest, "The body could not be read.")
            .fault("", "broke off or is not framed as HTTP asks")),
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let Some(value) = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()) else { return false };
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"))
}

/// Parses a body, which is an object. The fast path parses once; a fault is looked for again, to be
/// pointed at.
pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Problem> {
    // serde takes an array for a struct; nobody who sends one means it.
    if bytes.trim_ascii_start().first() == Some(&b'[') {
        return Err(Problem::new(ProblemType::InvalidRequest, "The body has faults; nothing was stored.")
            .fault("", "must be an object"));
    }
    if let Ok(value) = serde_json::from_slice(bytes) {
        probe::admitted();
        return Ok(value);
    }
    let mut deserializer = serde_json::Deserializer::from_slice(bytes);
    let fault = match serde_path_to_error::deserialize::<_, T>(&mut deserializer) {
        Err(error) => {
            let pointer = pointer_of(error.path());
            Fault::new(&pointer, &reason_of(error.inner()))
        }
        // Only what follows the value can be wrong.
        Ok(_) => Fault::new("", "has something after its JSON value"),
    };
    Err(Problem::new(ProblemType::InvalidRequest, "The body has faults; nothing was stored.").faults(vec![fault]))
}

fn pointer_of(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    path.iter()
        .map(|segment| match segment {
            Segment::Seq { index } => format!("/{index}"),
            Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
            Segment::Enum { variant } => format!("/{variant}"),
            Segment::Unknown => String::new(),
        })
        .collect()
}

/// A reason without the text that was sent: serde quotes values, which may be secrets, and names of
/// unknown members, which are kept because they are names.
fn reason_of(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!("line {}, column {}", error.line(), error.column());
    match error.classify() {
        serde_json::error::Category::Syntax | serde_json::error::Category::Eof => {
            format!("is not well-formed JSON ({place})")
        }
        serde_json::error::Category::Io => "could not be read".to_owned(),
        serde_json::error::Category::Data => {
            let text = text.split(" at line ").next().unwrap_or_default();
            if text.starts_with("unknown field") {
                "has an unknown member".to_owned()
            } else if text.starts_with("duplicate field") {
                "has a member twice".to_owned()
            } else if let Some(rest) = text.strip_prefix("missing field `") {
                format!("lacks the member `{}`", rest.trim_end_matches('`'))
            } else if let Some((_, expected)) = text.rsplit_once(", expected ") {
                // What was sent stands before; the last part is the library's own.
                format!("must be {expected} ({place})")
            } else if text.starts_with("must ") || text.starts_with("is ") {
                text.to_owned()
            } else {
                format!("is not of the right type ({place})")
            }
        }
    }
}

/// The value of a header that may stand once.
///
/// # Errors
/// It stands more than once.
pub fn only_one<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a HeaderValue>, Problem> {
    let mut values = headers.get_all(name).iter();
    let first = values.next();
    if values.next().is_some() {
        return Err(Problem::new(ProblemType::InvalidRequest, "A header has a fault.")
            .fault(&format!("header:{name}"), "is given more than once"));
    }
    Ok(first)
}

/// The revision that `If-Match` names.
///
/// # Errors
/// The header is there and is not one strong entity tag of this service.
pub fn if_match(headers: &HeaderMap) -> Result<Option<u32>, Problem> {
    let Some(value) = only_one(headers, "If-Match")? else { return Ok(None) };
    let text = value.to_str().unwrap_or_default().trim();
    let revision = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).and_then(|text| text.parse().ok());
    revision.map(Some).ok_or_else(|| {
        Problem::new(ProblemType::InvalidRequest, "The precondition has a fault.")
            .fault("header:If-Match", "must be one entity tag as answered, such as \"3\"")
    })
}

/// How long `Prefer: wait=N` allows to wait, at most [`limits::WAIT_MAX_SECONDS`].
///
/// # Errors
/// `wait` is there and is not a number of seconds within the limit.
pub fn prefer_wait(headers: &HeaderMap) -> Result<Option<Duration>, Problem> {
    let mut wait = None;
    for value in headers.get_all("prefer") {
        for preference in value.to_str().unwrap_or_default().split([',', ';']) {
            let Some((name, seconds)) = preference.split_once('=') else { continue };
            if !name.trim().eq_ignore_ascii_case("wait") {
                continue;
            }
            let seconds: Option<u32> = seconds.trim().trim_matches('"').parse().ok();
            let seconds = seconds.filter(|seconds| *seconds <= limits::WAIT_MAX_SECONDS).ok_or_else(|| {
                Problem::new(ProblemType::InvalidRequest, "The preference has a fault.")
                    .fault("header:Prefer", "`wait` must be a number of seconds, at most 60")
            })?;
            wait = (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)));
        }
    }
    Ok(wait)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Probe {
        #[expect(dead_code, reason = "only its parsing counts")]
        a: Inner,
    }

    #[derive(Debug, serde::Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[expect(dead_code, reason = "only its parsing counts")]
        n: u32,
    }

    #[test]
    fn faults_are_pointed_at_and_values_never_echoed() {
        for (body, pointer, reason) in [
            (r#"{"a":{"n":"hunter2"}}"#, "/a/n", "must be u32"),
            (r#"{"a":{"n":1,"hunter2":1}}"#, "/a", "unknown member"),
            (r#"{"a":{"n":1,"n":2}}"#, "/a", "twice"),
            (r#"{"a":{}}"#, "/a", "lacks the member `n`"),
            (r#"{"a":{"n":1}} x"#, "", "after its JSON value"),
            (r#"{"a":"#, "", "well-formed"),
        ] {
            let problem = serde_json::to_value(parse::<Probe>(body.as_bytes()).unwrap_err()).unwrap();
            let fault = &problem["faults"][0];
            let found = fault["pointer"].as_str().unwrap();
            assert!(found.starts_with(pointer), "{body}: {fault}");
            assert!(fault["reason"].as_str().unwrap().contains(reason), "{body}: {fault}");
            assert!(!problem.to_string().contains("hunter2") || body.contains("\"hunter2\":1"), "{problem}");
        }
    }
}
