//! The baseline: the same service as one would write it without committing together. Same
//! authentication, same validation, same decisions, same rows and the same bytes in them; one
//! statement and one commit per change on a pool of ten connections, no cache, no queue.
//!
//! It also answers `POST /echo`, the ceiling of HTTP alone.

mod rows;

/// As in the service.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

use std::io::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actonce::auth::{Authenticator, ClaimRules, Key, Principal, Settings};
use actonce::domain::command::{Claim, Command, Propose};
use actonce::domain::decide::{self, Change, Context, Decision};
use actonce::domain::ids::{EffectKey, Name};
use actonce::domain::record::Record;
use actonce::domain::time::Timestamp;
use actonce::domain::tool::{Tool, ToolSpec};
use actonce::engine::Decided;
use actonce::engine::encode::encode;
use actonce::http::dto::effect::respond;
use actonce::http::dto::intent::IntentBody;
use actonce::http::dto::outcome::OutcomeBody;
use actonce::service::keys::DataKey;
use actonce::store::ChangeSet;
use actonce::store::rows::{EntryColumns, record_of};
use actonce::support::random_id;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{post, put};
use axum::serve::ListenerExt as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{PgPool, Row as _};

const LOAD: &str = "SELECT e.revision::int8, e.intent, e.life, e.receipt, e.result, e.hash, o.due_us FROM entries e \
  LEFT JOIN open_effects o ON o.tenant = e.tenant AND o.effect = e.effect \
  WHERE e.tenant = $1 AND e.effect = $2 ORDER BY e.revision";

struct App {
    pool: PgPool,
    auth: Arc<Authenticator>,
    data_key: DataKey,
    tools: Mutex<std::collections::HashMap<String, Arc<Tool>>>,
}

type Shared = Arc<App>;
/// A status is all that the baseline says of a refusal.
type Refusal = StatusCode;

async fn caller(app: &App, headers: &HeaderMap) -> Result<Arc<Principal>, Refusal> {
    let value = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let token = value.strip_prefix("Bearer ").unwrap_or_default();
    app.auth.authenticate(token).await.map_err(|_| StatusCode::UNAUTHORIZED)
}

/// The time of this machine stands for the database's: the baseline pays nothing for it.
#[expect(clippy::disallowed_methods, reason = "a baseline that decides nothing real")]
fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_micros(i64::try_from(since.as_micros()).unwrap_or(0))
}

fn context(app: &App, caller: &Principal, tool: &str) -> Result<Context, Refusal> {
    let tool = app.tools.lock().ok().and_then(|tools| tools.get(tool).cloned());
    let tool = tool.ok_or(StatusCode::BAD_REQUEST)?;
    Ok(Context {
        now: now(),
        principal: caller.subject.clone(),
        tool: Arc::clone(&tool),
        current: Some(tool),
        profile_changed: false,
        elapsed_us: None,
    })
}

async fn put_tool(
    State(app): State<Shared>,
    Path(name): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    caller(&app, &headers).await?;
    let spec: ToolSpec = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let tool = Tool::new(Name::new(&name).map_err(|_| StatusCode::BAD_REQUEST)?, 1, spec, false, 1, now());
    if let Ok(mut tools) = app.tools.lock() {
        tools.insert(name, tool);
    }
    Ok(StatusCode::CREATED.into_response())
}

async fn intent(State(app): State<Shared>, headers: HeaderMap, body: Bytes) -> Result<Response, Refusal> {
    let caller = caller(&app, &headers).await?;
    let body: IntentBody = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let request = body.check(None).map_err(|problem| problem.kind().status())?;
    let operation_id = request.operation_id.ok_or(StatusCode::BAD_REQUEST)?;
    let context = context(&app, &caller, request.tool.as_str())?;
    let key = EffectKey::of(&caller.tenant, &operation_id);
    let claim = request.claim.map(|wish| Claim {
        claim: wish.claim_id.as_ref().map(|id| Claim::digest(&wish.worker, id)),
        worker: wish.worker,
        lease_seconds: wish.lease_seconds,
        dispatch_id: random_id(),
    });
    let propose = Propose {
        idempotency_key: app.data_key.idempotency_key(&caller.tenant, &operation_id),
        operation_id,
        tool: request.tool,
        class: request.class,
        target: request.target,
        arguments_digest: request.arguments_digest,
        arguments: request.arguments,
        run_id: request.run_id,
        session_id: request.session_id,
        call_id: request.call_id,
        profile_id: request.profile_id,
        claim,
        duplicate_of: None,
        sent: None,
        grant: None,
        fence_base: 0,
    };
    let decision = decide::propose(None, &propose, &context);
    let Decision { change: Some(Change::Revise(revision)), answer: Ok(answer) } = decision else {
        return Err(StatusCode::CONFLICT);
    };
    let Some(stated) = revision.intent.clone() else { return Err(StatusCode::CONFLICT) };
    let (change, record) =
        encode(&key, None, &stated, *revision, &context).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let ChangeSet::Revise(row) = change else { return Err(StatusCode::INTERNAL_SERVER_ERROR) };
    written(&rows::insert(&app.pool, &row).await)?;
    let decided = Decided { record: Arc::new(record), answer, context, created: true };
    Ok(respond(&decided, StatusCode::CREATED))
}

async fn outcome(
    State(app): State<Shared>,
    Path(operation): Path<String>,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, Refusal> {
    let caller = caller(&app, &headers).await?;
    let body: OutcomeBody = serde_json::from_slice(&body).map_err(|_| StatusCode::BAD_REQUEST)?;
    let report = body.check().map_err(|problem| problem.kind().status())?;
    let operation_id = Name::new(&operation).map_err(|_| StatusCode::BAD_REQUEST)?;
    let key = EffectKey::of(&caller.tenant, &operation_id);
    let record = load(&app.pool, &key).await?;
    let context = context(&app, &caller, record.intent.tool.as_str())?;
    let decision = decide::decide(&record, &Command::Outcome(Box::new(report)), &context);
    let Decision { change: Some(Change::Revise(revision)), answer: Ok(answer) } = decision else {
        return Err(StatusCode::CONFLICT);
    };
    let (change, record) = encode(&key, Some(&record), &Arc::clone(&record.intent), *revision, &context)
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    let ChangeSet::Revise(row) = change else { return Err(StatusCode::INTERNAL_SERVER_ERROR) };
    written(&rows::settle(&app.pool, &row).await)?;
    Ok(respond(&Decided { record: Arc::new(record), answer, context, created: false }, StatusCode::OK))
}

fn written(result: &sqlx::Result<bool>) -> Result<(), Refusal> {
    match result {
        Ok(true) => Ok(()),
        Ok(false) => Err(StatusCode::CONFLICT),
        Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}

async fn load(pool: &PgPool, key: &EffectKey) -> Result<Record, Refusal> {
    let failed = |_| StatusCode::SERVICE_UNAVAILABLE;
    let rows = sqlx::query(LOAD).bind(key.tenant.as_str()).bind(key.effect).fetch_all(pool).await.map_err(failed)?;
    let mut entries = Vec::with_capacity(rows.len());
    let mut due = None;
    for row in rows {
        due = row.try_get::<Option<i64>, _>(6).map_err(failed)?.map(Timestamp::from_micros);
        entries.push(EntryColumns {
            revision: row.try_get(0).map_err(failed)?,
            intent: row.try_get(1).map_err(failed)?,
            life: row.try_get(2).map_err(failed)?,
            receipt: row.try_get(3).map_err(failed)?,
            result: row.try_get(4).map_err(failed)?,
            hash: row.try_get(5).map_err(failed)?,
        });
    }
    record_of(key, entries, due).ok().flatten().ok_or(StatusCode::NOT_FOUND)
}

async fn echo(body: Bytes) -> Response {
    match serde_json::from_slice::<serde_json::Value>(&body) {
        Ok(value) => ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response(),
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let secret = std::env::var("ACTONCE_JWT_HS256_SECRET")?;
    let key = Key::from_secret(None, actonce::auth::Algorithm::HS256, secret.as_bytes())?;
    let claims = ClaimRules::new("actonce", "actonce");
    let auth = Authenticator::start(Settings { keys: vec![key], key_set: None, claims }).await?;
    let options: PgConnectOptions = url.parse()?;
    let pool = PgPoolOptions::new()
        .max_connections(10)
        .acquire_timeout(Duration::from_secs(30))
        .test_before_acquire(false)
        .connect_with(options)
        .await?;
    let app = Arc::new(App { pool, auth, data_key: DataKey::new([7; 32]), tools: Mutex::default() });
    let router = Router::new()
        .route("/api/tools/{name}", put(put_tool))
        .route("/api/intents", post(intent))
        .route("/api/effects/{operation}/outcome", post(outcome))
        .route("/echo", post(echo))
        .with_state(app);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    writeln!(std::io::stdout(), "{}", serde_json::json!({ "event": "ready", "url": format!("http://{address}") }))?;
    let listener = listener.tap_io(|stream| drop(stream.set_nodelay(true)));
    axum::serve(listener, router).await?;
    Ok(())
}
