//! Registration of tools.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};

use super::lists::Paging;
use crate::auth::Scope;
use crate::domain::tool::{Tool, ToolSpec};
use crate::http::dto::effect::{json_response, page, tagged};
use crate::http::dto::tool::ToolView;
use crate::http::extract::{Caller, Json, OptionalJson, PathName, Query, if_match};
use crate::http::problem::Problem;
use crate::http::state::AppState;

use super::outcomes::EmptyBody;

fn respond(tool: &Tool, status: StatusCode) -> Response {
    tagged(&ToolView::from(tool), tool.revision, status)
}

/// Registers a tool, or changes its registration. Only `effect` is required; an equal registration
/// changes nothing.
#[utoipa::path(
    put, path = "/api/tools/{name}", tag = "tools", operation_id = "putTool",
    security(("bearer" = ["tools:write"])),
    params(
        ("name" = String, Path, description = "Percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "Change only this revision"),
    ),
    request_body = ToolSpec,
    responses(
        (status = 201, description = "A new tool", body = ToolView, headers(("ETag" = String))),
        (status = 200, description = "The tool after the change", body = ToolView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn put_tool(
    State(state): State<AppState>,
    caller: Caller,
    PathName(name): PathName,
    headers: HeaderMap,
    Json(spec): Json<ToolSpec>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::ToolsWrite)?;
    let changed = state.service.put_tool(principal, &name, spec, if_match(&headers)?).await?;
    Ok(respond(&changed.tool, if changed.created { StatusCode::CREATED } else { StatusCode::OK }))
}

/// A tool as registered now.
#[utoipa::path(
    get, path = "/api/tools/{name}", tag = "tools", operation_id = "readTool",
    security(("bearer" = ["effects:read"])),
    params(("name" = String, Path, description = "Percent-encoded")),
    responses(
        (status = 200, description = "The tool", body = ToolView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_tool(
    State(state): State<AppState>,
    caller: Caller,
    PathName(name): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    Ok(respond(state.service.tool(principal, &name).await?.as_ref(), StatusCode::OK))
}

/// A page of tools.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
#[schema(as = ToolPage)]
pub struct ToolPage {
    /// The tools, by name.
    items: Vec<ToolView>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
}

/// Tools by name.
#[utoipa::path(
    get, path = "/api/tools", tag = "tools", operation_id = "listTools",
    security(("bearer" = ["effects:read"])),
    params(Paging),
    responses(
        (status = 200, description = "A page of tools", body = ToolPage),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn list_tools(
    State(state): State<AppState>,
    caller: Caller,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let limit = paging.limit()?;
    let (tools, next) = state.service.tools(principal, paging.cursor.as_deref(), limit).await?;
    let items = tools.iter().map(|tool| serde_json::to_string(&ToolView::from(tool.as_ref())).unwrap_or_default());
    Ok(json_response(page(items, next.as_deref()), StatusCode::OK))
}

/// Deletes a tool that no unresolved effect uses.
#[utoipa::path(
    delete, path = "/api/tools/{name}", tag = "tools", operation_id = "deleteTool",
    security(("bearer" = ["tools:write"])),
    params(
        ("name" = String, Path, description = "Percent-encoded"),
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
pub async fn delete_tool(
    State(state): State<AppState>,
    caller: Caller,
    PathName(name): PathName,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::ToolsWrite)?;
    state.service.delete_tool(principal, &name, if_match(&headers)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Holds the claims of a tool. Intents are accepted, what is in flight finishes.
#[utoipa::path(
    post, path = "/api/tools/{name}/pause", tag = "tools", operation_id = "pauseTool",
    security(("bearer" = ["tools:write"])),
    params(("name" = String, Path, description = "Percent-encoded")),
    request_body(content = Option<EmptyBody>),
    responses(
        (status = 200, description = "The tool, paused", body = ToolView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn pause_tool(
    State(state): State<AppState>,
    caller: Caller,
    PathName(name): PathName,
    _body: OptionalJson<EmptyBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::ToolsWrite)?;
    Ok(respond(state.service.pause_tool(principal, &name, true).await?.as_ref(), StatusCode::OK))
}

/// Releases the claims of a tool.
#[utoipa::path(
    post, path = "/api/tools/{name}/resume", tag = "tools", operation_id = "resumeTool",
    security(("bearer" = ["tools:write"])),
    params(("name" = String, Path, description = "Percent-encoded")),
    request_body(content = Option<EmptyBody>),
    responses(
        (status = 200, description = "The tool, released", body = ToolView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn resume_tool(
    State(state): State<AppState>,
    caller: Caller,
    PathName(name): PathName,
    _body: OptionalJson<EmptyBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::ToolsWrite)?;
    Ok(respond(state.service.pause_tool(principal, &name, false).await?.as_ref(), StatusCode::OK))
}
