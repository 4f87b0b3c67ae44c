//! Doubts that are already open when their tool becomes automatic: the service begins to ask about them, a
//! bounded number at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use super::Service;
use crate::domain::ids::{Name, Tenant};
use crate::domain::tool::{ReconciliationMode, ToolSpec};
use crate::limits;
use crate::store::StoreError;

/// How often notes of other replicas, and of processes that died, are looked for.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How long a note is left alone: until every process has read the registration anew. A sweep that still knows
/// the former one would put the doubts off again.
const SETTLE: Duration = Duration::from_millis(1_500);
/// Between two pages, so that others come to write.
const BETWEEN_PAGES: Duration = Duration::from_millis(20);
/// Tools looked at at once.
const TOOLS: u32 = 64;

/// Whether the service asks about doubts of a tool by itself.
pub(super) fn asks_by_itself(spec: &ToolSpec) -> bool {
    spec.reconciliation == ReconciliationMode::Automatic && spec.adapter.as_ref().is_some_and(|adapter| adapter.lookup)
}

/// Notes that were seen: since when, under which stamp.
type Seen = HashMap<(Tenant, Name), (i64, Instant)>;

impl Service {
    /// Wakes doubts of tools that became automatic, until stopped.
    pub async fn run_doubt_wakes(self: Arc<Self>, stop: CancellationToken) {
        let mut seen = Seen::new();
        loop {
            let pause = match self.wake_some_doubts(&mut seen).await {
                Ok(pause) => pause,
                Err(error) => {
                    tracing::warn!(%error, "doubts that are already open could not be woken and are tried again");
                    LOOK_EVERY
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(pause) => {}
                () = self.doubt_wake.notified() => {}
            }
        }
    }

    /// A page of each tool in turn, so that one with many doubts holds up nobody else's. How long to pause.
    async fn wake_some_doubts(&self, seen: &mut Seen) -> Result<Duration, StoreError> {
        let store = self.engine().store();
        let wakes = store.doubt_wakes(TOOLS).await?;
        seen.retain(|(tenant, tool), (stamp, _)| {
            wakes.iter().any(|wake| (&wake.tenant, &wake.tool, wake.stamp) == (&*tenant, &*tool, *stamp))
        });
        let mut pause = LOOK_EVERY;
        for wake in wakes {
            let key = (wake.tenant.clone(), wake.tool.clone());
            let (_, since) = *seen.entry(key).or_insert_with(|| (wake.stamp, Instant::now()));
            if since.elapsed() < SETTLE {
                pause = pause.min(SETTLE);
                continue;
            }
            pause = BETWEEN_PAGES;
            if store.wake_doubts(&wake, limits::DOUBTS_PER_WAKE).await?.is_some_and(|found| found > 0) {
                self.engine().wakes().sweep_now();
            }
        }
        Ok(pause)
    }
}
