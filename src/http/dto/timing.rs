//! Timings as they are shown.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use crate::domain::time::Timestamp;
use crate::telemetry::phase::Phase;
use crate::telemetry::ring::Recent;

/// The newest requests.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct RecentTimings {
    /// Whether this process measures at all.
    pub enabled: bool,
    /// The newest first.
    pub items: Vec<TimingView>,
    /// Always `null`: there is one page.
    pub next_cursor: Option<String>,
}

/// One request.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct TimingView {
    /// Its id: in log lines, and the span in the answer's `traceparent`.
    request_id: String,
    /// Its trace.
    trace_id: String,
    method: &'static str,
    /// The route, without the values in it.
    #[schema(value_type = String)]
    route: Arc<str>,
    status: u16,
    /// By the database's clock.
    #[schema(value_type = String, format = DateTime)]
    started_at: Timestamp,
    /// From its arrival until the answer was written.
    total_us: u64,
    phases: PhasesView,
    store: StoreView,
}

/// Time in each phase that the request went through. What is missing of `total_us` is in none: waiting on
/// purpose, and calls of the store apart from the lanes that are shared.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[expect(clippy::struct_field_names, reason = "the unit stands in each name")]
pub struct PhasesView {
    /// Verifying the token.
    #[serde(skip_serializing_if = "Option::is_none")]
    authentication_us: Option<u64>,
    /// Routing, and reading and checking what was sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    admission_us: Option<u64>,
    /// Deciding.
    #[serde(skip_serializing_if = "Option::is_none")]
    decision_us: Option<u64>,
    /// Waiting for the batch in flight and for the connection that writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    store_wait_us: Option<u64>,
    /// Statements that look.
    #[serde(skip_serializing_if = "Option::is_none")]
    store_execution_us: Option<u64>,
    /// The statement that writes, flush included; of the whole batch, as all in it wait for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit_us: Option<u64>,
    /// Calls of adapters.
    #[serde(skip_serializing_if = "Option::is_none")]
    adapter_us: Option<u64>,
    /// Writing the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    response_us: Option<u64>,
}

/// What it cost the store.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct StoreView {
    /// Transactions that it waited for, a lone read counted as one.
    transactions: u32,
    /// Waiting for the connection that writes: part of `store_wait_us`.
    lock_wait_us: u64,
    /// The same as `phases.store_execution_us`.
    execution_us: u64,
    /// The same as `phases.commit_us`.
    commit_us: u64,
    /// Bytes of its own documents in statements that write.
    bytes_bound: u64,
    /// The most requests that one of its transactions was shared with, itself included.
    batch: u32,
}

impl TimingView {
    /// Of a record.
    #[must_use]
    pub fn of(recent: &Recent) -> Self {
        let timing = &recent.timing;
        let phase = |phase| timing.phase(phase).map(|found| micros(found.spent));
        Self {
            request_id: format!("{:016x}", timing.trace.span),
            trace_id: format!("{:032x}", timing.trace.id),
            method: recent.method,
            route: Arc::clone(&recent.route),
            status: recent.status,
            started_at: Timestamp::from_micros(timing.started_us),
            total_us: micros(timing.total),
            phases: PhasesView {
                authentication_us: phase(Phase::Authentication),
                admission_us: phase(Phase::Admission),
                decision_us: phase(Phase::Decision),
                store_wait_us: phase(Phase::StoreWait),
                store_execution_us: phase(Phase::StoreExecution),
                commit_us: phase(Phase::Commit),
                adapter_us: phase(Phase::Adapter),
                response_us: phase(Phase::Response),
            },
            store: StoreView {
                transactions: timing.store.transactions,
                lock_wait_us: micros(timing.store.lock_wait),
                execution_us: phase(Phase::StoreExecution).unwrap_or_default(),
                commit_us: phase(Phase::Commit).unwrap_or_default(),
                bytes_bound: timing.store.bytes_bound,
                batch: timing.store.largest_batch,
            },
        }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
