//! `actonce serve`.

use std::io::Write as _;
use std::process::ExitCode;

use super::{block_on, fail, start_log};
use crate::app::App;
use crate::config::{Config, Environment, ServeArgs};

pub(super) fn run(args: &ServeArgs) -> ExitCode {
    let config = match Config::load(args, &Environment::from_process()) {
        Ok(config) => config,
        Err(error) => return fail(&error.to_string()),
    };
    let _log = match start_log(config.log_format, &config.log) {
        Ok(log) => log,
        Err(error) => return fail(&format!("no log: {error}")),
    };
    crate::panics::log_places_only();
    block_on(serve(config))
}

async fn serve(config: Config) -> ExitCode {
    let app = match App::start(&config).await {
        Ok(app) => app,
        Err(error) => return fail(&error.to_string()),
    };
    let stop = app.stopper();
    let signals = tokio_util::task::TaskTracker::new();
    signals.spawn(async move {
        signal().await;
        tracing::info!("stopping: nothing new is accepted, what is in flight finishes");
        stop.cancel();
    });
    let token = match config.dev_token() {
        Ok(token) => token,
        Err(error) => return fail(&error.to_string()),
    };
    if let Some(token) = &token {
        drop(write_hints(&app.url, token));
    }
    if app.announce(token.as_deref()).is_err() {
        tracing::warn!("standard output is closed");
    }
    tracing::info!(url = app.url, database = app.backend.as_str(), "ready");
    match app.run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error.to_string()),
    }
}

/// Ends at the first SIGTERM or interrupt.
pub(super) async fn signal() {
    let interrupt = tokio::signal::ctrl_c();
    let Ok(mut terminate) = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()) else {
        drop(interrupt.await);
        return;
    };
    tokio::select! {
        _ = interrupt => {}
        _ = terminate.recv() => {}
    }
}

/// Lines to paste, for `--dev`. On standard error: standard output is for scripts.
fn write_hints(url: &str, token: &str) -> std::io::Result<()> {
    let mut err = std::io::stderr().lock();
    writeln!(
        err,
        r#"
Actonce answers at {url} (reference: {url}/docs). To try it, paste:

  export ACTONCE={url}
  export TOKEN={token}

  curl -sS -X PUT "$ACTONCE/api/tools/payments.refund" -H "Authorization: Bearer $TOKEN" \
    -H 'Content-Type: application/json' -d '{{"effect":"external"}}'

  curl -sS "$ACTONCE/api/intents" -H "Authorization: Bearer $TOKEN" -H 'Content-Type: application/json' \
    -d '{{"operation_id":"run-42:refund:order-1001","tool":"payments.refund","target":"order-1001",
         "arguments":{{"amount":1200,"currency":"EUR"}},"claim":{{"worker":"agent-7","claim_id":"one-random-value"}}}}'

  # act once, then report with the dispatch_id and fence of the answer:
  curl -sS "$ACTONCE/api/effects/run-42%3Arefund%3Aorder-1001/outcome" -H "Authorization: Bearer $TOKEN" \
    -H 'Content-Type: application/json' \
    -d '{{"dispatch_id":"DISPATCH_ID","fence":1,"outcome":"succeeded",
         "receipt":{{"receipt_id":"re_77","schema":"generic","schema_version":1,
           "operation_id":"run-42:refund:order-1001","target":"order-1001","outcome":"completed",
           "observed_at":"2026-01-01T12:00:00Z","source":"client"}},
         "verification":{{"verified":true,"observed_at":"2026-01-01T12:00:01Z",
           "source":"GET /refunds/re_77","target":"order-1001"}},"result":{{"refund":"re_77"}}}}'

  curl -sS "$ACTONCE/api/effects/run-42%3Arefund%3Aorder-1001" -H "Authorization: Bearer $TOKEN"
"#
    )
}
