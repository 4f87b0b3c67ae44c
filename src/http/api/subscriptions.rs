//! Subscriptions to events.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use uuid::Uuid;

use super::lists::Paging;
use crate::auth::{Principal, Scope};
use crate::http::dto::effect::{document, json_response, page, tagged};
use crate::http::dto::subscription::{
    DeadLetterPage, DeadLetterView, ResendBody, ResentView, SecretBody, SubscribeBody, SubscriptionBody,
    SubscriptionPage, SubscriptionView,
};
use crate::http::extract::{Caller, Json, OptionalJson, PathName, Query, if_match};
use crate::http::problem::Problem;
use crate::http::state::AppState;
use crate::service::ServiceError;

/// Who sends events of the tenant to a URL has to be allowed to read them, and to register where this
/// service speaks to.
fn require_both(caller: &Caller) -> Result<&Principal, Problem> {
    caller.require(Scope::EventsRead)?;
    caller.require(Scope::ToolsWrite)
}

fn id_of(name: &PathName) -> Result<Uuid, Problem> {
    Uuid::try_parse(name.0.as_str()).map_err(|_| ServiceError::NotFound.into())
}

/// Subscribes a URL to events: each is sent as a signed webhook, at least once, with the same id and the same
/// bytes on every attempt. Without `secret` one is made and answered this once.
#[utoipa::path(
    post, path = "/api/subscriptions", tag = "events", operation_id = "subscribe",
    security(("bearer" = ["events:read", "tools:write"])),
    request_body = SubscribeBody,
    responses(
        (status = 201, description = "The subscription, with its secret", body = SubscriptionView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn subscribe(
    State(state): State<AppState>,
    caller: Caller,
    Json(body): Json<SubscribeBody>,
) -> Result<Response, Problem> {
    let principal = require_both(&caller)?;
    let (spec, begin, enabled, secret) = body.check()?;
    let (made, secret) = state.service.subscribe(principal, &spec, begin, enabled, secret).await?;
    Ok(tagged(&SubscriptionView::from(&made).shown(secret), made.row.revision, StatusCode::CREATED))
}

/// Subscriptions by id.
#[utoipa::path(
    get, path = "/api/subscriptions", tag = "events", operation_id = "listSubscriptions",
    security(("bearer" = ["events:read"])),
    params(Paging),
    responses(
        (status = 200, description = "A page of subscriptions", body = SubscriptionPage),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn list_subscriptions(
    State(state): State<AppState>,
    caller: Caller,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EventsRead)?;
    let limit = paging.limit()?;
    let (found, next) = state.service.subscriptions(principal, paging.cursor.as_deref(), limit).await?;
    let items = found.iter().map(|one| serde_json::to_string(&SubscriptionView::from(one)).unwrap_or_default());
    Ok(json_response(page(items, next.as_deref()), StatusCode::OK))
}

/// A subscription, with the number of messages that wait and of those that were given up.
#[utoipa::path(
    get, path = "/api/subscriptions/{subscription_id}", tag = "events", operation_id = "readSubscription",
    security(("bearer" = ["events:read"])),
    params(("subscription_id" = String, Path, description = "Its id")),
    responses(
        (status = 200, description = "The subscription", body = SubscriptionView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_subscription(
    State(state): State<AppState>,
    caller: Caller,
    name: PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EventsRead)?;
    let found = state.service.subscription(principal, id_of(&name)?).await?;
    let counts = state.service.subscription_counts(&found).await?;
    Ok(tagged(&SubscriptionView::from(&found).counted(counts), found.row.revision, StatusCode::OK))
}

/// Changes a subscription. Messages that wait go to the new URL; one that was disabled goes on where it was.
#[utoipa::path(
    put, path = "/api/subscriptions/{subscription_id}", tag = "events", operation_id = "putSubscription",
    security(("bearer" = ["events:read", "tools:write"])),
    params(
        ("subscription_id" = String, Path, description = "Its id"),
        ("If-Match" = Option<String>, Header, description = "Change only this revision"),
    ),
    request_body = SubscriptionBody,
    responses(
        (status = 200, description = "The subscription after the change", body = SubscriptionView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn put_subscription(
    State(state): State<AppState>,
    caller: Caller,
    name: PathName,
    headers: HeaderMap,
    Json(body): Json<SubscriptionBody>,
) -> Result<Response, Problem> {
    let principal = require_both(&caller)?;
    let (id, (spec, enabled)) = (id_of(&name)?, body.check()?);
    let changed = state.service.change_subscription(principal, id, &spec, enabled, if_match(&headers)?).await?;
    Ok(tagged(&SubscriptionView::from(&changed), changed.row.revision, StatusCode::OK))
}

/// Ends a subscription. What was not delivered is dropped with it.
#[utoipa::path(
    delete, path = "/api/subscriptions/{subscription_id}", tag = "events", operation_id = "unsubscribe",
    security(("bearer" = ["events:read", "tools:write"])),
    params(
        ("subscription_id" = String, Path, description = "Its id"),
        ("If-Match" = Option<String>, Header, description = "Delete only this revision"),
    ),
    responses(
        (status = 204, description = "It is gone"),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn unsubscribe(
    State(state): State<AppState>,
    caller: Caller,
    name: PathName,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let principal = require_both(&caller)?;
    state.service.unsubscribe(principal, id_of(&name)?, if_match(&headers)?).await?;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Replaces the secret. For a day messages are signed with both, so that the endpoint can be changed in between.
#[utoipa::path(
    post, path = "/api/subscriptions/{subscription_id}/secret", tag = "events", operation_id = "rotateSubscriptionSecret",
    security(("bearer" = ["events:read", "tools:write"])),
    params(
        ("subscription_id" = String, Path, description = "Its id"),
        ("If-Match" = Option<String>, Header, description = "Change only this revision"),
    ),
    request_body(content = Option<SecretBody>),
    responses(
        (status = 200, description = "The subscription, with its new secret", body = SubscriptionView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn rotate_secret(
    State(state): State<AppState>,
    caller: Caller,
    name: PathName,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<SecretBody>,
) -> Result<Response, Problem> {
    let principal = require_both(&caller)?;
    let (id, secret) = (id_of(&name)?, body.unwrap_or_default().check()?);
    let (changed, secret) = state.service.rotate_secret(principal, id, secret, if_match(&headers)?).await?;
    Ok(tagged(&SubscriptionView::from(&changed).shown(secret), changed.row.revision, StatusCode::OK))
}

/// Messages that were given up after their last attempt. They are kept until they are sent again or the
/// subscription ends.
#[utoipa::path(
    get, path = "/api/subscriptions/{subscription_id}/dead-letters", tag = "events", operation_id = "listDeadLetters",
    security(("bearer" = ["events:read"])),
    params(("subscription_id" = String, Path, description = "Its id"), Paging),
    responses(
        (status = 200, description = "A page of messages", body = DeadLetterPage),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn list_dead_letters(
    State(state): State<AppState>,
    caller: Caller,
    name: PathName,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EventsRead)?;
    let (id, limit) = (id_of(&name)?, paging.limit()?);
    let (found, next) = state.service.dead_letters(principal, id, paging.cursor.as_deref(), limit).await?;
    let items = found.iter().map(|one| serde_json::to_string(&DeadLetterView::from(one)).unwrap_or_default());
    Ok(json_response(page(items, next.as_deref()), StatusCode::OK))
}

/// Sends messages again that were given up, with the same ids and bytes.
#[utoipa::path(
    post, path = "/api/subscriptions/{subscription_id}/resend", tag = "events", operation_id = "resendDeadLetters",
    security(("bearer" = ["events:read", "tools:write"])),
    params(("subscription_id" = String, Path, description = "Its id")),
    request_body(content = Option<ResendBody>),
    responses(
        (status = 200, description = "How many are sent again", body = ResentView),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn resend_dead_letters(
    State(state): State<AppState>,
    caller: Caller,
    name: PathName,
    OptionalJson(body): OptionalJson<ResendBody>,
) -> Result<Response, Problem> {
    let principal = require_both(&caller)?;
    let (id, messages) = (id_of(&name)?, body.unwrap_or_default().check()?);
    let (resent, dead_letters) = state.service.resend(principal, id, messages.as_deref()).await?;
    Ok(document(&ResentView { resent, dead_letters }, StatusCode::OK))
}
