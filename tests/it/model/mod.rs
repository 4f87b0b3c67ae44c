//! Random histories on both stores and on a reference of a few maps: the same answers at each step,
//! and the same content in the end.

mod compare;
mod elapsed;
mod history;
mod queue;
mod reference;

use std::sync::Arc;

use actonce::domain::command::Command;
use actonce::domain::ids::EffectKey;
use actonce::domain::record::Life;
use actonce::domain::recovery::{Action, assess};
use actonce::domain::state::State;
use actonce::engine::{AdHocTools, Engine};
use actonce::service::journal::verify;
use actonce::store::{ToolWritten, Walk};
use tokio::task::JoinSet;

use crate::store::bed::Bed;
use crate::store::effects::name;
use crate::support::StoreUnderTest;
use compare::{Base, said};
use history::{Dice, Step};
use reference::Reference;

/// Histories that are played in every run; `ACTONCE_TEST_SEEDS=13..=500` asks for others.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=10;
const STEPS: usize = 250;
/// The tenant that may use tools which nobody registered.
const AD_HOC: &str = "tenant 1";

/// A service on a store, without its edge.
struct Subject {
    label: &'static str,
    bed: Bed,
    engine: Arc<Engine>,
    base: Base,
    _loops: JoinSet<()>,
}

impl Subject {
    async fn new(store: StoreUnderTest) -> Self {
        let bed = Bed::with_clock(store).await;
        let ad_hoc = AdHocTools { all: false, tenants: vec![AD_HOC.to_owned()] };
        let (engine, lanes) = Engine::start(Arc::clone(&bed.store), ad_hoc, name("ad-hoc")).await.unwrap();
        let mut loops = JoinSet::new();
        for lane in lanes {
            loops.spawn(lane);
        }
        let base = Base(bed.now().await);
        Self { label: store.word(), bed, engine, base, _loops: loops }
    }

    /// Plays a step. Returns what was said, in the words of [`compare`].
    async fn play(&self, step: &Step) -> String {
        match step {
            Step::Propose { tenant, principal, proposal } => {
                let proposal = Box::pin(self.engine.propose(tenant, principal, (**proposal).clone()));
                said(&proposal.await, self.base)
            }
            Step::Ask { key, principal, command } => {
                let mut command = command.clone();
                if let (Command::Recover(recover), Some(record)) = (&mut command, self.bed.load(key).await) {
                    // The heads of the journals differ, as their times do.
                    let context = self.engine.context(&record, principal).await.unwrap();
                    recover.fingerprint = assess(&record, &context).fingerprint;
                }
                let answer = self.engine.apply(key, principal, command).await;
                said(&answer, self.base)
            }
            Step::Read { key, principal } => said(&self.engine.read(key, principal).await, self.base),
            Step::Pass(seconds) => {
                self.bed.pass(*seconds).await;
                self.engine.clock().refresh(self.bed.store.as_ref()).await.unwrap();
                String::new()
            }
            Step::Sweep { principal } => {
                let mut due = self.bed.store.due(10_000).await.unwrap();
                due.sort_by_key(sorted);
                let mut said = Vec::new();
                for key in due {
                    let expiry = Step::Ask { key, principal: principal.clone(), command: history::expiry() };
                    said.push(Box::pin(self.play(&expiry)).await);
                }
                said.join("\n")
            }
            Step::Tool(write) => {
                let written = self.bed.store.write_tool(write).await.unwrap();
                self.engine.tools().forget(&write.tenant, &write.name);
                match written {
                    ToolWritten::Applied => "applied".to_owned(),
                    ToolWritten::Lost => "lost".to_owned(),
                    ToolWritten::InUse => "in use".to_owned(),
                }
            }
        }
    }

    /// Law 10, by the tables: every effect that is not final has a deadline in the database, or stands
    /// in the operator's queue. What only a client can move on is what recovery plans are for: they name
    /// what it waits for, or offer to settle it.
    async fn nothing_is_silent(&self, reference: &Reference) {
        let silent = "SELECT count(*) FROM open_effects WHERE due_us IS NULL AND NOT contradicted AND state NOT IN";
        let [prepared, retry, review] =
            [State::IntentRecorded, State::SafeToRetry, State::ManualReview].map(actonce::store::rows::state_code);
        assert_eq!(self.bed.count(&format!("{silent} ({prepared}, {retry}, {review})")).await, 0, "{}", self.label);
        let open = self.bed.store.open_marks(None, 10_000).await.unwrap();
        for key in reference.keys() {
            let record = self.bed.load(&key).await.expect("the reference has it");
            let life = &record.life;
            assert_eq!(open.iter().any(|mark| mark.key == key), life.is_open(), "{}", self.label);
            let queued = life.state == State::ManualReview || life.contradicted;
            if life.state.is_terminal() || queued || life.due_at().is_some() {
                continue;
            }
            let context = self.engine.context(&record, &name("operator")).await.unwrap();
            let seen = assess(&record, &context);
            let planned = !seen.blockers.is_empty() || seen.actions.contains(&Action::AutomaticRepair);
            assert!(planned, "{:?} is silent: {seen:?}", life.state);
        }
    }

    /// Everything that is stored, in the words of [`compare`].
    async fn dump(&self, reference: &Reference) -> Vec<String> {
        let mut dump = Vec::new();
        for key in reference.keys() {
            let record = self.bed.load(&key).await.expect("the reference has it");
            no_silent_state(&record.life);
            dump.push(compare::record(&record, self.base));
            let rows = self.bed.store.journal(&key, 0, 10_000).await.unwrap();
            for row in rows {
                dump.push(compare::entry(&row.entry, self.base));
            }
        }
        for tenant in history::tenants() {
            let mut walks = vec![Walk::All, Walk::Contradicted, Walk::Run(name("run 1")), Walk::Run(name("run 2"))];
            walks.extend(State::ALL.map(Walk::Open));
            for walk in walks {
                let found = self.bed.store.walk(&tenant, &walk, None, 10_000).await.unwrap();
                let mut effects: Vec<_> = found.into_iter().map(|position| position.effect).collect();
                effects.sort();
                dump.push(format!("{tenant} {walk:?} {effects:?}"));
            }
        }
        let marks = self.bed.store.open_marks(None, 10_000).await.unwrap();
        for mark in marks {
            dump.push(format!("open {} {} {}", mark.key.tenant, mark.key.effect, mark.revision));
        }
        let report = verify(self.bed.store.as_ref()).await.unwrap();
        assert_eq!(report.damaged, 0, "{:?}", report.findings);
        dump
    }
}

fn sorted(key: &EffectKey) -> (String, uuid::Uuid) {
    (key.tenant.as_str().to_owned(), key.effect)
}

/// Law 10.
fn no_silent_state(life: &Life) {
    let waits = matches!(life.state, State::IntentRecorded | State::SafeToRetry | State::ManualReview);
    assert!(life.state.is_terminal() || waits || life.due_at().is_some(), "{:?} and no deadline", life.state);
    assert!(life.is_open() || life.state.is_terminal());
}

async fn play(seed: u64) {
    let mut subjects = vec![Subject::new(StoreUnderTest::Sqlite).await];
    if StoreUnderTest::has_postgres() {
        subjects.push(Subject::new(StoreUnderTest::Postgres).await);
    }
    let (mut reference, mut dice) = (Reference::new(AD_HOC), Dice(seed));
    let mut beginning = history::beginning().into_iter();
    for number in 0..STEPS {
        let step = beginning.next().unwrap_or_else(|| history::step(&mut dice, &reference));
        let expected = reference.play(&step);
        for subject in &subjects {
            let found = subject.play(&step).await;
            assert_eq!(found, expected, "seed {seed}, step {number}, {}: {step:?}", subject.label);
            if number % 25 == 0 {
                subject.nothing_is_silent(&reference).await;
            }
        }
    }
    let expected = reference.dump();
    for subject in &subjects {
        subject.nothing_is_silent(&reference).await;
        let found = subject.dump(&reference).await;
        let difference = found.iter().zip(&expected).find(|(found, expected)| found != expected);
        assert_eq!(difference, None, "seed {seed}, what is stored in {}", subject.label);
        assert_eq!(found.len(), expected.len(), "seed {seed}, {}", subject.label);
        subject.bed.store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_stores_do_what_the_reference_does() {
    let seeds = std::env::var("ACTONCE_TEST_SEEDS").ok().and_then(|seeds| {
        let (first, last) = seeds.split_once("..=")?;
        Some(first.parse().ok()?..=last.parse().ok()?)
    });
    let asked_for = seeds.is_some();
    for seed in seeds.unwrap_or(SEEDS) {
        Box::pin(play(seed)).await;
    }
    let unseen = if asked_for { Vec::new() } else { reference::unseen() };
    assert!(unseen.is_empty(), "histories that never come to {unseen:?} show little");
}
