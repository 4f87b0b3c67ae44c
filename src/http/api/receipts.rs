//! Where vendors' webhooks come in.

use axum::extract::State;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::Response;

use crate::auth::Scope;
use crate::http::dto::effect::document;
use crate::http::dto::receipts::DeliveryView;
use crate::http::extract::{OptionalCaller, PathName, SignedBody};
use crate::http::problem::Problem;
use crate::http::state::AppState;
use crate::service::inbound::Delivery;
use crate::service::inbound::signature::Headers;

/// A vendor's delivery. It is authenticated by its signature under the address that the source was
/// given, or by a token under the plain name of the source.
///
/// A repeat is answered likewise and writes nothing. An unknown address and a bad signature are refused
/// alike.
#[utoipa::path(
    post, path = "/api/receipts/{source}", tag = "receipts", operation_id = "deliverReceipt",
    security((), ("bearer" = ["receipts:write"])),
    params(("source" = String, Path, description = "The random part of `url_path`; with a token the name of the source")),
    request_body(content = Object, description = "What the vendor sends, as the source's pointers read it"),
    responses(
        (status = 200, description = "It was taken", body = DeliveryView),
        (status = 400, response = crate::http::openapi::Problem400),
        (status = 401, response = crate::http::openapi::Problem401),
        (status = 403, response = crate::http::openapi::Problem403),
        (status = 404, response = crate::http::openapi::Problem404),
        (status = 413, response = crate::http::openapi::Problem413),
        (status = 415, response = crate::http::openapi::Problem415),
        (status = 503, response = crate::http::openapi::Problem503),
    )
)]
pub async fn deliver_receipt(
    State(state): State<AppState>,
    OptionalCaller(caller): OptionalCaller,
    PathName(source): PathName,
    headers: HeaderMap,
    SignedBody(body): SignedBody,
) -> Result<Response, Problem> {
    let named =
        |(name, value): (&HeaderName, &HeaderValue)| Some((name.as_str().to_owned(), value.to_str().ok()?.to_owned()));
    let delivery = Delivery { headers: Headers::new(headers.iter().filter_map(named).collect()), body };
    let disposition = match caller {
        Some(caller) => {
            let principal = caller.require(Scope::ReceiptsWrite)?;
            state.service.deliver_as(principal, &source, &delivery).await?
        }
        None => state.service.deliver(source.as_str(), &delivery).await?,
    };
    let view = DeliveryView::from(disposition);
    Ok(document(&view, StatusCode::OK))
}
