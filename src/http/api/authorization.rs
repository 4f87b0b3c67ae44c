//! Decisions of people about proposals.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use crate::auth::Scope;
use crate::http::dto::effect::{EffectDocument, respond};
use crate::http::dto::outcome::AuthorizationBody;
use crate::http::extract::{Caller, Json, PathName, if_match};
use crate::http::problem::{Problem, ProblemType};
use crate::http::state::AppState;

/// Approves or denies a proposal. Bound to the proposal as read and to its revision; the first
/// decision of a principal is final.
#[utoipa::path(
    post, path = "/api/effects/{operation_id}/authorization", tag = "approvals", operation_id = "authorize",
    security(("bearer" = ["effects:approve"])),
    params(
        ("operation_id" = String, Path, description = "Percent-encoded"),
        ("If-Match" = String, Header, description = "The revision that was read"),
    ),
    request_body = AuthorizationBody,
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
pub async fn authorize(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    headers: HeaderMap,
    Json(body): Json<AuthorizationBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsApprove)?;
    let expected = if_match(&headers)?.ok_or_else(|| {
        Problem::new(ProblemType::PreconditionRequired, "Send `If-Match` with the revision that you read.")
    })?;
    let decided = state.service.authorize(principal, &operation_id, body.check(expected)?).await?;
    Ok(respond(&decided, StatusCode::OK))
}
