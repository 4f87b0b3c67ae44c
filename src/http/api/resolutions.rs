//! Operators' decisions about one effect, and the late reports that they look at.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::lists::Paging;
use crate::auth::Scope;
use crate::http::dto::effect::{EffectDocument, document, respond};
use crate::http::dto::resolution::{ReportPage, ReportView, ResolutionBody, ResolutionPage, ResolutionView};
use crate::http::extract::{Caller, Json, PathName, Query, if_match};
use crate::http::problem::{Problem, ProblemType};
use crate::http::state::AppState;

/// Decides an effect that is in manual review, or takes a contradiction away from a settled one. A repeat
/// with the same decision id and content is a replay. Where the tool asks for four eyes, neither the
/// proposer nor an approver can do this.
#[utoipa::path(
    post, path = "/api/effects/{operation_id}/resolution", tag = "operators", operation_id = "resolveEffect",
    security(("bearer" = ["effects:resolve"])),
    params(
        ("operation_id" = String, Path, description = "Percent-encoded"),
        ("If-Match" = String, Header, description = "The revision that was read"),
    ),
    request_body = ResolutionBody,
    responses(
        (status = 200, description = "The effect after the decision", body = EffectDocument, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 428, response = crate::http::openapi::Problem428),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn resolve_effect(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    headers: HeaderMap,
    Json(body): Json<ResolutionBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsResolve)?;
    let expected = if_match(&headers)?.ok_or_else(|| {
        Problem::new(ProblemType::PreconditionRequired, "Send `If-Match` with the revision that you read.")
    })?;
    let decided = state.service.resolve(principal, &operation_id, body.check(expected)?).await?;
    Ok(respond(&decided, StatusCode::OK))
}

/// Operators' decisions about an effect, with reason and evidence as they were sent.
#[utoipa::path(
    get, path = "/api/effects/{operation_id}/resolutions", tag = "operators", operation_id = "readResolutions",
    security(("bearer" = ["effects:resolve"])),
    params(("operation_id" = String, Path, description = "Percent-encoded"), Paging),
    responses(
        (status = 200, description = "A page of decisions", body = ResolutionPage),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_resolutions(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsResolve)?;
    let (cursor, limit) = (paging.cursor.as_deref(), paging.limit()?);
    let page = state.service.resolutions(principal, &operation_id, cursor, limit).await?;
    let items = page.items.into_iter().map(|(revision, made)| ResolutionView::new(revision, made)).collect();
    Ok(document(&ResolutionPage { items, next_cursor: page.next_cursor }, StatusCode::OK))
}

/// Reports that came under an old fence or after settlement and were stored as evidence, with their
/// receipts as recorded.
#[utoipa::path(
    get, path = "/api/effects/{operation_id}/reports", tag = "effects", operation_id = "readLateReports",
    security(("bearer" = ["effects:read"])),
    params(("operation_id" = String, Path, description = "Percent-encoded"), Paging),
    responses(
        (status = 200, description = "A page of late reports", body = ReportPage),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_late_reports(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let (cursor, limit) = (paging.cursor.as_deref(), paging.limit()?);
    let page = state.service.late_reports(principal, &operation_id, cursor, limit).await?;
    let items = page.items.into_iter().map(ReportView::from).collect();
    Ok(document(&ReportPage { items, next_cursor: page.next_cursor }, StatusCode::OK))
}
