//! Reading one effect.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use serde::Serialize;
use serde_json::Value;

use super::lists::Paging;
use crate::auth::Scope;
use crate::http::dto::effect::{EffectDocument, etag, json_response, page, respond};
use crate::http::extract::{Caller, PathName, Query, prefer_wait};
use crate::http::problem::Problem;
use crate::http::state::AppState;

/// An effect as it is durable now.
#[utoipa::path(
    get, path = "/api/effects/{operation_id}", tag = "effects", operation_id = "readEffect",
    security(("bearer" = ["effects:read"])),
    params(
        ("operation_id" = String, Path, description = "Percent-encoded"),
        ("If-None-Match" = Option<String>, Header, description = "Answer 304 if the revision is still this one"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`, at most 60"),
    ),
    responses(
        (status = 200, description = "The effect", body = EffectDocument, headers(("ETag" = String))),
        (status = 304, description = "The revision is still the one you have"),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_effect(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let decided = state.service.read(principal, &operation_id, prefer_wait(&headers)?).await?;
    let tag = etag(decided.record.life.revision);
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let current = tag.to_str().unwrap_or_default();
    // RFC 9110: `*` stands for any revision; a list may have weak forms.
    let is_current = |one: &str| matches!(one.trim().trim_start_matches("W/"), tag if tag == current || tag == "*");
    if known.is_some_and(|known| known.split(',').any(is_current)) {
        let mut response = StatusCode::NOT_MODIFIED.into_response();
        response.headers_mut().insert(header::ETAG, tag);
        return Ok(response);
    }
    Ok(respond(&decided, StatusCode::OK))
}

/// An entry of a journal. The bytes that were hashed are the object up to `,"prev_hash"`, closed with `}`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = JournalEntry)]
pub struct EntryView {
    /// The revision that the entry made.
    revision: u32,
    /// When, by database time.
    #[schema(format = DateTime)]
    at: String,
    /// Who.
    by: String,
    /// The state after it.
    state: crate::domain::state::State,
    /// The events that the change stands for, each with its `type` and public facts.
    #[schema(value_type = Vec<Object>)]
    events: Vec<Value>,
    /// Digest of the intent, in the first entry.
    intent_digest: Option<String>,
    /// Digest of the record after the change.
    record_digest: String,
    /// Digest of the receipt stored with it.
    receipt_digest: Option<String>,
    /// Digest of the result stored with it.
    result_digest: Option<String>,
    /// Hash of the entry before; zeros for the first.
    prev_hash: String,
    /// SHA-256 over tenant, effect, revision, `prev_hash` and the entry's bytes.
    hash: String,
}

/// A page of a journal.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[schema(as = JournalPage)]
pub struct JournalPage {
    /// The entries, oldest first.
    items: Vec<EntryView>,
    /// Where the next page starts; `null` at the end.
    next_cursor: Option<String>,
}

/// The journal of an effect: append-only, one hash-chained entry per revision.
#[utoipa::path(
    get, path = "/api/effects/{operation_id}/journal", tag = "effects", operation_id = "readJournal",
    security(("bearer" = ["effects:read"])),
    params(("operation_id" = String, Path, description = "Percent-encoded"), Paging),
    responses(
        (status = 200, description = "A page of entries", body = JournalPage),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_journal(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let limit = paging.limit()?;
    let (rows, next) = state.service.journal(principal, &operation_id, paging.cursor.as_deref(), limit).await?;
    // The entry is answered as the bytes that were hashed, with the two hashes behind them.
    let items = rows.iter().map(|row| {
        let entry = row.entry.strip_suffix('}').unwrap_or(&row.entry);
        let (prev_hash, hash) = (hex::encode(&row.prev_hash), hex::encode(&row.hash));
        format!("{entry},\"prev_hash\":\"{prev_hash}\",\"hash\":\"{hash}\"}}")
    });
    Ok(json_response(page(items, next.as_deref()), StatusCode::OK))
}
