//! The sweep beside live work: it adopts nothing and touches nothing, however they interleave.

use std::sync::Arc;
use std::time::Duration;

use actonce::auth::{Principal, Scopes};
use actonce::domain::command::{Claim, Command, Propose};
use actonce::domain::ids::EffectKey;
use actonce::domain::state::{Directive, State};
use actonce::domain::time::Timestamp;
use actonce::engine::{AdHocTools, Engine};
use actonce::service::Service;
use actonce::service::recovery::startup::SweepStatus;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::scenarios::Dice;
use crate::store::bed::Bed;
use crate::store::effects::{Maker, name, owner, tenant, wish};
use crate::store::engine::service_on;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(
    a_sweep_never_touches_what_a_caller_has_just_begun,
    no_sweep_touches_a_live_lease,
    a_failed_sweep_says_so_and_the_next_one_counts,
);

pub(super) struct Subject {
    pub(super) bed: Bed,
    pub(super) service: Arc<Service>,
    pub(super) caller: Principal,
    _loops: JoinSet<()>,
}

impl Subject {
    pub(super) async fn new(store: StoreUnderTest) -> Self {
        Self::on(Bed::new(store).await).await
    }

    async fn on(bed: Bed) -> Self {
        let ad_hoc = AdHocTools { all: true, tenants: Vec::new() };
        let (engine, lanes) = Engine::start(Arc::clone(&bed.store), ad_hoc, name("ad-hoc")).await.unwrap();
        let mut loops = JoinSet::new();
        for lane in lanes {
            loops.spawn(lane);
        }
        let service = Arc::new(service_on(&bed.store, &engine));
        let caller = Principal { tenant: tenant("tenant"), subject: name("agent"), scopes: Scopes::all() };
        Self { bed, service, caller, _loops: loops }
    }
}

async fn a_sweep_never_touches_what_a_caller_has_just_begun(store: StoreUnderTest) {
    const ROUNDS: u64 = 200;
    const OLD: u64 = 257;
    let subject = Subject::new(store).await;
    let maker = Maker::external("tenant", subject.bed.now().await);
    // Enough old work that a sweep takes several looks.
    for number in 0..OLD {
        let proposal =
            Propose { session_id: Some(name(&format!("old-{number}"))), ..maker.proposal(&format!("old-{number}")) };
        subject.bed.revise(&maker.first(&proposal).0).await;
    }
    let (service, caller) = (&subject.service, &subject.caller);
    let mut dice = Dice::new(54);
    for round in 0..ROUNDS {
        let sweep = service.startup_sweep(&caller.subject);
        let delay = Duration::from_micros(dice.roll(4_000));
        let act = async {
            tokio::time::sleep(delay).await;
            let operation = format!("new-{round}");
            let claim = Claim {
                worker: name("one"),
                claim: None,
                lease_seconds: Some(600),
                dispatch_id: actonce::support::random_id(),
            };
            let proposal = Propose { claim: Some(claim), session_id: None, run_id: None, ..maker.proposal(&operation) };
            let engine = service.engine();
            let (one, two) = tokio::join!(
                engine.propose(&caller.tenant, &caller.subject, proposal.clone()),
                engine.propose(&caller.tenant, &caller.subject, Propose { claim: None, ..proposal })
            );
            (EffectKey::of(&caller.tenant, &name(&operation)), one.unwrap(), two.unwrap())
        };
        let (swept, (key, one, two)) = tokio::join!(sweep, act);
        swept.unwrap();
        assert_ne!(two.directive(), Directive::Dispatch, "who does not ask to act is not told to");
        assert!(matches!(one.directive(), Directive::Dispatch), "and the other one is, whatever is swept");
        let record = subject.bed.load(&key).await.expect("it is there");
        assert!(record.life.revision <= 2, "nobody else wrote: {:?}", record.life);
        assert_eq!(record.life.fence, 1);
    }
    let report = service.startup_report(caller);
    assert_eq!((report.status, report.sweep_count), (SweepStatus::Completed, ROUNDS));
    // The old ones, and those of earlier rounds that are live.
    assert!(report.scheduled_roots >= OLD + ROUNDS - 1, "{report:?}");
    assert_eq!(report.blocked_session_count, report.scheduled_roots - OLD);
}

/// 200 rounds: workers beat, or not, while time passes and both sweeps run. A lease that its owner has
/// renewed in time is never taken, and one that nobody renewed always is.
async fn no_sweep_touches_a_live_lease(store: StoreUnderTest) {
    const ROUNDS: u64 = 200;
    const LEASE: u32 = 60;
    let subject = Subject::on(Bed::with_clock(store).await).await;
    let (service, caller) = (&subject.service, &subject.caller);
    let engine = service.engine();
    let maker = Maker::external("tenant", subject.bed.now().await);
    let stop = CancellationToken::new();
    let mut sweeping = JoinSet::new();
    sweeping.spawn(Arc::clone(service).run_sweep(stop.clone()));
    let mut dice = Dice::new(5);
    let mut live: Vec<(EffectKey, Command, u32)> = Vec::new();
    for round in 0..ROUNDS {
        let claim = Some(Claim { lease_seconds: Some(LEASE), ..wish("one") });
        let proposal = Propose { claim, ..maker.proposal(&format!("op-{round}")) };
        let made = engine.propose(&caller.tenant, &caller.subject, proposal).await.unwrap();
        let (dispatch_id, fence) = owner(&made.record);
        live.push((made.record.key.clone(), Command::Heartbeat { dispatch_id, fence }, 0));
        // At most half a lease; what was renewed in the last round is live after it.
        let passed = u32::try_from(dice.roll(u64::from(LEASE / 2))).unwrap();
        subject.bed.pass(passed).await;
        engine.clock().refresh(subject.bed.store.as_ref()).await.unwrap();
        engine.wakes().sweep_planned(Timestamp::from_micros(i64::MAX));
        let beats = async {
            let mut beaten = Vec::new();
            for (key, beat, silent) in &live {
                let silent = silent + passed;
                if dice.roll(4) > 0 {
                    let held = engine.apply(key, &caller.subject, beat.clone()).await.is_ok();
                    // Seconds of the machine are beside those that were put forward.
                    assert!(held || silent + 20 >= LEASE, "a lease was lost after {silent} seconds");
                    // What is over may stand there until the sweep comes by.
                    beaten.push(if held { 0 } else { silent });
                } else {
                    beaten.push(silent);
                }
            }
            beaten
        };
        let (swept, beaten) = tokio::join!(service.startup_sweep(&caller.subject), beats);
        swept.unwrap();
        let mut kept = Vec::new();
        for ((key, beat, _), silent) in live.into_iter().zip(beaten) {
            let life = subject.bed.load(&key).await.unwrap().life;
            if life.state == State::Dispatched {
                assert_eq!((life.revision, life.fence), (1, 1), "nothing was written to it");
                kept.push((key, beat, silent));
            } else {
                assert_eq!((life.state, life.revision), (State::OutcomeUnknown, 2));
                assert!(silent + 20 >= LEASE, "a live lease was taken after {silent} seconds");
            }
        }
        live = kept;
        // A handful is enough to race with.
        if live.len() > 6 {
            live.remove(0);
        }
    }
    stop.cancel();
    sweeping.join_next().await.unwrap().unwrap();
    let taken = subject.bed.count("SELECT count(*) FROM open_effects WHERE state = 5").await;
    assert!(taken > 10, "sweeps that take nothing show little: {taken}");
}

async fn a_failed_sweep_says_so_and_the_next_one_counts(store: StoreUnderTest) {
    let subject = Subject::new(store).await;
    let (service, caller) = (&subject.service, &subject.caller);
    let report = service.startup_report(caller);
    assert_eq!((report.status, report.completed, report.sweep_count), (SweepStatus::NotStarted, false, 0));
    let maker = Maker::external("tenant", subject.bed.now().await);
    subject.bed.revise(&maker.create("op").0).await;
    subject.bed.execute("ALTER TABLE recovery_claims RENAME TO elsewhere").await;
    assert!(service.startup_sweep(&caller.subject).await.is_err());
    let report = service.startup_report(caller);
    assert_eq!((report.status, report.completed, report.sweep_count), (SweepStatus::Failed, false, 1));
    subject.bed.execute("ALTER TABLE elsewhere RENAME TO recovery_claims").await;
    service.startup_sweep(&caller.subject).await.unwrap();
    let report = service.startup_report(caller);
    assert_eq!((report.status, report.completed, report.sweep_count), (SweepStatus::Completed, true, 2));
    assert_eq!(report.scheduled_roots, 1);
}
