//! The operator's queue, and bulk resolutions of what stands in it.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use serde::Deserialize;

use super::lists::check_limit;
use crate::auth::Scope;
use crate::http::dto::Faults;
use crate::http::dto::effect::document;
use crate::http::dto::queue::{BulkDocument, PreviewDocument, QueueDocument};
use crate::http::dto::resolution::{BulkResolutionBody, PreviewBody};
use crate::http::extract::{Caller, Json, Query};
use crate::http::problem::Problem;
use crate::http::state::AppState;
use crate::service::queue::QueueFilter;
use crate::service::queue_item::QueueReason;

/// Which part of the queue.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QueueQuery {
    /// Why effects stand in it.
    #[serde(default)]
    #[param(inline)]
    pub reason: Option<QueueReason>,
    /// The tool.
    #[serde(default)]
    pub tool: Option<String>,
    /// Items on a page, at most 200 (default 50).
    #[serde(default)]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Where the page starts: `next_cursor` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// Everything that a person has to look at, oldest first: effects in manual review, contradicted ones,
/// doubt whose time is half over, what nobody claims, and what no sweep can move. A page may be short
/// and still have a next one.
#[utoipa::path(
    get, path = "/api/queue", tag = "operators", operation_id = "readQueue",
    security(("bearer" = ["effects:read"])),
    params(QueueQuery),
    responses(
        (status = 200, description = "A page of the queue", body = QueueDocument),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_queue(
    State(state): State<AppState>,
    caller: Caller,
    Query(query): Query<QueueQuery>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let limit = check_limit(query.limit)?;
    let mut faults = Faults::default();
    let filter = QueueFilter { reason: query.reason, tool: faults.optional("query:tool", query.tool.as_ref()) };
    if !faults.is_empty() {
        return Err(faults.problem());
    }
    let page = state.service.queue(principal, &filter, query.cursor.as_deref(), limit).await?;
    Ok(document(&QueueDocument::from(page), StatusCode::OK))
}

/// What a bulk resolution would decide: every effect with its revision. Writes nothing.
#[utoipa::path(
    post, path = "/api/queue/resolutions/preview", tag = "operators", operation_id = "previewResolutions",
    security(("bearer" = ["effects:resolve"])),
    request_body = PreviewBody,
    responses(
        (status = 200, description = "The preview", body = PreviewDocument),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn preview_resolutions(
    State(state): State<AppState>,
    caller: Caller,
    Json(body): Json<PreviewBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsResolve)?;
    let (preview, skipped) = state.service.preview(principal, &body.check()?).await?;
    let preview_id = preview.id().as_str().to_owned();
    Ok(document(&PreviewDocument { preview, preview_id, skipped }, StatusCode::OK))
}

/// Resolves the effects of a preview, each by itself and at the revision that was seen. The same request
/// again replays what is done and does the rest.
#[utoipa::path(
    post, path = "/api/queue/resolutions", tag = "operators", operation_id = "resolveEffects",
    security(("bearer" = ["effects:resolve"])),
    request_body = BulkResolutionBody,
    responses(
        (status = 200, description = "One answer per effect, in the order of the preview", body = BulkDocument),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn resolve_effects(
    State(state): State<AppState>,
    caller: Caller,
    Json(body): Json<BulkResolutionBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsResolve)?;
    let decision = body.check()?;
    let (items, counts) = state.service.resolve_all(principal, &decision).await?;
    let decision_id = decision.decision_id.as_str().to_owned();
    Ok(document(&BulkDocument { decision_id, outcome: decision.outcome, counts, items }, StatusCode::OK))
}
