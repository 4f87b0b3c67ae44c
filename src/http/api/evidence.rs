//! Evidence of one effect for others, and the key that it is checked with.

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use serde_json::{Value, json};

use crate::auth::Scope;
use crate::http::dto::effect::{document, json_response};
use crate::http::extract::{Caller, PathName};
use crate::http::problem::{Problem, ProblemType};
use crate::http::state::AppState;
use crate::service::proof::Signed;

/// Signed evidence of an effect: a JSON Web Signature over what was intended, who allowed it, what came of it, and the
/// whole journal as it was hashed. Arguments, results, receipts and the downstream key are not in it, only digests.
///
/// It is checked offline with `actonce evidence verify FILE --public-key KEY`.
#[utoipa::path(
    get, path = "/api/effects/{operation_id}/evidence", tag = "effects", operation_id = "readEvidence",
    security(("bearer" = ["effects:read"])),
    params(("operation_id" = String, Path, description = "Percent-encoded")),
    responses(
        (status = 200, description = "The evidence, in flattened JSON form (RFC 7515)", body = Signed,
            content_type = "application/jose+json"),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 409, response = crate::http::openapi::Problem409),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn read_evidence(
    State(state): State<AppState>,
    caller: Caller,
    PathName(operation_id): PathName,
) -> Result<Response, Problem> {
    let principal = caller.require(Scope::EffectsRead)?;
    let signed = state.service.effect_evidence(principal, &operation_id).await?;
    let text = serde_json::to_string(&signed)
        .map_err(|_| Problem::new(ProblemType::InternalError, "The evidence can't be serialized."))?;
    let mut response = json_response(text, StatusCode::OK);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/jose+json"));
    Ok(response)
}

/// A key set (JWKS) with the public key that evidence and checkpoints are checked with; empty where nothing is signed.
#[derive(Debug, serde::Serialize, utoipa::ToSchema)]
pub struct EvidenceKeys {
    /// The keys.
    #[schema(value_type = Vec<Object>)]
    keys: Vec<Value>,
}

/// The public key that evidence and checkpoints are signed with. For everybody: who checks needs no token.
#[utoipa::path(
    get, path = "/api/keys/evidence", tag = "service", operation_id = "readEvidenceKeys", security(()),
    responses((status = 200, description = "A key set (JWKS)", body = EvidenceKeys))
)]
pub async fn read_evidence_keys(State(state): State<AppState>) -> Response {
    let keys = state.service.signer().map(|signer| json!(signer.jwk()));
    document(&EvidenceKeys { keys: keys.into_iter().collect() }, StatusCode::OK)
}
