//! What happens to every request: a bound on how many are in flight and how long each may take,
//! panics caught, trace context in and out, one log line, one measurement.

use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderMap, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;

use super::problem::{Problem, ProblemType};
use super::state::AppState;
use crate::limits;
use crate::support::random_id;

/// Counts a request while it is in flight.
struct InFlight<'a>(&'a AtomicUsize);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The middleware.
pub(super) async fn edge(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let started = Instant::now();
    let before = state.in_flight.fetch_add(1, Ordering::AcqRel);
    let in_flight = InFlight(&state.in_flight);
    let method = request.method().clone();
    let path = request.extensions().get::<MatchedPath>().cloned();
    let trace = Trace::of(request.headers());
    let mut response = if before >= state.bounds.max_in_flight {
        Problem::new(ProblemType::Capacity, "Too many requests are in flight.")
            .with("retry_after_seconds", 1)
            .into_response()
    } else if state.starting.load(Ordering::Acquire) && !method.is_safe() {
        // Nothing was looked at yet, so repeating it is all there is to do.
        Problem::new(ProblemType::Capacity, "The service is starting: it looks at incomplete work first.")
            .with("retry_after_seconds", 1)
            .into_response()
    } else {
        let extra = if request.headers().contains_key("prefer") { limits::WAIT_MAX_SECONDS } else { 0 };
        // An export takes the time that its upload takes; its own bounds are with its reader.
        let is_export = path.as_ref().is_some_and(|path| path.as_str().ends_with("/api/reports/bypass"));
        let upload = if is_export { limits::BYPASS_BODY_SECONDS } else { 0 };
        let limit = state.bounds.request_timeout + Duration::from_secs(u64::from(extra).saturating_add(upload));
        answer(request, next, limit).await
    };
    drop(in_flight);
    let path = path.as_ref().map_or("unmatched", |path| path.as_str());
    finish(&mut response, &method, path, &trace, started.elapsed());
    response
}

async fn answer(request: Request, next: Next, limit: Duration) -> Response {
    match tokio::time::timeout(limit, AssertUnwindSafe(next.run(request)).catch_unwind()).await {
        Ok(Ok(response)) => response,
        Ok(Err(_)) => {
            // Where it was is in the log; what it said reaches neither the log nor a client.
            Problem::new(ProblemType::InternalError, "The request was not carried out.").into_response()
        }
        Err(_) => Problem::new(
            ProblemType::StoreUnavailable,
            "The request took too long. Repeat the same request: if it was carried out, you get the recorded answer.",
        )
        .with("retry_after_seconds", 1)
        .into_response(),
    }
}

fn finish(response: &mut Response, method: &Method, path: &str, trace: &Trace, took: Duration) {
    let status = response.status().as_u16();
    let millis = took.as_secs_f64() * 1000.0;
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(&format!("total;dur={millis:.3}")) {
        headers.insert("server-timing", value);
    }
    if let Ok(value) = HeaderValue::from_str(&trace.parent()) {
        headers.insert("traceparent", value);
    }
    let class = match status {
        100..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    };
    metrics::histogram!("actonce_http_request_seconds", "path" => path.to_owned(), "status" => class)
        .record(took.as_secs_f64());
    if status >= 500 {
        tracing::warn!(%method, path, status, millis, trace_id = %trace.id, "request failed");
    } else {
        tracing::debug!(%method, path, status, millis, trace_id = %trace.id, "request");
    }
}

/// W3C trace context: the caller's trace goes on, or a new one begins.
struct Trace {
    id: String,
    span: String,
    flags: String,
}

impl Trace {
    fn of(headers: &HeaderMap) -> Self {
        let span = random_id().simple().to_string()[..16].to_owned();
        let given = headers.get("traceparent").and_then(|value| value.to_str().ok()).and_then(parse);
        match given {
            Some((id, flags)) => Self { id, span, flags },
            None => Self { id: random_id().simple().to_string(), span, flags: "00".to_owned() },
        }
    }

    fn parent(&self) -> String {
        format!("00-{}-{}-{}", self.id, self.span, self.flags)
    }
}

fn parse(text: &str) -> Option<(String, String)> {
    let mut parts = text.split('-');
    let (version, id, span, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let hex = |text: &str, len: usize| {
        text.len() == len && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    let valid = hex(version, 2)
        && version != "ff"
        && hex(id, 32)
        && hex(span, 16)
        && hex(flags, 2)
        && id.bytes().any(|b| b != b'0')
        && span.bytes().any(|b| b != b'0');
    valid.then(|| (id.to_owned(), flags.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_goes_on_and_a_bad_one_begins_anew() {
        let mut headers = HeaderMap::new();
        let sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        headers.insert("traceparent", HeaderValue::from_static(sent));
        let parent = Trace::of(&headers).parent();
        assert!(parent.starts_with("00-4bf92f3577b34da6a3ce929d0e0e4736-") && parent.ends_with("-01"), "{parent}");
        assert_ne!(parent, sent);
        headers.insert("traceparent", HeaderValue::from_static("00-00000000000000000000000000000000-0-01"));
        assert!(Trace::of(&headers).parent().len() == 55);
    }
}
