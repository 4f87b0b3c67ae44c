//! Profiles, and the sessions bound to them.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use serde::Serialize;

use crate::auth::Scope;
use crate::http::dto::effect::json_response;
use crate::http::dto::intent::idempotency_key;
use crate::http::dto::profile::{AdoptionBody, AdoptionView, ProfileBody, ProfileId, ProfileView, SessionProfileView};
use crate::http::extract::{Caller, Json, PathName};
use crate::http::problem::Problem;
use crate::http::state::AppState;

fn respond(body: &impl Serialize) -> Response {
    json_response(serde_json::to_string(body).unwrap_or_default(), StatusCode::OK)
}

/// Declares a profile: the versioned components that a client runs with. The same components, in any
/// order, are the same profile.
#[utoipa::path(
    put, path = "/api/profiles", tag = "profiles", operation_id = "putProfile",
    security(("bearer" = ["effects:write"])),
    request_body = ProfileBody,
    responses(
        (status = 200, description = "The profile is declared", body = ProfileId),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn put_profile(
    State(state): State<AppState>,
    caller: Caller,
    Json(body): Json<ProfileBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsWrite)?;
    let id = state.service.put_profile(principal, &body.check()?).await?;
    Ok(respond(&ProfileId { profile_id: id.as_str() }))
}

/// A declared profile.
#[utoipa::path(
    get, path = "/api/profiles/{profile_id}", tag = "profiles", operation_id = "readProfile",
    security(("bearer" = ["effects:read"])),
    params(("profile_id" = String, Path, description = "Percent-encoded")),
    responses(
        (status = 200, description = "The profile", body = ProfileView),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_profile(
    State(state): State<AppState>,
    caller: Caller,
    PathName(profile): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let row = state.service.profile(principal, &profile).await?;
    Ok(respond(&ProfileView::from(&row)))
}

/// The profile that a session is bound to.
#[utoipa::path(
    get, path = "/api/sessions/{session_id}/profile", tag = "profiles", operation_id = "readSessionProfile",
    security(("bearer" = ["effects:read"])),
    params(("session_id" = String, Path, description = "Percent-encoded")),
    responses(
        (status = 200, description = "What it is bound to", body = SessionProfileView),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_session_profile(
    State(state): State<AppState>,
    caller: Caller,
    PathName(session): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let row = state.service.session_profile(principal, &session).await?;
    Ok(respond(&SessionProfileView::from(&row)))
}

/// Adopts another profile for a bound session. Refused while the session has effects that are neither
/// settled nor mere proposals; the approvals of those proposals become stale. An operator's decision.
#[utoipa::path(
    post, path = "/api/sessions/{session_id}/profile", tag = "profiles", operation_id = "adoptProfile",
    security(("bearer" = ["recovery:operate"])),
    params(
        ("session_id" = String, Path, description = "Percent-encoded"),
        ("Idempotency-Key" = Option<String>, Header, description = "The caller's name for this request"),
    ),
    request_body = AdoptionBody,
    responses(
        (status = 200, description = "The adoption, as it is on record", body = AdoptionView),
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
pub async fn adopt_profile(
    State(state): State<AppState>,
    caller: Caller,
    PathName(session): PathName,
    headers: HeaderMap,
    Json(body): Json<AdoptionBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::RecoveryOperate)?;
    let key = idempotency_key(&headers)?;
    let made = state.service.adopt_profile(principal, &session, body.check(key.as_deref())?).await?;
    Ok(respond(&AdoptionView::from(&made)))
}
