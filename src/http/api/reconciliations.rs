//! Out of doubt: inspection and reconciliation (protocol §6).

use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};

use crate::auth::Scope;
use crate::http::dto::effect::tagged;
use crate::http::dto::reconciliation::{ReconciliationBody, ReconciliationView, TargetView};
use crate::http::extract::{Caller, Json, PathName, PathNames, prefer_wait};
use crate::http::problem::{Problem, ProblemType};
use crate::http::state::AppState;
use crate::service::reconciliation::{Reconciled, Status};

/// What a reconciliation needs to name, with aliases in the place of private values. Read-only.
#[utoipa::path(
    get, path = "/api/effects/{operation_id}/inspection", tag = "reconciliation", operation_id = "inspectEffect",
    security(("bearer" = ["effects:reconcile"])),
    params(("operation_id" = String, Path, description = "Percent-encoded")),
    responses(
        (status = 200, description = "The target", body = TargetView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn inspect_effect(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsReconcile)?;
    let inspection = state.service.inspect(principal, &operation_id).await?;
    Ok(tagged(&TargetView::from(&inspection), inspection.decided.record.life.revision, StatusCode::OK))
}

/// Settles an unknown outcome by asking the adapter, by a receipt, or by what the client's own journal says.
///
/// The same request again gets the same answer, without another call. After a newer request it is stale.
#[utoipa::path(
    post, path = "/api/effects/{operation_id}/reconciliations", tag = "reconciliation", operation_id = "reconcile",
    security(("bearer" = ["effects:reconcile"])),
    params(
        ("operation_id" = String, Path, description = "Percent-encoded"),
        ("Prefer" = Option<String>, Header, description = "`wait=N`, at most 60: answer when it is closed"),
    ),
    request_body = ReconciliationBody,
    responses(
        (status = 200, description = "It is closed", body = ReconciliationView,
         headers(("Location" = String), ("ETag" = String))),
        (status = 202, description = "It is admitted and goes on", body = ReconciliationView,
         headers(("Location" = String), ("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 412, response = crate::http::openapi::Problem412),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 422, response = crate::http::openapi::Problem422),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn reconcile(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
    headers: HeaderMap,
    Json(body): Json<ReconciliationBody>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsReconcile)?;
    let wait = prefer_wait(&headers)?;
    let reconciled = state.service.reconcile(principal, body.check(operation_id)?, wait).await?;
    let status = if reconciled.reconciliation.status == Status::Open { StatusCode::ACCEPTED } else { StatusCode::OK };
    let mut response = respond(&reconciled, status);
    let intent = &reconciled.decided.record.intent;
    let location = format!(
        "{}/api/effects/{}/reconciliations/{}",
        state.base_path,
        utf8_percent_encode(intent.operation_id.as_str(), NON_ALPHANUMERIC),
        reconciled.reconciliation.admitted_revision
    );
    if let Ok(location) = HeaderValue::from_str(&location) {
        response.headers_mut().insert(header::LOCATION, location);
    }
    Ok(response)
}

/// One reconciliation of an effect, open or closed.
#[utoipa::path(
    get, path = "/api/effects/{operation_id}/reconciliations/{id}", tag = "reconciliation",
    operation_id = "readReconciliation",
    security(("bearer" = ["effects:read"])),
    params(
        ("operation_id" = String, Path, description = "Percent-encoded"),
        ("id" = String, Path, description = "The revision that admitted it"),
    ),
    responses(
        (status = 200, description = "The reconciliation", body = ReconciliationView, headers(("ETag" = String))),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_reconciliation(
    State(state): State<AppState>,
    caller: Caller,
    names: PathNames<2>,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let PathNames([operation_id, id]) = names;
    let absent = || Problem::new(ProblemType::NotFound, "Nothing of this tenant has this name.");
    let admitted_revision = id.as_str().parse().map_err(|_| absent())?;
    let reconciled = state.service.reconciliation(principal, &operation_id, admitted_revision).await?;
    Ok(respond(&reconciled, StatusCode::OK))
}

fn respond(reconciled: &Reconciled, status: StatusCode) -> Response {
    tagged(&ReconciliationView::from(reconciled), reconciled.decided.record.life.revision, status)
}
