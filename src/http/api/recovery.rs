//! Recovery: the sweep at start, plans, and executions (protocol §9).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::auth::Scope;
use crate::domain::recovery::plan::Plan;
use crate::http::dto::effect::json_response;
use crate::http::dto::recovery::{ExecutionBody, ExecutionDocument, PlanBody, body};
use crate::http::extract::{Caller, Json, PathName, PlanJson};
use crate::http::problem::{Problem, ProblemType};
use crate::http::state::AppState;
use crate::service::recovery::startup::StartupReport;

fn json(document: &impl serde::Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_string(document)
        .map_err(|_| Problem::new(ProblemType::InternalError, "The answer can't be serialized."))?;
    Ok(json_response(body, StatusCode::OK))
}

/// The latest recovery sweep of the process that answers, as far as it concerns the token's tenant.
#[utoipa::path(
    get, path = "/api/recovery/startup", tag = "recovery", operation_id = "readRecoveryStartup",
    security(("bearer" = ["recovery:operate"])),
    responses(
        (status = 200, description = "The latest sweep", body = StartupReport),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
    )
)]
pub async fn read_startup(State(state): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    let principal = caller.require(Scope::RecoveryOperate)?;
    json(&state.service.startup_report(principal))
}

/// Makes a plan over incomplete work. It reads and stores nothing.
#[utoipa::path(
    post, path = "/api/recovery/plans", tag = "recovery", operation_id = "makeRecoveryPlan",
    security(("bearer" = ["recovery:operate"])),
    request_body = PlanBody,
    responses(
        (status = 200, description = "The plan", body = Plan),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn make_plan(
    State(state): State<AppState>,
    caller: Caller,
    Json(body): Json<PlanBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::RecoveryOperate)?;
    json(&state.service.recovery_plan(principal, &body.check()?).await?)
}

/// Executes exactly one plan. The same request again answers the recorded receipts, and does what was
/// left undone; an item that is not what was planned for is `blocked` as `stale_plan`. `mark_completed`
/// and `mark_failed` need the scope `effects:resolve` besides.
#[utoipa::path(
    post, path = "/api/recovery/executions", tag = "recovery", operation_id = "executeRecoveryPlan",
    security(("bearer" = ["recovery:operate"])),
    request_body = ExecutionBody,
    responses(
        (status = 200, description = "The execution", body = ExecutionDocument),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn execute_plan(
    State(state): State<AppState>,
    caller: Caller,
    PlanJson(request): PlanJson<ExecutionBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::RecoveryOperate)?;
    let request = request.check()?;
    if request.decisions.iter().any(|decision| decision.action.needs_message()) {
        // A person's word ends a doubt, as in a resolution.
        caller.require(Scope::EffectsResolve)?;
    }
    let execution = state.service.execute_plan(principal, &request).await?;
    Ok(json_response(body(&execution), StatusCode::OK))
}

/// An execution with its receipts so far.
#[utoipa::path(
    get, path = "/api/recovery/executions/{execution_id}", tag = "recovery", operation_id = "readRecoveryExecution",
    security(("bearer" = ["recovery:operate"])),
    params(("execution_id" = String, Path, description = "Percent-encoded")),
    responses(
        (status = 200, description = "The execution", body = ExecutionDocument),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_execution(
    State(state): State<AppState>,
    caller: Caller,
    PathName(execution_id): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::RecoveryOperate)?;
    Ok(json_response(body(&state.service.execution(principal, &execution_id).await?), StatusCode::OK))
}
