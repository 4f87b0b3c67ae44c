//! The sweep at start: what work is incomplete, by root, and what it waits for. It reads and never
//! writes: what time has decided is written by the ordinary sweep, which repeats what it saw, and what
//! people have to decide waits for them. So a start adds nothing to any journal, however often it comes.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::{Looked, Service, ServiceError};
use crate::auth::Principal;
use crate::domain::ids::{EffectKey, Name, Tenant, prefix};
use crate::domain::recovery::Blocker;
use crate::domain::recovery::plan::{Root, RootKind};
use crate::domain::time::Timestamp;
use crate::limits;
use crate::store::recovery::OpenWork;

/// Effects per look.
const PAGE: u32 = 256;
/// The pause before a sweep that failed in the background is begun again.
const AGAIN: Duration = Duration::from_secs(5);

/// How far the latest sweep of this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = RecoverySweepStatus)]
pub enum SweepStatus {
    /// It has not begun.
    #[default]
    NotStarted,
    /// It is under way; the counts grow.
    Running,
    /// It has looked at everything that was there when it began.
    Completed,
    /// The store failed; another one will be begun.
    Failed,
}

/// A root that does not go on by itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = RecoveryBlockedSession)]
pub struct BlockedSession {
    /// The session; for work without one, its run, or else its operation.
    pub session_id: String,
    /// Why, over all its effects.
    pub blocker_codes: Vec<Blocker>,
}

/// The latest sweep, as far as it concerns one tenant (protocol §9).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[schema(as = RecoveryStartup)]
pub struct StartupReport {
    /// 1.
    pub schema_version: u32,
    /// Whether the status is `completed`.
    pub completed: bool,
    /// How far it is.
    pub status: SweepStatus,
    /// Sweeps of this process so far.
    pub sweep_count: u64,
    /// Roots with incomplete work that the sweep has looked at.
    pub scheduled_roots: u64,
    /// Of the blocked ones, those that wait for a live owner alone: time ends that.
    pub deferred_session_count: u64,
    /// Roots that turned out to have nothing incomplete.
    pub skipped_session_count: u64,
    /// Roots that do not go on by themselves.
    pub blocked_session_count: u64,
    /// At most 100 of them.
    pub blocked_sessions: Vec<BlockedSession>,
    /// Whether there are more.
    pub blocked_sessions_truncated: bool,
}

/// What one tenant's roots came to.
#[derive(Debug, Clone, Default)]
struct Summary {
    scheduled: u64,
    deferred: u64,
    skipped: u64,
    blocked: u64,
    listed: Vec<BlockedSession>,
}

/// Where this process keeps its latest sweep.
#[derive(Debug, Default)]
pub struct Board(Mutex<Latest>);

#[derive(Debug, Default)]
struct Latest {
    status: SweepStatus,
    sweep_count: u64,
    tenants: HashMap<Tenant, Summary>,
}

impl Board {
    fn latest(&self) -> MutexGuard<'_, Latest> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One root while the sweep is under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Seen {
    /// A bit per [`Blocker`].
    blockers: u16,
    incomplete: bool,
}

impl Seen {
    /// Adds so many roots of this look to a summary.
    fn count(self, roots: u64, summary: &mut Summary) {
        let waits = bit(Blocker::ActiveExecutionOwner) | bit(Blocker::ActiveRecoveryClaim);
        let blocked = self.blockers != 0;
        for (number, counts) in [
            (&mut summary.scheduled, self.incomplete),
            (&mut summary.skipped, !self.incomplete),
            (&mut summary.blocked, blocked),
            (&mut summary.deferred, blocked && self.blockers & !waits == 0),
        ] {
            if counts {
                *number = number.saturating_add(roots);
            }
        }
    }

    fn codes(self) -> Vec<Blocker> {
        Blocker::ALL.into_iter().filter(|blocker| self.blockers & bit(*blocker) != 0).collect()
    }
}

/// One tenant's roots while the sweep is under way: a few bytes each, and the first hundred names.
#[derive(Debug, Default)]
struct Roots {
    seen: HashMap<u128, Seen>,
    /// How many roots there are of each look, so that a page is counted by what it changed.
    looks: HashMap<Seen, u64>,
    listed: BTreeMap<Root, u128>,
}

impl Roots {
    /// Adds what is known of one effect to its root.
    fn note(&mut self, root: Root, incomplete: bool, blockers: &[Blocker]) {
        let id = id_of(&root);
        let before = self.seen.get(&id).copied();
        let mut now = before.unwrap_or_default();
        now.incomplete |= incomplete;
        for blocker in blockers {
            now.blockers |= bit(*blocker);
        }
        self.seen.insert(id, now);
        if let Some(number) = before.and_then(|before| self.looks.get_mut(&before)) {
            *number = number.saturating_sub(1);
        }
        let number = self.looks.entry(now).or_default();
        *number = number.saturating_add(1);
        if now.blockers != 0 {
            // The first hundred by name. One that was pushed out has a hundred before it for good.
            self.listed.insert(root, id);
            if self.listed.len() > limits::RECOVERY_BLOCKED_LISTED {
                self.listed.pop_last();
            }
        }
    }

    fn summary(&self) -> Summary {
        let mut summary = Summary::default();
        for (look, number) in &self.looks {
            look.count(*number, &mut summary);
        }
        let blocked = |(root, id): (&Root, &u128)| BlockedSession {
            session_id: root.id.clone(),
            blocker_codes: self.seen.get(id).copied().unwrap_or_default().codes(),
        };
        summary.listed = self.listed.iter().map(blocked).collect();
        summary
    }
}

fn bit(blocker: Blocker) -> u16 {
    Blocker::ALL.iter().position(|known| *known == blocker).map_or(0, |place| 1 << place)
}

/// 128 bits of a root's name.
fn id_of(root: &Root) -> u128 {
    let mut hash = Sha256::new();
    hash.update(match root.kind {
        RootKind::Session => [0],
        RootKind::Run => [1],
        RootKind::Effect => [2],
    });
    hash.update(prefix(&root.id));
    hash.update(&root.id);
    let digest: [u8; 32] = hash.finalize().into();
    let mut half = [0_u8; 16];
    half.copy_from_slice(&digest[..16]);
    u128::from_be_bytes(half)
}

impl Service {
    /// Sweeps once, and again after a failure, until it is completed or stopped. `first` is told what
    /// the first sweep came to.
    pub async fn run_startup_sweep(
        self: Arc<Self>,
        principal: Name,
        stop: CancellationToken,
        first: oneshot::Sender<Result<(), ServiceError>>,
    ) {
        let mut first = Some(first);
        loop {
            let swept = tokio::select! {
                () = stop.cancelled() => return,
                swept = self.startup_sweep(&principal) => swept,
            };
            let done = swept.is_ok();
            if let Err(error) = &swept {
                tracing::error!(%error, "the recovery sweep at start failed");
            }
            if let Some(first) = first.take() {
                drop(first.send(swept));
            }
            if done {
                return;
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(AGAIN) => {}
            }
        }
    }

    /// One sweep over everything that was open when it began. What is made later is not its business.
    ///
    /// # Errors
    /// The store failed. A row that can't be read back is no error: it blocks its root.
    pub async fn startup_sweep(&self, principal: &Name) -> Result<(), ServiceError> {
        {
            let mut latest = self.startup.latest();
            let sweep_count = latest.sweep_count.saturating_add(1);
            *latest = Latest { status: SweepStatus::Running, sweep_count, tenants: HashMap::new() };
        }
        let swept = self.sweep_all(principal).await;
        let mut latest = self.startup.latest();
        latest.status = if swept.is_ok() { SweepStatus::Completed } else { SweepStatus::Failed };
        let sum = |pick: fn(&Summary) -> u64| latest.tenants.values().map(pick).fold(0, u64::saturating_add);
        tracing::info!(
            roots = sum(|summary| summary.scheduled),
            blocked = sum(|summary| summary.blocked),
            completed = swept.is_ok(),
            "the recovery sweep at start has ended"
        );
        swept
    }

    async fn sweep_all(&self, principal: &Name) -> Result<(), ServiceError> {
        let store = self.engine().store();
        let began = store.now().await?;
        let mut after: Option<EffectKey> = None;
        let mut all: HashMap<Tenant, Roots> = HashMap::new();
        loop {
            let page = store.open_work(began, after.as_ref(), PAGE).await?;
            let full = page.len() >= usize::try_from(PAGE).unwrap_or(usize::MAX);
            let mut works = Vec::with_capacity(page.len());
            for work in page {
                match work {
                    Ok(work) => works.push(work),
                    // Not even its tenant is known: there is nobody to tell but the log.
                    Err(corruption) => tracing::error!(%corruption, "an open effect can't be read back"),
                }
            }
            let Some(last) = works.last() else { return Ok(()) };
            after = Some(last.key.clone());
            self.note_page(principal, began, &works, &mut all).await?;
            if !full {
                return Ok(());
            }
        }
    }

    /// Looks at a page, and publishes what is known so far of the tenants on it.
    async fn note_page(
        &self,
        principal: &Name,
        began: Timestamp,
        works: &[OpenWork],
        all: &mut HashMap<Tenant, Roots>,
    ) -> Result<(), ServiceError> {
        let keys: Vec<EffectKey> = works.iter().map(|work| work.key.clone()).collect();
        let store = self.engine().store();
        let (records, claimed) = (store.load(&keys).await?, store.recovery_claimed(&keys).await?);
        let mut touched = Vec::new();
        for ((work, record), claimed) in works.iter().zip(records).zip(claimed) {
            let roots = all.entry(work.key.tenant.clone()).or_default();
            if touched.last() != Some(&work.key.tenant) {
                touched.push(work.key.tenant.clone());
            }
            match record {
                Ok(Some(record)) => {
                    // A root is what it was; a sweep touches nothing that began after it.
                    if record.intent.created_at > began {
                        continue;
                    }
                    let root = super::root_of(&record);
                    match self.look(&record, principal, claimed).await? {
                        Looked::At(seen) => roots.note(root, !seen.state.is_terminal(), &seen.blockers),
                        Looked::Unreadable => roots.note(root, true, &[Blocker::InvalidDurableState]),
                    }
                }
                // Its open row is there and its journal is not.
                Ok(None) => roots.note(stored_root(work), true, &[Blocker::InvalidDurableState]),
                Err(corruption) => {
                    tracing::error!(%corruption, "the recovery sweep can't read an effect back");
                    roots.note(stored_root(work), true, &[Blocker::InvalidDurableState]);
                }
            }
        }
        let mut latest = self.startup.latest();
        for tenant in touched {
            if let Some(roots) = all.get(&tenant) {
                latest.tenants.insert(tenant, roots.summary());
            }
        }
        Ok(())
    }

    /// The latest sweep of this process, as far as it concerns the caller's tenant (law 12).
    #[must_use]
    pub fn startup_report(&self, caller: &Principal) -> StartupReport {
        let latest = self.startup.latest();
        let summary = latest.tenants.get(&caller.tenant).cloned().unwrap_or_default();
        let listed = u64::try_from(summary.listed.len()).unwrap_or(u64::MAX);
        StartupReport {
            schema_version: 1,
            completed: latest.status == SweepStatus::Completed,
            status: latest.status,
            sweep_count: latest.sweep_count,
            scheduled_roots: summary.scheduled,
            deferred_session_count: summary.deferred,
            skipped_session_count: summary.skipped,
            blocked_session_count: summary.blocked,
            blocked_sessions_truncated: summary.blocked > listed,
            blocked_sessions: summary.listed,
        }
    }
}

/// The root of an effect whose record can't be read: as its open row names it, or by its key.
fn stored_root(work: &OpenWork) -> Root {
    match (&work.session_id, &work.run_id) {
        (Some(session), _) => Root { kind: RootKind::Session, id: session.clone() },
        (None, Some(run)) => Root { kind: RootKind::Run, id: run.clone() },
        (None, None) => Root { kind: RootKind::Effect, id: work.key.effect.to_string() },
    }
}
