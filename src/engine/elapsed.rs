//! What elapsed limits count, asked where a tool has one and a dispatch could begin. Nothing else pays
//! for it.

use super::{Engine, EngineError};
use crate::domain::command::Propose;
use crate::domain::decide::Context;
use crate::domain::elapsed::{ElapsedScope, active_us, counted};
use crate::domain::ids::{Name, Tenant};
use crate::domain::record::Record;
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::Walk;

impl Engine {
    /// Counts for a claim on a known effect.
    pub(super) async fn count_elapsed(&self, record: &Record, context: &mut Context) -> Result<(), EngineError> {
        let Some(limit) = context.current.as_ref().and_then(|tool| tool.spec.elapsed_limit) else { return Ok(()) };
        if record.life.state.is_terminal() {
            return Ok(());
        }
        let intent = &record.intent;
        context.elapsed_us = Some(match counted(limit, intent) {
            Some(name) => self.elapsed_us(&record.key.tenant, limit.scope, name, context.now).await?,
            // The limit is younger than the effect, which names nothing that it counts: the effect's own time.
            None => context.now.since(intent.created_at),
        });
        Ok(())
    }

    /// Counts for an effect that is not made yet.
    pub(super) async fn count_elapsed_fresh(
        &self,
        tenant: &Tenant,
        propose: &Propose,
        context: &mut Context,
    ) -> Result<(), EngineError> {
        let Some(limit) = context.tool.spec.elapsed_limit else { return Ok(()) };
        if let Some(name) = limit.scope.name(propose.run_id.as_ref(), propose.session_id.as_ref()) {
            context.elapsed_us = Some(self.elapsed_us(tenant, limit.scope, name, context.now).await?);
        }
        Ok(())
    }

    /// The time of a run or a session since its first intent, as every replica counts it.
    async fn elapsed_us(
        &self,
        tenant: &Tenant,
        scope: ElapsedScope,
        name: &Name,
        now: Timestamp,
    ) -> Result<i64, EngineError> {
        let walk = match scope {
            ElapsedScope::Run => Walk::Run(name.clone()),
            ElapsedScope::Session => Walk::Session(name.clone()),
        };
        let Some(first) = self.store.walk(tenant, &walk, None, 1).await?.first().copied() else { return Ok(0) };
        let waits = match scope {
            ElapsedScope::Run => self.store.run_waits(tenant, name, limits::RUN_WAITS).await?,
            ElapsedScope::Session => Vec::new(),
        };
        Ok(active_us(first.created_at, now, &waits))
    }
}
