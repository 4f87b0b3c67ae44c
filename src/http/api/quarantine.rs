//! The quarantine of deliveries.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::Deserialize;
use uuid::Uuid;

use crate::auth::Scope;
use crate::domain::ids::Name;
use crate::http::api::lists::Paging;
use crate::http::dto::effect::{json_response, page};
use crate::http::dto::receipts::{AttachBody, DiscardBody, QuarantinePage, QuarantineStatusWord, QuarantineView};
use crate::http::extract::{Caller, Json, PathName, Query};
use crate::http::problem::Problem;
use crate::http::state::AppState;
use crate::service::ServiceError;

/// Which deliveries.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct QuarantineQuery {
    /// Whether they were decided about; by default those that wait.
    #[serde(default)]
    #[param(inline)]
    pub status: Option<QuarantineStatusWord>,
    /// Items on a page, at most 200 (default 50).
    #[serde(default)]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Where the page starts: `next_cursor` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// An id that is none is one that nobody has.
fn id_of(name: &Name) -> Result<Uuid, Problem> {
    Uuid::try_parse(name.as_str()).map_err(|_| ServiceError::NotFound.into())
}

fn json(view: &QuarantineView) -> String {
    serde_json::to_string(view).unwrap_or_default()
}

/// Deliveries in quarantine, oldest first, without their bodies.
#[utoipa::path(
    get, path = "/api/quarantine", tag = "receipts", operation_id = "listQuarantine",
    security(("bearer" = ["effects:resolve"])),
    params(QuarantineQuery),
    responses(
        (status = 200, description = "A page of deliveries", body = QuarantinePage),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn list_quarantine(
    State(state): State<AppState>,
    caller: Caller,
    Query(query): Query<QuarantineQuery>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsResolve)?;
    let status = query.status.unwrap_or(QuarantineStatusWord::Waiting).into();
    let limit = Paging { limit: query.limit, cursor: None }.limit()?;
    let (items, next) = state.service.quarantine_page(principal, status, query.cursor.as_deref(), limit).await?;
    let items = items.into_iter().map(|item| json(&QuarantineView::from(item)));
    Ok(json_response(page(items, next.as_deref()), StatusCode::OK))
}

/// A delivery in quarantine, with its body while it waits.
#[utoipa::path(
    get, path = "/api/quarantine/{id}", tag = "receipts", operation_id = "readQuarantined",
    security(("bearer" = ["effects:resolve"])),
    params(("id" = String, Path, description = "The delivery")),
    responses(
        (status = 200, description = "The delivery", body = QuarantineView),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_quarantined(
    State(state): State<AppState>,
    caller: Caller,
    PathName(id): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsResolve)?;
    let item = state.service.quarantine_item(principal, id_of(&id)?).await?;
    Ok(json_response(json(&item.into()), StatusCode::OK))
}

/// Attaches a delivery to an effect. It must bind as any receipt, may not name another operation, and
/// settles like a supplied receipt. The same wish again is a replay.
#[utoipa::path(
    post, path = "/api/quarantine/{id}/attach", tag = "receipts", operation_id = "attachQuarantined",
    security(("bearer" = ["effects:resolve"])),
    params(("id" = String, Path, description = "The delivery")),
    request_body = AttachBody,
    responses(
        (status = 200, description = "The delivery, attached", body = QuarantineView),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 422, response = crate::http::openapi::Problem422),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn attach_quarantined(
    State(state): State<AppState>,
    caller: Caller,
    PathName(id): PathName,
    Json(body): Json<AttachBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsResolve)?;
    let item = state.service.attach_delivery(principal, id_of(&id)?, &body.check()?).await?;
    Ok(json_response(json(&item.into()), StatusCode::OK))
}

/// Discards a delivery. It is remembered, so that a repeat of it is dropped.
#[utoipa::path(
    delete, path = "/api/quarantine/{id}", tag = "receipts", operation_id = "discardQuarantined",
    security(("bearer" = ["effects:resolve"])),
    params(("id" = String, Path, description = "The delivery")),
    request_body = DiscardBody,
    responses(
        (status = 204, description = "It was discarded"),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn discard_quarantined(
    State(state): State<AppState>,
    caller: Caller,
    PathName(id): PathName,
    Json(body): Json<DiscardBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsResolve)?;
    state.service.discard_delivery(principal, id_of(&id)?, body.check()?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}
