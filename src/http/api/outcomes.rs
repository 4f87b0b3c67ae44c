//! After the dispatch: outcomes, verifications, cancellations.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use crate::auth::Scope;
use crate::domain::receipt::Verification;
use crate::http::dto::effect::{EffectDocument, respond};
use crate::http::dto::outcome::OutcomeBody;
use crate::http::extract::{Caller, Json, OptionalJson, PathName, if_match};
use crate::http::problem::{Problem, ProblemType};
use crate::http::state::AppState;

/// Reports what came of a dispatch.
///
/// A report under an old fence, or after settlement, is kept as evidence and answered with a
/// conflict that says so.
#[utoipa::path(
    post, path = "/api/effects/{operation_id}/outcome", tag = "outcomes", operation_id = "reportOutcome",
    security(("bearer" = ["effects:write"])),
    params(("operation_id" = String, Path, description = "Percent-encoded")),
    request_body = OutcomeBody,
    responses(
        (status = 200, description = "The effect after the report", body = EffectDocument, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 422, response = crate::http::openapi::Problem422),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn report_outcome(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    Json(body): Json<OutcomeBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsWrite)?;
    if body.operation_id.as_deref().is_some_and(|id| id != operation_id.as_str()) {
        return Err(Problem::new(ProblemType::InvalidRequest, "The request has faults; nothing was stored.")
            .fault("/operation_id", "differs from the operation of the path"));
    }
    let decided = state.service.outcome(principal, &operation_id, body.check()?).await?;
    Ok(respond(&decided, StatusCode::OK))
}

/// Brings the fresh read that confirms or denies a receipt.
#[utoipa::path(
    post, path = "/api/effects/{operation_id}/verification", tag = "outcomes", operation_id = "reportVerification",
    security(("bearer" = ["effects:write"])),
    params(("operation_id" = String, Path, description = "Percent-encoded")),
    request_body = Verification,
    responses(
        (status = 200, description = "The effect after the verification", body = EffectDocument, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 422, response = crate::http::openapi::Problem422),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn report_verification(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    Json(verification): Json<Verification>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsWrite)?;
    let decided = state.service.verification(principal, &operation_id, verification).await?;
    Ok(respond(&decided, StatusCode::OK))
}

/// No member is taken.
#[derive(Debug, Clone, serde::Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct EmptyBody {}

/// Withdraws an effect: what was never dispatched settles at once, what was dispatched becomes doubt.
#[utoipa::path(
    post, path = "/api/effects/{operation_id}/cancel", tag = "outcomes", operation_id = "cancelEffect",
    security(("bearer" = ["effects:write"])),
    params(
        ("operation_id" = String, Path, description = "Percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "Withdraw only this revision"),
    ),
    request_body(content = Option<EmptyBody>),
    responses(
        (status = 200, description = "The effect after the withdrawal", body = EffectDocument, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn cancel_effect(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    headers: HeaderMap,
    _body: OptionalJson<EmptyBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsWrite)?;
    let decided = state.service.cancel(principal, &operation_id, if_match(&headers)?).await?;
    Ok(respond(&decided, StatusCode::OK))
}
