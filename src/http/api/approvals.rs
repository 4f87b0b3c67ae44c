//! What people are asked to approve.

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::Response;
use serde::Deserialize;

use super::lists::check_limit;
use crate::auth::Scope;
use crate::domain::approval::ApprovalState;
use crate::http::dto::approval::{ApprovalDocument, ApprovalPageDocument, body};
use crate::http::dto::effect::{etag, json_response, page};
use crate::http::extract::{Caller, PathName, Query};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// Which approvals are listed.
#[derive(Debug, Clone, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct ApprovalQuery {
    /// Where they stand (default `pending`).
    #[serde(default)]
    #[param(inline)]
    pub state: Option<ApprovalState>,
    /// Items on a page, at most 200 (default 50).
    #[serde(default)]
    #[param(minimum = 1, maximum = 200)]
    pub limit: Option<u32>,
    /// Where the page starts: `next_cursor` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// Approvals of the tenant, oldest effect first, each with the exact arguments where its tool retains them.
/// A page may be short and still have a next one, because a request looks at a bounded number of rows
/// and answers a bounded number of bytes.
#[utoipa::path(
    get, path = "/api/approvals", tag = "approvals", operation_id = "listApprovals",
    security(("bearer" = ["effects:approve"])),
    params(ApprovalQuery),
    responses(
        (status = 200, description = "A page of approvals", body = ApprovalPageDocument),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn list_approvals(
    State(state): State<AppState>,
    caller: Caller,
    Query(query): Query<ApprovalQuery>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsApprove)?;
    let limit = check_limit(query.limit)?;
    let wanted = query.state.unwrap_or(ApprovalState::Pending);
    let found = state.service.approvals(principal, wanted, query.cursor.as_deref(), limit).await?;
    Ok(json_response(page(found.items.iter().map(body), found.next_cursor.as_deref()), StatusCode::OK))
}

/// The approval of one effect.
#[utoipa::path(
    get, path = "/api/approvals/{operation_id}", tag = "approvals", operation_id = "readApproval",
    security(("bearer" = ["effects:approve"])),
    params(("operation_id" = String, Path, description = "Percent-encoded")),
    responses(
        (status = 200, description = "The approval", body = ApprovalDocument, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_approval(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsApprove)?;
    let item = state.service.approval(principal, &operation_id).await?;
    let mut response = json_response(body(&item), StatusCode::OK);
    response.headers_mut().insert(header::ETAG, etag(item.decided.record.life.revision));
    Ok(response)
}
