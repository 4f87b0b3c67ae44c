//! New effects: what has to be known before they are decided, and what is written beside them.

use std::sync::Arc;

use super::{Decided, Engine, EngineError, encode};
use crate::domain::command::Propose;
use crate::domain::decide::{self, Change, Context, Decision};
use crate::domain::fault::Fault;
use crate::domain::grant::LiveGrant;
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::record::Record;
use crate::domain::refusal::Refusal;
use crate::domain::state::State;
use crate::domain::tool::{AuthorizationMode, RetainArguments, Tool};
use crate::engine::grants::live_grant;
use crate::limits;
use crate::store::{ChangeSet, Committed};
use crate::telemetry::phase::Phase;
use crate::telemetry::{meters, probe};

/// Seals arguments that a tool retains. The keys are the service's.
pub trait Seals: Send + Sync + std::fmt::Debug {
    /// The arguments of an effect, sealed for that effect; `None` when the system has no randomness.
    fn seal(&self, key: &EffectKey, arguments: &str) -> Option<Vec<u8>>;
}

/// What came of a try to make an effect.
pub(super) enum Fresh {
    /// It is made.
    Made(Box<Decided>),
    /// It can't be made; it may be there already.
    Refused(EngineError),
    /// What the decision rested on has changed, or the effect is there already.
    Lost,
}

impl Engine {
    /// Tries to make an effect.
    pub(super) async fn make(
        &self,
        key: &EffectKey,
        principal: &Name,
        propose: &mut Propose,
    ) -> Result<Fresh, EngineError> {
        let tenant = &key.tenant;
        let tool = match self.tool_for(tenant, &propose.tool).await {
            Ok(tool) => tool,
            // Whether the effect is there already would be asked of the same store, and waited for once more.
            Err(error @ EngineError::Store(_)) => return Err(error),
            Err(error) => return Ok(Fresh::Refused(error)),
        };
        let mut context = Context {
            now: self.clock.now(),
            principal: principal.clone(),
            current: Some(Arc::clone(&tool)),
            tool,
            profile_changed: false,
            elapsed_us: None,
        };
        self.count_elapsed_fresh(tenant, propose, &mut context).await?;
        propose.grant = self.covering_grant(tenant, propose, &context).await?;
        let decision = probe::timed(Phase::Decision, || decide::propose(None, propose, &context));
        if let Err(refusal) = decision.answer {
            return Ok(Fresh::Refused(refusal.into()));
        }
        if let Some(refusal) = self.check_profile(tenant, principal, propose).await? {
            return Ok(Fresh::Refused(refusal.into()));
        }
        // The last of all: what is refused otherwise takes no place, and what is there already is found all the same.
        let admitted = match self.quotas.admit(self.store.as_ref(), tenant, principal).await {
            Ok(admitted) => admitted,
            Err(error) => return Ok(Fresh::Refused(error)),
        };
        let made = self.carry_out_new(key, decision, context, propose.sent.as_deref()).await?;
        if let (Some(admitted), Some(made)) = (admitted, &made)
            && !made.record.life.state.is_terminal()
        {
            admitted.made();
        }
        Ok(made.map_or(Fresh::Lost, |made| Fresh::Made(Box::new(made))))
    }

    async fn carry_out_new(
        &self,
        key: &EffectKey,
        decision: Decision,
        context: Context,
        arguments: Option<&str>,
    ) -> Result<Option<Decided>, EngineError> {
        let answer = decision.answer?;
        let Some(Change::Revise(revision)) = decision.change else { return Ok(None) };
        let Some(intent) = revision.intent.clone() else { return Ok(None) };
        let (mut change, record) =
            probe::timed(Phase::Decision, || encode::encode(key, None, &intent, *revision, &context))?;
        if context.tool.spec.retain_arguments == RetainArguments::UntilSettled {
            self.retain(&mut change, arguments)?;
        }
        if self.commits.commit(change).await? == Committed::Lost {
            return Ok(None);
        }
        let record = Arc::new(record);
        self.remember(&record);
        meters::created();
        meters::entered(record.life.state);
        Ok(Some(Decided { record, answer, context, created: true }))
    }

    fn retain(&self, change: &mut ChangeSet, arguments: Option<&str>) -> Result<(), EngineError> {
        let (Some(seals), Some(arguments)) = (self.seals.get(), arguments) else { return Err(EngineError::Unsealed) };
        if let ChangeSet::Revise(row) = change {
            let sealed = seals.seal(&row.key, arguments).ok_or(EngineError::Unsealed)?;
            row.beside.get_or_insert_default().retained = Some(sealed);
        }
        Ok(())
    }

    /// The live grant that covers an intent, where the tool asks for approval.
    async fn covering_grant(
        &self,
        tenant: &Tenant,
        propose: &Propose,
        context: &Context,
    ) -> Result<Option<Arc<LiveGrant>>, EngineError> {
        if context.tool.spec.authorization.mode != AuthorizationMode::Approval {
            return Ok(None);
        }
        let Ok(intent) = decide::intent_of(propose, context) else { return Ok(None) };
        for row in probe::read(self.store.live_grants(tenant, &propose.tool, limits::GRANTS_PER_TOOL)).await? {
            // A grant that can't be read back authorizes nothing; others may, and people always can.
            let grant = match live_grant(&row) {
                Ok(grant) => grant,
                Err(corruption) => {
                    tracing::error!(%tenant, %corruption, "a grant can't be read back");
                    continue;
                }
            };
            if grant.terms.cover(&intent, &context.tool) {
                return Ok(Some(Arc::new(grant)));
            }
        }
        Ok(None)
    }

    /// A declared profile, and the session's: bound by its first intent, in a row written before the
    /// intent, so that a crash in between leaves a bound session without effects at most.
    async fn check_profile(
        &self,
        tenant: &Tenant,
        principal: &Name,
        propose: &Propose,
    ) -> Result<Option<Refusal>, EngineError> {
        let Some(profile) = &propose.profile_id else { return Ok(None) };
        if self.sessions.profile(tenant, profile).await?.is_none() {
            let fault = Fault::new("/profile_id", "is not a declared profile of this tenant");
            return Ok(Some(Refusal::Invalid(vec![fault])));
        }
        let Some(session) = &propose.session_id else { return Ok(None) };
        let bound = self.sessions.bind(tenant, (session, profile), principal, self.clock.now()).await?;
        if bound == *profile {
            return Ok(None);
        }
        Ok(Some(Refusal::ProfileMismatch(self.sessions.differences(tenant, &bound, profile).await?)))
    }

    /// Refuses an unsettled effect to a client that declares another profile than it was stated under.
    pub(super) async fn check_known_profile(&self, known: &Arc<Record>, propose: &Propose) -> Result<(), EngineError> {
        let (Some(stated), Some(declared)) = (&known.intent.profile_id, &propose.profile_id) else { return Ok(()) };
        let same_session = known.intent.session_id.is_some() && known.intent.session_id == propose.session_id;
        if stated == declared || !same_session || known.life.state.is_terminal() {
            return Ok(());
        }
        let differences = self.sessions.differences(&known.key.tenant, stated, declared).await?;
        Err(EngineError::Refused { refusal: Refusal::ProfileMismatch(differences), record: Some(Arc::clone(known)) })
    }

    /// Whether an effect's session has another profile now. Asked for proposals alone: after that the
    /// session keeps its profile until the effect is settled.
    pub(super) async fn profile_changed(&self, record: &Record) -> Result<bool, EngineError> {
        let intent = &record.intent;
        let (State::Proposed, Some(session), Some(profile)) =
            (record.life.state, &intent.session_id, &intent.profile_id)
        else {
            return Ok(false);
        };
        Ok(self.sessions.bound(&record.key.tenant, session).await?.is_some_and(|bound| bound != *profile))
    }

    /// Forgets what a lost commit rested on.
    pub(super) fn forget_grounds(&self, tenant: &Tenant, tool: &Name, session: Option<&Name>) {
        self.tools.forget(tenant, tool);
        if let Some(session) = session {
            self.sessions.forget(tenant, session);
        }
    }

    /// The tool for a new intent.
    pub(super) async fn tool_for(&self, tenant: &Tenant, name: &Name) -> Result<Arc<Tool>, EngineError> {
        match self.tools.current(tenant, name).await? {
            Some(tool) => Ok(tool),
            None if self.ad_hoc.allows(tenant) => Ok(self.tools.ad_hoc()),
            None => Err(EngineError::UnknownTool),
        }
    }
}
