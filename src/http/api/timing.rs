//! Where recent requests spent their time (protocol §13).

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;

use crate::auth::Scope;
use crate::http::dto::effect::document;
use crate::http::dto::timing::{RecentTimings, TimingView};
use crate::http::extract::Caller;
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// The newest requests of the tenant that this process answered, with their phases.
///
/// At most 64, the newest first, from memory: a restart forgets them, and each replica knows its own.
/// Nothing of a request's content is in it.
#[utoipa::path(
    get, path = "/api/timing/recent", tag = "service", operation_id = "readRecentTimings",
    security(("bearer" = ["timing:read"])),
    responses(
        (status = 200, description = "The newest requests", body = RecentTimings),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_recent_timings(State(state): State<AppState>, caller: Caller) -> Result<Response, Problem> {
    let principal = caller.require(Scope::TimingRead)?;
    let items = state.telemetry.recent(&principal.tenant).iter().map(TimingView::of).collect();
    let recent = RecentTimings { enabled: state.telemetry.is_timing(), items, next_cursor: None };
    Ok(document(&recent, StatusCode::OK))
}
