//! After a restore to an earlier point: what was open is not known any more, and fences begin again far above.

use std::sync::Arc;

use futures_util::StreamExt as _;
use serde::Serialize;

use crate::domain::command::Command;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::restore::Restore;
use crate::engine::{Engine, EngineError};
use crate::limits;
use crate::store::StoreError;

/// What an epoch came to.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Moved {
    /// Open effects that went through it, now or in a run before.
    pub effects: u64,
    /// Effects that could not be read back, and so were left alone: nobody can claim them either.
    pub unreadable: u64,
    /// The first of these, `tenant/effect id`.
    pub unreadable_effects: Vec<String>,
}

/// Takes every open effect through an epoch, each by itself: what is done already stays so.
///
/// # Errors
/// The store can't answer; the same call again goes on.
pub async fn move_all(engine: &Engine, principal: &Name, restore: &Restore) -> Result<Moved, EngineError> {
    let mut moved = Moved::default();
    let mut after: Option<EffectKey> = None;
    loop {
        let marks = engine.store().open_marks(after.take(), limits::RESTORE_PAGE).await?;
        let Some(last) = marks.last() else { return Ok(moved) };
        after = Some(last.key.clone());
        let commands = marks.into_iter().map(|mark| async move {
            let done = engine.apply(&mark.key, principal, Command::Restore(restore.clone())).await;
            (mark.key, done)
        });
        let mut done = futures_util::stream::iter(commands).buffer_unordered(limits::RESTORE_AT_ONCE);
        while let Some((key, done)) = done.next().await {
            match done {
                // A settled effect is open where it is contradicted, and stays as it is.
                Ok(decided) if decided.record.life.restore_epoch < restore.epoch => {}
                Ok(_) => moved.effects = moved.effects.saturating_add(1),
                Err(EngineError::Corrupt(_) | EngineError::Store(StoreError::Corrupt(_))) => {
                    moved.unreadable = moved.unreadable.saturating_add(1);
                    if moved.unreadable_effects.len() < limits::RESTORE_LISTED {
                        moved.unreadable_effects.push(format!("{}/{}", key.tenant, key.effect));
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Runs a piece of work on an engine of its own, with the lanes that it needs and nothing else of a service.
///
/// # Errors
/// The store can't answer.
pub async fn with_engine<T>(
    store: Arc<dyn crate::store::Store>,
    principal: Name,
    work: impl AsyncFnOnce(&Engine) -> Result<T, EngineError>,
) -> Result<T, EngineError> {
    let (engine, lanes) = Engine::start(store, crate::engine::AdHocTools::default(), principal).await?;
    let lanes = futures_util::future::join_all(lanes);
    tokio::select! {
        done = work(&engine) => done,
        _ = lanes => Err(EngineError::Contention),
    }
}
