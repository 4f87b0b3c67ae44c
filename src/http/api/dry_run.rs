//! Dry runs of declarative adapters.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::auth::Scope;
use crate::http::dto::dry_run::{DryRunBody, DryRunView};
use crate::http::dto::effect::document;
use crate::http::extract::{Caller, Json, PathName};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// Tries a declarative adapter on an answer: what would be asked, which rule holds, and what would be
/// stored. No call is made and nothing is stored. With `request` the tool need not be registered.
#[utoipa::path(
    post, path = "/api/tools/{name}/adapter/dry-run", tag = "tools", operation_id = "dryRunAdapter",
    security(("bearer" = ["tools:write"])),
    params(("name" = String, Path, description = "Percent-encoded")),
    request_body = DryRunBody,
    responses(
        (status = 200, description = "What would come of it", body = DryRunView),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn dry_run_adapter(
    State(state): State<AppState>,
    caller: Caller,
    PathName(name): PathName,
    Json(body): Json<DryRunBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::ToolsWrite)?;
    let run = state.service.dry_run_adapter(principal, &name, body.check()?).await?;
    Ok(document(&DryRunView::from(run), StatusCode::OK))
}
