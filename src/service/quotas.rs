//! Keeps the counts of open effects fresh for tenants that have a quota.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::limits;

impl Service {
    /// Counts now and then what tenants that make new effects have open, until stopped. Without quotas there is
    /// nothing to do, and where nobody makes any nothing is asked.
    pub async fn run_quotas(self: Arc<Self>, stop: CancellationToken) {
        let (store, quotas) = (self.engine().store(), self.engine().quotas());
        if quotas.is_off() {
            return;
        }
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(limits::QUOTA_COUNT_SECONDS)) => {}
            }
            if let Err(error) = quotas.recount(store.as_ref()).await {
                tracing::warn!(%error, "the open effects of tenants could not be counted");
            }
        }
    }
}
