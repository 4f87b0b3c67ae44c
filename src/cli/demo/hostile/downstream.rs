//! The hostile downstream on loopback: one ledger, six manners, and the adapter that reads the ledger.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::adapter::{Found, Question, Secret};
use super::manner::Manner;
use crate::cli::demo::downstream::{Act, answer, document, now};
use crate::cli::demo::failure::Failure;
use crate::cli::demo::ledger::Ledger;
use crate::cli::demo::line::{Cut, Lines};

/// How long the late commit takes after it was looked up in vain; shorter than its settle window.
const LATE: Duration = Duration::from_millis(700);
/// How often lagging books have nothing.
const LAGS: u64 = 3;
/// The end of the second of two receipts of one act.
const AGAIN: &str = "-again";

/// The running downstream; it ends when dropped.
pub(super) struct HostileDownstream {
    /// Where it answers.
    pub(super) url: String,
    /// What its adapter's questions are signed with.
    pub(super) secret: Secret,
    books: Arc<Books>,
    _server: JoinSet<()>,
}

struct Books {
    secret: Secret,
    pages: Mutex<Pages>,
    /// For each manner: something was looked up and told.
    told: HashMap<&'static str, Notify>,
}

#[derive(Default)]
struct Pages {
    ledger: Ledger,
    counts: HashMap<&'static str, Counts>,
}

/// What was asked of the downstream in one manner.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    /// Requests to act.
    pub(super) requests: u64,
    /// Lookups.
    pub(super) lookups: u64,
    /// Lookups that found nothing.
    pub(super) absences: u64,
}

impl Books {
    fn lock(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the adapter has told something.
    async fn told(&self, manner: Manner) {
        if let Some(told) = self.told.get(manner.name()) {
            told.notified().await;
        }
    }

    fn tell(&self, manner: Manner) {
        if let Some(told) = self.told.get(manner.name()) {
            told.notify_one();
        }
    }
}

impl HostileDownstream {
    /// Starts it on a free port.
    pub(super) async fn start() -> Result<Self, Failure> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.map_err(Failure::Downstream)?;
        let address = listener.local_addr().map_err(Failure::Downstream)?;
        let secret = Secret::random()?;
        let told = Manner::ALL.into_iter().map(|manner| (manner.name(), Notify::new())).collect();
        let books = Arc::new(Books { secret: secret.clone(), pages: Mutex::default(), told });
        let router = Router::new()
            .route("/{manner}", post(act))
            .route("/{manner}/{receipt_id}", get(read))
            .route("/adapter/{manner}", post(ask))
            .with_state(Arc::clone(&books))
            .into_make_service_with_connect_info::<Cut>();
        let mut server = JoinSet::new();
        server.spawn(async move {
            // It only ends with this process.
            drop(axum::serve(Lines(listener), router).await);
        });
        Ok(Self { url: format!("http://{address}"), secret, books, _server: server })
    }

    /// How often an operation was committed. This is what counts, whatever anybody was told.
    pub(super) fn commits_of(&self, operation_id: &str) -> u64 {
        self.books.lock().ledger.commits_of(operation_id)
    }

    /// How many commits there were in all.
    pub(super) fn commits(&self) -> u64 {
        self.books.lock().ledger.total()
    }

    /// What was asked in one manner.
    pub(super) fn counts_of(&self, manner: Manner) -> Counts {
        self.books.lock().counts.get(manner.name()).copied().unwrap_or_default()
    }
}

/// What becomes of a request to act.
enum Turn {
    /// It commits and answers, like any honest downstream.
    Commit,
    /// It commits, and the answer is lost.
    CommitAndCut,
    /// It is lost.
    Cut,
    /// It commits once it was looked up in vain; the answer is lost.
    CommitLate,
    /// It commits, and answers when nobody waits any more, with another receipt than the lookup told.
    AnswerLate,
    /// The key was seen before.
    Refuse,
}

/// A second request is a second act for all but the one that refuses it: nothing here saves anybody.
const fn turn(manner: Manner, request: u64) -> Turn {
    match (manner, request) {
        (Manner::DropsAnswer | Manner::VisibleLate | Manner::RefusesRetry, 1) => Turn::CommitAndCut,
        (Manner::CommitsLate, 1) => Turn::CommitLate,
        (Manner::AnswersTwice, 1) => Turn::AnswerLate,
        (Manner::NeverCommits, 1) => Turn::Cut,
        (Manner::RefusesRetry, _) => Turn::Refuse,
        _ => Turn::Commit,
    }
}

/// `POST /{manner}`: acts, in its manner.
async fn act(
    State(books): State<Arc<Books>>,
    ConnectInfo(line): ConnectInfo<Cut>,
    Path(manner): Path<Manner>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let key = headers.get("idempotency-key").and_then(|key| key.to_str().ok());
    let (Some(key), Ok(act)) = (key, serde_json::from_slice::<Act>(&body)) else {
        return answer(StatusCode::BAD_REQUEST, None);
    };
    let request = {
        let mut pages = books.lock();
        let counts = pages.counts.entry(manner.name()).or_default();
        counts.requests = counts.requests.saturating_add(1);
        counts.requests
    };
    let commit = || books.lock().ledger.commit(&act.reference, key).receipt_id;
    let receipt_id = match turn(manner, request) {
        Turn::Commit => commit(),
        Turn::CommitAndCut => {
            line.cut();
            commit()
        }
        Turn::Cut => {
            line.cut();
            String::new()
        }
        Turn::CommitLate => {
            books.told(manner).await;
            tokio::time::sleep(LATE).await;
            line.cut();
            commit()
        }
        Turn::AnswerLate => {
            let receipt_id = commit();
            books.told(manner).await;
            format!("{receipt_id}{AGAIN}")
        }
        Turn::Refuse => return answer(StatusCode::CONFLICT, None),
    };
    let at = books.lock().ledger.reading(now());
    answer(StatusCode::CREATED, Some((&receipt_id, at)))
}

/// `GET /{manner}/{receipt_id}`: a fresh read.
async fn read(State(books): State<Arc<Books>>, Path((_, id)): Path<(Manner, String)>) -> Response {
    let mut pages = books.lock();
    let at = pages.ledger.reading(now());
    match pages.ledger.by_receipt(id.trim_end_matches(AGAIN)) {
        Some(_) => answer(StatusCode::OK, Some((&id, at))),
        None => answer(StatusCode::NOT_FOUND, None),
    }
}

/// `POST /adapter/{manner}`: what became of an operation, by the key that was sent with it.
async fn ask(State(books): State<Arc<Books>>, Path(manner): Path<Manner>, headers: HeaderMap, body: Bytes) -> Response {
    if !books.secret.signed(&headers, &body) {
        return answer(StatusCode::UNAUTHORIZED, None);
    }
    let Ok(question) = serde_json::from_slice::<Question>(&body) else {
        return answer(StatusCode::BAD_REQUEST, None);
    };
    if question.r#type != "effect.lookup" {
        return answer(StatusCode::BAD_REQUEST, None);
    }
    let (found, at) = {
        let mut pages = books.lock();
        (pages.look_up(manner, &question), pages.ledger.reading(now()))
    };
    if found != Found::Pending {
        books.tell(manner);
    }
    document(StatusCode::OK, &found.answer(&question, at))
}

impl Pages {
    fn look_up(&mut self, manner: Manner, question: &Question) -> Found {
        let counts = self.counts.entry(manner.name()).or_default();
        counts.lookups = counts.lookups.saturating_add(1);
        let known = self.ledger.by_key(&question.idempotency_key);
        let found = match (manner, known) {
            // It makes up its mind when it has been asked again.
            (Manner::RefusesRetry, _) if counts.requests < 2 => Found::Pending,
            (Manner::AnswersTwice, None) => Found::Pending,
            (Manner::VisibleLate, _) if counts.absences < LAGS => Found::NothingYet,
            (_, Some(_)) if self.ledger.commits_of(&question.operation_id) > 1 => Found::More,
            (_, Some(commit)) => Found::Once(commit.receipt_id.clone()),
            (_, None) => Found::Nothing,
        };
        if matches!(found, Found::Nothing | Found::NothingYet) {
            counts.absences = counts.absences.saturating_add(1);
        }
        found
    }
}
