//! A fake downstream on loopback: it commits whatever it is asked to, counts, and can drop the
//! connection after a commit, without an answer.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::UNIX_EPOCH;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use axum::routing::{get, post};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use super::failure::Failure;
use super::ledger::Ledger;
use super::line::{Cut, Lines};
use crate::domain::time::Timestamp;

/// The running downstream; it ends when dropped.
pub(super) struct Downstream {
    /// Where it answers.
    pub(super) url: String,
    ledger: Shared,
    _server: JoinSet<()>,
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Ledger>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Downstream {
    /// Starts it on a free port.
    pub(super) async fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(Failure::Downstream)?;
        let address = listener.local_addr().map_err(Failure::Downstream)?;
        let ledger = Shared::default();
        let router = Router::new()
            .route("/{collection}", post(act).get(look_up))
            .route("/{collection}/{receipt_id}", get(read))
            .route("/state/{target}", get(state))
            .with_state(ledger.clone())
            .into_make_service_with_connect_info::<Cut>();
        let mut server = JoinSet::new();
        server.spawn(async move {
            // It only ends with this process.
            drop(axum::serve(Lines(listener), router).await);
        });
        Ok(Self { url: format!("http://{address}"), ledger, _server: server })
    }

    /// From now on the answer to the next commit of an operation is lost.
    pub(super) fn lose_answer(&self, operation_id: &str) {
        self.ledger.lock().lose_answer(operation_id);
    }

    /// How often an operation was committed. This is what counts, whatever anybody was told.
    pub(super) fn commits_of(&self, operation_id: &str) -> u64 {
        self.ledger.lock().commits_of(operation_id)
    }

    /// The receipts of an operation.
    pub(super) fn receipts_of(&self, operation_id: &str) -> Vec<String> {
        self.ledger.lock().receipts_of(operation_id)
    }

    /// How many commits there were in all.
    pub(super) fn commits(&self) -> u64 {
        self.ledger.lock().total()
    }
}

/// What is to be done.
#[derive(Deserialize)]
pub(super) struct Act {
    pub(super) reference: String,
}

/// `POST /{collection}`: commits, always.
async fn act(
    State(ledger): State<Shared>,
    ConnectInfo(line): ConnectInfo<Cut>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let (Some(key), Ok(act)) = (key, serde_json::from_slice::<Act>(&body)) else {
        return answer(StatusCode::BAD_REQUEST, None);
    };
    let mut ledger = ledger.lock();
    let commit = ledger.commit(&act.reference, key);
    if ledger.loses(&act.reference) {
        line.cut();
    }
    answer(StatusCode::CREATED, Some((&commit.receipt_id, ledger.reading(now()))))
}

#[derive(Deserialize)]
struct LookUp {
    key: String,
}

/// `GET /{collection}?key=…`: what was committed under a key.
async fn look_up(State(ledger): State<Shared>, Query(wanted): Query<LookUp>) -> Response {
    let mut ledger = ledger.lock();
    let at = ledger.reading(now());
    match ledger.by_key(&wanted.key) {
        Some(commit) => answer(StatusCode::OK, Some((&commit.receipt_id, at))),
        None => answer(StatusCode::NOT_FOUND, None),
    }
}

/// `GET /{collection}/{receipt_id}`: a fresh read.
async fn read(State(ledger): State<Shared>, Path((_, id)): Path<(String, String)>) -> Response {
    let mut ledger = ledger.lock();
    let at = ledger.reading(now());
    match ledger.by_receipt(&id) {
        Some(commit) => answer(StatusCode::OK, Some((&commit.receipt_id, at))),
        None => answer(StatusCode::NOT_FOUND, None),
    }
}

/// `GET /state/{target}`: what a call does that changes nothing.
async fn state(State(ledger): State<Shared>) -> Response {
    let at = ledger.lock().reading(now());
    answer(StatusCode::OK, Some(("read", at)))
}

/// An answer of the downstream, as a worker reads it.
pub(super) fn answer(status: StatusCode, found: Option<(&str, Timestamp)>) -> Response {
    let body = found.map_or_else(
        || json!({ "error": status.canonical_reason() }),
        |(receipt_id, at)| json!({ "receipt_id": receipt_id, "observed_at": at }),
    );
    document(status, &body)
}

/// An answer with a document.
pub(super) fn document(status: StatusCode, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

/// The downstream's clock.
#[expect(clippy::disallowed_methods, reason = "another system's clock: it is in receipts and decides nothing")]
pub(super) fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}
