//! The service itself: health, metrics, documentation.

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::http::dto::effect::json_response;
use crate::http::problem::{Problem, ProblemType};
use crate::http::state::AppState;

/// How long readiness waits for the store.
const READY_TIMEOUT: Duration = Duration::from_secs(2);

fn text(body: impl Into<axum::body::Body>, content_type: &'static str) -> Response {
    let mut response = Response::new(body.into());
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The process runs.
#[utoipa::path(get, path = "/livez", tag = "service", operation_id = "livez", security(()),
    responses((status = 200, description = "The process runs", body = String, content_type = "text/plain")))]
pub async fn livez() -> Response {
    text("ok\n", "text/plain; charset=utf-8")
}

/// The service can answer: it has looked at incomplete work (for a bounded time), it is not stopping, it has
/// keys to verify tokens with, and the store answers.
#[utoipa::path(get, path = "/readyz", tag = "service", operation_id = "readyz", security(()),
    responses(
        (status = 200, description = "Requests can be answered", body = String, content_type = "text/plain"),
        (status = 503, response = crate::http::openapi::Problem503),
    ))]
pub async fn readyz(State(state): State<AppState>) -> Result<Response, Problem> {
    let not_ready = |kind, detail: &str| Err(Problem::new(kind, detail).with("retry_after_seconds", 1));
    if state.stopping.is_cancelled() {
        return not_ready(ProblemType::Capacity, "The service is stopping.");
    }
    if state.starting.load(Ordering::Acquire) {
        return not_ready(ProblemType::Capacity, "The service is starting: it looks at incomplete work first.");
    }
    if !state.auth.has_keys() {
        return not_ready(ProblemType::StoreUnavailable, "The keys that verify tokens were never had yet.");
    }
    match tokio::time::timeout(READY_TIMEOUT, state.service.engine().store().takes_writes()).await {
        Ok(Ok(true)) => {
            // What subscribers wait for is shown here and turns nothing red: others can be served.
            let age = tokio::time::timeout(READY_TIMEOUT, state.service.outbox_age_seconds()).await;
            let age = age.ok().and_then(Result::ok).map_or_else(|| "unknown".to_owned(), |age| format!("{age:.3}"));
            Ok(text(format!("ok\noutbox_age_seconds {age}\n"), "text/plain; charset=utf-8"))
        }
        Ok(Ok(false)) => not_ready(ProblemType::StoreUnavailable, "The store takes no writes now."),
        Ok(Err(_)) | Err(_) => not_ready(ProblemType::StoreUnavailable, "The store does not answer."),
    }
}

/// Metrics in Prometheus text form. No label carries a tenant or an id of one.
#[utoipa::path(get, path = "/metrics", tag = "service", operation_id = "metrics", security(()),
    responses((status = 200, description = "Metrics", body = String, content_type = "text/plain")))]
pub async fn metrics(State(state): State<AppState>) -> Response {
    state.service.refresh_gauges().await;
    text(state.metrics.render(), "text/plain; version=0.0.4; charset=utf-8")
}

/// This document.
#[utoipa::path(get, path = "/api/openapi.json", tag = "service", operation_id = "openapi", security(()),
    responses((status = 200, description = "OpenAPI 3.1", body = serde_json::Value)))]
pub async fn openapi(State(state): State<AppState>) -> Result<Response, Problem> {
    static DOCUMENT: OnceLock<Option<utoipa::openapi::OpenApi>> = OnceLock::new();
    let document = DOCUMENT.get_or_init(|| Some(crate::http::document()));
    let mut document = document.clone().unwrap_or_default();
    if !state.base_path.is_empty() {
        document.servers = Some(vec![utoipa::openapi::Server::new(state.base_path.as_ref())]);
    }
    let body = document
        .to_json()
        .map_err(|_| Problem::new(ProblemType::InternalError, "The document can't be serialized."))?;
    Ok(json_response(body, StatusCode::OK))
}

/// The page of a problem type.
pub async fn error_page(Path(slug): Path<String>) -> Response {
    match crate::http::pages::page(&slug) {
        Some(page) => text(page, "text/markdown; charset=utf-8"),
        None => Problem::new(ProblemType::NotFound, "There is no problem type of this name.").into_response(),
    }
}
