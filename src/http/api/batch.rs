//! Batches: the single routes' code for each item, with a status of its own. Not all or nothing:
//! an item that is refused leaves the others alone, and all go into as few commits as possible.

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use futures_util::future::join_all;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::auth::{Principal, Scope};
use crate::engine::Decided;
use crate::http::dto::Faults;
use crate::http::dto::effect::{EffectDocument, body, json_response};
use crate::http::dto::intent::IntentBody;
use crate::http::dto::outcome::OutcomeBody;
use crate::http::extract::{Batch, Caller, parse};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// Intents, at most 200.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[expect(dead_code, reason = "stands for the request in the document; items are parsed one by one")]
pub struct IntentBatch {
    /// What `POST /api/intents` takes; `operation_id` can't come as a header here.
    #[schema(max_items = 200)]
    items: Vec<IntentBody>,
}

/// Outcomes, at most 200.
#[derive(Debug, serde::Deserialize, utoipa::ToSchema)]
#[expect(dead_code, reason = "stands for the request in the document; items are parsed one by one")]
pub struct OutcomeBatch {
    /// What `POST …/outcome` takes, with `operation_id`.
    #[schema(max_items = 200)]
    items: Vec<OutcomeBody>,
}

/// What came of one item: `effect` for a status below 300, else `problem`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct BatchItem<'a> {
    /// The status that the single route would have answered.
    status: u16,
    /// The effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    effect: Option<EffectDocument<'a>>,
    /// The refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<Problem>,
}

/// One answer per item, in order.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct BatchAnswer<'a> {
    /// The answers.
    items: Vec<BatchItem<'a>>,
}

/// A batch costs as many requests as it has items; one was paid with the token.
fn admit(state: &AppState, caller: &Caller, items: usize) -> Result<(), Problem> {
    state.rates.admit(&caller.0, items.saturating_sub(1))
}

fn answer(results: &[Result<Decided, Problem>]) -> Response {
    let items: Vec<String> = results
        .iter()
        .map(|result| match result {
            Ok(decided) => {
                let status = if decided.created { StatusCode::CREATED } else { StatusCode::OK };
                format!("{{\"status\":{},\"effect\":{}}}", status.as_u16(), body(decided))
            }
            Err(problem) => {
                let json = serde_json::to_string(problem).unwrap_or_else(|_| "null".to_owned());
                format!("{{\"status\":{},\"problem\":{json}}}", problem.kind().code())
            }
        })
        .collect();
    json_response(format!("{{\"items\":[{}]}}", items.join(",")), StatusCode::OK)
}

/// Records up to 200 intents.
#[utoipa::path(
    post, path = "/api/intents/batch", tag = "intents", operation_id = "recordIntents",
    security(("bearer" = ["effects:write"])),
    request_body = IntentBatch,
    responses(
        (status = 200, description = "One answer per item, in order", body = BatchAnswer),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn record_intents(
    State(state): State<AppState>,
    caller: Caller,
    Batch(items): Batch,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsWrite)?;
    admit(&state, &caller, items.len())?;
    let results = join_all(items.iter().map(|item| record_one(&state, principal, item))).await;
    Ok(answer(&results))
}

async fn record_one(state: &AppState, principal: &Principal, item: &RawValue) -> Result<Decided, Problem> {
    let body: IntentBody = parse(item.get().as_bytes())?;
    Ok(state.service.record_intent(principal, body.check(None)?, None).await?)
}

/// Takes up to 200 reports.
#[utoipa::path(
    post, path = "/api/outcomes/batch", tag = "outcomes", operation_id = "reportOutcomes",
    security(("bearer" = ["effects:write"])),
    request_body = OutcomeBatch,
    responses(
        (status = 200, description = "One answer per item, in order", body = BatchAnswer),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn report_outcomes(
    State(state): State<AppState>,
    caller: Caller,
    Batch(items): Batch,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsWrite)?;
    admit(&state, &caller, items.len())?;
    let results = join_all(items.iter().map(|item| report_one(&state, principal, item))).await;
    Ok(answer(&results))
}

async fn report_one(state: &AppState, principal: &Principal, item: &RawValue) -> Result<Decided, Problem> {
    let body: OutcomeBody = parse(item.get().as_bytes())?;
    let mut faults = Faults::default();
    let operation_id = match &body.operation_id {
        Some(id) => faults.name("/operation_id", id),
        None => {
            faults.add("/operation_id", "is required in a batch");
            None
        }
    };
    let Some(operation_id) = operation_id else { return Err(faults.problem()) };
    Ok(state.service.outcome(principal, &operation_id, body.check()?).await?)
}
