//! Random histories of runs under an elapsed limit, through two processes: what is granted and what is
//! refused is what a minute-by-minute count says, and no state is silent meanwhile (law 10).

use std::collections::BTreeMap;

use actonce::domain::command::{Command, Propose};
use actonce::domain::ids::{EffectKey, Name, Tenant};
use actonce::domain::record::{Record, ResolvedOutcome};
use actonce::domain::refusal::Refusal;
use actonce::domain::state::{EffectClass, State};
use actonce::domain::time::Timestamp;
use actonce::engine::EngineError;
use actonce::service::queue_item::QueueReason;
use serde_json::json;

use super::Subject;
use super::history::{self, Step};
use super::queue::{queue, service};
use crate::scenarios::Dice as Die;
use crate::store::effects::{claim, failure, name, owner, registration, report, spec, tenant, wish};
use crate::store::engine::Running;
use crate::support::{StoreUnderTest, both_stores};

both_stores!(what_begins_is_what_a_count_by_minutes_allows);

const STEPS: usize = 140;
/// Half a minute off, so that what passes between two steps of a test never decides.
const LIMIT_SECONDS: u32 = 9 * 60 + 30;
const LIMIT_MINUTES: u64 = 9;

/// Two runs with their active minutes, counted beside the service.
struct Walk {
    subject: Subject,
    other: Running,
    tenant: Tenant,
    minutes: BTreeMap<&'static str, u64>,
    operations: Vec<(Name, &'static str)>,
    seen: BTreeMap<&'static str, u32>,
}

impl Walk {
    async fn new(store: StoreUnderTest) -> Self {
        let subject = Subject::new(store).await;
        let tenant = tenant("tenant 2");
        let approval = json!({ "mode": "approval", "expires_after_seconds": 300 });
        let limit = json!({ "scope": "run", "max_elapsed_seconds": LIMIT_SECONDS });
        for (tool, class, changes) in [
            ("limited", EffectClass::External, json!({ "elapsed_limit": limit, "reconcile_deadline_seconds": 120 })),
            ("both", EffectClass::External, json!({ "elapsed_limit": limit, "authorization": approval })),
            ("guarded", EffectClass::External, json!({ "authorization": approval, "reconcile_deadline_seconds": 120 })),
            (
                "held",
                EffectClass::External,
                json!({ "elapsed_limit": limit, "on_suspected_duplicate": "hold", "reconcile_deadline_seconds": 120,
                    "authorization": { "expires_after_seconds": 240 } }),
            ),
        ] {
            subject.bed.store.write_tool(&registration(&tenant, tool, &spec(class, &changes))).await.unwrap();
        }
        let other = Running::on(subject.bed.another().await).await;
        Self { subject, other, tenant, minutes: BTreeMap::new(), operations: Vec::new(), seen: BTreeMap::new() }
    }

    fn saw(&mut self, word: &'static str) {
        *self.seen.entry(word).or_default() += 1;
    }

    fn key(&self, operation: &Name) -> EffectKey {
        EffectKey::of(&self.tenant, operation)
    }

    async fn record(&self, operation: &Name) -> Record {
        self.subject.bed.load(&self.key(operation)).await.expect("it is there")
    }

    async fn apply(&self, first: bool, operation: &Name, by: &str, command: Command) -> Result<(), EngineError> {
        let engine = if first { &self.subject.engine } else { &self.other.engine };
        Box::pin(engine.apply(&self.key(operation), &name(by), command)).await.map(drop)
    }

    /// One minute passes. It is active in each run that has begun and waits for nobody.
    async fn minute(&mut self) {
        let now = self.subject.bed.now().await;
        let mut waits = BTreeMap::new();
        for (operation, run) in &self.operations {
            let record = self.record(operation).await;
            *waits.entry(*run).or_insert(false) |= waits_for_a_person(&record, now);
        }
        for (run, waits) in waits {
            *self.minutes.entry(run).or_default() += u64::from(!waits);
        }
        Box::pin(self.subject.play(&Step::Pass(60))).await;
        self.other.engine.clock().refresh(self.subject.bed.store.as_ref()).await.unwrap();
    }

    /// A claim of a tool under the limit was decided: as the count says?
    fn compare(&mut self, run: &'static str, what: &str, decided: Result<(), EngineError>) -> bool {
        let over = self.minutes.get(run).is_some_and(|minutes| *minutes > LIMIT_MINUTES);
        match decided {
            Ok(()) => assert!(!over, "{what} began in {run}: {:?}", self.minutes),
            Err(EngineError::Refused { refusal: Refusal::ElapsedLimit { elapsed_us, .. }, .. }) => {
                let counted = elapsed_us.unwrap() / 60_000_000;
                assert!(over, "{what} did not begin in {run}: {:?}, {counted}", self.minutes);
                assert_eq!(i64::try_from(self.minutes[run]).unwrap(), counted, "{what} in {run}");
                self.saw("over");
                return false;
            }
            // Denied, gone stale, or decided already: the limit was not asked.
            Err(EngineError::Refused { .. }) => return false,
            Err(error) => panic!("{what}: {error}"),
        }
        self.saw("begins");
        true
    }

    async fn propose(&mut self, die: &mut Die, number: usize) {
        let run = ["run 1", "run 2"][usize::try_from(die.roll(2)).unwrap()];
        let tool = ["limited", "limited", "both", "guarded", "held"][usize::try_from(die.roll(5)).unwrap()];
        let operation = name(&format!("op {number}"));
        let proposal = Propose {
            run_id: Some(name(run)),
            claim: (die.roll(3) > 0).then(|| wish("one")),
            ..history::plain(operation.as_str(), tool)
        };
        let first = die.roll(2) == 0;
        let engine = if first { &self.subject.engine } else { &self.other.engine };
        let decided = Box::pin(engine.propose(&self.tenant, &name("agent"), proposal)).await.map(drop);
        let made = if tool == "guarded" { decided.is_ok() } else { self.compare(run, tool, decided) };
        if made {
            self.minutes.entry(run).or_default();
            self.operations.push((operation, run));
        }
    }

    async fn go_on(&mut self, die: &mut Die) {
        let Some(place) = usize::try_from(die.roll(10_000)).unwrap().checked_rem(self.operations.len()) else { return };
        let (operation, run) = self.operations[place].clone();
        let record = self.record(&operation).await;
        let first = die.roll(2) == 0;
        let limited = record.intent.tool.as_str() != "guarded";
        match record.life.state {
            State::Proposed => {
                self.saw("proposed");
                let approval = record.life.approval.unwrap();
                let command = Command::Authorize {
                    expected_revision: record.life.revision,
                    proposal_digest: approval.proposal_digest,
                    approve: die.roll(3) > 0,
                    reason: "read".to_owned(),
                };
                drop(self.apply(first, &operation, "ann", command).await);
            }
            State::IntentRecorded | State::SafeToRetry => {
                let decided = self.apply(first, &operation, "agent", claim("two")).await;
                if limited {
                    self.compare(run, "a claim", decided);
                }
            }
            State::Dispatched => {
                let doubt = report(owner(&record), actonce::domain::command::Report::Unknown(failure("slow")));
                drop(self.apply(first, &operation, "agent", doubt).await);
            }
            State::ManualReview => {
                self.saw("review");
                let outcome = if die.roll(2) == 0 { ResolvedOutcome::SafeToRetry } else { ResolvedOutcome::Failed };
                let decision = format!("d {}", record.life.revision);
                let resolve = actonce::domain::command::Resolve {
                    expected_revision: record.life.revision,
                    decision_id: name(&decision),
                    outcome,
                    reason: "looked".to_owned(),
                    evidence: "{}".into(),
                    bulk_decision_id: None,
                    digest: actonce::domain::canonical::Sha256Digest::of(decision.as_bytes()),
                };
                drop(self.apply(first, &operation, "ben", Command::Resolve(resolve)).await);
            }
            _ => {}
        }
    }

    /// Law 10: a deadline that the database knows, or a place in the queue, now or when it is unclaimed.
    async fn nothing_is_silent(&self, hours_passed: bool) {
        let service = service(&self.subject);
        let queue = queue(&service, &self.tenant).await;
        for (operation, _) in &self.operations {
            let record = self.record(operation).await;
            let (key, life) = (&record.key, &record.life);
            if life.state.is_terminal() {
                continue;
            }
            let known =
                format!("SELECT count(*) FROM open_effects WHERE due_us IS NOT NULL AND {}", self.subject.bed.of(key));
            let due = self.subject.bed.count(&known).await == 1;
            let claimable = matches!(life.state, State::IntentRecorded | State::SafeToRetry);
            let item = queue.get(&key.effect).map(|item| item.reason);
            assert!(item.is_some() || due || (claimable && !hours_passed), "silent: {life:?}");
            if claimable && hours_passed {
                assert_eq!(item, Some(QueueReason::Unclaimed), "what no limit lets go is shown");
            }
        }
    }
}

/// Whether a person is waited for through the minute that begins now. Read off the states, not asked of
/// the code under test.
fn waits_for_a_person(record: &Record, now: Timestamp) -> bool {
    let life = &record.life;
    let asked_until = life.approval.as_ref().map(|approval| approval.expires_at);
    match life.state {
        State::ManualReview => true,
        State::Proposed => asked_until.is_some_and(|until| until > now.plus_seconds(30)),
        _ => false,
    }
}

async fn what_begins_is_what_a_count_by_minutes_allows(store: StoreUnderTest) {
    let mut seen = BTreeMap::new();
    for seed in 1..=3 {
        let mut walk = Walk::new(store).await;
        let mut die = Die::new(seed);
        for number in 0..STEPS {
            match die.roll(10) {
                0..=2 => Box::pin(walk.propose(&mut die, number)).await,
                3..=6 => Box::pin(walk.go_on(&mut die)).await,
                7 => drop(Box::pin(walk.subject.play(&Step::Sweep { principal: name("actonce") })).await),
                _ => {
                    for _ in 0..=die.roll(4) {
                        Box::pin(walk.minute()).await;
                    }
                }
            }
            if number % 35 == 34 {
                Box::pin(walk.nothing_is_silent(false)).await;
            }
        }
        Box::pin(walk.subject.play(&Step::Pass(7_200))).await;
        Box::pin(walk.nothing_is_silent(true)).await;
        for (word, times) in walk.seen {
            *seen.entry(word).or_insert(0) += times;
        }
        walk.subject.bed.store.close().await;
    }
    for word in ["begins", "over", "proposed", "review"] {
        assert!(seen.contains_key(word), "histories that never come to {word} show little: {seen:?}");
    }
}
