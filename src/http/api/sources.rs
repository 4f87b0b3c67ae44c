//! Registration of receipt sources.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::lists::Paging;
use crate::auth::Scope;
use crate::domain::source::SourceSpec;
use crate::http::dto::effect::{json_response, page, tagged};
use crate::http::dto::receipts::{SourcePage, SourceView};
use crate::http::extract::{Caller, Json, PathName, Query, if_match};
use crate::http::problem::Problem;
use crate::http::state::AppState;
use crate::service::sources::Source;

fn respond(state: &AppState, source: &Source, status: StatusCode) -> Response {
    tagged(&SourceView::new(source, &state.base_path), source.row.revision, status)
}

/// Registers a receipt source, or changes its registration. Without `secrets` those that it has stay; an
/// equal registration changes nothing. What waits of it in quarantine is tried again.
#[utoipa::path(
    put, path = "/api/receipt-sources/{source}", tag = "receipts", operation_id = "putReceiptSource",
    security(("bearer" = ["tools:write"])),
    params(
        ("source" = String, Path, description = "Percent-encoded, at most 128 bytes"),
        ("If-Match" = Option<String>, Header, description = "Change only this revision"),
    ),
    request_body = SourceSpec,
    responses(
        (status = 201, description = "A new source", body = SourceView, headers(("ETag" = String))),
        (status = 200, description = "The source after the change", body = SourceView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn put_source(
    State(state): State<AppState>,
    caller: Caller,
    PathName(name): PathName,
    headers: HeaderMap,
    Json(spec): Json<SourceSpec>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::ToolsWrite)?;
    let changed = state.service.put_source(principal, &name, spec, if_match(&headers)?).await?;
    Ok(respond(&state, &changed.source, if changed.created { StatusCode::CREATED } else { StatusCode::OK }))
}

/// A receipt source as registered now. Its secrets never come back.
#[utoipa::path(
    get, path = "/api/receipt-sources/{source}", tag = "receipts", operation_id = "readReceiptSource",
    security(("bearer" = ["effects:read"])),
    params(("source" = String, Path, description = "Percent-encoded")),
    responses(
        (status = 200, description = "The source", body = SourceView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_source(
    State(state): State<AppState>,
    caller: Caller,
    PathName(name): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    Ok(respond(&state, &state.service.source(principal, &name).await?, StatusCode::OK))
}

/// Receipt sources by name.
#[utoipa::path(
    get, path = "/api/receipt-sources", tag = "receipts", operation_id = "listReceiptSources",
    security(("bearer" = ["effects:read"])),
    params(Paging),
    responses(
        (status = 200, description = "A page of sources", body = SourcePage),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn list_sources(
    State(state): State<AppState>,
    caller: Caller,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let limit = paging.limit()?;
    let (sources, next) = state.service.sources(principal, paging.cursor.as_deref(), limit).await?;
    let items = sources
        .iter()
        .map(|source| serde_json::to_string(&SourceView::new(source, &state.base_path)).unwrap_or_default());
    Ok(json_response(page(items, next.as_deref()), StatusCode::OK))
}

/// Deletes a receipt source of which nothing waits in quarantine. Its address is never given out again.
#[utoipa::path(
    delete, path = "/api/receipt-sources/{source}", tag = "receipts", operation_id = "deleteReceiptSource",
    security(("bearer" = ["tools:write"])),
    params(
        ("source" = String, Path, description = "Percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "Delete only this revision"),
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn delete_source(
    State(state): State<AppState>,
    caller: Caller,
    PathName(name): PathName,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::ToolsWrite)?;
    state.service.delete_source(principal, &name, if_match(&headers)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
