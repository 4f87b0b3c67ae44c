//! HTTP: only translates.

pub mod api;
mod connection;
pub mod dto;
mod edge;
mod errors;
pub mod extract;
pub mod openapi;
pub mod pages;
pub mod problem;
pub mod rates;
pub mod server;
pub mod state;

use axum::Router;
use axum::http::{Method, Uri};
use axum::routing::get;
use utoipa::OpenApi as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use utoipa_swagger_ui::SwaggerUi;

use problem::{Problem, ProblemType};
use state::AppState;

use crate::telemetry::meters::Routes;

fn documented() -> OpenApiRouter<AppState> {
    OpenApiRouter::with_openapi(openapi::Document::openapi())
        .routes(routes!(api::intents::record_intent))
        .routes(routes!(api::batch::record_intents))
        .routes(routes!(api::batch::report_outcomes))
        .routes(routes!(api::lists::list_effects))
        .routes(routes!(api::effects::read_effect))
        .routes(routes!(api::intents::claim_dispatch))
        .routes(routes!(api::intents::heartbeat))
        .routes(routes!(api::outcomes::report_outcome))
        .routes(routes!(api::outcomes::report_verification))
        .routes(routes!(api::outcomes::cancel_effect))
        .routes(routes!(api::authorization::authorize))
        .routes(routes!(api::reconciliations::inspect_effect))
        .routes(routes!(api::reconciliations::reconcile))
        .routes(routes!(api::reconciliations::read_reconciliation))
        .routes(routes!(api::approvals::list_approvals))
        .routes(routes!(api::approvals::read_approval))
        .routes(routes!(api::grants::create_grant, api::grants::list_grants))
        .routes(routes!(api::grants::read_grant))
        .routes(routes!(api::grants::revoke_grant))
        .routes(routes!(api::profiles::put_profile))
        .routes(routes!(api::profiles::read_profile))
        .routes(routes!(api::profiles::read_session_profile, api::profiles::adopt_profile))
        .routes(routes!(api::effects::read_journal))
        .routes(routes!(api::evidence::read_evidence))
        .routes(routes!(api::bypass::report_bypass))
        .routes(routes!(api::evidence::read_evidence_keys))
        .routes(routes!(api::lists::read_run))
        .routes(routes!(api::resolutions::read_late_reports))
        .routes(routes!(api::resolutions::resolve_effect))
        .routes(routes!(api::resolutions::read_resolutions))
        .routes(routes!(api::queue::read_queue))
        .routes(routes!(api::queue::preview_resolutions))
        .routes(routes!(api::queue::resolve_effects))
        .routes(routes!(api::events::read_events))
        .routes(routes!(api::subscriptions::subscribe, api::subscriptions::list_subscriptions))
        .routes(routes!(
            api::subscriptions::read_subscription,
            api::subscriptions::put_subscription,
            api::subscriptions::unsubscribe
        ))
        .routes(routes!(api::subscriptions::rotate_secret))
        .routes(routes!(api::subscriptions::list_dead_letters))
        .routes(routes!(api::subscriptions::resend_dead_letters))
        .routes(routes!(api::tools::list_tools))
        .routes(routes!(api::tools::put_tool, api::tools::read_tool, api::tools::delete_tool))
        .routes(routes!(api::tools::pause_tool))
        .routes(routes!(api::tools::resume_tool))
        .routes(routes!(api::dry_run::dry_run_adapter))
        .routes(routes!(api::recovery::read_startup))
        .routes(routes!(api::recovery::make_plan))
        .routes(routes!(api::recovery::execute_plan))
        .routes(routes!(api::recovery::read_execution))
        .routes(routes!(api::receipts::deliver_receipt))
        .routes(routes!(api::sources::list_sources))
        .routes(routes!(api::sources::put_source, api::sources::read_source, api::sources::delete_source))
        .routes(routes!(api::quarantine::list_quarantine))
        .routes(routes!(api::quarantine::read_quarantined, api::quarantine::discard_quarantined))
        .routes(routes!(api::quarantine::attach_quarantined))
        .routes(routes!(api::timing::read_recent_timings))
        .routes(routes!(api::meta::livez))
        .routes(routes!(api::meta::readyz))
        .routes(routes!(api::meta::metrics))
        .routes(routes!(api::meta::openapi))
}

/// The `OpenAPI` document.
#[must_use]
pub fn document() -> utoipa::openapi::OpenApi {
    let mut document = documented().to_openapi();
    openapi::limit_rates(&mut document);
    document
}

/// The meters of all documented routes, which stand under the base path as well.
#[must_use]
pub fn route_meters(base: &str) -> Routes {
    let paths: Vec<String> = document().paths.paths.into_keys().collect();
    Routes::new(paths.into_iter().flat_map(|path| [(path.clone(), path.clone()), (format!("{base}{path}"), path)]))
}

/// All routes. Those of the API also stand under the configured base path.
pub fn router(state: AppState) -> Router {
    let (api, _) = documented().split_for_parts();
    let base = state.base_path.to_string();
    let routes = api
        .route("/docs/errors/{slug}", get(api::meta::error_page))
        .merge(reference(&base))
        .method_not_allowed_fallback(method_not_allowed)
        .fallback(not_found);
    let routes = if base.is_empty() { routes } else { routes.clone().nest(&base, routes) };
    routes.layer(axum::middleware::from_fn_with_state(std::sync::Arc::clone(&state), edge::edge)).with_state(state)
}

/// The browsable reference, served from this process alone.
fn reference(base: &str) -> Router<AppState> {
    let config = utoipa_swagger_ui::Config::from(format!("{base}/api/openapi.json")).use_base_layout();
    SwaggerUi::new("/docs").config(config).into()
}

async fn not_found(uri: Uri) -> Problem {
    let under_api = if uri.path().contains("/api/") { " Operation ids in a path are percent-encoded." } else { "" };
    Problem::new(ProblemType::NotFound, format!("There is no such path.{under_api}"))
}

async fn method_not_allowed(method: Method) -> Problem {
    Problem::new(ProblemType::MethodNotAllowed, format!("{method} is not offered on this path."))
}
