//! What handlers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use metrics_exporter_prometheus::PrometheusHandle;
use tokio_util::sync::CancellationToken;

use crate::auth::Authenticator;
use crate::service::Service;
use crate::telemetry::Telemetry;
use crate::telemetry::meters::Routes;

/// Bounds of one process that come from the configuration.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// How long a request may take, waits aside.
    pub request_timeout: Duration,
    /// How many requests may be in flight.
    pub max_in_flight: usize,
}

/// What all handlers are given: one pointer to copy per request.
pub type AppState = Arc<Shared>;

/// Shared by all handlers.
pub struct Shared {
    /// The use cases.
    pub service: Arc<Service>,
    /// Verifies tokens.
    pub auth: Arc<Authenticator>,
    /// Traces and timings.
    pub telemetry: Arc<Telemetry>,
    /// The meters of the routes: see [`crate::http::route_meters`].
    pub routes: Routes,
    /// Renders metrics.
    pub metrics: PrometheusHandle,
    /// Bounds.
    pub bounds: Bounds,
    /// How often each tenant and principal may ask.
    pub rates: super::rates::Rates,
    /// Requests in flight.
    pub in_flight: AtomicUsize,
    /// Incomplete work is looked at: readiness is red, and nothing is taken that could change something.
    pub starting: AtomicBool,
    /// Cancelled when the service begins to stop: readiness turns red, waits end.
    pub stopping: CancellationToken,
    /// Path in front of every route, such as `/actonce`; empty for none.
    pub base_path: Arc<str>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("bounds", &self.bounds).finish_non_exhaustive()
    }
}
