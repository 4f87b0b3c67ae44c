//! What people are asked to approve, with a preview of the arguments where the tool retains them.

use std::sync::Arc;

use super::{Service, ServiceError};
use crate::auth::Principal;
use crate::domain::approval::{ApprovalState, approval_state};
use crate::domain::decide::Answer;
use crate::domain::ids::{EffectKey, Name};
use crate::domain::record::Record;
use crate::domain::state::State;
use crate::domain::tool::RetainArguments;
use crate::engine::Decided;
use crate::limits;
use crate::store::{Position, Walk};
use crate::telemetry::probe;

/// What can be said of the arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Preview {
    /// As they were sent, byte for byte.
    Available(String),
    /// The tool does not retain them: there is only their digest.
    NotRetained,
    /// They were retained until the effect was settled.
    Removed,
    /// They are there and can't be opened: they were sealed under another data key.
    Unreadable,
}

/// An effect whose approval is asked for, or was.
#[derive(Debug)]
pub struct ApprovalItem {
    /// The effect.
    pub decided: Decided,
    /// Where its approval stands.
    pub state: ApprovalState,
    /// Its arguments.
    pub preview: Preview,
}

/// A page of approvals.
#[derive(Debug)]
pub struct ApprovalPage {
    /// The approvals, oldest effect first.
    pub items: Vec<ApprovalItem>,
    /// Where the next page starts.
    pub next_cursor: Option<String>,
}

/// The lists in which effects with such an approval stand.
fn walks(state: ApprovalState) -> Vec<Walk> {
    let open = |states: &[State]| states.iter().map(|state| Walk::Open(*state)).collect();
    match state {
        ApprovalState::Pending => open(&[State::Proposed, State::OutcomeUnknown]),
        ApprovalState::Approved => open(&[State::IntentRecorded, State::OutcomeUnknown, State::SafeToRetry]),
        _ => vec![Walk::All],
    }
}

impl Service {
    /// A page of approvals in one state. Looks at a bounded number of rows and ends after a bounded
    /// number of bytes, so a page may be short and still have a next one.
    ///
    /// # Errors
    /// See [`ServiceError`].
    pub async fn approvals(
        &self,
        caller: &Principal,
        state: ApprovalState,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<ApprovalPage, ServiceError> {
        let seal = format!("approvals {state:?}");
        let mut after = match cursor {
            Some(cursor) => Some(self.position(caller, &seal, cursor)?),
            None => None,
        };
        let walks = walks(state);
        let wanted = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut items: Vec<ApprovalItem> = Vec::new();
        let (mut looked_at, mut bytes) = (0_usize, 0_usize);
        loop {
            let (positions, exhausted) = self.merged(caller, &walks, after).await?;
            looked_at = looked_at.saturating_add(positions.len());
            let key = |position: &Position| EffectKey { tenant: caller.tenant.clone(), effect: position.effect };
            let keys: Vec<EffectKey> = positions.iter().map(key).collect();
            for (position, record) in positions.iter().zip(probe::read(self.engine().store().load(&keys)).await?) {
                if items.len() == wanted || bytes >= limits::PREVIEW_PAGE_BYTES {
                    return Ok(ApprovalPage { items, next_cursor: self.seal_position(caller, &seal, after) });
                }
                after = Some(*position);
                // A row that can't be read back hides itself alone; `journal verify` names it.
                let Ok(Some(record)) = record else { continue };
                if let Some(item) = self.approval_of(caller, Arc::new(record), Some(state)).await? {
                    if let Preview::Available(arguments) = &item.preview {
                        bytes = bytes.saturating_add(arguments.len());
                    }
                    items.push(item);
                }
            }
            if exhausted {
                return Ok(ApprovalPage { items, next_cursor: None });
            }
            if looked_at >= limits::LIST_SCAN_ROWS {
                return Ok(ApprovalPage { items, next_cursor: self.seal_position(caller, &seal, after) });
            }
        }
    }

    /// One approval.
    ///
    /// # Errors
    /// [`ServiceError::NotFound`] also for an effect that asks for none.
    pub async fn approval(&self, caller: &Principal, operation_id: &Name) -> Result<ApprovalItem, ServiceError> {
        let key = EffectKey::of(&caller.tenant, operation_id);
        let record = self.engine().read(&key, &caller.subject).await?.record;
        self.approval_of(caller, record, None).await?.ok_or(ServiceError::NotFound)
    }

    async fn approval_of(
        &self,
        caller: &Principal,
        record: Arc<Record>,
        wanted: Option<ApprovalState>,
    ) -> Result<Option<ApprovalItem>, ServiceError> {
        let context = self.engine().context(&record, &caller.subject).await?;
        let Some(state) = approval_state(&record, &context) else { return Ok(None) };
        if wanted.is_some_and(|wanted| wanted != state) {
            return Ok(None);
        }
        let retains = context.tool.spec.retain_arguments == RetainArguments::UntilSettled;
        let preview = if retains { self.preview_of(&record.key).await? } else { Preview::NotRetained };
        let answer = Answer { owns_dispatch: false, replayed: false };
        Ok(Some(ApprovalItem { decided: Decided { record, answer, context, created: false }, state, preview }))
    }

    async fn preview_of(&self, key: &EffectKey) -> Result<Preview, ServiceError> {
        let Some(sealed) = probe::read(self.engine().store().retained(key)).await? else { return Ok(Preview::Removed) };
        Ok(match self.sealer.arguments(key, &sealed) {
            Some(arguments) => Preview::Available(arguments),
            None => {
                tracing::warn!(tenant = %key.tenant, effect = %key.effect, "retained arguments can't be opened");
                Preview::Unreadable
            }
        })
    }

    /// The next positions of several lists in one order, and whether these were the last.
    async fn merged(
        &self,
        caller: &Principal,
        walks: &[Walk],
        after: Option<Position>,
    ) -> Result<(Vec<Position>, bool), ServiceError> {
        let step = limits::PAGE_MAX;
        let full = usize::try_from(step).unwrap_or(usize::MAX);
        let (mut all, mut until) = (Vec::new(), None::<Position>);
        for walk in walks {
            let found = probe::read(self.engine().store().walk(&caller.tenant, walk, after, step)).await?;
            if found.len() >= full
                && let Some(last) = found.last()
            {
                // What a list that goes on has beyond its last position is not known yet.
                until = Some(until.map_or(*last, |until| until.min(*last)));
            }
            all.extend(found);
        }
        all.retain(|position| until.is_none_or(|until| *position <= until));
        all.sort_unstable();
        // An effect that moves meanwhile may stand in two lists.
        all.dedup();
        Ok((all, until.is_none()))
    }
}
