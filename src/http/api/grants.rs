//! Standing grants.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use uuid::Uuid;

use super::lists::Paging;
use super::outcomes::EmptyBody;
use crate::auth::Scope;
use crate::domain::ids::Name;
use crate::http::dto::effect::{json_response, page};
use crate::http::dto::grant::{GrantBody, GrantPageDocument, GrantView};
use crate::http::dto::intent::idempotency_key;
use crate::http::extract::{Caller, Json, OptionalJson, PathName, Query};
use crate::http::problem::Problem;
use crate::http::state::AppState;
use crate::service::ServiceError;
use crate::service::grants::Grant;

fn json(grant: &Grant) -> String {
    serde_json::to_string(&GrantView::from(grant)).unwrap_or_default()
}

/// What is no id is nobody's grant.
fn id_of(name: &Name) -> Result<Uuid, ServiceError> {
    name.as_str().parse().map_err(|_| ServiceError::NotFound)
}

/// Grants in advance: intents that it covers are authorized at once, each use counted.
#[utoipa::path(
    post, path = "/api/grants", tag = "approvals", operation_id = "createGrant",
    security(("bearer" = ["effects:approve"])),
    params(("Idempotency-Key" = Option<String>, Header, description = "The caller's name for this request")),
    request_body = GrantBody,
    responses(
        (status = 201, description = "A new grant", body = GrantView),
        (status = 200, description = "The recorded grant of an equal request under the same key", body = GrantView),
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
pub async fn create_grant(
    State(state): State<AppState>,
    caller: Caller,
    headers: HeaderMap,
    Json(body): Json<GrantBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsApprove)?;
    let key = idempotency_key(&headers)?;
    let (grant, created) = state.service.add_grant(principal, body.check(key.as_deref())?).await?;
    Ok(json_response(json(&grant), if created { StatusCode::CREATED } else { StatusCode::OK }))
}

/// Grants, oldest first.
#[utoipa::path(
    get, path = "/api/grants", tag = "approvals", operation_id = "listGrants",
    security(("bearer" = ["effects:approve"])),
    params(Paging),
    responses(
        (status = 200, description = "A page of grants", body = GrantPageDocument),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn list_grants(
    State(state): State<AppState>,
    caller: Caller,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsApprove)?;
    let limit = paging.limit()?;
    let (grants, next) = state.service.grants(principal, paging.cursor.as_deref(), limit).await?;
    Ok(json_response(page(grants.iter().map(json), next.as_deref()), StatusCode::OK))
}

/// A grant.
#[utoipa::path(
    get, path = "/api/grants/{grant_id}", tag = "approvals", operation_id = "readGrant",
    security(("bearer" = ["effects:approve"])),
    params(("grant_id" = String, Path, description = "The id of the grant")),
    responses(
        (status = 200, description = "The grant", body = GrantView),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_grant(
    State(state): State<AppState>,
    caller: Caller,
    PathName(grant): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsApprove)?;
    let grant = state.service.grant(principal, id_of(&grant)?).await?;
    Ok(json_response(json(&grant), StatusCode::OK))
}

/// Ends a grant. It authorizes nothing new; what it authorized stays authorized.
#[utoipa::path(
    post, path = "/api/grants/{grant_id}/revoke", tag = "approvals", operation_id = "revokeGrant",
    security(("bearer" = ["effects:approve"])),
    params(("grant_id" = String, Path, description = "The id of the grant")),
    request_body(content = Option<EmptyBody>),
    responses(
        (status = 200, description = "The grant, revoked", body = GrantView),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn revoke_grant(
    State(state): State<AppState>,
    caller: Caller,
    PathName(grant): PathName,
    _body: OptionalJson<EmptyBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsApprove)?;
    let grant = state.service.revoke_grant(principal, id_of(&grant)?).await?;
    Ok(json_response(json(&grant), StatusCode::OK))
}
