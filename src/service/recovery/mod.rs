//! Recovery (protocol §9): the sweep at start, plans, and their executions.

pub mod execute;
pub mod plan;
pub mod startup;

use super::{Service, ServiceError};
use crate::domain::ids::Name;
use crate::domain::record::Record;
use crate::domain::recovery::plan::{Root, RootKind};
use crate::domain::recovery::{Action, Assessment, Blocker, assess};
use crate::engine::EngineError;
use crate::store::StoreError;

/// What is known of an effect that was loaded.
#[derive(Debug)]
pub(super) enum Looked {
    /// It was assessed.
    At(Box<Assessment>),
    /// It, or the registration that it was made under, can't be read back.
    Unreadable,
}

impl Service {
    /// Assesses an effect as it is registered and claimed now. A failure of the store is an error, a bad
    /// row is the effect's own.
    async fn look(&self, record: &Record, principal: &Name, claimed: bool) -> Result<Looked, ServiceError> {
        let context = match self.engine().context(record, principal).await {
            Ok(context) => context,
            Err(EngineError::Corrupt(corruption) | EngineError::Store(StoreError::Corrupt(corruption))) => {
                tracing::error!(%corruption, "recovery can't read a registration back");
                return Ok(Looked::Unreadable);
            }
            Err(error) => return Err(error.into()),
        };
        let mut assessment = assess(record, &context);
        let is_ad_hoc = context.current.as_ref().is_some_and(|tool| tool.revision == 0);
        if is_ad_hoc && !assessment.state.is_terminal() && !self.engine().allows_ad_hoc(&record.key.tenant) {
            assessment.blockers.push(Blocker::RegistrationUnavailable);
            assessment.actions.retain(|action| *action != Action::AutomaticRepair);
        }
        if claimed {
            assessment.blockers.push(Blocker::ActiveRecoveryClaim);
            assessment.actions.retain(|action| *action == Action::LeaveIntact);
        }
        assessment.blockers.sort_unstable();
        Ok(Looked::At(Box::new(assessment)))
    }
}

/// The root of an effect: its session, else its run, else itself.
fn root_of(record: &Record) -> Root {
    let intent = &record.intent;
    let (kind, name) = match (&intent.session_id, &intent.run_id) {
        (Some(session), _) => (RootKind::Session, session),
        (None, Some(run)) => (RootKind::Run, run),
        (None, None) => (RootKind::Effect, &intent.operation_id),
    };
    Root { kind, id: name.as_str().to_owned() }
}
