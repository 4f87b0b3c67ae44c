//! The engine joins the pure decisions and the store: load, decide, commit; on a lost
//! compare-and-set load and decide again, a bounded number of times.

pub mod backlog;
pub mod batch;
pub mod bells;
pub mod clock;
pub mod commits;
mod elapsed;
pub mod encode;
mod error;
pub mod fresh;
pub mod grants;
pub mod quotas;
pub mod sessions;
pub mod tools;
pub mod waiters;
pub mod wakes;

use std::sync::{Arc, OnceLock};

use uuid::Uuid;

use crate::domain::command::{Command, Propose};
use crate::domain::decide::{self, Answer, Change, Context, Decision};
use crate::domain::ids::{EffectKey, Name, Tenant};
use crate::domain::record::{Intent, Record};
use crate::domain::refusal::Refusal;
use crate::domain::restore::fence_base;
use crate::domain::state::{Directive, State};
use crate::domain::tool::DuplicateRule;
use crate::limits;
use crate::recent::Recent;
use crate::store::{Backend, ChangeSet, Committed, Renewal, Store, StoreError};
use crate::telemetry::phase::Phase;
use crate::telemetry::{meters, probe};
use backlog::Backlog;
use batch::{ReadLane, Records, Revisions};
use clock::DatabaseClock;
use commits::CommitLane;
pub use error::EngineError;
use fresh::{Fresh, Seals};
use sessions::Sessions;
pub use tools::AdHocTools;
use tools::Tools;
use waiters::Waiters;
use wakes::Wakes;

/// Bytes of records that one process remembers. A stale record is harmless: commits check.
const CACHE_BYTES: usize = 64 * 1024 * 1024;

/// Bytes of a record, nearly: 2,800 were measured for one with a small receipt and result, parts and all.
fn weight(record: &Arc<Record>) -> usize {
    let documents: usize = [&record.receipt, &record.result].into_iter().flatten().map(|text| text.len()).sum();
    let decision = record.life.resolution.as_ref();
    let decided = decision.map_or(0, |made| made.evidence.len().saturating_add(made.reason.len()));
    documents.saturating_add(decided).saturating_add(2500)
}

/// What a command came to.
#[derive(Debug)]
pub struct Decided {
    /// The effect as it is durable now.
    pub record: Arc<Record>,
    /// What the caller is told.
    pub answer: Answer,
    /// What it was decided under.
    pub context: Context,
    /// Whether the effect is new.
    pub created: bool,
}

impl Decided {
    /// The directive for this caller.
    #[must_use]
    pub fn directive(&self) -> Directive {
        decide::directive(&self.record, &self.context, self.answer.owns_dispatch)
    }
}

/// The engine.
#[derive(Debug)]
pub struct Engine {
    store: Arc<dyn Store>,
    commits: CommitLane,
    loads: ReadLane<Records>,
    revisions: ReadLane<Revisions>,
    cache: Recent<Uuid, Arc<Record>>,
    clock: Arc<DatabaseClock>,
    tools: Tools,
    waiters: Arc<Waiters>,
    wakes: Arc<Wakes>,
    bells: bells::Bells,
    ad_hoc: AdHocTools,
    sessions: Sessions,
    quotas: quotas::Quotas,
    seals: OnceLock<Arc<dyn Seals>>,
    /// The fence before the first one of a new effect.
    fence_base: u32,
}

/// Where a record came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Source {
    Cache,
    Store,
}

impl Engine {
    /// An engine, and the loops that must run for it.
    ///
    /// # Errors
    /// The store can't tell its time.
    pub async fn start(
        store: Arc<dyn Store>,
        ad_hoc: AdHocTools,
        ad_hoc_name: Name,
    ) -> Result<(Arc<Self>, Vec<futures_util::future::BoxFuture<'static, ()>>), StoreError> {
        let clock = Arc::new(DatabaseClock::start(store.as_ref()).await?);
        let epoch = store.restore_epochs().await?.last().map_or(0, |epoch| epoch.number);
        let (commits, commit_loop) = CommitLane::new(Arc::clone(&store));
        let (loads, load_loop) = ReadLane::new(&store);
        let (revisions, revision_loop) = ReadLane::new(&store);
        let loops: Vec<futures_util::future::BoxFuture<'static, ()>> =
            vec![Box::pin(commit_loop), Box::pin(load_loop), Box::pin(revision_loop)];
        let engine = Self {
            tools: Tools::new(Arc::clone(&store), ad_hoc_name),
            commits,
            loads,
            revisions,
            cache: Recent::of_weight(CACHE_BYTES, weight),
            clock,
            waiters: Arc::default(),
            wakes: Arc::new(Wakes::new(store.backend() == Backend::Postgres)),
            bells: bells::Bells::default(),
            sessions: Sessions::new(Arc::clone(&store)),
            quotas: quotas::Quotas::off(),
            seals: OnceLock::new(),
            fence_base: fence_base(epoch),
            store,
            ad_hoc,
        };
        Ok((Arc::new(engine), loops))
    }

    /// The store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    /// The database's clock.
    #[must_use]
    pub fn clock(&self) -> &DatabaseClock {
        &self.clock
    }

    /// The tools.
    #[must_use]
    pub const fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Profiles and sessions.
    #[must_use]
    pub const fn sessions(&self) -> &Sessions {
        &self.sessions
    }

    /// Says what seals retained arguments; the first one said stays. Without it no effect is made of a
    /// tool that retains them.
    pub fn seal_with(&self, seals: Arc<dyn Seals>) {
        self.seals.get_or_init(|| seals);
    }

    /// How much each tenant, and each of its principals, may have open.
    #[must_use]
    pub const fn quotas(&self) -> &quotas::Quotas {
        &self.quotas
    }

    /// What waits for commits.
    #[must_use]
    pub fn backlog(&self) -> &Backlog {
        self.commits.backlog()
    }

    /// Those who wait.
    #[must_use]
    pub const fn waiters(&self) -> &Arc<Waiters> {
        &self.waiters
    }

    /// Wake-ups of the sweep and of other replicas.
    #[must_use]
    pub const fn wakes(&self) -> &Arc<Wakes> {
        &self.wakes
    }

    /// Bells of those who read feeds.
    #[must_use]
    pub const fn bells(&self) -> &bells::Bells {
        &self.bells
    }

    /// Whether a tenant may use tools that nobody registered.
    #[must_use]
    pub fn allows_ad_hoc(&self, tenant: &Tenant) -> bool {
        self.ad_hoc.allows(tenant)
    }

    /// Forgets a record: another replica changed it.
    pub fn forget(&self, effect: Uuid) {
        self.cache.forget(&effect);
        self.waiters.wake(effect);
    }

    /// `POST /api/intents` (laws 1, 2, 3).
    ///
    /// # Errors
    /// See [`EngineError`].
    pub async fn propose(
        &self,
        tenant: &Tenant,
        principal: &Name,
        mut propose: Propose,
    ) -> Result<Decided, EngineError> {
        propose.fence_base = self.fence_base;
        let key = EffectKey::of(tenant, &propose.operation_id);
        let mut record = self.cache.get(&key.effect).map(|record| (record, Source::Cache));
        for _ in 0..limits::COMMIT_RETRIES {
            let Some((known, source)) = record else {
                match self.make(&key, principal, &mut propose).await? {
                    Fresh::Made(decided) => return Ok(*decided),
                    // A known effect is known by its own tool, whatever is registered now.
                    Fresh::Refused(error) => record = self.known_or(&key, &propose, error).await?,
                    // The effect exists, or a twin is open, or something it rested on has changed.
                    Fresh::Lost => {
                        self.forget_grounds(tenant, &propose.tool, propose.session_id.as_ref());
                        record = self.known(&key, &propose).await?.map(|record| (record, Source::Store));
                        propose.duplicate_of = None;
                        if record.is_none() {
                            propose.duplicate_of = self.twin_of(tenant, principal, &propose).await?;
                        }
                    }
                }
                continue;
            };
            self.check_known_profile(&known, &propose).await?;
            self.check_hold(&known, &mut propose.duplicate_of).await?;
            let mut context = self.context(&known, principal).await?;
            if propose.claim.is_some() {
                self.count_elapsed(&known, &mut context).await?;
            }
            let decision = probe::timed(Phase::Decision, || decide::propose(Some(&known), &propose, &context));
            match self.carry_out(&known, source, decision, context).await? {
                Some(decided) => return Ok(decided),
                None => record = self.known(&key, &propose).await?.map(|record| (record, Source::Store)),
            }
        }
        Err(EngineError::Contention)
    }

    /// A command on an existing effect.
    ///
    /// # Errors
    /// See [`EngineError`]; an absent or foreign effect is [`Refusal::NotFound`].
    pub async fn apply(&self, key: &EffectKey, principal: &Name, mut command: Command) -> Result<Decided, EngineError> {
        let mut record = self.cache.get(&key.effect).map(|record| (record, Source::Cache));
        for _ in 0..limits::COMMIT_RETRIES {
            let (known, source) = match record.take() {
                Some(known) => known,
                None => match self.reload(key).await? {
                    Some(known) => (known, Source::Store),
                    None => return Err(Refusal::NotFound.into()),
                },
            };
            if let Command::Claim { hold_released, .. } | Command::Expire { hold_released } = &mut command {
                let mut first = None;
                self.check_hold(&known, &mut first).await?;
                *hold_released = first.is_none();
            }
            let mut context = self.context(&known, principal).await?;
            if matches!(command, Command::Claim { .. }) {
                self.count_elapsed(&known, &mut context).await?;
            }
            let decision = probe::timed(Phase::Decision, || decide::decide(&known, &command, &context));
            if let Some(decided) = self.carry_out(&known, source, decision, context).await? {
                return Ok(decided);
            }
        }
        Err(EngineError::Contention)
    }

    /// The effect as it is durable now.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub async fn read(&self, key: &EffectKey, principal: &Name) -> Result<Decided, EngineError> {
        let record = match self.current(key).await? {
            Some(record) => record,
            None => self.reload(key).await?.ok_or(Refusal::NotFound)?,
        };
        if record.life.state == State::Proposed
            && record.life.approval.as_ref().is_some_and(|approval| approval.held_for.is_some())
        {
            // The end of a hold shows itself to whoever looks.
            return self.apply(key, principal, Command::Expire { hold_released: false }).await;
        }
        let context = self.context(&record, principal).await?;
        let answer = Answer { owns_dispatch: false, replayed: record.life.state.is_terminal() };
        Ok(Decided { record, answer, context, created: false })
    }

    /// What a decision about a record may look at.
    ///
    /// # Errors
    /// See [`EngineError`].
    pub async fn context(&self, record: &Record, principal: &Name) -> Result<Context, EngineError> {
        let (tenant, intent) = (&record.key.tenant, &record.intent);
        let current = match self.tools.current(tenant, &intent.tool).await? {
            None if intent.tool_revision == 0 => Some(self.tools.ad_hoc()),
            current => current,
        };
        let tool = match &current {
            Some(current) if current.revision == intent.tool_revision => Arc::clone(current),
            _ => self.tools.revision(tenant, &intent.tool, intent.tool_revision).await?,
        };
        // Replicas' ideas of database time differ by less than a round trip; a journal never runs
        // backwards for that.
        let now = self.clock.now().max(record.life.updated_at);
        let profile_changed = self.profile_changed(record).await?;
        Ok(Context { now, principal: principal.clone(), tool, current, profile_changed, elapsed_us: None })
    }

    /// The effect that a proposal names, if it is there. What was pruned is told, and told apart from another
    /// content under its name, as if it were whole.
    async fn known(&self, key: &EffectKey, propose: &Propose) -> Result<Option<Arc<Record>>, EngineError> {
        match self.reload(key).await {
            Err(EngineError::Refused { refusal: Refusal::Pruned(tombstone), record }) => {
                let parts = tombstone.differs(propose);
                let same = parts.is_empty();
                let refusal = if same { Refusal::Pruned(tombstone) } else { Refusal::OperationReused(parts) };
                Err(EngineError::Refused { refusal, record })
            }
            found => found,
        }
    }

    /// The effect, if it is there; otherwise the reason why it can't be made.
    async fn known_or(
        &self,
        key: &EffectKey,
        propose: &Propose,
        error: EngineError,
    ) -> Result<Option<(Arc<Record>, Source)>, EngineError> {
        self.known(key, propose).await?.map(|record| Some((record, Source::Store))).ok_or(error)
    }

    /// The open effect that says the same under another operation id, if the tool minds.
    async fn twin_of(&self, tenant: &Tenant, principal: &Name, propose: &Propose) -> Result<Option<Name>, EngineError> {
        let tool = self.tool_for(tenant, &propose.tool).await?;
        let context = Context {
            now: self.clock.now(),
            principal: principal.clone(),
            tool: Arc::clone(&tool),
            current: Some(tool),
            profile_changed: false,
            elapsed_us: None,
        };
        let intent: Intent = decide::intent_of(propose, &context)?;
        if context.tool.spec.duplicate_rule(intent.class) == DuplicateRule::Allow {
            return Ok(None);
        }
        let Some(twin) = probe::read(self.store.twin(tenant, encode::duplicate_key(&intent))).await? else {
            return Ok(None);
        };
        Ok(self.reload(&twin).await?.map(|record| record.intent.operation_id.clone()))
    }

    /// For a held effect: who it is held for, while that one, or one after it, is unresolved.
    async fn check_hold(&self, record: &Record, first: &mut Option<Name>) -> Result<(), EngineError> {
        *first = None;
        if !record.life.state.is_terminal()
            && let Some(held_for) = record.life.approval.as_ref().and_then(|approval| approval.held_for.clone())
        {
            let tenant = &record.key.tenant;
            let key = EffectKey::of(tenant, &held_for);
            let first_one = match self.reload(&key).await {
                // It was settled long ago.
                Err(EngineError::Refused { refusal: Refusal::Pruned(_), .. }) => None,
                found => found?,
            };
            if first_one.is_some_and(|record| !record.life.state.is_terminal()) {
                *first = Some(held_for);
            } else if let Some(twin) = self.store.twin(tenant, encode::duplicate_key(&record.intent)).await? {
                // Another one that was held for the same effect took its place.
                *first = self.reload(&twin).await?.map(|record| record.intent.operation_id.clone());
            }
        }
        Ok(())
    }

    /// The record at hand, if the store's newest revision is its own. A live lease can end later
    /// without a revision, so a dispatched effect is always loaded.
    async fn current(&self, key: &EffectKey) -> Result<Option<Arc<Record>>, EngineError> {
        let Some(record) = self.cache.get(&key.effect) else { return Ok(None) };
        if record.life.state == State::Dispatched {
            return Ok(None);
        }
        let newest = self.revisions.read(key.clone()).await?;
        Ok((newest == record.life.revision).then_some(record))
    }

    async fn reload(&self, key: &EffectKey) -> Result<Option<Arc<Record>>, EngineError> {
        let record = self.loads.read(key.clone()).await??.map(Arc::new);
        if let Some(record) = &record {
            self.cache.insert(key.effect, Arc::clone(record));
        }
        Ok(record)
    }

    /// Carries a decision out; `None` when it has to be decided again.
    async fn carry_out(
        &self,
        known: &Arc<Record>,
        source: Source,
        decision: Decision,
        context: Context,
    ) -> Result<Option<Decided>, EngineError> {
        let Some(change) = decision.change else {
            // Nothing is written, so no compare-and-set stands behind this answer. A recorded
            // outcome can't change; anything else is confirmed by the store before it is said.
            let settled = known.life.state.is_terminal() && decision.answer.is_ok();
            if source == Source::Cache && !settled {
                self.cache.forget(&known.key.effect);
                return Ok(None);
            }
            return match decision.answer {
                Ok(answer) => Ok(Some(Decided { record: Arc::clone(known), answer, context, created: false })),
                Err(refusal) => Err(EngineError::Refused { refusal, record: Some(Arc::clone(known)) }),
            };
        };
        let (change, record) = match change {
            Change::Revise(revision) => probe::timed(Phase::Decision, || {
                encode::encode(&known.key, Some(known), &known.intent, *revision, &context)
            })?,
            Change::Renew { revision, fence, until } => {
                let mut renewed = Record::clone(known);
                if let Some(dispatch) = &mut renewed.life.dispatch {
                    dispatch.lease_expires_at = until;
                }
                (ChangeSet::Renew(Renewal { key: known.key.clone(), revision, fence, until }), renewed)
            }
        };
        if self.commits.commit(change).await? == Committed::Lost {
            self.cache.forget(&known.key.effect);
            self.forget_grounds(&known.key.tenant, &known.intent.tool, known.intent.session_id.as_ref());
            return Ok(None);
        }
        if record.life.state != known.life.state {
            meters::entered(record.life.state);
            if record.life.state.is_terminal() {
                self.quotas.settled(&record.key.tenant, &record.intent.proposer);
            }
        }
        let record = Arc::new(record);
        self.remember(&record);
        match decision.answer {
            Ok(answer) => Ok(Some(Decided { record, answer, context, created: false })),
            Err(refusal) => Err(EngineError::Refused { refusal, record: Some(record) }),
        }
    }

    /// Keeps what was just written, and tells whom it concerns.
    fn remember(&self, record: &Arc<Record>) {
        let effect = record.key.effect;
        self.cache.insert(effect, Arc::clone(record));
        self.waiters.wake(effect);
        self.wakes.changed(effect, record.life.due_at());
        self.bells.ring(&record.key.tenant);
    }
}
