//! The engine on a real store: what one process, and two, make of what a store promises.

use std::collections::BTreeMap;
use std::sync::Arc;

use actonce::config::AdapterPolicy;
use actonce::domain::command::{Command, Propose};
use actonce::domain::decide::Answer;
use actonce::domain::ids::{EffectKey, Name};
use actonce::domain::refusal::Refusal;
use actonce::domain::state::{Directive, EffectClass, State};
use actonce::domain::tool::ToolSpec;
use actonce::engine::batch::LaneError;
use actonce::engine::commits::CommitLane;
use actonce::engine::{AdHocTools, Decided, Engine, EngineError};
use actonce::outbound::OutboundAdapters;
use actonce::outbound::client::Outbound;
use actonce::service::keys::DataKey;
use actonce::service::ports::DatabaseTime;
use actonce::service::seal::Sealer;
use actonce::service::secrets::ToolSecrets;
use actonce::service::{Parts, Service};
use actonce::store::Committed::Applied;
use actonce::store::{Store, ToolWrite, ToolWritten};
use serde_json::json;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bed::{Bed, both_manners, revise};
use super::commits::poisoned;
use super::effects::{Maker, TOOL, claim, name, owner, registration, report, spec, succeeded, tenant, wish};
use crate::support::StoreUnderTest;

both_manners!(
    of_many_claims_through_two_processes_one_is_granted,
    of_many_creators_with_other_content_one_is_recorded,
    the_same_act_under_many_ids_is_recorded_once,
    each_of_several_held_effects_gets_its_turn,
    one_poisoned_change_fails_alone,
    a_stale_cache_decides_nothing,
    a_read_finds_what_another_process_has_written,
    a_pause_elsewhere_counts_at_the_next_grant,
    a_report_in_flight_beats_a_sweep_or_is_kept,
    a_lost_answer_is_given_again_by_another_process,
);

/// The use cases on an engine, without adapters that could be reached.
pub(crate) fn service_on(store: &Arc<dyn Store>, engine: &Arc<Engine>) -> Service {
    let key = [7; 32];
    let sealer = Arc::new(Sealer::new(key));
    let time: Arc<dyn DatabaseTime> = Arc::<Engine>::clone(engine);
    let secrets =
        Arc::new(ToolSecrets::new(Arc::clone(store), Arc::clone(&sealer), Arc::clone(&time), BTreeMap::new()));
    let outbound = Outbound::new(AdapterPolicy::default()).unwrap();
    Service::new(Parts {
        engine: Arc::clone(engine),
        data_key: DataKey::new(key),
        keyring: None,
        adapters: Arc::new(OutboundAdapters::new(outbound, Arc::<ToolSecrets>::clone(&secrets), time)),
        secrets,
        sealer,
        principal: name("actonce"),
        tasks: TaskTracker::new(),
        stopping: CancellationToken::new(),
        proof: actonce::service::proof::checkpoint::Proof::default(),
    })
}

/// An engine, and the loops that run for it.
pub(crate) struct Running {
    pub(crate) engine: Arc<Engine>,
    _loops: JoinSet<()>,
}

impl Running {
    pub(crate) async fn on(store: Arc<dyn Store>) -> Self {
        let ad_hoc = AdHocTools { all: true, tenants: Vec::new() };
        let (engine, lanes) = Engine::start(store, ad_hoc, name("ad-hoc")).await.unwrap();
        let mut loops = JoinSet::new();
        for lane in lanes {
            loops.spawn(lane);
        }
        Self { engine, _loops: loops }
    }

    async fn propose(&self, proposal: Propose) -> Result<Decided, EngineError> {
        self.engine.propose(&tenant("tenant"), &name("agent"), proposal).await
    }

    async fn apply(&self, operation: &str, command: Command) -> Result<Decided, EngineError> {
        self.engine.apply(&key(operation), &name("agent"), command).await
    }
}

fn key(operation: &str) -> EffectKey {
    EffectKey::of(&tenant("tenant"), &name(operation))
}

fn refusal(result: Result<Decided, EngineError>) -> Refusal {
    match result {
        Err(EngineError::Refused { refusal, .. }) => refusal,
        other => panic!("{other:?}"),
    }
}

async fn register(bed: &Bed, spec: &ToolSpec) {
    let write = registration(&tenant("tenant"), TOOL, spec);
    assert_eq!(bed.store.write_tool(&write).await.unwrap(), ToolWritten::Applied);
}

async fn two(bed: &Bed) -> [Running; 2] {
    [Running::on(Arc::clone(&bed.store)).await, Running::on(bed.another().await).await]
}

async fn maker(bed: &Bed) -> Maker {
    Maker::external("tenant", bed.now().await)
}

const MANY: usize = 64;

/// Runs one future per number at once, on the engines in turn.
async fn at_once<T: Send + 'static, F>(engines: &[Running; 2], work: impl Fn(usize, Arc<Engine>) -> F) -> Vec<T>
where
    F: Future<Output = T> + Send + 'static,
{
    let mut running = JoinSet::new();
    for number in 0..MANY {
        running.spawn(work(number, Arc::clone(&engines[number % 2].engine)));
    }
    running.join_all().await
}

async fn of_many_claims_through_two_processes_one_is_granted(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let engines = two(&bed).await;
    let proposal = maker(&bed).await.proposal("a");
    engines[0].propose(proposal).await.unwrap();
    let answers = at_once(&engines, |number, engine| async move {
        let claim = claim(&format!("worker-{number}"));
        engine.apply(&key("a"), &name("agent"), claim).await.unwrap()
    })
    .await;
    let owners: Vec<&Decided> = answers.iter().filter(|answer| answer.answer.owns_dispatch).collect();
    assert_eq!(owners.len(), 1);
    for answer in &answers {
        let expected = if answer.answer.owns_dispatch { Directive::Dispatch } else { Directive::Wait };
        assert_eq!((answer.directive(), answer.record.life.fence), (expected, 1));
    }
    assert_eq!(bed.rows().await, (2, 1));
}

async fn of_many_creators_with_other_content_one_is_recorded(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let engines = two(&bed).await;
    let proposal = maker(&bed).await.proposal("a");
    let answers = at_once(&engines, |number, engine| {
        let proposal = Propose {
            target: name(&format!("order-{number}")),
            claim: Some(wish(&format!("worker-{number}"))),
            ..proposal.clone()
        };
        async move { engine.propose(&tenant("tenant"), &name("agent"), proposal).await }
    })
    .await;
    let (won, lost): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    for lost in lost {
        assert_eq!(refusal(lost), Refusal::OperationReused(vec!["target"]));
    }
    assert_eq!(bed.rows().await, (1, 1), "nothing of a loser is stored");
}

async fn the_same_act_under_many_ids_is_recorded_once(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    register(&bed, &spec(EffectClass::External, &json!({"on_suspected_duplicate": "refuse"}))).await;
    let engines = two(&bed).await;
    let proposal = Propose { target: name("order-1"), ..maker(&bed).await.proposal("a") };
    let answers = at_once(&engines, |number, engine| {
        let proposal = Propose { operation_id: name(&format!("operation {number}")), ..proposal.clone() };
        async move { engine.propose(&tenant("tenant"), &name("agent"), proposal).await }
    })
    .await;
    let first: Vec<Name> = answers.iter().flatten().map(|decided| decided.record.intent.operation_id.clone()).collect();
    assert_eq!(first.len(), 1);
    for lost in answers.into_iter().filter(Result::is_err) {
        assert_eq!(refusal(lost), Refusal::SuspectedDuplicate(first[0].clone()), "the first one is named");
    }
    assert_eq!(bed.rows().await, (1, 1));
}

async fn each_of_several_held_effects_gets_its_turn(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let held = json!({"on_suspected_duplicate": "hold", "verification": "waived"});
    register(&bed, &spec(EffectClass::External, &held)).await;
    let [engine, _] = two(&bed).await;
    let proposal = Propose { target: name("order-1"), ..maker(&bed).await.proposal("a") };
    for operation in ["a", "b", "c"] {
        let decided = engine.propose(Propose { operation_id: name(operation), ..proposal.clone() }).await.unwrap();
        let expected = if operation == "a" { State::IntentRecorded } else { State::Proposed };
        assert_eq!(decided.record.life.state, expected);
    }
    let mut done = Vec::new();
    let mut waiting = vec!["a", "b", "c"];
    while !waiting.is_empty() {
        let mut granted = None;
        for operation in &waiting {
            let decided =
                engine.apply(operation, claim("one")).await.expect("a claim is answered, whoever it waits for");
            if decided.answer.owns_dispatch {
                assert!(granted.is_none(), "two of them act at once");
                granted = Some((*operation, decided));
            } else {
                assert_eq!(decided.directive(), Directive::Authorize, "{operation} is still held");
            }
        }
        let (operation, decided) = granted.expect("one of them may act");
        engine.apply(operation, succeeded(&decided.record)).await.unwrap();
        waiting.retain(|other| other != &operation);
        done.push(operation);
    }
    assert_eq!(done.len(), 3);
}

async fn one_poisoned_change_fails_alone(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let (lane, lane_loop) = CommitLane::new(Arc::clone(&bed.store));
    let maker = maker(&bed).await;
    let mut changes = JoinSet::new();
    for number in 0..40 {
        let operation = format!("operation {number}");
        let row = if number == 17 { poisoned(&maker, &operation) } else { maker.create(&operation).0 };
        let lane = lane.clone();
        changes.spawn(async move { (number, lane.commit(revise(&row)).await) });
    }
    drop(lane);
    // All are queued before the loop begins: one batch.
    tokio::task::yield_now().await;
    let (done, ()) = tokio::join!(changes.join_all(), lane_loop);
    for (number, done) in done {
        match done {
            Ok(committed) => assert_eq!((committed, number == 17), (Applied, false)),
            Err(LaneError::Store(_)) => assert_eq!(number, 17),
            Err(error) => panic!("{number}: {error}"),
        }
    }
    assert_eq!(bed.rows().await, (39, 39));
}

async fn a_stale_cache_decides_nothing(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let [here, there] = two(&bed).await;
    let proposal = maker(&bed).await.proposal("a");
    let granted = here.propose(Propose { claim: Some(wish("one")), ..proposal.clone() }).await.unwrap();
    // There the effect settles; here it is remembered as dispatched.
    there.apply("a", succeeded(&granted.record)).await.unwrap();
    let again = here.apply("a", claim("two")).await.unwrap();
    assert_eq!((again.record.life.state, again.record.life.fence), (State::Verifying, 1));
    let read = here.propose(proposal).await.unwrap();
    assert_eq!(read.record.life.state, State::Verifying);
    let (dispatch_id, fence) = owner(&granted.record);
    assert_eq!(refusal(here.apply("a", Command::Heartbeat { dispatch_id, fence }).await), Refusal::LeaseLost);
}

/// Law 9: what this process remembers is no answer while it can still change.
async fn a_read_finds_what_another_process_has_written(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let [here, there] = two(&bed).await;
    here.propose(maker(&bed).await.proposal("a")).await.unwrap();
    let found = async || {
        let read = here.engine.read(&key("a"), &name("agent")).await.unwrap();
        (read.record.life.state, read.record.life.revision)
    };
    assert_eq!(found().await, (State::IntentRecorded, 1));
    let granted = there.apply("a", claim("one")).await.unwrap();
    assert_eq!(found().await, (State::Dispatched, 2));
    there.apply("a", succeeded(&granted.record)).await.unwrap();
    assert_eq!(found().await, (State::Verifying, 3));
}

async fn a_pause_elsewhere_counts_at_the_next_grant(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let spec = spec(EffectClass::External, &json!({}));
    register(&bed, &spec).await;
    let [here, _] = two(&bed).await;
    let maker = maker(&bed).await;
    // Here the tool is known, and remembered as not paused.
    here.propose(maker.proposal("a")).await.unwrap();
    let pause =
        ToolWrite { expected_stamp: Some(1), spec: None, paused: true, ..registration(&tenant("tenant"), TOOL, &spec) };
    assert_eq!(bed.store.write_tool(&pause).await.unwrap(), ToolWritten::Applied);
    let held = here.apply("a", claim("one")).await.unwrap();
    assert_eq!((held.answer, held.directive()), (Answer::default(), Directive::Stop));
    let held = here.propose(Propose { claim: Some(wish("one")), ..maker.proposal("b") }).await.unwrap();
    assert_eq!((held.record.life.state, held.directive()), (State::IntentRecorded, Directive::Stop));
    let resume = ToolWrite { expected_stamp: Some(2), paused: false, ..pause };
    bed.store.write_tool(&resume).await.unwrap();
    here.engine.tools().forget(&tenant("tenant"), &name(TOOL));
    assert!(here.apply("a", claim("one")).await.unwrap().answer.owns_dispatch);
}

/// The sweep of one process and the owner's report to another meet at the end of the lease.
async fn a_report_in_flight_beats_a_sweep_or_is_kept(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let [here, there] = two(&bed).await;
    let maker = maker(&bed).await;
    for round in 0..20 {
        let operation = format!("operation {round}");
        let proposal = Propose { claim: Some(wish("one")), ..maker.proposal(&operation) };
        let granted = here.propose(proposal).await.unwrap();
        // The lease is over from one moment to the next, as the database sees it.
        let past = bed.now().await.micros() - 1;
        bed.execute(&format!("UPDATE open_effects SET due_us = {past} WHERE {}", bed.of(&key(&operation)))).await;
        let expiry = there.apply(&operation, Command::Expire { hold_released: false });
        let (expired, reported) = tokio::join!(expiry, here.apply(&operation, succeeded(&granted.record)));
        expired.unwrap();
        let reported = reported.expect("the newest fence settles, in time or late");
        assert_eq!(reported.record.life.state, State::Verifying);
        let settled = bed.load(&key(&operation)).await.unwrap();
        assert_eq!(settled.life.receipt, reported.record.life.receipt, "a sweep takes nothing back");
        assert_eq!(settled.life.state, State::Verifying);
    }
}

async fn a_lost_answer_is_given_again_by_another_process(store: StoreUnderTest) {
    let bed = Bed::new(store).await;
    let [here, there] = two(&bed).await;
    let proposal = Propose { claim: Some(wish("one")), ..maker(&bed).await.proposal("a") };
    let first = here.propose(proposal.clone()).await.unwrap();
    // The same request, with the dispatch id that another process would draw for it.
    let again = there.propose(Propose { claim: Some(wish("one")), ..proposal }).await.unwrap();
    assert!(first.created && !again.created);
    assert!(again.answer.owns_dispatch && again.answer.replayed);
    assert_eq!(owner(&again.record), owner(&first.record));
    let outcome =
        report(owner(&first.record), actonce::domain::command::Report::NotSent(Some(super::effects::failure(""))));
    let first = here.apply("a", outcome.clone()).await.unwrap();
    let again = there.apply("a", outcome).await.unwrap();
    assert!(again.answer.replayed);
    assert_eq!(again.record.life, first.record.life);
    assert_eq!(bed.rows().await, (2, 1));
}
