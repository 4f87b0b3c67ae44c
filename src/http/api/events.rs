//! The feed of events.

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::lists::check_limit;
use crate::auth::Scope;
use crate::domain::events::{EventDocument, EventFilter};
use crate::domain::journal::EventKind;
use crate::http::dto::Faults;
use crate::http::dto::effect::{json_response, page};
use crate::http::extract::{Caller, Query, only_one, prefer_wait};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// Where the feed is read, and what is wanted of it.
#[derive(Debug, Clone, Default, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct EventQuery {
    /// `next_cursor` of the page before, the `id` of an event in a stream, or `latest`; absent: everything.
    #[serde(default)]
    pub after: Option<String>,
    /// Items on a page, at most 200 (default 50).
    #[serde(default)]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Only events of these names, separated by commas.
    #[serde(default)]
    pub events: Option<String>,
    /// Only of this tool.
    #[serde(default)]
    pub tool: Option<String>,
    /// Only of this operation.
    #[serde(default)]
    pub operation_id: Option<String>,
}

impl EventQuery {
    fn filter(&self) -> Result<EventFilter, Problem> {
        let mut faults = Faults::default();
        let mut events = Vec::new();
        for name in self.events.iter().flat_map(|names| names.split(',')) {
            match serde_json::from_value::<EventKind>(name.trim().into()) {
                Ok(kind) => events.push(kind),
                Err(_) => faults.add("query:events", "must be names of events, separated by commas"),
            }
        }
        let filter = EventFilter {
            events,
            tools: faults.optional("query:tool", self.tool.as_ref()).into_iter().collect(),
            operation_id: faults.optional("query:operation_id", self.operation_id.as_ref()),
        };
        if faults.is_empty() { Ok(filter) } else { Err(faults.problem()) }
    }
}

/// A page of events.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = EventPage)]
pub struct EventPageDocument<'a> {
    /// The events, in the order of the feed.
    items: Vec<EventDocument<'a>>,
    /// Where the next page starts. There always is one: what is not there yet comes behind it.
    next_cursor: String,
}

fn wants_stream(headers: &HeaderMap) -> bool {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let mut types = accept.flat_map(|value| value.split(','));
    types.any(|one| one.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("text/event-stream"))
}

/// Events of the tenant, in an order in which nothing ever appears before what was read. As a page, with
/// `Prefer: wait=N` as soon as there is something; or, with `Accept: text/event-stream`, as a stream, in which
/// `Last-Event-ID` outranks `after`. A page may be short or empty and still not be the last, because a request
/// looks at a bounded number of entries.
#[utoipa::path(
    get, path = "/api/events", tag = "events", operation_id = "readEvents",
    security(("bearer" = ["events:read"])),
    params(
        EventQuery,
        ("Prefer" = Option<String>, Header, description = "`wait=N`, at most 60"),
        ("Last-Event-ID" = Option<String>, Header, description = "The `id` of the last event of a stream"),
    ),
    responses(
        (status = 200, description = "A page of events, or a stream of them",
            content((EventPageDocument = "application/json"), (String = "text/event-stream"))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 410, response = crate::http::openapi::Problem410),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_events(
    State(state): State<AppState>,
    caller: Caller,
    Query(query): Query<EventQuery>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EventsRead)?;
    let (filter, limit) = (query.filter()?, check_limit(query.limit)?);
    if wants_stream(&headers) {
        let last =
            only_one(&headers, "Last-Event-ID")?.map(|id| id.to_str().unwrap_or("?")).filter(|id| !id.is_empty());
        let place = state.service.event_place(principal, last.or(query.after.as_deref())).await?;
        return Ok(stream(state.service.event_stream(principal, place, filter).await?));
    }
    let place = state.service.event_place(principal, query.after.as_deref()).await?;
    let found = state.service.events(principal, place, &filter, limit, prefer_wait(&headers)?).await?;
    let items = found.items.iter().map(|event| event.json.to_string());
    Ok(json_response(page(items, Some(&found.next_cursor)), StatusCode::OK))
}

fn stream(pieces: mpsc::Receiver<Bytes>) -> Response {
    let pieces = futures_util::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(piece), pieces))
    });
    let mut response = Response::new(Body::from_stream(pieces));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // A proxy that collects before it passes on would hold every event back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}
