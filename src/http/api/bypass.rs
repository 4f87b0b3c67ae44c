//! Bypass reports: a vendor's export in, findings out, both as streams.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use http_body_util::BodyExt as _;
use serde::Deserialize;

use crate::auth::Scope;
use crate::domain::time::Timestamp;
use crate::http::dto::Faults;
use crate::http::extract::{Caller, Query};
use crate::http::problem::{Problem, ProblemType};
use crate::http::state::AppState;
use crate::limits;
use crate::service::bypass::lines::Format;
use crate::service::bypass::{Comparison, KeyKind, Matching};

/// What is compared.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct BypassQuery {
    /// Effects of this tool.
    tool: String,
    /// Where a line names the effect: a column of the CSV's header, or a JSON pointer such as `/metadata/operation_id`.
    key: String,
    /// What it is named by: `operation_id` (default), `marker` (a text with the marker in it) or `idempotency_key`.
    by: Option<String>,
    /// Effects created then or later count as missing when no line names them.
    #[param(format = DateTime)]
    from: String,
    /// Effects created before; at most the export's own end.
    #[param(format = DateTime)]
    until: String,
}

impl BypassQuery {
    fn check(self, format: Format) -> Result<Comparison, Problem> {
        let mut faults = Faults::default();
        let tool = faults.name("query:tool", &self.tool);
        let by = match self.by.as_deref() {
            None | Some("operation_id") => KeyKind::OperationId,
            Some("marker") => KeyKind::Marker,
            Some("idempotency_key") => KeyKind::IdempotencyKey,
            Some(_) => {
                faults.add("query:by", "must be operation_id, marker or idempotency_key");
                KeyKind::OperationId
            }
        };
        let (fits, reason) = match format {
            Format::Csv => (!self.key.is_empty(), "must be the name of a column, of at most 256 bytes"),
            Format::JsonLines => (
                self.key.starts_with('/'),
                "must be a JSON pointer such as /metadata/operation_id, of at most 256 bytes",
            ),
        };
        if !fits || self.key.len() > limits::NAME_BYTES {
            faults.add("query:key", reason);
        }
        let mut time = |pointer: &str, text: &str| {
            let time = Timestamp::parse(text);
            if time.is_none() {
                faults.add(pointer, "must be an RFC 3339 date and time with an offset, such as 2026-01-31T12:00:00Z");
            }
            time
        };
        let (from, until) = (time("query:from", &self.from), time("query:until", &self.until));
        if from.zip(until).is_some_and(|(from, until)| from >= until) {
            faults.add("query:until", "must lie after `from`");
        }
        match (tool, from.zip(until)) {
            (Some(tool), Some((from, until))) if faults.is_empty() => {
                Ok(Comparison { tool, by, from, until, format, key: self.key })
            }
            _ => Err(faults.problem()),
        }
    }
}

fn format_of(headers: &HeaderMap) -> Result<Format, Problem> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase().as_str() {
        "text/csv" => Ok(Format::Csv),
        "application/jsonl" | "application/x-ndjson" | "application/ndjson" => Ok(Format::JsonLines),
        _ => Err(Problem::new(
            ProblemType::UnsupportedMediaType,
            "Send `Content-Type: text/csv` or `application/jsonl` (one JSON object per line).",
        )),
    }
}

/// Compares a vendor's export with what was recorded: what the vendor has and nobody recorded, what is completed here
/// and the vendor lacks, and what the vendor has twice.
///
/// The body is the export itself, at most 512 MiB and 1,000,000 lines. The answer has one JSON object per line, in the
/// order of the export's lines, and a last one of type `summary`: an answer without it was cut. Lines are told by their
/// number, never by what they contain. Nothing is stored.
#[utoipa::path(
    post, path = "/api/reports/bypass", tag = "operators", operation_id = "reportBypass",
    security(("bearer" = ["effects:read"])),
    params(BypassQuery),
    request_body(content(
        (String = "text/csv"), (String = "application/jsonl")
    ), description = "The export"),
    responses(
        (status = 200, description = "One finding per line, the summary last", body = String,
            content_type = "application/jsonl"),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 408, description = "The export did not arrive in time (`request-timeout`)", body = Problem,
            content_type = "application/problem+json"),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn report_bypass(
    State(state): State<AppState>,
    caller: Caller,
    Query(query): Query<BypassQuery>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let comparison = query.check(format_of(&headers)?)?;
    let mut matching = state.service.begin_bypass(principal, comparison).await?;
    let mut body = request.into_body();
    let total = Duration::from_secs(limits::BYPASS_BODY_SECONDS);
    let read = tokio::time::timeout(total, read_all(&mut body, &mut matching)).await;
    let read = read.unwrap_or_else(|_| Err(late()));
    if let Err(problem) = read {
        drop(matching);
        drain(&mut body).await;
        return Err(problem);
    }
    let mut pieces = matching.tell();
    let answer = futures_util::stream::poll_fn(move |context| {
        pieces.poll_recv(context).map(|piece| piece.map(Ok::<_, std::convert::Infallible>))
    });
    let mut response = Response::new(Body::from_stream(answer));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jsonl"));
    Ok(response)
}

fn late() -> Problem {
    Problem::new(ProblemType::RequestTimeout, "The export did not arrive in time.")
}

async fn read_all(body: &mut Body, matching: &mut Matching) -> Result<(), Problem> {
    let silence = Duration::from_secs(limits::BYPASS_SILENCE_SECONDS);
    loop {
        match tokio::time::timeout(silence, body.frame()).await {
            Err(_) => return Err(late()),
            Ok(None) => return Ok(matching.finish().await?),
            Ok(Some(Err(_))) => {
                return Err(Problem::new(ProblemType::InvalidRequest, "The export could not be read.")
                    .fault("", "broke off or is not framed as HTTP asks"));
            }
            Ok(Some(Ok(frame))) => {
                if let Ok(bytes) = frame.into_data() {
                    matching.push(&bytes).await?;
                }
            }
        }
    }
}

/// Reads on for a while: a client that is still sending would not read the refusal.
async fn drain(body: &mut Body) {
    let reading = async {
        let mut left = limits::BYPASS_BODY_BYTES;
        while let Some(Ok(frame)) = body.frame().await {
            left = left.saturating_sub(frame.into_data().map_or(0, |bytes| bytes.len()));
            if left == 0 {
                return;
            }
        }
    };
    drop(tokio::time::timeout(Duration::from_secs(limits::BYPASS_SILENCE_SECONDS), reading).await);
}
