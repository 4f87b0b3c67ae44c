//! Plays recorded calls, every external one in three ways, and counts.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;
use std::time::Instant;

use futures_util::{StreamExt as _, TryStreamExt as _, future, stream};
use serde_json::{Value, json};

use super::api::{Answer, Api, Grant};
use super::call::{Call, Operation};
use super::calls::Calls;
use super::downstream::Downstream;
use super::failure::Failure;
use super::progress::Progress;
use super::score::{Score, Tally, Way};
use super::server::Server;
use super::table;
use super::timeline::write;
use super::worker::{Downward, Said, Worker};
use crate::domain::ids::Name;
use crate::domain::state::{Directive, EffectClass, State};

/// Runs that are played at once; each plays one call at a time.
const RUNS_AT_ONCE: usize = 16;
/// Longer than any play of a call.
const LEASE_SECONDS: u32 = 120;
/// How long the second of two workers lets its request be held.
const ATTACH_SECONDS: u64 = 60;

/// Plays all calls of a file. The error of the verdict says what does not hold.
pub(super) async fn play(server: &Server, path: &Path, calls: &Calls) -> Result<(), Failure> {
    let downstream = Downstream::start().await?;
    let api = Api::new(&server.url, server.token.clone())?;
    let downward = Downward::new(&downstream.url, "acts")?;
    introduce(server, path, calls)?;
    for (tool, class) in &calls.tools {
        api.put_tool(tool.as_str(), &registration(*class)).await?;
    }
    let started = Instant::now();
    let (all, external) = calls.counts();
    let progress = Progress::start(all.saturating_add(external.saturating_mul(2)));
    let player = Player {
        refusal: OnceLock::new(),
        downstream: &downstream,
        api: &api,
        downward: &downward,
        progress: &progress,
    };
    let scored = stream::iter(&calls.runs)
        .map(|run| player.run(run))
        .buffer_unordered(RUNS_AT_ONCE)
        .try_fold(Score::default(), |sum, score| future::ok(sum.plus(&score)))
        .await;
    progress.end();
    let score = scored?;
    let seconds = started.elapsed().as_secs_f64();
    write(format_args!("{}\n", table::render(&score)))?;
    write("waits: answers `wait` and `reconcile`, which tell a worker not to act")?;
    write("replays: the recorded result instead of an act, also where a run repeats itself")?;
    write(format_args!("played in {seconds:.1} s\n"))?;
    if let Some(refusal) = player.refusal.get() {
        write(format_args!("first refusal: {refusal}\n"))?;
    }
    write(score.verdict(downstream.commits()).map_err(Failure::Broken)?)?;
    Ok(())
}

fn introduce(server: &Server, path: &Path, calls: &Calls) -> std::io::Result<()> {
    let (all, external) = calls.counts();
    write(format_args!(
        "{}: {all} calls in {} runs, {external} of them external, with {} tools",
        path.display(),
        calls.runs.len(),
        calls.tools.len(),
    ))?;
    write(format_args!("actonce: {}, the real server on {}, tenant {}\n", server.url, server.database, server.tenant))?;
    write("Each external call is played in three ways, each under an operation id of its own:")?;
    write("  normal        one worker acts and reports")?;
    write(
        "  lost answer   the downstream commits and drops the connection; the worker reports `unknown`, a second one",
    )?;
    write("                asks, the first finds the receipt downstream and reports it, a third one asks")?;
    write("  two workers   both ask at the same time; who is not told to act attaches and waits")?;
    write(
        "Because the same call is played three times, suspected duplicates are allowed for its tool; that a receipt",
    )?;
    write("needs a fresh read (verification) stays required. All other calls are played once.\n")
}

fn registration(class: EffectClass) -> Value {
    match class {
        EffectClass::None => json!({ "effect": "none" }),
        EffectClass::Idempotent => json!({
            "effect": "idempotent",
            "replay_contract": "The file of calls says that a repeat under the same key changes nothing.",
            "downstream_key_ttl_seconds": 86_400,
        }),
        EffectClass::External => json!({ "effect": "external", "on_suspected_duplicate": "allow" }),
    }
}

struct Player<'a> {
    /// The first report that was refused, to explain a verdict.
    refusal: OnceLock<String>,
    downstream: &'a Downstream,
    api: &'a Api,
    downward: &'a Downward,
    progress: &'a Progress,
}

/// How one worker's attempt at a call went.
enum Attempt {
    /// It acted and its success is recorded.
    Done,
    /// It acted and has no answer.
    Unknown(Grant),
    /// It was not told to act.
    Told(Directive),
}

impl Player<'_> {
    /// The calls of a run, one after another as its agent made them.
    async fn run(&self, run: &[Call]) -> Result<Score, Failure> {
        let mut score = Score::default();
        let mut operations: BTreeSet<(Way, Name)> = BTreeSet::new();
        for call in run {
            for way in Way::of(call.effect) {
                let place = |failure: Failure| failure.at(call);
                let operation = call
                    .operation(way.suffix(), LEASE_SECONDS)
                    .map_err(|fault| Failure::Calls(fault.to_string()).at(call))?;
                let tally = match way {
                    Way::Once | Way::Normal => self.alone(&operation).await.map_err(place)?,
                    Way::Lost => self.lost(&operation).await.map_err(place)?,
                    Way::Two => self.two(&operation).await.map_err(place)?,
                };
                score.add(*way, &tally);
                if call.effect != EffectClass::None {
                    operations.insert((*way, operation.id));
                }
                self.progress.step();
            }
        }
        for (way, id) in operations {
            score.count(way, self.downstream.commits_of(id.as_str()));
        }
        Ok(score)
    }

    fn worker<'a>(&'a self, name: &'a str) -> Worker<'a> {
        Worker::start(name, self.api, self.downward)
    }

    /// One worker acts and reports.
    async fn alone(&self, operation: &Operation<'_>) -> Result<Tally, Failure> {
        let mut tally = Tally::one_call();
        let worker = self.worker("agent-1");
        let answer = worker.ask(operation).await?;
        self.follow(&worker, operation, &answer, &mut tally).await?;
        Ok(tally)
    }

    /// The downstream commits and drops the connection.
    async fn lost(&self, operation: &Operation<'_>) -> Result<Tally, Failure> {
        let mut tally = Tally::one_call();
        let first = self.worker("agent-1");
        let answer = first.ask(operation).await?;
        if answer.directive == Directive::Dispatch {
            self.downstream.lose_answer(operation.id.as_str());
        }
        let Attempt::Unknown(grant) = self.follow(&first, operation, &answer, &mut tally).await? else {
            return Ok(tally);
        };
        let second = self.worker("agent-2");
        let answer = second.ask(operation).await?;
        self.follow(&second, operation, &answer, &mut tally).await?;
        match first.look_up(&grant).await? {
            Some(said) => self.settle(&first, operation, &grant, &said, &mut tally).await?,
            None => tally.settled(false),
        }
        let third = self.worker("agent-3");
        let answer = third.ask(operation).await?;
        self.follow(&third, operation, &answer, &mut tally).await?;
        Ok(tally)
    }

    /// Two workers ask at the same time.
    async fn two(&self, operation: &Operation<'_>) -> Result<Tally, Failure> {
        let (first, second) = (self.worker("agent-1"), self.worker("agent-2"));
        let (one, other) = future::try_join(self.attach(&first, operation), self.attach(&second, operation)).await?;
        Ok(Tally::one_call().plus(&one).plus(&other))
    }

    /// Asks; where another one acts, asks again and lets the answer be held until that is over.
    async fn attach(&self, worker: &Worker<'_>, operation: &Operation<'_>) -> Result<Tally, Failure> {
        let mut tally = Tally::default();
        let answer = worker.ask(operation).await?;
        let attempt = self.follow(worker, operation, &answer, &mut tally).await?;
        if matches!(attempt, Attempt::Told(Directive::Wait)) {
            let answer = worker.attach(operation, ATTACH_SECONDS).await?;
            self.follow(worker, operation, &answer, &mut tally).await?;
            tally.settled(answer.directive == Directive::Replay);
        }
        Ok(tally)
    }

    /// Does what the answer says: acts on `dispatch`, and on nothing else.
    async fn follow(
        &self,
        worker: &Worker<'_>,
        operation: &Operation<'_>,
        answer: &Answer,
        tally: &mut Tally,
    ) -> Result<Attempt, Failure> {
        tally.told(answer.directive);
        let Some(grant) = answer.grant() else { return Ok(Attempt::Told(answer.directive)) };
        match worker.act(operation, &grant).await {
            Ok(said) => {
                self.settle(worker, operation, &grant, &said, tally).await?;
                Ok(Attempt::Done)
            }
            Err(lost) => {
                let answer = worker.report_unknown(operation, &grant, &lost).await?;
                tally.in_doubt(answer.state == State::OutcomeUnknown);
                Ok(Attempt::Unknown(grant))
            }
        }
    }

    /// Reports success. A refusal is counted, so that what the downstream counted is seen all the same.
    async fn settle(
        &self,
        worker: &Worker<'_>,
        operation: &Operation<'_>,
        grant: &Grant,
        said: &Said,
        tally: &mut Tally,
    ) -> Result<(), Failure> {
        match worker.report_success(operation, grant, said).await {
            Ok(answer) => tally.settled(answer.state == State::Completed),
            Err(refused @ Failure::Refused { .. }) => {
                self.refusal.get_or_init(|| refused.at(operation.call).to_string());
                tally.settled(false);
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }
}
