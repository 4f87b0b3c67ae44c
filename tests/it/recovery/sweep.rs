//! The sweep beside live work: it adopts nothing and touches nothing, however they interleave.

use std::sync::Arc;
use std::time::Duration;

use actonce::auth::{Principal, Scopes};
use actonce::domain::command::Propose;
use actonce::domain::ids::EffectKey;
use actonce::domain::state::Directive;
use actonce::engine::{AdHocTools, Engine};
use actonce::service::Service;
use actonce::service::recovery::startup::SweepStatus;
use tokio::task::JoinSet;

use crate::scenarios::Dice;
use crate::store::bed::Bed;
use crate::store::effects::{Maker, name, tenant};
use crate::store::engine::service_on;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(a_sweep_never_touches_what_a_caller_has_just_begun, a_failed_sweep_says_so_and_the_next_one_counts);

struct Subject {
    bed: Bed,
    service: Arc<Service>,
    caller: Principal,
    _loops: JoinSet<()>,
}

impl Subject {
    async fn new(store: StoreUnderTest) -> Self {
        let bed = Bed::new(store).await;
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
            let claim = actonce::domain::command::Claim {
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
