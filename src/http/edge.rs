//! What happens to every request: a bound on how many are in flight and how long each may take,
//! panics caught, trace context in and out, one log line, one measurement.

use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use futures_util::FutureExt as _;

use super::problem::{Problem, ProblemType};
use super::server::Spare;
use super::state::AppState;
use crate::limits;
use crate::telemetry::phase::Phase;
use crate::telemetry::probe::{self, Probe, Timing};
use crate::telemetry::trace::TRACEPARENT;
use crate::telemetry::{Telemetry, known_method};

const SERVER_TIMING: HeaderName = HeaderName::from_static("server-timing");

/// Counts a request while it is in flight.
struct InFlight<'a>(&'a AtomicUsize);

impl<'a> InFlight<'a> {
    /// Begins, and tells how many there were before.
    fn begin(count: &'a AtomicUsize) -> (Self, usize) {
        let before = count.fetch_add(1, Ordering::AcqRel);
        (Self(count), before)
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The middleware.
pub(super) async fn edge(State(state): State<AppState>, request: Request, next: Next) -> Response {
    let trace = state.telemetry.incoming(request.headers());
    let probe = Probe::begin(&state.telemetry, trace);
    probe::scope(Arc::clone(&probe), observed(&state, &probe, request, next)).await
}

async fn observed(state: &AppState, probe: &Probe, request: Request, next: Next) -> Response {
    let method = known_method(request.method());
    let matched = request.extensions().get::<MatchedPath>().cloned();
    let path = matched.as_ref().map(MatchedPath::as_str);
    // Whether the process runs has to be told above all when it has much to do: it takes no place among the others.
    let in_flight = (!stands(path, &["/livez"])).then(|| InFlight::begin(&state.in_flight));
    let before = in_flight.as_ref().map_or(0, |(_, before)| *before);
    let refused = why_not(state, &request, path, before);
    let mut response = if let Some(why) = refused {
        // Nothing was done, and the same may be sent again in a second.
        Problem::new(ProblemType::Capacity, why).with("retry_after_seconds", 1).into_response()
    } else {
        let extra = if request.headers().contains_key("prefer") { limits::WAIT_MAX_SECONDS } else { 0 };
        // An export takes the time that its upload takes; its own bounds are with its reader.
        let is_export = stands(path, &["/api/reports/bypass"]);
        let upload = if is_export { limits::BYPASS_BODY_SECONDS } else { 0 };
        let limit = state.bounds.request_timeout + Duration::from_secs(u64::from(extra).saturating_add(upload));
        answer(request, next, limit).await
    };
    drop(in_flight);
    let route = state.routes.route(path);
    let status = response.status().as_u16();
    let timing = probe.timing();
    route.answered(status, timing.total);
    let millis = timing.total.as_secs_f64() * 1000.0;
    let path = &**route.label();
    // Those who are refused are counted. A line for each would cost more than its refusal, when there is least to spare.
    if status >= 500 && refused.is_none() {
        tracing::warn!(method, path, status, millis, "request failed");
    } else {
        tracing::debug!(method, path, status, millis, "request");
    }
    tell(&mut response, &state.telemetry, probe, &timing);
    state.telemetry.finished(method, route.label(), status, timing);
    response
}

/// Whether it is one of these paths, under whatever base.
fn stands(path: Option<&str>, names: &[&str]) -> bool {
    path.is_some_and(|path| names.iter().any(|name| path.ends_with(name)))
}

/// Why nothing is done for a request, if that is so; before it so many were in flight.
fn why_not(state: &AppState, request: &Request, path: Option<&str>, before: usize) -> Option<&'static str> {
    if request.extensions().get::<Spare>().is_some() && !stands(path, &["/livez", "/readyz", "/metrics"]) {
        metrics::counter!("actonce_connections_refused_total", "how" => "answered").increment(1);
        return Some("Too many connections are open.");
    }
    if before >= state.bounds.max_in_flight {
        return Some("Too many requests are in flight.");
    }
    if state.service.engine().backlog().is_long() && begins_an_act(request, path) {
        metrics::counter!("actonce_acts_refused_total").increment(1);
        return Some("So much waits for its commit that no new act is begun.");
    }
    // Nothing was looked at yet, so repeating it is all there is to do.
    let is_early = state.starting.load(Ordering::Acquire) && !request.method().is_safe();
    is_early.then_some("The service is starting: it looks at incomplete work first.")
}

/// Whether it asks for an act to begin. Whatever follows one is not refused for what waits: an outcome that finds no
/// place is a doubt.
fn begins_an_act(request: &Request, path: Option<&str>) -> bool {
    const BEGINNINGS: [&str; 3] = ["/api/intents", "/api/intents/batch", "/api/effects/{operation_id}/dispatch"];
    request.method() == Method::POST && stands(path, &BEGINNINGS)
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

/// What the caller learns of it.
fn tell(response: &mut Response, telemetry: &Telemetry, probe: &Probe, timing: &Timing) {
    let headers = response.headers_mut();
    if let Some(value) = probe.trace().header() {
        headers.insert(HeaderName::from_static(TRACEPARENT), value);
    }
    if telemetry.is_timing()
        && let Ok(value) = HeaderValue::try_from(server_timing(timing))
    {
        headers.insert(SERVER_TIMING, value);
    }
}

/// The phases go to those who have shown who they are; others get the total, which they know anyway.
fn server_timing(timing: &Timing) -> String {
    let mut text = String::with_capacity(192);
    if timing.tenant.is_some() {
        for phase in Phase::ALL {
            if let Some(found) = timing.phase(phase) {
                entry(&mut text, phase.as_str(), found.spent);
            }
        }
    }
    entry(&mut text, "total", timing.total);
    text
}

/// Milliseconds with three places.
fn entry(text: &mut String, name: &str, spent: Duration) {
    if !text.is_empty() {
        text.push_str(", ");
    }
    text.push_str(name);
    text.push_str(";dur=");
    // Divided in 64 bits, not in the 128 of a duration: eight of these go out with every answer.
    let micros = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
    // A string takes everything.
    let _ = write!(text, "{}.{:03}", micros / 1000, micros % 1000);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_in_milliseconds() {
        let mut text = String::new();
        entry(&mut text, "decision", Duration::from_micros(1_042));
        entry(&mut text, "total", Duration::from_micros(7));
        assert_eq!(text, "decision;dur=1.042, total;dur=0.007");
    }
}
