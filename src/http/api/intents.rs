//! Before the dispatch: intents, claims, heartbeats.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::auth::Scope;
use crate::http::dto::Faults;
use crate::http::dto::effect::{EffectDocument, HeartbeatView, respond};
use crate::http::dto::intent::{ClaimBody, IntentBody, idempotency_key};
use crate::http::dto::outcome::HeartbeatBody;
use crate::http::extract::{Caller, Json, PathName, if_match, prefer_wait};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// Records an intent before it is acted on, and grants its dispatch where asked and possible.
///
/// Act only on the directive `dispatch`, and send `dispatch.idempotency_key` downstream. A repeat
/// gets the recorded answer and writes nothing.
#[utoipa::path(
    post, path = "/api/intents", tag = "intents", operation_id = "recordIntent",
    security(("bearer" = ["effects:write"])),
    params(
        ("Idempotency-Key" = Option<String>, Header, description = "The operation id, instead of the member"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`, at most 60: hold the request while the directive is `wait` or `authorize`"),
    ),
    request_body = IntentBody,
    responses(
        (status = 201, description = "A new effect", body = EffectDocument, headers(("ETag" = String), ("Location" = String))),
        (status = 200, description = "A known effect", body = EffectDocument, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 422, response = crate::http::openapi::Problem422),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn record_intent(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    Json(body): Json<IntentBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsWrite)?;
    let key = idempotency_key(&headers)?;
    let wait = prefer_wait(&headers)?;
    let request = body.check(key.as_deref())?;
    let decided = state.service.record_intent(principal, request, wait).await?;
    if !decided.created {
        return Ok(respond(&decided, StatusCode::OK));
    }
    let mut response = respond(&decided, StatusCode::CREATED);
    let id = utf8_percent_encode(decided.record.intent.operation_id.as_str(), NON_ALPHANUMERIC);
    let location = format!("{}/api/effects/{id}", state.base_path);
    if let Ok(value) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    Ok(response)
}

/// Claims a known effect: asks for a dispatch.
///
/// A claim that can't be granted is no error: the directive says what to do instead.
#[utoipa::path(
    post, path = "/api/effects/{operation_id}/dispatch", tag = "intents", operation_id = "claimDispatch",
    security(("bearer" = ["effects:write"])),
    params(
        ("operation_id" = String, Path, description = "Percent-encoded"),
        ("If-Match" = Option<String>, Header, description = "Grant only on this revision"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`, at most 60"),
    ),
    request_body = ClaimBody,
    responses(
        (status = 200, description = "The effect; `dispatch` if granted", body = EffectDocument, headers(("ETag" = String))),
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
pub async fn claim_dispatch(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    headers: HeaderMap,
    Json(body): Json<ClaimBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsWrite)?;
    let expected = if_match(&headers)?;
    let wait = prefer_wait(&headers)?;
    let mut faults = Faults::default();
    let wish = match body.check("", &mut faults) {
        Some(wish) if faults.is_empty() => wish,
        _ => return Err(faults.problem()),
    };
    let decided = state.service.dispatch(principal, &operation_id, &wish, expected, wait).await?;
    Ok(respond(&decided, StatusCode::OK))
}

/// Renews the lease of a live dispatch. `409 lease-lost` tells it to stop.
#[utoipa::path(
    post, path = "/api/effects/{operation_id}/heartbeat", tag = "intents", operation_id = "heartbeat",
    security(("bearer" = ["effects:write"])),
    params(("operation_id" = String, Path, description = "Percent-encoded")),
    request_body = HeartbeatBody,
    responses(
        (status = 200, description = "The new end of the lease", body = HeartbeatView),
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
pub async fn heartbeat(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    Json(body): Json<HeartbeatBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsWrite)?;
    let decided = state.service.heartbeat(principal, &operation_id, body.dispatch_id, body.fence).await?;
    let life = &decided.record.life;
    let lease_expires_at = life.lease_end().unwrap_or(life.updated_at);
    Ok(HeartbeatView { lease_expires_at, fence: life.fence, revision: life.revision }.into_response())
}
